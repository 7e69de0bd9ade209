/* Reserve, publish, settle: whatever fails, no window ever has more messages than its limit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "adapters/cache/memory/memory_cache.h"
#include "base/digest.h"
#include "base/random.h"
#include "effort.h"
#include "fake_bus.h"
#include "faulty_store.h"
#include "flow/committer.h"
#include "manual_clock.h"
#include "services/gateway/gateway_batch.h"

#define SENDS_MAX 16
#define MINUTE_US 60000000LL
#define LIMIT 5
#define DEADLINE_NS (5 * NS_PER_S)

struct gateway_fixture {
	struct faulty_store *store;
	struct gateway gateway;
	struct gateway_lane lane;
	struct lane *queue;
	struct loop *loop;
	struct committer *committer;
	struct cache *cache;
	struct manual_clock clock; /* the clock of the committer and the cache */
};

struct fixture_send {
	struct gateway_command command; /* first */
	struct arena arena;
	bool answered;
};

static void fixture_open_batches(struct gateway_fixture *fixture, bool cached, size_t batch_max)
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
		fixture->lane.cache = fixture->cache->ops->open_session(fixture->cache);
	}
	fixture->queue = lane_new("test", 1000, 1 << 20);
	fixture->loop = loop_new(NULL, NULL);
	config.lane = fixture->queue;
	config.session = faulty_store_open_session(fixture->store, SESSION_WRITE);
	fixture->committer = committer_new(&config);
}

static void fixture_open(struct gateway_fixture *fixture, bool cached)
{
	fixture_open_batches(fixture, cached, SENDS_MAX);
}

static void fixture_close(struct gateway_fixture *fixture)
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

static struct fixture_send *submit(
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

static void step(struct gateway_fixture *fixture)
{
	do
		committer_step(fixture->committer);
	while (lane_depth(fixture->queue) > 0);
	uv_run(loop_uv(fixture->loop), UV_RUN_NOWAIT);
}

static int take_status(struct fixture_send *send)
{
	int status = send->answered ? send->command.write.command.answer.http_status : 0;

	arena_release(&send->arena);
	free(send);
	return status;
}

static void configure(struct gateway_fixture *fixture)
{
	struct fixture_send *config = submit(fixture, GATEWAY_CONFIGURE, "u", NULL);

	step(fixture);
	assert_int_equal(take_status(config), 200);
}

static struct limit_row row_of(struct gateway_fixture *fixture)
{
	return faulty_store_get_limit(fixture->store, slice_of("u"));
}

/* Submits `count` sends at once and returns how many got the wanted status. */
static size_t send_many(struct gateway_fixture *fixture, size_t count, int wanted_status)
{
	struct fixture_send *sends[SENDS_MAX];
	size_t matching = 0;

	for (size_t i = 0; i < count; i++)
		sends[i] = submit(fixture, GATEWAY_SEND, "u", NULL);
	step(fixture);
	for (size_t i = 0; i < count; i++)
		matching += take_status(sends[i]) == wanted_status;
	return matching;
}

static void check_ten_sends_on_a_limit_of_five(bool cached)
{
	struct gateway_fixture fixture;

	fixture_open(&fixture, cached);
	configure(&fixture);
	assert_int_equal(send_many(&fixture, 10, 200), 5);
	assert_int_equal(fake_bus.on_bus, 5);
	assert_int_equal(row_of(&fixture).current_count, 5);
	assert_int_equal(send_many(&fixture, 3, 429), 3);
	fixture_close(&fixture);
}

static void test_r3_2_exactly_the_limit_is_admitted(void **unused)
{
	(void)unused;
	check_ten_sends_on_a_limit_of_five(false);
	check_ten_sends_on_a_limit_of_five(true);
}

static void test_r4_2_what_the_bus_does_not_have_is_given_back_and_not_counted(void **unused)
{
	struct gateway_fixture fixture;

	(void)unused;
	fixture_open(&fixture, false);
	configure(&fixture);
	fake_bus.fate = BUS_NOT_PERSISTED;
	assert_int_equal(send_many(&fixture, 5, 503), 5);
	assert_int_equal(row_of(&fixture).current_count, 0);
	assert_int_equal(row_of(&fixture).reserved_count, 0);
	fake_bus.fate = BUS_CONFIRMED;
	assert_int_equal(send_many(&fixture, 6, 200), 5);
	fixture_close(&fixture);
}

static void test_a_bus_that_is_down_refuses_at_once_and_reserves_nothing(void **unused)
{
	struct gateway_fixture fixture;

	(void)unused;
	fixture_open(&fixture, false);
	configure(&fixture);
	fake_bus.is_up = false;
	assert_int_equal(send_many(&fixture, 5, 503), 5);
	assert_int_equal(fake_bus.publishes, 0);
	assert_int_equal(row_of(&fixture).reserved_count, 0);
	fixture_close(&fixture);
}

static void test_r11_6_a_failed_publish_costs_a_slot_on_the_cache_path(void **unused)
{
	struct gateway_fixture fixture;

	(void)unused;
	fixture_open(&fixture, true);
	configure(&fixture);
	fake_bus.fate = BUS_NOT_PERSISTED;
	assert_int_equal(send_many(&fixture, 2, 503), 2);
	assert_int_equal(row_of(&fixture).current_count, 0);
	fake_bus.fate = BUS_CONFIRMED;
	assert_int_equal(send_many(&fixture, 6, 200), 3);
	fixture_close(&fixture);
}

static void test_an_unknown_fate_stays_reserved(void **unused)
{
	struct gateway_fixture fixture;

	(void)unused;
	fixture_open(&fixture, false);
	configure(&fixture);
	fake_bus.fate = BUS_UNKNOWN;
	assert_int_equal(send_many(&fixture, 2, 503), 2);
	assert_int_equal(row_of(&fixture).reserved_count, 2);
	assert_int_equal(row_of(&fixture).current_count, 0);
	fake_bus.fate = BUS_CONFIRMED;
	assert_int_equal(send_many(&fixture, 6, 200), 3);
	fixture_close(&fixture);
}

static void test_r2_2_after_the_window_the_limit_is_there_again(void **unused)
{
	struct gateway_fixture fixture;

	(void)unused;
	fixture_open(&fixture, false);
	configure(&fixture);
	assert_int_equal(send_many(&fixture, 6, 200), 5);
	fixture.store->now_us = 1000000 + MINUTE_US;
	assert_int_equal(send_many(&fixture, 6, 200), 5);
	assert_int_equal(row_of(&fixture).current_count, 5);
	fixture_close(&fixture);
}

static void test_a_retry_of_an_unknown_send_has_the_same_id_and_takes_no_second_slot(void **unused)
{
	char first_id[UUID_SIZE];
	struct gateway_fixture fixture;
	struct fixture_send *send;

	(void)unused;
	fixture_open(&fixture, false);
	configure(&fixture);
	fake_bus.fate = BUS_UNKNOWN;
	send = submit(&fixture, GATEWAY_SEND, "u", "key");
	step(&fixture);
	assert_int_equal(take_status(send), 503);
	memcpy(first_id, fake_bus.last_id, sizeof(first_id));
	fake_bus.fate = BUS_CONFIRMED;
	for (int i = 0; i < 2; i++) {
		send = submit(&fixture, GATEWAY_SEND, "u", "key");
		step(&fixture);
		assert_int_equal(take_status(send), 200);
	}
	assert_string_equal(first_id, fake_bus.last_id);
	assert_int_equal(fake_bus.publishes, 2);
	assert_int_equal(row_of(&fixture).reserved_count, 1);
	assert_int_equal(row_of(&fixture).current_count, 1);
	fixture_close(&fixture);
}

static void test_a_keyed_send_that_failed_for_certain_can_be_tried_afresh(void **unused)
{
	struct gateway_fixture fixture;
	struct fixture_send *send;

	(void)unused;
	fixture_open(&fixture, false);
	configure(&fixture);
	fake_bus.fate = BUS_NOT_PERSISTED;
	send = submit(&fixture, GATEWAY_SEND, "u", "key");
	step(&fixture);
	assert_int_equal(take_status(send), 503);
	assert_int_equal(row_of(&fixture).reserved_count, 0);
	fake_bus.fate = BUS_CONFIRMED;
	send = submit(&fixture, GATEWAY_SEND, "u", "key");
	step(&fixture);
	assert_int_equal(take_status(send), 200);
	assert_int_equal(row_of(&fixture).current_count, 1);
	fixture_close(&fixture);
}

/* ---- what a batch costs ------------------------------------------------------------------ */

/* Counts the calls that reach the cache and the repository. Each is a round trip. */
struct calls {
	size_t takes, fills, drops;
	size_t locks, puts, settles, finds;
};

static struct calls calls;
static struct cache_session *counted_session;

static enum status count_take(
	struct cache_session *session, struct cached_limit *limits, size_t count)
{
	(void)session;
	calls.takes++;
	return counted_session->ops->limit_take(counted_session, limits, count);
}

static enum status count_fill(
	struct cache_session *session, const struct cached_limit *limits, size_t count)
{
	(void)session;
	calls.fills++;
	return counted_session->ops->limit_fill(counted_session, limits, count);
}

static enum status count_drop(
	struct cache_session *session, const struct slice *user_ids, size_t count)
{
	(void)session;
	calls.drops++;
	return counted_session->ops->limit_drop(counted_session, user_ids, count);
}

static enum status count_lock(const struct limit_repository *repository, struct session *session,
	struct limit_row *rows, size_t count, int64_t *now_us)
{
	calls.locks++;
	return faulty_limit_repository.ops->lock(
		&faulty_limit_repository, session, rows, count, now_us);
}

static enum status count_put(const struct limit_repository *repository, struct session *session,
	const struct limit_row *rows, size_t count)
{
	calls.puts++;
	return faulty_limit_repository.ops->put(&faulty_limit_repository, session, rows, count);
}

static enum status count_settle(const struct limit_repository *repository, struct session *session,
	const struct limit_settlement *settlements, size_t count)
{
	calls.settles++;
	return faulty_limit_repository.ops->settle(
		&faulty_limit_repository, session, settlements, count);
}

static enum status count_find(const struct limit_repository *repository, struct session *session,
	struct limit_row *rows, size_t count, int64_t *now_us)
{
	calls.finds++;
	return faulty_limit_repository.ops->find(
		&faulty_limit_repository, session, rows, count, now_us);
}

static const struct cache_session_ops counting_session_ops = {
	.limit_take = count_take, .limit_fill = count_fill, .limit_drop = count_drop};
static const struct limit_repository_ops counting_repository_ops = {
	.lock = count_lock, .put = count_put, .settle = count_settle, .find = count_find};

static const struct limit_repository counting_repository = {.ops = &counting_repository_ops};

/* Submits `each` writes of every user as one batch, and returns how many got the wanted status. */
static size_t ask_three_users(
	struct gateway_fixture *fixture, enum gateway_verb verb, size_t each, int wanted_status)
{
	static const char *const users[] = {"a", "b", "c"};
	struct fixture_send *sends[SENDS_MAX];
	size_t count = 0, matching = 0;

	for (size_t i = 0; i < 3 * each; i++)
		sends[count++] = submit(fixture, verb, users[i % 3], NULL);
	step(fixture);
	for (size_t i = 0; i < count; i++)
		matching += take_status(sends[i]) == wanted_status;
	return matching;
}

static void check_calls(const struct calls *wanted)
{
	assert_int_equal(calls.takes, wanted->takes);
	assert_int_equal(calls.fills, wanted->fills);
	assert_int_equal(calls.drops, wanted->drops);
	assert_int_equal(calls.locks, wanted->locks);
	assert_int_equal(calls.puts, wanted->puts);
	assert_int_equal(calls.settles, wanted->settles);
	assert_int_equal(calls.finds, wanted->finds);
	memset(&calls, 0, sizeof(calls));
}

static void test_a_batch_asks_the_cache_once_reserves_once_publishes_once_settles_once(
	void **unused)
{
	struct cache_session counting_session = {.ops = &counting_session_ops};
	struct gateway_fixture fixture;
	size_t commits, publishes;

	(void)unused;
	fixture_open(&fixture, true);
	counted_session = fixture.lane.cache;
	fixture.lane.cache = &counting_session;
	fixture.gateway.repository = &counting_repository;
	assert_int_equal(ask_three_users(&fixture, GATEWAY_CONFIGURE, 1, 200), 3);
	assert_int_equal(ask_three_users(&fixture, GATEWAY_SEND, 1, 200), 3);
	memset(&calls, 0, sizeof(calls));
	commits = fixture.store->commits;
	publishes = fake_bus.publishes;

	assert_int_equal(ask_three_users(&fixture, GATEWAY_SEND, 4, 200), 12);
	check_calls(&(struct calls){.takes = 1, .locks = 1, .puts = 1, .settles = 1});
	assert_int_equal(fixture.store->commits - commits, 2);
	assert_int_equal(fake_bus.publishes - publishes, 1);

	assert_int_equal(ask_three_users(&fixture, GATEWAY_SEND, 5, 429), 15);
	check_calls(&(struct calls){.takes = 1});
	assert_int_equal(fixture.store->commits - commits, 2);
	assert_int_equal(fake_bus.publishes - publishes, 1);
	fixture.lane.cache = counted_session;
	fixture_close(&fixture);
}

/* ---- storms ------------------------------------------------------------------------------ */

/* Sends the same message with a key again and again, and notes whether a send was ever answered as
 * queued. */
static void send_keyed(struct gateway_fixture *fixture, const char *key, bool keyed_ok[2])
{
	struct fixture_send *send = submit(fixture, GATEWAY_SEND, "u", key);

	step(fixture);
	if (!send->answered) { /* its key is pending elsewhere, so its deadline must pass */
		manual_clock_pass(&fixture->clock, DEADLINE_NS);
		step(fixture);
	}
	assert_true(send->answered);
	if (take_status(send) == 200)
		keyed_ok[key[1] - '1'] = true;
}

static void check_counts(struct gateway_fixture *fixture, size_t admitted)
{
	assert_true(row_of(fixture).current_count <= row_of(fixture).reserved_count);
	assert_true((size_t)row_of(fixture).current_count >= admitted);
}

/*
 * Random fates of messages and random faults of the store at any call, with and without a cache;
 * within one window, or with windows that end in between.
 */
static void run_storm(uint64_t seed, bool across_windows)
{
	static const enum status faults[] = {
		STATUS_RERUN, STATUS_STORE_UNAVAILABLE, STATUS_OUTCOME_UNKNOWN, STATUS_LOCK_BUSY};
	struct dice dice = {.state = seed};
	struct gateway_fixture fixture;
	size_t admitted = 0;
	bool keyed_ok[2] = {false, false};
	int64_t now_us = 1000000;

	/* batches that are smaller than what is sent at once record the effects of each other */
	fixture_open_batches(&fixture, seed % 2, 1 + (size_t)dice_below(&dice, SENDS_MAX));
	configure(&fixture);
	fake_bus.dice = &dice;
	for (int round = 0; round < 6; round++) {
		if (dice_below(&dice, 2))
			faulty_store_fail_at(fixture.store, 1 + (int)dice_below(&dice, 10),
				faults[dice_below(&dice, 4)]);
		fixture.store->survives = dice_below(&dice, 2);
		admitted += send_many(&fixture, 1 + (size_t)dice_below(&dice, 8), 200);
		send_keyed(&fixture, dice_below(&dice, 2) ? "k1" : "k2", keyed_ok);
		faulty_store_fail_at(fixture.store, 0, STATUS_OK);
		if (across_windows && dice_below(&dice, 2))
			fixture.store->now_us = now_us += MINUTE_US;
	}
	admitted += keyed_ok[0] + keyed_ok[1];
	assert_true(admitted <= fake_bus.on_bus);
	for (size_t i = 0; i < fake_bus.on_bus; i++)
		assert_true(fake_bus_count_in_window(i) <= LIMIT);
	if (!across_windows)
		check_counts(&fixture, admitted);
	fixture_close(&fixture);
}

static void test_no_storm_of_faults_puts_more_than_the_limit_on_the_bus(void **unused)
{
	(void)unused;
	for (uint64_t seed = 1; seed <= effort(1000, 20000); seed++) {
		seed_begin(seed);
		run_storm(seed, false);
	}
	seeds_end();
}

static void test_no_storm_across_windows_puts_more_than_the_limit_into_one(void **unused)
{
	(void)unused;
	for (uint64_t seed = 1; seed <= effort(1000, 20000); seed++) {
		seed_begin(seed);
		run_storm(seed, true);
	}
	seeds_end();
}

/* What the repository finds at the call of lock() that the test has chosen: nothing. */
static struct vanishing {
	struct limit_repository base;
	struct limit_repository_ops ops;
	int calls_left;
} vanishing;

static enum status lock_what_vanishes(const struct limit_repository *repository,
	struct session *session, struct limit_row *rows, size_t count, int64_t *now_us)
{
	enum status status = faulty_limit_repository.ops->lock(
		&faulty_limit_repository, session, rows, count, now_us);

	(void)repository;
	if (--vanishing.calls_left == 0)
		rows[0].exists = false;
	return status;
}

/* The first attempt begins an effect and is rolled back; then another process deletes the limit. */
static void test_a_refusal_after_a_failed_attempt_is_final(void **unused)
{
	struct gateway_fixture fixture;
	struct fixture_send *send;

	(void)unused;
	fixture_open(&fixture, false);
	configure(&fixture);
	vanishing.ops = *faulty_limit_repository.ops;
	vanishing.ops.lock = lock_what_vanishes;
	vanishing.base = faulty_limit_repository;
	vanishing.base.ops = &vanishing.ops;
	vanishing.calls_left = 2;
	fixture.gateway.repository = &vanishing.base;
	faulty_store_fail_at(fixture.store, 6, STATUS_RERUN); /* begin find lock put keys COMMIT */
	send = submit(&fixture, GATEWAY_SEND, "u", "key");
	step(&fixture);
	assert_true(fixture.store->has_failed);
	assert_int_equal(vanishing.calls_left, 0);
	assert_int_equal(take_status(send), 404);
	send = submit(&fixture, GATEWAY_SEND, "u", "key"); /* the limit is there again */
	step(&fixture);
	assert_true(send->answered);
	assert_int_equal(take_status(send), 404);
	assert_int_equal(fake_bus.on_bus, 0);
	fixture_close(&fixture);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_r3_2_exactly_the_limit_is_admitted),
		cmocka_unit_test(
			test_r4_2_what_the_bus_does_not_have_is_given_back_and_not_counted),
		cmocka_unit_test(test_a_bus_that_is_down_refuses_at_once_and_reserves_nothing),
		cmocka_unit_test(test_r11_6_a_failed_publish_costs_a_slot_on_the_cache_path),
		cmocka_unit_test(test_an_unknown_fate_stays_reserved),
		cmocka_unit_test(test_a_refusal_after_a_failed_attempt_is_final),
		cmocka_unit_test(test_r2_2_after_the_window_the_limit_is_there_again),
		cmocka_unit_test(
			test_a_retry_of_an_unknown_send_has_the_same_id_and_takes_no_second_slot),
		cmocka_unit_test(test_a_keyed_send_that_failed_for_certain_can_be_tried_afresh),
		cmocka_unit_test(
			test_a_batch_asks_the_cache_once_reserves_once_publishes_once_settles_once),
		cmocka_random_test(test_no_storm_of_faults_puts_more_than_the_limit_on_the_bus),
		cmocka_random_test(test_no_storm_across_windows_puts_more_than_the_limit_into_one),
	};

	return cmocka_run_group_tests_name("gateway", tests, NULL, NULL);
}
