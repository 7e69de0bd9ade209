/* A cached copy never keeps refusing a user whose row has slots left, whatever fails. Takes and
 * sends without a key ask the copy; those with a key bypass it. */
#include "base/log.h"
#include "gateway_fixture.h"
#include "services/gateway/gateway_cache.h"

/* Does what another process does that misses the cache now. */
static void fill_elsewhere(const struct gateway_fixture *fixture, int64_t used)
{
	struct cached_limit limit = {.user_id = slice_of("u"),
		.rate_limit = LIMIT,
		.current_count = used,
		.window_start_us = 1,
		.window_us = MINUTE_US,
		.ttl_us = MINUTE_US};
	struct cache_session *cache = fixture->lane.cache;

	assert_int_equal(cache->ops->limit_fill(cache, &limit, 1), STATUS_OK);
	assert_true(gateway_fixture_copy_of(fixture).hit);
}

static int run(
	struct gateway_fixture *fixture, enum gateway_verb verb, const char *key, int32_t amount)
{
	struct fixture_send *command = gateway_fixture_submit(fixture, verb, "u", key);

	command->command.amount = amount;
	gateway_fixture_step(fixture);
	return gateway_fixture_take_status(command);
}

static void test_a_slot_that_is_given_back_is_free_in_a_copy_filled_meanwhile(void **unused)
{
	struct gateway_fixture fixture;

	(void)unused;
	gateway_fixture_open(&fixture, true);
	gateway_fixture_configure(&fixture);
	fill_elsewhere(&fixture, LIMIT); /* with the slot of the send that is under way */
	fake_bus.fate = BUS_NOT_PERSISTED;
	assert_int_equal(run(&fixture, GATEWAY_SEND, "key", 1), 503);
	assert_false(gateway_fixture_copy_of(&fixture).hit);
	fake_bus.fate = BUS_CONFIRMED;
	assert_int_equal(run(&fixture, GATEWAY_TAKE, NULL, LIMIT), 200);
	gateway_fixture_close(&fixture);
}

static void test_a_copy_that_granted_more_than_its_row_is_deleted_before_the_answer(void **unused)
{
	struct gateway_fixture fixture;

	(void)unused;
	gateway_fixture_open(&fixture, true);
	gateway_fixture_configure(&fixture);
	assert_int_equal(run(&fixture, GATEWAY_TAKE, NULL, 1), 200);
	assert_int_equal(run(&fixture, GATEWAY_TAKE, "key", 2), 200); /* the copy does not know */
	assert_int_equal(run(&fixture, GATEWAY_TAKE, NULL, 4), 429);
	assert_false(gateway_fixture_copy_of(&fixture).hit);
	assert_int_equal(run(&fixture, GATEWAY_TAKE, NULL, 2), 200);
	gateway_fixture_close(&fixture);
}

static void test_a_configuration_whose_commit_is_unknown_deletes_the_copy(void **unused)
{
	static const enum gateway_verb verbs[] = {GATEWAY_CONFIGURE, GATEWAY_REMOVE};
	struct gateway_fixture fixture;

	(void)unused;
	for (size_t i = 0; i < COUNT_OF(verbs); i++) {
		gateway_fixture_open(&fixture, true);
		gateway_fixture_configure(&fixture);
		fill_elsewhere(&fixture, LIMIT);
		fixture.store->survives = true;
		/* begin lock put COMMIT */
		faulty_store_fail_at(fixture.store, 4, STATUS_OUTCOME_UNKNOWN);
		assert_int_equal(run(&fixture, verbs[i], NULL, 1), 503);
		assert_true(fixture.store->has_failed);
		assert_false(gateway_fixture_copy_of(&fixture).hit);
		gateway_fixture_close(&fixture);
	}
}

/* Records that a send, which had reserved the row's only slot, has failed, as another process does.
 */
static void give_back_elsewhere(struct gateway_fixture *fixture)
{
	const struct limit_row row = gateway_fixture_row_of(fixture);
	const struct limit_settlement settlement = {
		.user_id = slice_of("u"), .window_start_us = row.last_refresh_us, .given_back = 1};
	struct session *session = faulty_store_open_session(fixture->store, SESSION_WRITE);

	assert_int_equal(session->ops->begin(session, TRANSACTION_WAIT), STATUS_OK);
	assert_int_equal(faulty_limit_repository.ops->settle(
				 &faulty_limit_repository, session, &settlement, 1),
		STATUS_OK);
	assert_int_equal(session->ops->commit(session), STATUS_OK);
	session_close(session);
}

static void test_a_settlement_in_doubt_deletes_the_copy(void **unused)
{
	struct gateway_fixture fixture;

	(void)unused;
	gateway_fixture_open(&fixture, true);
	gateway_fixture_configure(&fixture);
	fill_elsewhere(&fixture, LIMIT);
	fake_bus.fate = BUS_NOT_PERSISTED;
	fixture.store->survives = true;
	/* begin keys lock put keys COMMIT, begin keys settle COMMIT */
	faulty_store_fail_at(fixture.store, 10, STATUS_OUTCOME_UNKNOWN);
	assert_int_equal(run(&fixture, GATEWAY_SEND, "key", 1), 503);
	assert_true(fixture.store->has_failed);
	assert_int_equal(gateway_fixture_row_of(&fixture).reserved_count, 0);
	assert_false(gateway_fixture_copy_of(&fixture).hit);
	gateway_fixture_close(&fixture);
}

/* ---- a cache whose replies get lost ------------------------------------------------------ */

/* Carries out the call number `lost_call` (from 1), but reports that the cache is away. */
static struct deaf {
	struct cache_session base;
	struct cache_session_ops ops;
	struct cache_session *inner;
	int calls, lost_call;
	size_t drops, dropped;
	/* a process that gives a slot back between our read and our fill, or NULL */
	struct gateway_fixture *elsewhere;
} deaf;

static enum status hear(enum status status)
{
	return ++deaf.calls == deaf.lost_call ? STATUS_CACHE_AWAY : status;
}

static enum status deaf_take(
	struct cache_session *session, struct cached_limit *limits, size_t count)
{
	struct cached_limit taken[SENDS_MAX];
	enum status status;

	(void)session;
	memcpy(taken, limits, count * sizeof(*limits));
	status = hear(deaf.inner->ops->limit_take(deaf.inner, taken, count));
	if (status == STATUS_OK)
		memcpy(limits, taken, count * sizeof(*limits));
	return status;
}

static enum status deaf_fill(
	struct cache_session *session, const struct cached_limit *limits, size_t count)
{
	(void)session;
	if (deaf.elsewhere)
		give_back_elsewhere(deaf.elsewhere);
	return hear(deaf.inner->ops->limit_fill(deaf.inner, limits, count));
}

static enum status deaf_drop(
	struct cache_session *session, const struct slice *user_ids, size_t count)
{
	(void)session;
	deaf.drops++;
	deaf.dropped += count;
	return deaf.inner->ops->limit_drop(deaf.inner, user_ids, count);
}

static void make_deaf(struct gateway_fixture *fixture, int lost_call)
{
	deaf = (struct deaf){
		.ops = {.limit_take = deaf_take, .limit_fill = deaf_fill, .limit_drop = deaf_drop},
		.inner = fixture->lane.cache,
		.lost_call = lost_call,
	};
	deaf.base.ops = &deaf.ops;
	fixture->lane.cache = &deaf.base;
}

static void test_a_copy_that_was_filled_from_an_older_row_is_deleted(void **unused)
{
	struct gateway_fixture fixture;

	(void)unused;
	gateway_fixture_open(&fixture, true);
	gateway_fixture_configure(&fixture);
	fake_bus.fate = BUS_UNKNOWN;
	assert_int_equal(run(&fixture, GATEWAY_SEND, "key", 1), 503); /* keeps its slot for now */
	make_deaf(&fixture, 0);
	deaf.elsewhere = &fixture;
	assert_int_equal(run(&fixture, GATEWAY_TAKE, NULL, 1), 200);
	fixture.lane.cache = deaf.inner;
	assert_false(gateway_fixture_copy_of(&fixture).hit);
	assert_int_equal(run(&fixture, GATEWAY_TAKE, NULL, LIMIT - 1), 200);
	gateway_fixture_close(&fixture);
}

static void test_any_number_of_notes_waits_for_the_commit(void **unused)
{
	struct gateway_fixture fixture;
	char name[16];

	(void)unused;
	gateway_fixture_open(&fixture, true);
	make_deaf(&fixture, 0);
	for (int i = 0; i < 1000; i++) {
		snprintf(name, sizeof(name), "user %d", i / 2); /* each twice in a row */
		gateway_cache_note_stale(&fixture.lane, slice_of(name));
	}
	assert_int_equal(deaf.drops, 0);
	gateway_batch_committed(&fixture.lane);
	assert_int_equal(deaf.dropped, 500);
	gateway_batch_committed(&fixture.lane);
	assert_int_equal(deaf.dropped, 500);
	fixture.lane.cache = deaf.inner;
	gateway_fixture_close(&fixture);
}

static void test_what_a_cache_did_without_a_reply_is_undone(void **unused)
{
	struct gateway_fixture fixture;

	(void)unused;
	for (int lost = 1; lost <= 3; lost++) { /* take, fill, take */
		gateway_fixture_open(&fixture, true);
		gateway_fixture_configure(&fixture);
		assert_int_equal(run(&fixture, GATEWAY_TAKE, "key", LIMIT), 200);
		if (lost == 1)
			fill_elsewhere(&fixture, 0);
		make_deaf(&fixture, lost);
		assert_int_equal(run(&fixture, GATEWAY_TAKE, NULL, 1), 429); /* by the row */
		assert_true(deaf.calls >= lost);
		fixture.lane.cache = deaf.inner;
		assert_false(gateway_fixture_copy_of(&fixture).hit);
		gateway_fixture_close(&fixture);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_slot_that_is_given_back_is_free_in_a_copy_filled_meanwhile),
		cmocka_unit_test(
			test_a_copy_that_granted_more_than_its_row_is_deleted_before_the_answer),
		cmocka_unit_test(test_a_configuration_whose_commit_is_unknown_deletes_the_copy),
		cmocka_unit_test(test_a_settlement_in_doubt_deletes_the_copy),
		cmocka_unit_test(test_a_copy_that_was_filled_from_an_older_row_is_deleted),
		cmocka_unit_test(test_any_number_of_notes_waits_for_the_commit),
		cmocka_unit_test(test_what_a_cache_did_without_a_reply_is_undone),
	};

	log_configure((enum log_level)(LOG_ERROR + 1), LOG_TEXT); /* the store is meant to fail */
	return cmocka_run_group_tests_name("gateway copies", tests, NULL, NULL);
}
