/*
 * A reader looks up one batch after the other. A batch contains all waiting reads with small
 * answers. It also contains reads with large answers (more than LARGE_ANSWER bytes): at most one
 * per user, and up to ROUND_BYTES in total. So the memory is bounded whatever clients request, and
 * a user who requests a hundred long lists delays other users by only one list. Reads that do not
 * fit wait for the next batch.
 *
 * A batch begins only after the loops have taken the large answers of the previous batch. Otherwise
 * answers could pile up in front of a busy loop, where no limit applies to them.
 */
#include "flow/reader.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>

#include "runtime/loop.h"

#define RERUN_MAX 3
#define BATCH_ARENA_SIZE (64 * 1024)
#define ROUND_BYTES (6 * 1024 * 1024)
/* The wait for loops is bounded, because a loop that has ended never takes its answers. */
#define RECEIPT_WAIT_NS NS_PER_S

/*
 * Describes the large reads that have been chosen so far for the next batch: the memory that their
 * answers may take, and their users, as a bitmap indexed by the hash of the command's key. Two
 * users who share a bit (one pair in 65,536) take turns as if they were one user.
 */
#define USER_BITS 65536
struct round {
	size_t bytes;
	uint64_t users[USER_BITS / 64];
};

struct reader {
	struct reader_config config;
	struct arena arena;
	struct round round;
	struct command_list waiting; /* taken from the lane, but not in a batch yet */
	struct read **reads;         /* the reads of the current batch */
	struct receipts receipts;
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
	bell_init(&reader->receipts.taken);
	return reader;
}

static void fail(struct command *command, enum status status)
{
	command->answer = answer_failure(command->arena, status);
}

/* Returns whether the client no longer waits for the command. If so, sets a refusal as the
 * answer. */
static bool is_late(const struct reader *reader, struct command *command)
{
	if (clock_steady_ns(reader->config.clock) < command->deadline_ns &&
		!atomic_load(&command->client_gone))
		return false;
	fail(command, STATUS_OVERLOADED);
	return true;
}

/* Runs reads with their own look_up() one by one, then all other reads together. Skips reads that
 * became late while other reads were looked up. */
static enum status try_once(struct reader *reader, struct read **reads, size_t count)
{
	struct session *session = reader->config.session;
	struct read_batch batch = {.arena = &reader->arena};
	enum status status = STATUS_OK;

	arena_reset(&reader->arena);
	batch.reads = arena_array(&reader->arena, struct read *, count);
	for (size_t i = 0; i < count && status == STATUS_OK; i++) {
		if (reads[i]->look_up && !is_late(reader, &reads[i]->command))
			status = reads[i]->look_up(reads[i], session, &reader->arena);
	}
	for (size_t i = 0; i < count; i++) {
		if (!reads[i]->look_up && !is_late(reader, &reads[i]->command))
			batch.reads[batch.count++] = reads[i];
	}
	if (status == STATUS_OK && batch.count > 0)
		status = reader->config.look_up(reader->config.service, session, &batch);
	return status;
}

/* Returns the status of the answer. A table is locked as a whole (LOCK_BUSY) while an operator
 * changes it. */
static enum status status_for_client(enum status status)
{
	if (status == STATUS_POISON)
		return STATUS_INTERNAL;
	return status == STATUS_RERUN || status == STATUS_LOCK_BUSY ? STATUS_STORE_UNAVAILABLE
								    : status;
}

/* Looks up a batch. If the store refuses one of the reads, halves the batch until that read fails
 * alone. */
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
		fail(&reads[i]->command, status_for_client(status));
}

/* ---- rounds ------------------------------------------------------------------------------- */

/* Returns whether the command may join the batch that is being chosen; if not, the command waits
 * for a later batch. If a large command may join, counts it in `round`. */
static bool round_takes(struct round *round, const struct command *command)
{
	size_t bit = command->hash >> 40 & (USER_BITS - 1);
	uint64_t *users = &round->users[bit / 64];
	uint64_t user = UINT64_C(1) << bit % 64;

	if (!command_is_large(command))
		return true;
	if (round->bytes > 0 && round->bytes + command->answer_max > ROUND_BYTES)
		return false;
	if (command->hash != 0 && (*users & user))
		return false;
	*users |= user;
	round->bytes += command->answer_max;
	return true;
}

/* Moves the commands of the next batch to reader->reads, and returns how many there are. Refuses
 * the commands whose clients no longer wait, and moves them to `answered`. */
static size_t choose(struct reader *reader, struct command_list *answered)
{
	struct command_list later = {0};
	struct round *round = &reader->round;
	struct command *command;
	size_t count = 0;

	if (round->bytes > 0) /* otherwise `round` is still clear */
		*round = (struct round){0};
	while ((command = command_list_pop(&reader->waiting))) {
		if (is_late(reader, command)) {
			command_list_push(answered, command);
		} else if (round_takes(round, command)) {
			reader->reads[count++] = read_of(command);
		} else {
			command_list_push(&later, command);
		}
	}
	reader->waiting = later;
	return count;
}

/* Waits until the loops have taken the large answers of earlier batches, but for at most
 * RECEIPT_WAIT_NS. */
static void await_receipts(struct receipts *receipts)
{
	int64_t until_ns = clock_steady_ns(&clock_system) + RECEIPT_WAIT_NS;
	int64_t left_ns = RECEIPT_WAIT_NS;

	while (atomic_load(&receipts->missing) > 0 && left_ns > 0) {
		bell_wait(&receipts->taken, left_ns);
		left_ns = until_ns - clock_steady_ns(&clock_system);
	}
}

static void ask_for_receipt(struct reader *reader, struct command *command)
{
	if (!command_is_large(command))
		return;
	command->receipts = &reader->receipts;
	atomic_fetch_add(&reader->receipts.missing, 1);
}

bool reader_step(struct reader *reader)
{
	struct command_list answered = {0};
	size_t room = reader->config.batch_max - reader->waiting.count;
	bool open = lane_take(
		reader->config.lane, &reader->waiting, room, reader->waiting.first ? 0 : INT64_MAX);
	size_t count;

	await_receipts(&reader->receipts);
	count = choose(reader, &answered);
	if (count > 0)
		look_up(reader, reader->reads, count);
	for (size_t i = 0; i < count; i++) {
		ask_for_receipt(reader, &reader->reads[i]->command);
		command_list_push(&answered, &reader->reads[i]->command);
	}
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
	bell_release(&reader->receipts.taken);
	free(reader->reads);
	free(reader);
}
