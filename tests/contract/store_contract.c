/* What ports/store.h promises of stores, sessions and transactions, on one engine. */
#include "idempotency_fixture.h"

#include "base/metrics.h"

/* ---- the store --------------------------------------------------------------------------- */

static void a_started_store_is_up_and_has_no_errors(void **state)
{
	struct engine *engine = *state;
	struct store *store = engine->store;

	assert_true(store->ops->is_up(store));
	assert_true(store->lanes_default > 0);
	for (int kind = 0; kind < STATUS_COUNT; kind++)
		assert_int_equal(store->ops->error_count(store, (enum status)kind), 0);
}

static void data_outlives_the_store(void **state)
{
	struct engine *engine = *state;
	struct idempotency_record record = idempotency_fixture_record(engine, "s", "k");

	idempotency_fixture_put_and_commit(engine->session, &record);
	engine_restart(engine);
	assert_true(idempotency_fixture_is_known(engine, &record));
}

static void a_failure_is_counted_by_its_kind(void **state)
{
	struct engine *engine = *state;
	struct session *session = engine->session;
	struct count_edit insert = {
		.item_id = engine_name(engine, "a"), .kind = COUNT_INSERT, .value = INT64_MAX};
	struct count_addition addition = {.item_id = insert.item_id, .sum = 1}; /* too much */

	engine_begin(session);
	assert_int_equal(
		engine->counts->ops->edit(engine->counts, session, &insert, 1, 0), STATUS_OK);
	assert_int_equal(
		engine->counts->ops->add(engine->counts, session, &addition, 1), STATUS_POISON);
	assert_int_equal(engine->store->ops->error_count(engine->store, STATUS_POISON), 1);
}

/* ---- transactions ------------------------------------------------------------------------ */

static void an_empty_transaction_commits(void **state)
{
	struct engine *engine = *state;
	struct session *session = engine->session;

	engine_begin(session);
	engine_commit(session);
	assert_int_equal(session->ops->begin(session, TRANSACTION_SKIP), STATUS_OK);
	engine_commit(session);
}

static void the_engine_is_timed(void **state)
{
	struct engine *engine = *state;
	struct idempotency_record record = idempotency_fixture_record(engine, "s", "k");
	struct latency before = *engine->store->latency;

	idempotency_fixture_put_and_commit(engine->session, &record);
	assert_true(tally_read(&engine->store->latency->count) > tally_read(&before.count));
	assert_true(tally_read(&engine->store->latency->total_ns) > tally_read(&before.total_ns));
}

static void commit_is_seen_by_another_session(void **state)
{
	struct engine *engine = *state;
	struct session *other = engine_session(engine, SESSION_WRITE);
	struct idempotency_record record = idempotency_fixture_record(engine, "s", "k");

	idempotency_fixture_put_and_commit(engine->session, &record);
	assert_true(idempotency_fixture_look_up(engine, other, &record).found);
}

static void rollback_undoes(void **state)
{
	struct engine *engine = *state;
	struct idempotency_record record = idempotency_fixture_record(engine, "s", "k");

	engine_begin(engine->session);
	assert_int_equal(idempotency_fixture_put(engine->session, &record, 1), STATUS_OK);
	engine->session->ops->rollback(engine->session);
	assert_false(idempotency_fixture_is_known(engine, &record));
}

static void closing_a_session_undoes_its_transaction(void **state)
{
	struct engine *engine = *state;
	struct session *session = engine->store->ops->open_session(engine->store, SESSION_WRITE);
	struct idempotency_record record = idempotency_fixture_record(engine, "s", "k");

	engine_begin(session);
	assert_int_equal(idempotency_fixture_put(session, &record, 1), STATUS_OK);
	session_close(session);
	assert_false(idempotency_fixture_is_known(engine, &record));
}

static void a_failure_has_rolled_back_and_the_session_goes_on(void **state)
{
	struct engine *engine = *state;
	struct session *session = engine->session;
	struct idempotency_record taken = idempotency_fixture_record(engine, "s", "taken");
	struct idempotency_record fresh = idempotency_fixture_record(engine, "s", "fresh");

	idempotency_fixture_put_and_commit(session, &taken);
	engine_begin(session);
	assert_int_equal(idempotency_fixture_put(session, &fresh, 1), STATUS_OK);
	assert_int_equal(idempotency_fixture_put(session, &taken, 1), STATUS_RERUN);
	session->ops->rollback(session); /* allowed, and nothing is left to do */
	assert_false(idempotency_fixture_is_known(engine, &fresh));
	idempotency_fixture_put_and_commit(session, &fresh);
	assert_true(idempotency_fixture_is_known(engine, &fresh));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		ENGINE_TEST(a_started_store_is_up_and_has_no_errors),
		ENGINE_TEST(data_outlives_the_store),
		ENGINE_TEST(a_failure_is_counted_by_its_kind),
		ENGINE_TEST(an_empty_transaction_commits),
		ENGINE_TEST(the_engine_is_timed),
		ENGINE_TEST(commit_is_seen_by_another_session),
		ENGINE_TEST(rollback_undoes),
		ENGINE_TEST(closing_a_session_undoes_its_transaction),
		ENGINE_TEST(a_failure_has_rolled_back_and_the_session_goes_on),
	};

	return cmocka_run_group_tests_name("store", tests, NULL, NULL);
}
