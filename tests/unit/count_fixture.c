#include "count_fixture.h"

#include <assert.h>
#include <stdlib.h>

#include "base/digest.h"

#define FIXTURE_KEY_TTL_US (24 * 3600 * 1000000LL)

static enum status decide(void *service, struct session *session, const struct write_batch *batch)
{
	(void)service;
	return count_batch_decide(&faulty_count_repository, session, batch);
}

static bool is_single(void *service, const struct write_batch *batch)
{
	(void)service;
	return count_batch_is_single(batch);
}

void count_fixture_open(struct count_fixture *fixture, size_t batch_max)
{
	struct waiting usual = {0};

	count_fixture_open_waiting(fixture, batch_max, &usual);
}

void count_fixture_open_waiting(
	struct count_fixture *fixture, size_t batch_max, const struct waiting *waiting)
{
	struct committer_config config = {.batch_max = batch_max,
		.held_max = 1000,
		.held_bytes_max = SIZE_MAX,
		.waiting = *waiting};

	fixture->store = faulty_store_new();
	fixture->lane = lane_new("test", 100000, 1 << 30);
	fixture->loop = loop_new(NULL, NULL);
	manual_clock_init(&fixture->clock);
	config.lane = fixture->lane;
	config.session = faulty_store_open_session(fixture->store, SESSION_WRITE);
	config.idempotency_ttl_us = FIXTURE_KEY_TTL_US;
	config.clock = &fixture->clock.base;
	config.is_single = is_single;
	config.decide = decide;
	config.is_single = is_single;
	fixture->committer = committer_new(&config);
}

void count_fixture_close(struct count_fixture *fixture)
{
	lane_close(fixture->lane);
	committer_join(fixture->committer);
	committer_free(fixture->committer);
	lane_free(fixture->lane);
	loop_stop(fixture->loop);
	uv_run(loop_uv(fixture->loop), UV_RUN_DEFAULT);
	loop_free(fixture->loop);
	faulty_store_free(fixture->store);
}

static void on_answered(struct loop_task *task)
{
	((struct count_fixture_command *)task)->answered = true;
}

struct count_fixture_command *count_fixture_command_new(struct count_fixture *fixture,
	const char *item_id, struct count_change change, const char *key, const char *request)
{
	struct count_fixture_command *made = qp_calloc(1, sizeof(*made));
	struct command *command = &made->command.write.command;

	arena_init(&made->arena, 512);
	made->command.change = change;
	command->type = &count_command_type;
	command->task.run = on_answered;
	command->loop = fixture->loop;
	command->arena = &made->arena;
	command->key = slice_of(item_id);
	command->hash = (uint64_t)item_id[0];
	command->bytes = 100;
	command->deadline_ns = manual_clock_now_ns(&fixture->clock) + 5 * NS_PER_S;
	if (key) {
		struct slice identity[2] = {slice_of(item_id), slice_of(request)};
		struct idempotency_record record = {
			.scope = SLICE("POST /test"), .key = slice_of(key)};

		digest_parts(identity, 2, record.fingerprint);
		write_set_idempotency(&made->command.write, &made->arena, &record);
	}
	return made;
}

void count_fixture_command_free(struct count_fixture_command *command)
{
	arena_release(&command->arena);
	free(command);
}

void count_fixture_submit(struct count_fixture *fixture, struct count_fixture_command *command)
{
	enum status status = lane_submit(fixture->lane, &command->command.write.command);

	assert(status == STATUS_OK);
}

void count_fixture_step(struct count_fixture *fixture)
{
	committer_step(fixture->committer);
	uv_run(loop_uv(fixture->loop), UV_RUN_NOWAIT);
}

int count_fixture_status(const struct count_fixture_command *command)
{
	return command->answered ? command->command.write.command.answer.http_status : 0;
}

struct slice count_fixture_body(const struct count_fixture_command *command)
{
	return command->command.write.command.answer.body;
}
