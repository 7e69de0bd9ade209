#include "count_bench.h"

#include <assert.h>
#include <stdlib.h>

#define BENCH_KEY_TTL_US (24 * 3600 * 1000000LL)

static int64_t bench_wall_us(const struct clock *clock)
{
	(void)clock;
	return 1000000;
}

static int64_t bench_steady_ns(const struct clock *clock)
{
	const struct count_bench *bench =
		(const void *)((const char *)clock - offsetof(struct count_bench, clock));

	return bench->steady_ns;
}

static enum status decide(void *service, struct session *session, const struct write_batch *batch)
{
	(void)service;
	return count_batch_decide(&fake_count_repository, session, batch);
}

void bench_open(struct count_bench *bench, size_t batch_max)
{
	struct waiting usual = {0};

	bench_open_waiting(bench, batch_max, &usual);
}

void bench_open_waiting(struct count_bench *bench, size_t batch_max, const struct waiting *waiting)
{
	struct committer_config config = {
		.batch_max = batch_max, .parked_max = 1000, .waiting = *waiting};

	bench->fake = fake_store_new();
	bench->lane = lane_new("test", 100000, 1 << 30);
	bench->loop = loop_new(NULL, NULL);
	bench->clock.wall_us = bench_wall_us;
	bench->clock.steady_ns = bench_steady_ns;
	bench->steady_ns = 1;
	config.lane = bench->lane;
	config.session = fake_store_base(bench->fake)
				 ->ops->open_session(fake_store_base(bench->fake), SESSION_WRITE);
	config.key_ttl_us = BENCH_KEY_TTL_US;
	config.clock = &bench->clock;
	config.decide = decide;
	bench->committer = committer_new(&config);
}

void bench_close(struct count_bench *bench)
{
	lane_close(bench->lane);
	committer_join(bench->committer);
	committer_free(bench->committer);
	lane_free(bench->lane);
	loop_stop(bench->loop);
	uv_run(loop_uv(bench->loop), UV_RUN_DEFAULT);
	loop_free(bench->loop);
	fake_store_free(bench->fake);
}

static void on_answered(struct loop_task *task)
{
	((struct bench_command *)task)->answered = true;
}

struct bench_command *bench_command_new(struct count_bench *bench, const char *item_id,
	struct count_change change, const char *key, const char *request)
{
	struct bench_command *made = qp_calloc(1, sizeof(*made));
	struct command *command = &made->command.write.command;

	arena_init(&made->arena, 512);
	made->command.change = change;
	command->task.run = on_answered;
	command->loop = bench->loop;
	command->arena = &made->arena;
	command->key = slice_of(item_id);
	command->hash = (uint64_t)item_id[0];
	command->bytes = 100;
	command->deadline_ns = bench->steady_ns + 5 * NS_PER_S;
	if (key) {
		struct slice identity[3] = {slice_of("POST"), slice_of(item_id), slice_of(request)};

		write_set_key(&made->command.write, &made->arena, slice_of("POST /test"),
			slice_of(key), identity);
	}
	return made;
}

void bench_command_free(struct bench_command *command)
{
	arena_release(&command->arena);
	free(command);
}

void bench_submit(struct count_bench *bench, struct bench_command *command)
{
	enum status status = lane_submit(bench->lane, &command->command.write.command);

	assert(status == STATUS_OK);
}

void bench_step(struct count_bench *bench)
{
	committer_step(bench->committer);
	uv_run(loop_uv(bench->loop), UV_RUN_NOWAIT);
}

int bench_status(const struct bench_command *command)
{
	return command->answered ? command->command.write.command.answer.http_status : 0;
}

struct slice bench_body(const struct bench_command *command)
{
	return command->command.write.command.answer.body;
}
