/* What ports/count_repository.h promises, on one engine. Bounds are in count_bounds_contract.c,
 * random batches and threads in count_model_contract.c. */
#include <pthread.h>
#include <stdio.h>

#include "base/random.h"
#include "check.h"
#include "engine.h"
#include "one_count.h"

/* ---- add --------------------------------------------------------------------------------- */

static void add_tells_the_new_value(void **state)
{
	struct engine *engine = *state;
	struct count_addition additions[2] = {one_count_addition(one_count_new(engine, "a", 5), 37),
		one_count_addition(one_count_new(engine, "b", -5), -37)};

	engine_begin(engine->session);
	assert_int_equal(
		engine->counts->ops->add(engine->counts, engine->session, additions, 2), STATUS_OK);
	engine_commit(engine->session);
	assert_true(additions[0].applied && additions[0].value == 42);
	assert_true(additions[1].applied && additions[1].value == -42);
	one_count_assert_value(engine, additions[0].item_id, 42);
	one_count_assert_value(engine, additions[1].item_id, -42);
}

static void add_leaves_out_what_is_missing(void **state)
{
	struct engine *engine = *state;
	struct count_addition additions[3] = {one_count_addition(engine_name(engine, "a"), 1),
		one_count_addition(one_count_new(engine, "b", 1), 1),
		one_count_addition(engine_name(engine, "c"), 1)};

	additions[0].applied = true; /* what stood there before does not matter */
	engine_begin(engine->session);
	assert_int_equal(
		engine->counts->ops->add(engine->counts, engine->session, additions, 3), STATUS_OK);
	engine_commit(engine->session);
	assert_false(additions[0].applied);
	assert_true(additions[1].applied);
	assert_false(additions[2].applied);
	one_count_assert_missing(engine, additions[0].item_id);
	one_count_assert_value(engine, additions[1].item_id, 2);
}

static void add_reaches_both_ends_and_no_further(void **state)
{
	struct engine *engine = *state;
	struct count_addition additions[4] = {
		one_count_addition(one_count_new(engine, "a", INT64_MAX - 1), 1),
		one_count_addition(one_count_new(engine, "b", INT64_MAX), 1),
		one_count_addition(one_count_new(engine, "c", INT64_MIN + 1), -1),
		one_count_addition(one_count_new(engine, "d", INT64_MIN), -1)};

	engine_begin(engine->session);
	assert_int_equal(
		engine->counts->ops->add(engine->counts, engine->session, additions, 4), STATUS_OK);
	engine_commit(engine->session);
	assert_true(additions[0].applied && additions[0].value == INT64_MAX);
	assert_false(additions[1].applied);
	assert_true(additions[2].applied && additions[2].value == INT64_MIN);
	assert_false(additions[3].applied);
	one_count_assert_value(engine, additions[1].item_id, INT64_MAX);
	one_count_assert_value(engine, additions[3].item_id, INT64_MIN);
}

/* The sum lies beyond what the addition says of its steps. */
static void assert_poison(struct engine *engine, struct slice good, struct slice bad, int64_t sum)
{
	struct count_addition additions[2] = {
		one_count_addition(good, 1), {.item_id = bad, .sum = sum}};

	engine_begin(engine->session);
	assert_int_equal(engine->counts->ops->add(engine->counts, engine->session, additions, 2),
		STATUS_POISON);
	one_count_assert_value(engine, good, 0);
}

static void a_value_past_int64_is_poison_and_nothing_is_applied(void **state)
{
	struct engine *engine = *state;
	struct slice good = one_count_new(engine, "a", 0);
	struct slice high = one_count_new(engine, "b", INT64_MAX);
	struct slice low = one_count_new(engine, "c", INT64_MIN);

	assert_poison(engine, good, high, 1);
	assert_poison(engine, good, high, INT64_MAX);
	assert_poison(engine, good, low, -1);
	assert_poison(engine, good, low, INT64_MIN);
	one_count_assert_value(engine, high, INT64_MAX);
	one_count_assert_value(engine, low, INT64_MIN);
}

static void add_moves_the_time_of_the_row(void **state)
{
	struct engine *engine = *state;
	struct count_addition addition = one_count_addition(one_count_new(engine, "a", 0), 1);
	struct count_row row = {.item_id = addition.item_id};
	int64_t now_us;

	assert_int_equal(one_count_find(engine, engine->session, row.item_id).updated_us, 1000);
	engine_begin(engine->session);
	assert_int_equal(
		engine->counts->ops->lock(engine->counts, engine->session, &row, 1, &now_us),
		STATUS_OK);
	assert_int_equal(
		engine->counts->ops->add(engine->counts, engine->session, &addition, 1), STATUS_OK);
	engine_commit(engine->session);
	assert_true(one_count_find(engine, engine->session, row.item_id).updated_us >= now_us);
}

/* ---- single statements ------------------------------------------------------------------- */

/* A session that was idle does it with a BEGIN, so it is used first. */
static void begin_in_use(struct engine *engine)
{
	one_count_assert_missing(engine, engine_name(engine, "nothing"));
	engine_begin_mode(engine->session, TRANSACTION_SINGLE);
}

static enum status add(struct engine *engine, struct count_addition *additions, size_t count)
{
	return engine->counts->ops->add(engine->counts, engine->session, additions, count);
}

/* On a cluster, a transaction that touches several nodes is only whole with a BEGIN. */
#define NOT_ALONE "a statement does not commit by itself on a cluster"

static void a_single_addition_is_there_before_commit(void **state)
{
	struct engine *engine = *state;
	struct session *reader = engine_session(engine, SESSION_READ);
	struct count_addition additions[2] = {one_count_addition(one_count_new(engine, "a", 5), 37),
		one_count_addition(engine_name(engine, "b"), 1)};

	if (engine_is_a_cluster())
		skip_because(NOT_ALONE);
	begin_in_use(engine);
	assert_int_equal(add(engine, additions, 2), STATUS_OK);
	assert_true(additions[0].applied && additions[0].value == 42);
	assert_false(additions[1].applied);
	assert_int_equal(one_count_find(engine, reader, additions[0].item_id).value, 42);
	engine_commit(engine->session);
	one_count_assert_value(engine, additions[0].item_id, 42);
}

static void a_rollback_does_not_undo_a_single_addition(void **state)
{
	struct engine *engine = *state;
	struct count_addition addition = one_count_addition(one_count_new(engine, "a", 5), 37);

	if (engine_is_a_cluster())
		skip_because(NOT_ALONE);
	begin_in_use(engine);
	assert_int_equal(add(engine, &addition, 1), STATUS_OK);
	engine->session->ops->rollback(engine->session);
	one_count_assert_value(engine, addition.item_id, 42);
}

static void a_single_addition_that_is_refused_applies_nothing(void **state)
{
	struct engine *engine = *state;
	struct count_addition additions[2] = {one_count_addition(one_count_new(engine, "a", 0), 1),
		{.item_id = one_count_new(engine, "b", INT64_MAX), .sum = 1}};

	begin_in_use(engine);
	assert_int_equal(add(engine, additions, 2), STATUS_POISON);
	one_count_assert_value(engine, additions[0].item_id, 0);
	one_count_assert_value(engine, additions[1].item_id, INT64_MAX);
}

static void a_single_addition_to_a_row_that_is_held_applies_nothing(void **state)
{
	struct engine *engine = *state;
	struct count_addition additions[2] = {one_count_addition(one_count_new(engine, "a", 0), 1),
		one_count_addition(one_count_new(engine, "b", 0), 1)};
	struct count_row held = {.item_id = additions[1].item_id};
	struct session *other;
	int64_t now_us;

	other = engine_session(engine, SESSION_WRITE);
	engine_begin(other);
	assert_int_equal(
		engine->counts->ops->lock(engine->counts, other, &held, 1, &now_us), STATUS_OK);
	begin_in_use(engine);
	assert_int_equal(add(engine, additions, 2), STATUS_LOCK_BUSY);
	other->ops->rollback(other);
	one_count_assert_value(engine, additions[0].item_id, 0);
	one_count_assert_value(engine, additions[1].item_id, 0);
}

/* Ends all sessions of this store; that of the engine is closed by the server, unasked. */
static void end_sessions(struct engine *engine)
{
	engine_execute(engine,
		"SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity "
		"WHERE datname = current_database() AND pid <> pg_backend_pid()");
}

static void a_session_that_was_ended_before_leaves_no_doubt(void **state)
{
	struct engine *engine = *state;
	struct count_addition addition = one_count_addition(one_count_new(engine, "a", 5), 37);

	begin_in_use(engine);
	end_sessions(engine);
	assert_int_equal(add(engine, &addition, 1), STATUS_RERUN);
	one_count_assert_value(engine, addition.item_id, 5);
	engine_begin_mode(engine->session, TRANSACTION_SINGLE);
	assert_int_equal(add(engine, &addition, 1), STATUS_OK);
	engine_commit(engine->session);
	one_count_assert_value(engine, addition.item_id, 42);
}

#define NO_TRIGGERS "distributed tables have no triggers, which plant this fault"

static void a_session_that_is_ended_under_way_leaves_no_doubt_either(void **state)
{
	struct engine *engine = *state;
	struct count_addition addition = one_count_addition(one_count_new(engine, "a", 5), 37);

	if (engine_is_a_cluster())
		skip_because(NO_TRIGGERS);
	engine_execute(engine, "CREATE FUNCTION leave() RETURNS trigger LANGUAGE plpgsql AS "
			       "'BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); PERFORM "
			       "pg_sleep(60); END'");
	engine_execute(engine,
		"CREATE TRIGGER leave BEFORE UPDATE ON count_values FOR EACH ROW "
		"WHEN (NEW.item_id = '%.*s') EXECUTE FUNCTION leave()",
		(int)addition.item_id.len, addition.item_id.data);
	begin_in_use(engine);
	assert_int_equal(add(engine, &addition, 1), STATUS_RERUN);
	engine_execute(engine, "DROP FUNCTION leave CASCADE");
	one_count_assert_value(engine, addition.item_id, 5);
	engine_begin_mode(engine->session, TRANSACTION_SINGLE);
	assert_int_equal(add(engine, &addition, 1), STATUS_OK);
	engine_commit(engine->session);
	one_count_assert_value(engine, addition.item_id, 42);
}

/* The server's word on the commit comes where the end of the round is expected. */
static void a_single_addition_whose_commit_fails_is_of_unknown_outcome(void **state)
{
	struct engine *engine = *state;
	struct count_addition addition = one_count_addition(one_count_new(engine, "a", 5), 37);

	if (engine_is_a_cluster())
		skip_because(NO_TRIGGERS);
	engine_execute(engine, "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
			       "'BEGIN RAISE EXCEPTION ''refused''; END'");
	engine_execute(engine,
		"CREATE CONSTRAINT TRIGGER refuse AFTER UPDATE ON count_values "
		"INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.item_id = '%.*s') "
		"EXECUTE FUNCTION refuse()",
		(int)addition.item_id.len, addition.item_id.data);
	begin_in_use(engine);
	assert_int_equal(add(engine, &addition, 1), STATUS_OUTCOME_UNKNOWN);
	engine_execute(engine, "DROP FUNCTION refuse CASCADE");
	one_count_assert_value(engine, addition.item_id, 5);
	begin_in_use(engine);
	assert_int_equal(add(engine, &addition, 1), STATUS_OK);
	engine_commit(engine->session);
	one_count_assert_value(engine, addition.item_id, 42);
}

/* ---- lock and edit ----------------------------------------------------------------------- */

static void lock_tells_what_is_there_and_the_time(void **state)
{
	struct engine *engine = *state;
	struct count_row rows[3] = {{.item_id = engine_name(engine, "a"), .exists = true},
		{.item_id = one_count_new(engine, "b", 42)}, {.item_id = engine_name(engine, "c")}};
	int64_t now_us = 0;
	int64_t real_us = (int64_t)time(NULL) * 1000000;

	rows[0].busy = true;
	engine_begin(engine->session);
	assert_int_equal(
		engine->counts->ops->lock(engine->counts, engine->session, rows, 3, &now_us),
		STATUS_OK);
	engine_commit(engine->session);
	assert_false(rows[0].exists || rows[0].busy);
	assert_true(rows[1].exists && !rows[1].busy);
	assert_int_equal(rows[1].value, 42);
	assert_int_equal(rows[1].updated_us, 1000);
	assert_false(rows[2].exists);
	assert_true(now_us >= real_us - 1000000);
}

static void skipping_locks_finds_free_rows_too(void **state)
{
	struct engine *engine = *state;
	struct count_row row = {.item_id = one_count_new(engine, "a", 42), .busy = true};
	int64_t now_us;

	assert_int_equal(engine->session->ops->begin(engine->session, TRANSACTION_SKIP), STATUS_OK);
	assert_int_equal(
		engine->counts->ops->lock(engine->counts, engine->session, &row, 1, &now_us),
		STATUS_OK);
	engine_commit(engine->session);
	assert_true(row.exists && !row.busy && row.value == 42);
}

static void edit_inserts_updates_and_deletes(void **state)
{
	struct engine *engine = *state;
	struct count_edit edits[3] = {{.item_id = one_count_new(engine, "a", 1),
					      .kind = COUNT_UPDATE,
					      .value = INT64_MIN},
		{.item_id = one_count_new(engine, "b", 1), .kind = COUNT_DELETE},
		{.item_id = engine_name(engine, "c"), .kind = COUNT_INSERT, .value = INT64_MAX}};

	engine_begin(engine->session);
	assert_int_equal(
		engine->counts->ops->edit(engine->counts, engine->session, edits, 3, 123456),
		STATUS_OK);
	engine_commit(engine->session);
	one_count_assert_value(engine, edits[0].item_id, INT64_MIN);
	one_count_assert_missing(engine, edits[1].item_id);
	one_count_assert_value(engine, edits[2].item_id, INT64_MAX);
	assert_int_equal(
		one_count_find(engine, engine->session, edits[0].item_id).updated_us, 123456);
	assert_int_equal(
		one_count_find(engine, engine->session, edits[2].item_id).updated_us, 123456);
}

static void inserting_what_exists_is_a_rerun_and_nothing_is_applied(void **state)
{
	struct engine *engine = *state;
	struct slice taken = one_count_new(engine, "b", 1);
	struct count_edit edits[3] = {
		{.item_id = engine_name(engine, "a"), .kind = COUNT_INSERT, .value = 9},
		{.item_id = taken, .kind = COUNT_INSERT, .value = 9},
		{.item_id = engine_name(engine, "c"), .kind = COUNT_INSERT, .value = 9}};

	engine_begin(engine->session);
	assert_int_equal(engine->counts->ops->edit(engine->counts, engine->session, edits, 3, 0),
		STATUS_RERUN);
	one_count_assert_missing(engine, edits[0].item_id);
	one_count_assert_value(engine, taken, 1);
	one_count_assert_missing(engine, edits[2].item_id);
}

static void empty_batches_are_fine(void **state)
{
	struct engine *engine = *state;
	struct session *session = engine->session;
	int64_t now_us = 0;

	engine_begin(session);
	assert_int_equal(engine->counts->ops->add(engine->counts, session, NULL, 0), STATUS_OK);
	assert_int_equal(
		engine->counts->ops->lock(engine->counts, session, NULL, 0, &now_us), STATUS_OK);
	assert_int_equal(engine->counts->ops->edit(engine->counts, session, NULL, 0, 0), STATUS_OK);
	engine_commit(session);
	assert_true(now_us > 0);
	assert_int_equal(engine->counts->ops->find(engine->counts, session, NULL, 0), STATUS_OK);
}

/* ---- what other sessions see ------------------------------------------------------------- */

static void rollback_undoes_every_kind_of_change(void **state)
{
	struct engine *engine = *state;
	struct slice a = one_count_new(engine, "a", 1), b = one_count_new(engine, "b", 1);
	struct slice c = one_count_new(engine, "c", 1), d = engine_name(engine, "d");
	struct count_addition addition = one_count_addition(a, 1);

	engine_begin(engine->session);
	assert_int_equal(
		engine->counts->ops->add(engine->counts, engine->session, &addition, 1), STATUS_OK);
	assert_int_equal(one_count_edit(engine, b, COUNT_UPDATE, 9), STATUS_OK);
	assert_int_equal(one_count_edit(engine, c, COUNT_DELETE, 0), STATUS_OK);
	assert_int_equal(one_count_edit(engine, d, COUNT_INSERT, 9), STATUS_OK);
	engine->session->ops->rollback(engine->session);
	one_count_assert_value(engine, a, 1);
	one_count_assert_value(engine, b, 1);
	one_count_assert_value(engine, c, 1);
	one_count_assert_missing(engine, d);
}

static void a_transaction_sees_its_own_changes(void **state)
{
	struct engine *engine = *state;
	struct count_row row = {.item_id = one_count_new(engine, "a", 1)};
	struct count_addition addition = one_count_addition(row.item_id, 1);
	int64_t now_us;

	engine_begin(engine->session);
	assert_int_equal(
		engine->counts->ops->add(engine->counts, engine->session, &addition, 1), STATUS_OK);
	assert_int_equal(
		engine->counts->ops->lock(engine->counts, engine->session, &row, 1, &now_us),
		STATUS_OK);
	engine->session->ops->rollback(engine->session);
	assert_int_equal(row.value, 2);
}

static void a_read_session_sees_only_what_is_committed(void **state)
{
	struct engine *engine = *state;
	struct session *reader = engine_session(engine, SESSION_READ);
	struct slice id = one_count_new(engine, "a", 1);
	struct slice inserted = engine_name(engine, "b");
	struct count_addition addition = one_count_addition(id, 1);

	engine_begin(engine->session);
	assert_int_equal(
		engine->counts->ops->add(engine->counts, engine->session, &addition, 1), STATUS_OK);
	assert_int_equal(one_count_edit(engine, inserted, COUNT_INSERT, 9), STATUS_OK);
	assert_int_equal(one_count_find(engine, reader, id).value, 1);
	assert_false(one_count_find(engine, reader, inserted).exists);
	engine_commit(engine->session);
	assert_int_equal(one_count_find(engine, reader, id).value, 2);
	assert_true(one_count_find(engine, reader, inserted).exists);
}

static void what_another_session_holds_is_busy(void **state)
{
	struct engine *engine = *state;
	struct session *other;
	struct count_row rows[2] = {{.item_id = one_count_new(engine, "a", 1)},
		{.item_id = one_count_new(engine, "b", 2)}};
	int64_t now_us;

	if (strcmp(engine->store->engine, "sqlite") == 0)
		skip_because("begin() itself waits for the one writer, so nobody else holds a row");
	other = engine_session(engine, SESSION_WRITE);
	engine_begin(other);
	assert_int_equal(
		engine->counts->ops->lock(engine->counts, other, &rows[0], 1, &now_us), STATUS_OK);
	engine_begin(engine->session);
	assert_int_equal(
		engine->counts->ops->lock(engine->counts, engine->session, rows, 2, &now_us),
		STATUS_LOCK_BUSY);
	assert_int_equal(engine->session->ops->begin(engine->session, TRANSACTION_SKIP), STATUS_OK);
	if (engine_is_a_cluster()) {
		assert_int_equal(engine->counts->ops->lock(
					 engine->counts, engine->session, rows, 2, &now_us),
			STATUS_LOCK_BUSY);
		other->ops->rollback(other);
		return;
	}
	assert_int_equal(
		engine->counts->ops->lock(engine->counts, engine->session, rows, 2, &now_us),
		STATUS_OK);
	engine_commit(engine->session);
	other->ops->rollback(other);
	assert_true(rows[0].busy && !rows[0].exists);
	assert_true(rows[1].exists && !rows[1].busy);
}

/* ---- ids --------------------------------------------------------------------------------- */

static struct slice odd_names[9];

static void make_odd_names(struct engine *engine)
{
	size_t n = 0;

	odd_names[n++] = engine_name(engine, "  spaces  ");
	odd_names[n++] = engine_name(engine, "\"); DROP TABLE count_values; --");
	odd_names[n++] = engine_name(engine, "%25%s%n_*");
	odd_names[n++] = engine_name(engine, "'quoted'");
	odd_names[n++] = engine_name(engine, "NULL");
	odd_names[n++] = engine_name(engine, "{\"a\",\\b}");
	odd_names[n++] = engine_name(engine, "\xc3\xa9 is not e\xcc\x81");
	odd_names[n++] = engine_name(engine, "\xf0\x9f\xa7\xae");
	odd_names[n++] = engine_long_name(engine, '~', 128);
	for (size_t i = 1; i < n; i++) {
		for (size_t j = i; j > 0 && slice_compare(odd_names[j - 1], odd_names[j]) > 0;
			j--) {
			struct slice lower = odd_names[j];

			odd_names[j] = odd_names[j - 1];
			odd_names[j - 1] = lower;
		}
	}
}

#define ODD_NAMES (sizeof(odd_names) / sizeof(odd_names[0]))

static void ids_are_bytes_and_nothing_else(void **state)
{
	struct engine *engine = *state;
	struct count_edit edits[ODD_NAMES];
	struct count_addition additions[ODD_NAMES];

	make_odd_names(engine);
	for (size_t i = 0; i < ODD_NAMES; i++) {
		edits[i] = (struct count_edit){
			.item_id = odd_names[i], .kind = COUNT_INSERT, .value = (int64_t)i * 10};
		additions[i] = one_count_addition(odd_names[i], 1);
	}
	engine_begin(engine->session);
	assert_int_equal(
		engine->counts->ops->edit(engine->counts, engine->session, edits, ODD_NAMES, 0),
		STATUS_OK);
	assert_int_equal(
		engine->counts->ops->add(engine->counts, engine->session, additions, ODD_NAMES),
		STATUS_OK);
	engine_commit(engine->session);
	for (size_t i = 0; i < ODD_NAMES; i++) {
		assert_int_equal(additions[i].value, i * 10 + 1);
		one_count_assert_value(engine, odd_names[i], (int64_t)i * 10 + 1);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		ENGINE_TEST(add_tells_the_new_value),
		ENGINE_TEST(add_leaves_out_what_is_missing),
		ENGINE_TEST(add_reaches_both_ends_and_no_further),
		ENGINE_TEST(a_value_past_int64_is_poison_and_nothing_is_applied),
		ENGINE_TEST(add_moves_the_time_of_the_row),
		ENGINE_TEST(lock_tells_what_is_there_and_the_time),
		ENGINE_TEST(skipping_locks_finds_free_rows_too),
		ENGINE_TEST(edit_inserts_updates_and_deletes),
		ENGINE_TEST(inserting_what_exists_is_a_rerun_and_nothing_is_applied),
		ENGINE_TEST(empty_batches_are_fine),
		ENGINE_TEST(rollback_undoes_every_kind_of_change),
		ENGINE_TEST(a_transaction_sees_its_own_changes),
		ENGINE_TEST(a_read_session_sees_only_what_is_committed),
		ENGINE_TEST(what_another_session_holds_is_busy),
		ENGINE_TEST(ids_are_bytes_and_nothing_else),
	};

	const struct CMUnitTest single_tests[] = {
		ENGINE_TEST(a_single_addition_is_there_before_commit),
		ENGINE_TEST(a_rollback_does_not_undo_a_single_addition),
		ENGINE_TEST(a_single_addition_that_is_refused_applies_nothing),
		ENGINE_TEST(a_single_addition_to_a_row_that_is_held_applies_nothing),
		ENGINE_TEST(a_session_that_was_ended_before_leaves_no_doubt),
		ENGINE_TEST(a_session_that_is_ended_under_way_leaves_no_doubt_either),
		ENGINE_TEST(a_single_addition_whose_commit_fails_is_of_unknown_outcome),
	};
	int failed = cmocka_run_group_tests_name("count_repository", tests, NULL, NULL) +
		     count_bounds_tests() + count_list_tests() + count_model_tests();

	if (engine_is_a_server())
		failed += cmocka_run_group_tests_name(
			"count_repository, single statements", single_tests, NULL, NULL);
	return failed;
}
