/* Reserve, publish, settle: whatever fails, no window ever has more messages than its limit. */
#include "base/random.h"
#include "effort.h"
#include "gateway_fixture.h"

static void check_ten_sends_on_a_limit_of_five(bool cached)
{
	struct gateway_fixture fixture;

	gateway_fixture_open(&fixture, cached);
	gateway_fixture_configure(&fixture);
	assert_int_equal(gateway_fixture_send_many(&fixture, 10, 200), 5);
	assert_int_equal(fake_bus.on_bus, 5);
	assert_int_equal(gateway_fixture_row_of(&fixture).current_count, 5);
	assert_int_equal(gateway_fixture_send_many(&fixture, 3, 429), 3);
	gateway_fixture_close(&fixture);
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
	gateway_fixture_open(&fixture, false);
	gateway_fixture_configure(&fixture);
	fake_bus.fate = BUS_NOT_PERSISTED;
	assert_int_equal(gateway_fixture_send_many(&fixture, 5, 503), 5);
	assert_int_equal(gateway_fixture_row_of(&fixture).current_count, 0);
	assert_int_equal(gateway_fixture_row_of(&fixture).reserved_count, 0);
	fake_bus.fate = BUS_CONFIRMED;
	assert_int_equal(gateway_fixture_send_many(&fixture, 6, 200), 5);
	gateway_fixture_close(&fixture);
}

static void test_a_bus_that_is_down_refuses_at_once_and_reserves_nothing(void **unused)
{
	struct gateway_fixture fixture;

	(void)unused;
	gateway_fixture_open(&fixture, false);
	gateway_fixture_configure(&fixture);
	fake_bus.is_up = false;
	assert_int_equal(gateway_fixture_send_many(&fixture, 5, 503), 5);
	assert_int_equal(fake_bus.publishes, 0);
	assert_int_equal(gateway_fixture_row_of(&fixture).reserved_count, 0);
	gateway_fixture_close(&fixture);
}

static void test_an_unknown_fate_stays_reserved(void **unused)
{
	struct gateway_fixture fixture;

	(void)unused;
	gateway_fixture_open(&fixture, false);
	gateway_fixture_configure(&fixture);
	fake_bus.fate = BUS_UNKNOWN;
	assert_int_equal(gateway_fixture_send_many(&fixture, 2, 503), 2);
	assert_int_equal(gateway_fixture_row_of(&fixture).reserved_count, 2);
	assert_int_equal(gateway_fixture_row_of(&fixture).current_count, 0);
	fake_bus.fate = BUS_CONFIRMED;
	assert_int_equal(gateway_fixture_send_many(&fixture, 6, 200), 3);
	gateway_fixture_close(&fixture);
}

static void test_r2_2_after_the_window_the_limit_is_there_again(void **unused)
{
	struct gateway_fixture fixture;

	(void)unused;
	gateway_fixture_open(&fixture, false);
	gateway_fixture_configure(&fixture);
	assert_int_equal(gateway_fixture_send_many(&fixture, 6, 200), 5);
	fixture.store->now_us = 1000000 + MINUTE_US;
	assert_int_equal(gateway_fixture_send_many(&fixture, 6, 200), 5);
	assert_int_equal(gateway_fixture_row_of(&fixture).current_count, 5);
	gateway_fixture_close(&fixture);
}

static void test_a_retry_of_an_unknown_send_has_the_same_id_and_takes_no_second_slot(void **unused)
{
	char first_id[UUID_SIZE];
	struct gateway_fixture fixture;
	struct fixture_send *send;

	(void)unused;
	gateway_fixture_open(&fixture, false);
	gateway_fixture_configure(&fixture);
	fake_bus.fate = BUS_UNKNOWN;
	send = gateway_fixture_submit(&fixture, GATEWAY_SEND, "u", "key");
	gateway_fixture_step(&fixture);
	assert_int_equal(gateway_fixture_take_status(send), 503);
	memcpy(first_id, fake_bus.last_id, sizeof(first_id));
	fake_bus.fate = BUS_CONFIRMED;
	for (int i = 0; i < 2; i++) {
		send = gateway_fixture_submit(&fixture, GATEWAY_SEND, "u", "key");
		gateway_fixture_step(&fixture);
		assert_int_equal(gateway_fixture_take_status(send), 200);
	}
	assert_string_equal(first_id, fake_bus.last_id);
	assert_int_equal(fake_bus.publishes, 2);
	assert_int_equal(gateway_fixture_row_of(&fixture).reserved_count, 1);
	assert_int_equal(gateway_fixture_row_of(&fixture).current_count, 1);
	gateway_fixture_close(&fixture);
}

static void test_a_keyed_send_that_failed_for_certain_can_be_tried_afresh(void **unused)
{
	struct gateway_fixture fixture;
	struct fixture_send *send;

	(void)unused;
	gateway_fixture_open(&fixture, false);
	gateway_fixture_configure(&fixture);
	fake_bus.fate = BUS_NOT_PERSISTED;
	send = gateway_fixture_submit(&fixture, GATEWAY_SEND, "u", "key");
	gateway_fixture_step(&fixture);
	assert_int_equal(gateway_fixture_take_status(send), 503);
	assert_int_equal(gateway_fixture_row_of(&fixture).reserved_count, 0);
	fake_bus.fate = BUS_CONFIRMED;
	send = gateway_fixture_submit(&fixture, GATEWAY_SEND, "u", "key");
	gateway_fixture_step(&fixture);
	assert_int_equal(gateway_fixture_take_status(send), 200);
	assert_int_equal(gateway_fixture_row_of(&fixture).current_count, 1);
	gateway_fixture_close(&fixture);
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
		sends[count++] = gateway_fixture_submit(fixture, verb, users[i % 3], NULL);
	gateway_fixture_step(fixture);
	for (size_t i = 0; i < count; i++)
		matching += gateway_fixture_take_status(sends[i]) == wanted_status;
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
	gateway_fixture_open(&fixture, true);
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
	gateway_fixture_close(&fixture);
}

/* ---- storms ------------------------------------------------------------------------------ */

/* Sends the same message with a key again and again, and notes whether a send was ever answered as
 * queued. */
static void send_keyed(struct gateway_fixture *fixture, const char *key, bool keyed_ok[2])
{
	struct fixture_send *send = gateway_fixture_submit(fixture, GATEWAY_SEND, "u", key);

	gateway_fixture_step(fixture);
	if (!send->answered) { /* its key is pending elsewhere, so its deadline must pass */
		manual_clock_pass(&fixture->clock, DEADLINE_NS);
		gateway_fixture_step(fixture);
	}
	assert_true(send->answered);
	if (gateway_fixture_take_status(send) == 200)
		keyed_ok[key[1] - '1'] = true;
}

static void check_counts(struct gateway_fixture *fixture, size_t admitted)
{
	assert_true(gateway_fixture_row_of(fixture).current_count <=
		    gateway_fixture_row_of(fixture).reserved_count);
	assert_true((size_t)gateway_fixture_row_of(fixture).current_count >= admitted);
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
	gateway_fixture_open_batches(&fixture, seed % 2, 1 + (size_t)dice_below(&dice, SENDS_MAX));
	gateway_fixture_configure(&fixture);
	fake_bus.dice = &dice;
	for (int round = 0; round < 6; round++) {
		if (dice_below(&dice, 2))
			faulty_store_fail_at(fixture.store, 1 + (int)dice_below(&dice, 10),
				faults[dice_below(&dice, 4)]);
		fixture.store->survives = dice_below(&dice, 2);
		admitted +=
			gateway_fixture_send_many(&fixture, 1 + (size_t)dice_below(&dice, 8), 200);
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
	gateway_fixture_close(&fixture);
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
	gateway_fixture_open(&fixture, false);
	gateway_fixture_configure(&fixture);
	vanishing.ops = *faulty_limit_repository.ops;
	vanishing.ops.lock = lock_what_vanishes;
	vanishing.base = faulty_limit_repository;
	vanishing.base.ops = &vanishing.ops;
	vanishing.calls_left = 2;
	fixture.gateway.repository = &vanishing.base;
	faulty_store_fail_at(fixture.store, 6, STATUS_RERUN); /* begin find lock put keys COMMIT */
	send = gateway_fixture_submit(&fixture, GATEWAY_SEND, "u", "key");
	gateway_fixture_step(&fixture);
	assert_true(fixture.store->has_failed);
	assert_int_equal(vanishing.calls_left, 0);
	assert_int_equal(gateway_fixture_take_status(send), 404);
	send = gateway_fixture_submit(
		&fixture, GATEWAY_SEND, "u", "key"); /* the limit is there again */
	gateway_fixture_step(&fixture);
	assert_true(send->answered);
	assert_int_equal(gateway_fixture_take_status(send), 404);
	assert_int_equal(fake_bus.on_bus, 0);
	gateway_fixture_close(&fixture);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_r3_2_exactly_the_limit_is_admitted),
		cmocka_unit_test(
			test_r4_2_what_the_bus_does_not_have_is_given_back_and_not_counted),
		cmocka_unit_test(test_a_bus_that_is_down_refuses_at_once_and_reserves_nothing),
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
