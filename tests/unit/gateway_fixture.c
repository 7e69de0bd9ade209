#include "gateway_fixture.h"

#include <stdlib.h>

#include "adapters/cache/memory/memory_cache.h"
#include "base/digest.h"

void gateway_fixture_open_batches(struct gateway_fixture *fixture, bool cached, size_t batch_max)
{
	struct lane_service service = gateway_lane_service(&fixture->gateway);
	struct committer_config config = {
		.batch_max = batch_max,
		.held_max = 100,
		.held_bytes_max = SIZE_MAX,
		.idempotency_ttl_us = 24 * 60 * MINUTE_US,
		.clock = &fixture->clock.base,
		.prepare = service.prepare,
		.decide = service.decide,
		.perform = service.perform,
		.publishing = service.publishing,
		.settle = service.settle,
		.failed = service.failed,
		.committed = service.committed,
		.service = &fixture->lane,
	};

	memset(fixture, 0, sizeof(*fixture));
	manual_clock_init(&fixture->clock);
	memset(&fake_bus, 0, sizeof(fake_bus));
	fake_bus.base.ops = &fake_bus_ops;
	fake_bus.producer.ops = &fake_bus_producer_ops;
	fake_bus.is_up = true;
	fixture->store = faulty_store_new();
	fixture->gateway.repository = &faulty_limit_repository;
	fixture->gateway.messages = &faulty_outbound_repository;
	fixture->gateway.bus = &fake_bus.base;
	fixture->gateway.window_unit_us = MINUTE_US;
	fixture->lane.gateway = &fixture->gateway;
	fixture->lane.producer = &fake_bus.producer;
	arena_init(&fixture->lane.stale_arena, 512);
	if (cached) {
		char why[128];

		fixture->cache = memory_cache_new("cache", &fixture->clock.base);
		assert_true(fixture->cache->ops->start(fixture->cache, why, sizeof(why)));
		fixture->gateway.cache = fixture->cache;
		fixture->lane.cache = fixture->cache->ops->open_session(fixture->cache);
	}
	fixture->queue = lane_new("test", 1000, 1 << 20);
	fixture->loop = loop_new(NULL, NULL);
	config.lane = fixture->queue;
	config.session = faulty_store_open_session(fixture->store, SESSION_WRITE);
	fixture->committer = committer_new(&config);
}

void gateway_fixture_open(struct gateway_fixture *fixture, bool cached)
{
	gateway_fixture_open_batches(fixture, cached, SENDS_MAX);
}

void gateway_fixture_close(struct gateway_fixture *fixture)
{
	lane_close(fixture->queue);
	committer_join(fixture->committer);
	committer_free(fixture->committer);
	lane_free(fixture->queue);
	loop_stop(fixture->loop);
	uv_run(loop_uv(fixture->loop), UV_RUN_DEFAULT);
	loop_free(fixture->loop);
	if (fixture->cache) {
		fixture->lane.cache->ops->close(fixture->lane.cache);
		fixture->cache->ops->free(fixture->cache);
	}
	arena_release(&fixture->lane.stale_arena);
	faulty_store_free(fixture->store);
}

static void on_answered(struct loop_task *task)
{
	((struct fixture_send *)task)->answered = true;
}

struct fixture_send *gateway_fixture_submit(
	struct gateway_fixture *fixture, enum gateway_verb verb, const char *user, const char *key)
{
	struct fixture_send *made = qp_calloc(1, sizeof(*made));
	struct command *command = &made->command.write.command;

	arena_init(&made->arena, 512);
	made->command.verb = verb;
	made->command.amount = 1;
	made->command.user.text = slice_of(user);
	made->command.message = slice_of("Hello!");
	made->command.rate_limit = 5;
	made->command.time_window = 1;
	command->type = &gateway_command_type;
	command->task.run = on_answered;
	command->loop = fixture->loop;
	command->arena = &made->arena;
	command->key = slice_of(user);
	command->deadline_ns = manual_clock_now_ns(&fixture->clock) + DEADLINE_NS;
	if (key) {
		struct idempotency_record record = {
			.scope = SLICE("POST /api/send"), .key = slice_of(key)};

		digest_sha256(slice_of(user), record.fingerprint);
		write_set_idempotency(&made->command.write, &made->arena, &record);
	}
	assert_int_equal(lane_submit(fixture->queue, command), STATUS_OK);
	return made;
}

void gateway_fixture_step(struct gateway_fixture *fixture)
{
	do
		committer_step(fixture->committer);
	while (lane_depth(fixture->queue) > 0);
	uv_run(loop_uv(fixture->loop), UV_RUN_NOWAIT);
}

int gateway_fixture_take_status(struct fixture_send *send)
{
	int status = send->answered ? send->command.write.command.answer.http_status : 0;

	arena_release(&send->arena);
	free(send);
	return status;
}

void gateway_fixture_configure(struct gateway_fixture *fixture)
{
	struct fixture_send *config = gateway_fixture_submit(fixture, GATEWAY_CONFIGURE, "u", NULL);

	gateway_fixture_step(fixture);
	assert_int_equal(gateway_fixture_take_status(config), 200);
}

struct limit_row gateway_fixture_row_of(struct gateway_fixture *fixture)
{
	return faulty_store_get_limit(fixture->store, slice_of("u"));
}

struct cached_limit gateway_fixture_copy_of(const struct gateway_fixture *fixture)
{
	struct cached_limit limit = {.user_id = slice_of("u")};
	struct cache_session *cache = fixture->lane.cache;

	assert_int_equal(cache->ops->limit_take(cache, &limit, 1), STATUS_OK);
	return limit;
}

size_t gateway_fixture_send_many(struct gateway_fixture *fixture, size_t count, int wanted_status)
{
	struct fixture_send *sends[SENDS_MAX];
	size_t matching = 0;

	for (size_t i = 0; i < count; i++)
		sends[i] = gateway_fixture_submit(fixture, GATEWAY_SEND, "u", NULL);
	gateway_fixture_step(fixture);
	for (size_t i = 0; i < count; i++)
		matching += gateway_fixture_take_status(sends[i]) == wanted_status;
	return matching;
}
