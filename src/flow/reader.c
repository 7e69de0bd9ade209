#include "flow/reader.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>

#include "runtime/loop.h"

#define RERUN_MAX 3
#define BATCH_ARENA_SIZE (64 * 1024)

struct reader {
	struct reader_config config;
	struct arena arena;
	struct read **reads;
	pthread_t thread;
	bool has_thread;
};

struct read *read_of(struct command *command)
{
	assert(command->type && !command->type->is_write);
	return (struct read *)command;
}

struct reader *reader_new(const struct reader_config *config)
{
	struct reader *reader = qp_calloc(1, sizeof(*reader));

	assert(config->batch_max > 0);
	reader->config = *config;
	reader->reads = qp_calloc(config->batch_max, sizeof(*reader->reads));
	arena_init(&reader->arena, BATCH_ARENA_SIZE);
	return reader;
}

/* Runs the reads that have a look_up of their own one by one, then the others together. */
static enum status try_once(struct reader *reader, struct read **reads, size_t count)
{
	struct session *session = reader->config.session;
	struct read_batch batch = {.arena = &reader->arena};
	enum status status = STATUS_OK;

	arena_reset(&reader->arena);
	batch.reads = arena_array(&reader->arena, struct read *, count);
	for (size_t i = 0; i < count && status == STATUS_OK; i++) {
		struct read *read = reads[i];

		if (read->look_up)
			status = read->look_up(read, session, &reader->arena);
		else
			batch.reads[batch.count++] = read;
	}
	if (status == STATUS_OK && batch.count > 0)
		status = reader->config.look_up(reader->config.service, session, &batch);
	return status;
}

static void fail(struct command *command, enum status status)
{
	command->answer = answer_failure(command->arena, status);
}

/* The store refuses something that one of the reads asks for: finds it by halving the batch, so
 * that only that read fails. */
static void look_up(struct reader *reader, struct read **reads, size_t count)
{
	enum status status = STATUS_RERUN;

	for (int i = 0; i <= RERUN_MAX && status == STATUS_RERUN; i++)
		status = try_once(reader, reads, count);
	if (status == STATUS_POISON && count > 1) {
		look_up(reader, reads, count / 2);
		look_up(reader, reads + count / 2, count - count / 2);
		return;
	}
	for (size_t i = 0; i < count && status != STATUS_OK; i++)
		fail(&reads[i]->command, status == STATUS_POISON  ? STATUS_INTERNAL
					 : status == STATUS_RERUN ? STATUS_STORE_UNAVAILABLE
								  : status);
}

/* Answers the commands whose client no longer waits; returns how many of the others are in
 * reader->reads. */
static size_t drop_late(
	struct reader *reader, struct command_list *taken, struct command_list *answered)
{
	int64_t now_ns = clock_steady_ns(reader->config.clock);
	struct command *command;
	size_t count = 0;

	while ((command = command_list_pop(taken))) {
		if (now_ns < command->deadline_ns && !atomic_load(&command->client_gone)) {
			reader->reads[count++] = read_of(command);
			continue;
		}
		fail(command, STATUS_OVERLOADED);
		command_list_push(answered, command);
	}
	return count;
}

bool reader_step(struct reader *reader)
{
	struct command_list taken = {0}, answered = {0};
	bool open = lane_take(reader->config.lane, &taken, reader->config.batch_max, INT64_MAX);
	size_t count = drop_late(reader, &taken, &answered);

	if (count > 0)
		look_up(reader, reader->reads, count);
	for (size_t i = 0; i < count; i++)
		command_list_push(&answered, &reader->reads[i]->command);
	command_list_deliver(&answered);
	return open;
}

static void *reader_main(void *argument)
{
	pthread_setname_np(pthread_self(), "reader");
	loop_lower_priority();
	while (reader_step(argument))
		;
	return NULL;
}

void reader_start(struct reader *reader)
{
	int failed = pthread_create(&reader->thread, NULL, reader_main, reader);

	assert(!failed);
	reader->has_thread = true;
}

void reader_join(struct reader *reader)
{
	if (reader->has_thread)
		pthread_join(reader->thread, NULL);
	reader->has_thread = false;
}

void reader_free(struct reader *reader)
{
	assert(!reader->has_thread);
	session_close(reader->config.session);
	arena_release(&reader->arena);
	free(reader->reads);
	free(reader);
}
