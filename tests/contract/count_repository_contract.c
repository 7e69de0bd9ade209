/* What ports/count_repository.h promises, on one engine. */
#include <pthread.h>
#include <stdio.h>
#include <time.h>

#include "base/random.h"
#include "engine.h"

/* ---- one row at a time ------------------------------------------------------------------- */

static enum status edit_one(
	struct engine *engine, struct slice id, enum count_edit_kind kind, int64_t value)
{
	struct count_edit edit = {.item_id = id, .kind = kind, .value = value};

	return engine->counts->edit(engine->session, &edit, 1, 1000);
}

static struct slice new_count(struct engine *engine, const char *name, int64_t value)
{
	struct slice id = engine_name(engine, name);

	engine_begin(engine->session);
	assert_int_equal(edit_one(engine, id, COUNT_INSERT, value), STATUS_OK);
	engine_commit(engine->session);
	return id;
}

static struct count_row find_with(struct engine *engine, struct session *session, struct slice id)
{
	struct count_row row = {.item_id = id, .exists = true, .busy = true, .value = 77};

	assert_int_equal(engine->counts->find(session, &row, 1), STATUS_OK);
	assert_false(row.busy);
	return row;
}

static void assert_value(struct engine *engine, struct slice id, int64_t value)
{
	struct count_row row = find_with(engine, engine->session, id);

	assert_true(row.exists);
	assert_true(row.value == value);
}

static void assert_missing(struct engine *engine, struct slice id)
{
	assert_false(find_with(engine, engine->session, id).exists);
}

static struct count_addition addition_of(struct slice id, int64_t sum)
{
	return (struct count_addition){.item_id = id,
		.sum = sum,
		.least = sum < 0 ? INT64_MIN - sum : INT64_MIN,
		.most = sum > 0 ? INT64_MAX - sum : INT64_MAX,
		.value = 77};
}

/* ---- add --------------------------------------------------------------------------------- */

static void add_tells_the_new_value(void **state)
{
	struct engine *engine = *state;
	struct count_addition additions[2] = {addition_of(new_count(engine, "a", 5), 37),
		addition_of(new_count(engine, "b", -5), -37)};

	engine_begin(engine->session);
	assert_int_equal(engine->counts->add(engine->session, additions, 2), STATUS_OK);
	engine_commit(engine->session);
	assert_true(additions[0].applied && additions[0].value == 42);
	assert_true(additions[1].applied && additions[1].value == -42);
	assert_value(engine, additions[0].item_id, 42);
	assert_value(engine, additions[1].item_id, -42);
}

static void add_leaves_out_what_is_missing(void **state)
{
	struct engine *engine = *state;
	struct count_addition additions[3] = {addition_of(engine_name(engine, "a"), 1),
		addition_of(new_count(engine, "b", 1), 1),
		addition_of(engine_name(engine, "c"), 1)};

	additions[0].applied = true; /* what stood there before does not matter */
	engine_begin(engine->session);
	assert_int_equal(engine->counts->add(engine->session, additions, 3), STATUS_OK);
	engine_commit(engine->session);
	assert_false(additions[0].applied);
	assert_true(additions[1].applied);
	assert_false(additions[2].applied);
	assert_missing(engine, additions[0].item_id);
	assert_value(engine, additions[1].item_id, 2);
}

static bool try_bounds(struct engine *engine, struct slice id, int64_t least, int64_t most)
{
	struct count_addition addition = {.item_id = id, .sum = 1, .least = least, .most = most};

	engine_begin(engine->session);
	assert_int_equal(engine->counts->add(engine->session, &addition, 1), STATUS_OK);
	engine->session->ops->rollback(engine->session);
	return addition.applied;
}

static void add_applies_only_inside_the_bounds(void **state)
{
	struct engine *engine = *state;
	struct slice id = new_count(engine, "a", 10);

	assert_true(try_bounds(engine, id, 10, 10));
	assert_true(try_bounds(engine, id, INT64_MIN, 10));
	assert_true(try_bounds(engine, id, 10, INT64_MAX));
	assert_false(try_bounds(engine, id, 11, INT64_MAX));
	assert_false(try_bounds(engine, id, INT64_MIN, 9));
	assert_false(try_bounds(engine, id, 11, 9));
	assert_value(engine, id, 10);
}

static void add_reaches_both_ends_and_no_further(void **state)
{
	struct engine *engine = *state;
	struct count_addition additions[4] = {addition_of(new_count(engine, "a", INT64_MAX - 1), 1),
		addition_of(new_count(engine, "b", INT64_MAX), 1),
		addition_of(new_count(engine, "c", INT64_MIN + 1), -1),
		addition_of(new_count(engine, "d", INT64_MIN), -1)};

	engine_begin(engine->session);
	assert_int_equal(engine->counts->add(engine->session, additions, 4), STATUS_OK);
	engine_commit(engine->session);
	assert_true(additions[0].applied && additions[0].value == INT64_MAX);
	assert_false(additions[1].applied);
	assert_true(additions[2].applied && additions[2].value == INT64_MIN);
	assert_false(additions[3].applied);
	assert_value(engine, additions[1].item_id, INT64_MAX);
	assert_value(engine, additions[3].item_id, INT64_MIN);
}

static void assert_poison(struct engine *engine, struct slice good, struct slice bad, int64_t sum)
{
	struct count_addition additions[2] = {addition_of(good, 1),
		{.item_id = bad, .sum = sum, .least = INT64_MIN, .most = INT64_MAX}};

	engine_begin(engine->session);
	assert_int_equal(engine->counts->add(engine->session, additions, 2), STATUS_POISON);
	assert_value(engine, good, 0);
}

static void a_value_past_int64_is_poison_and_nothing_is_applied(void **state)
{
	struct engine *engine = *state;
	struct slice good = new_count(engine, "a", 0);
	struct slice high = new_count(engine, "b", INT64_MAX);
	struct slice low = new_count(engine, "c", INT64_MIN);

	assert_poison(engine, good, high, 1);
	assert_poison(engine, good, high, INT64_MAX);
	assert_poison(engine, good, low, -1);
	assert_poison(engine, good, low, INT64_MIN);
	assert_value(engine, high, INT64_MAX);
	assert_value(engine, low, INT64_MIN);
}

static void add_moves_the_time_of_the_row(void **state)
{
	struct engine *engine = *state;
	struct count_addition addition = addition_of(new_count(engine, "a", 0), 1);
	struct count_row row = {.item_id = addition.item_id};
	int64_t now_us;

	assert_int_equal(find_with(engine, engine->session, row.item_id).updated_us, 1000);
	engine_begin(engine->session);
	assert_int_equal(engine->counts->lock(engine->session, &row, 1, &now_us), STATUS_OK);
	assert_int_equal(engine->counts->add(engine->session, &addition, 1), STATUS_OK);
	engine_commit(engine->session);
	assert_true(find_with(engine, engine->session, row.item_id).updated_us >= now_us);
}

/* ---- add alone --------------------------------------------------------------------------- */

/* A session that was idle does it with a BEGIN, so it is used first. */
static void begin_in_use(struct engine *engine)
{
	assert_missing(engine, engine_name(engine, "nothing"));
	engine_begin(engine->session);
}

static enum status add_alone(struct engine *engine, struct count_addition *additions, size_t count)
{
	return engine->counts->add_alone(engine->session, additions, count);
}

static void an_addition_alone_is_there_before_commit(void **state)
{
	struct engine *engine = *state;
	struct session *reader = engine_session(engine, SESSION_READ);
	struct count_addition additions[2] = {addition_of(new_count(engine, "a", 5), 37),
		addition_of(engine_name(engine, "b"), 1)};

	begin_in_use(engine);
	assert_int_equal(add_alone(engine, additions, 2), STATUS_OK);
	assert_true(additions[0].applied && additions[0].value == 42);
	assert_false(additions[1].applied);
	assert_int_equal(find_with(engine, reader, additions[0].item_id).value, 42);
	engine_commit(engine->session);
	assert_value(engine, additions[0].item_id, 42);
}

static void a_rollback_does_not_undo_an_addition_alone(void **state)
{
	struct engine *engine = *state;
	struct count_addition addition = addition_of(new_count(engine, "a", 5), 37);

	begin_in_use(engine);
	assert_int_equal(add_alone(engine, &addition, 1), STATUS_OK);
	engine->session->ops->rollback(engine->session);
	assert_value(engine, addition.item_id, 42);
}

static void an_addition_after_something_else_is_not_alone(void **state)
{
	struct engine *engine = *state;
	struct count_row row = {.item_id = new_count(engine, "a", 5)};
	struct count_addition addition = addition_of(row.item_id, 37);
	int64_t now_us;

	begin_in_use(engine);
	assert_int_equal(engine->counts->lock(engine->session, &row, 1, &now_us), STATUS_OK);
	assert_int_equal(add_alone(engine, &addition, 1), STATUS_OK);
	engine->session->ops->rollback(engine->session);
	assert_value(engine, row.item_id, 5);
}

static void an_addition_alone_that_is_refused_applies_nothing(void **state)
{
	struct engine *engine = *state;
	struct count_addition additions[2] = {addition_of(new_count(engine, "a", 0), 1),
		{.item_id = new_count(engine, "b", INT64_MAX),
			.sum = 1,
			.least = INT64_MIN,
			.most = INT64_MAX}};

	begin_in_use(engine);
	assert_int_equal(add_alone(engine, additions, 2), STATUS_POISON);
	assert_value(engine, additions[0].item_id, 0);
	assert_value(engine, additions[1].item_id, INT64_MAX);
}

static void an_addition_alone_to_a_row_that_is_held_applies_nothing(void **state)
{
	struct engine *engine = *state;
	struct count_addition additions[2] = {addition_of(new_count(engine, "a", 0), 1),
		addition_of(new_count(engine, "b", 0), 1)};
	struct count_row held = {.item_id = additions[1].item_id};
	struct session *other;
	int64_t now_us;

	other = engine_session(engine, SESSION_WRITE);
	engine_begin(other);
	assert_int_equal(engine->counts->lock(other, &held, 1, &now_us), STATUS_OK);
	begin_in_use(engine);
	assert_int_equal(add_alone(engine, additions, 2), STATUS_LOCK_BUSY);
	other->ops->rollback(other);
	assert_value(engine, additions[0].item_id, 0);
	assert_value(engine, additions[1].item_id, 0);
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
	struct count_addition addition = addition_of(new_count(engine, "a", 5), 37);

	begin_in_use(engine);
	end_sessions(engine);
	assert_int_equal(add_alone(engine, &addition, 1), STATUS_RERUN);
	assert_value(engine, addition.item_id, 5);
	engine_begin(engine->session);
	assert_int_equal(add_alone(engine, &addition, 1), STATUS_OK);
	engine_commit(engine->session);
	assert_value(engine, addition.item_id, 42);
}

/* The server's word on the commit comes where the end of the round is expected. */
static void an_addition_alone_whose_commit_fails_is_of_unknown_outcome(void **state)
{
	struct engine *engine = *state;
	struct count_addition addition = addition_of(new_count(engine, "a", 5), 37);

	engine_execute(engine, "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
			       "'BEGIN RAISE EXCEPTION ''refused''; END'");
	engine_execute(engine,
		"CREATE CONSTRAINT TRIGGER refuse AFTER UPDATE ON count_values "
		"INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.item_id = '%.*s') "
		"EXECUTE FUNCTION refuse()",
		(int)addition.item_id.len, addition.item_id.data);
	begin_in_use(engine);
	assert_int_equal(add_alone(engine, &addition, 1), STATUS_OUTCOME_UNKNOWN);
	engine_execute(engine, "DROP FUNCTION refuse CASCADE");
	assert_value(engine, addition.item_id, 5);
	begin_in_use(engine);
	assert_int_equal(add_alone(engine, &addition, 1), STATUS_OK);
	engine_commit(engine->session);
	assert_value(engine, addition.item_id, 42);
}

/* ---- lock and edit ----------------------------------------------------------------------- */

static void lock_tells_what_is_there_and_the_time(void **state)
{
	struct engine *engine = *state;
	struct count_row rows[3] = {{.item_id = engine_name(engine, "a"), .exists = true},
		{.item_id = new_count(engine, "b", 42)}, {.item_id = engine_name(engine, "c")}};
	int64_t now_us = 0;
	int64_t real_us = (int64_t)time(NULL) * 1000000;

	rows[0].busy = true;
	engine_begin(engine->session);
	assert_int_equal(engine->counts->lock(engine->session, rows, 3, &now_us), STATUS_OK);
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
	struct count_row row = {.item_id = new_count(engine, "a", 42), .busy = true};
	int64_t now_us;

	assert_int_equal(engine->session->ops->begin(engine->session, LOCK_SKIP), STATUS_OK);
	assert_int_equal(engine->counts->lock(engine->session, &row, 1, &now_us), STATUS_OK);
	engine_commit(engine->session);
	assert_true(row.exists && !row.busy && row.value == 42);
}

static void edit_inserts_updates_and_deletes(void **state)
{
	struct engine *engine = *state;
	struct count_edit edits[3] = {
		{.item_id = new_count(engine, "a", 1), .kind = COUNT_UPDATE, .value = INT64_MIN},
		{.item_id = new_count(engine, "b", 1), .kind = COUNT_DELETE},
		{.item_id = engine_name(engine, "c"), .kind = COUNT_INSERT, .value = INT64_MAX}};

	engine_begin(engine->session);
	assert_int_equal(engine->counts->edit(engine->session, edits, 3, 123456), STATUS_OK);
	engine_commit(engine->session);
	assert_value(engine, edits[0].item_id, INT64_MIN);
	assert_missing(engine, edits[1].item_id);
	assert_value(engine, edits[2].item_id, INT64_MAX);
	assert_int_equal(find_with(engine, engine->session, edits[0].item_id).updated_us, 123456);
	assert_int_equal(find_with(engine, engine->session, edits[2].item_id).updated_us, 123456);
}

static void inserting_what_exists_is_a_rerun_and_nothing_is_applied(void **state)
{
	struct engine *engine = *state;
	struct slice taken = new_count(engine, "b", 1);
	struct count_edit edits[3] = {
		{.item_id = engine_name(engine, "a"), .kind = COUNT_INSERT, .value = 9},
		{.item_id = taken, .kind = COUNT_INSERT, .value = 9},
		{.item_id = engine_name(engine, "c"), .kind = COUNT_INSERT, .value = 9}};

	engine_begin(engine->session);
	assert_int_equal(engine->counts->edit(engine->session, edits, 3, 0), STATUS_RERUN);
	assert_missing(engine, edits[0].item_id);
	assert_value(engine, taken, 1);
	assert_missing(engine, edits[2].item_id);
}

static void empty_batches_are_fine(void **state)
{
	struct engine *engine = *state;
	struct session *session = engine->session;
	int64_t now_us = 0;

	engine_begin(session);
	assert_int_equal(engine->counts->add(session, NULL, 0), STATUS_OK);
	assert_int_equal(engine->counts->lock(session, NULL, 0, &now_us), STATUS_OK);
	assert_int_equal(engine->counts->edit(session, NULL, 0, 0), STATUS_OK);
	engine_commit(session);
	assert_true(now_us > 0);
	assert_int_equal(engine->counts->find(session, NULL, 0), STATUS_OK);
}

/* ---- what other sessions see ------------------------------------------------------------- */

static void rollback_undoes_every_kind_of_change(void **state)
{
	struct engine *engine = *state;
	struct slice a = new_count(engine, "a", 1), b = new_count(engine, "b", 1);
	struct slice c = new_count(engine, "c", 1), d = engine_name(engine, "d");
	struct count_addition addition = addition_of(a, 1);

	engine_begin(engine->session);
	assert_int_equal(engine->counts->add(engine->session, &addition, 1), STATUS_OK);
	assert_int_equal(edit_one(engine, b, COUNT_UPDATE, 9), STATUS_OK);
	assert_int_equal(edit_one(engine, c, COUNT_DELETE, 0), STATUS_OK);
	assert_int_equal(edit_one(engine, d, COUNT_INSERT, 9), STATUS_OK);
	engine->session->ops->rollback(engine->session);
	assert_value(engine, a, 1);
	assert_value(engine, b, 1);
	assert_value(engine, c, 1);
	assert_missing(engine, d);
}

static void a_transaction_sees_its_own_changes(void **state)
{
	struct engine *engine = *state;
	struct count_row row = {.item_id = new_count(engine, "a", 1)};
	struct count_addition addition = addition_of(row.item_id, 1);
	int64_t now_us;

	engine_begin(engine->session);
	assert_int_equal(engine->counts->add(engine->session, &addition, 1), STATUS_OK);
	assert_int_equal(engine->counts->lock(engine->session, &row, 1, &now_us), STATUS_OK);
	engine->session->ops->rollback(engine->session);
	assert_int_equal(row.value, 2);
}

static void a_read_session_sees_only_what_is_committed(void **state)
{
	struct engine *engine = *state;
	struct session *reader = engine_session(engine, SESSION_READ);
	struct slice id = new_count(engine, "a", 1);
	struct slice inserted = engine_name(engine, "b");
	struct count_addition addition = addition_of(id, 1);

	engine_begin(engine->session);
	assert_int_equal(engine->counts->add(engine->session, &addition, 1), STATUS_OK);
	assert_int_equal(edit_one(engine, inserted, COUNT_INSERT, 9), STATUS_OK);
	assert_int_equal(find_with(engine, reader, id).value, 1);
	assert_false(find_with(engine, reader, inserted).exists);
	engine_commit(engine->session);
	assert_int_equal(find_with(engine, reader, id).value, 2);
	assert_true(find_with(engine, reader, inserted).exists);
}

static void what_another_session_holds_is_busy(void **state)
{
	struct engine *engine = *state;
	struct session *other;
	struct count_row rows[2] = {
		{.item_id = new_count(engine, "a", 1)}, {.item_id = new_count(engine, "b", 2)}};
	int64_t now_us;

	if (strcmp(engine->store->engine, "sqlite") == 0)
		skip(); /* begin() itself waits there: nobody holds anything in one's own turn */
	other = engine_session(engine, SESSION_WRITE);
	engine_begin(other);
	assert_int_equal(engine->counts->lock(other, &rows[0], 1, &now_us), STATUS_OK);
	engine_begin(engine->session);
	assert_int_equal(engine->counts->lock(engine->session, rows, 2, &now_us), STATUS_LOCK_BUSY);
	assert_int_equal(engine->session->ops->begin(engine->session, LOCK_SKIP), STATUS_OK);
	assert_int_equal(engine->counts->lock(engine->session, rows, 2, &now_us), STATUS_OK);
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
		additions[i] = addition_of(odd_names[i], 1);
	}
	engine_begin(engine->session);
	assert_int_equal(engine->counts->edit(engine->session, edits, ODD_NAMES, 0), STATUS_OK);
	assert_int_equal(engine->counts->add(engine->session, additions, ODD_NAMES), STATUS_OK);
	engine_commit(engine->session);
	for (size_t i = 0; i < ODD_NAMES; i++) {
		assert_int_equal(additions[i].value, i * 10 + 1);
		assert_value(engine, odd_names[i], (int64_t)i * 10 + 1);
	}
}

/* ---- a model ----------------------------------------------------------------------------- */

#define MODEL_ROWS 40
#define MODEL_BATCHES 700

struct model {
	struct engine *engine;
	struct session *session;
	struct session *reader;
	struct dice dice;
	struct count_row rows[MODEL_ROWS]; /* sorted by id */
};

/* Small numbers mostly, and both ends of int64 often enough to matter. */
static int64_t model_value(struct model *model)
{
	int64_t near = (int64_t)dice_below(&model->dice, 7) - 3;

	switch (dice_below(&model->dice, 6)) {
	case 0:
		return INT64_MAX - 3 + near;
	case 1:
		return INT64_MIN + 3 + near;
	default:
		return near;
	}
}

/* Picks a sorted subset of the rows; returns how many. */
static size_t model_pick(struct model *model, size_t *picked)
{
	uint64_t in = 1 + dice_below(&model->dice, 4);
	size_t count = 0;

	for (size_t i = 0; i < MODEL_ROWS; i++) {
		if (dice_below(&model->dice, 5) < in)
			picked[count++] = i;
	}
	return count;
}

static void model_add(struct model *model, struct count_row *rows)
{
	size_t picked[MODEL_ROWS];
	size_t count = model_pick(model, picked);
	struct count_addition additions[MODEL_ROWS];

	for (size_t i = 0; i < count; i++)
		additions[i] = addition_of(rows[picked[i]].item_id, model_value(model));
	assert_int_equal(model->engine->counts->add(model->session, additions, count), STATUS_OK);
	for (size_t i = 0; i < count; i++) {
		struct count_row *row = &rows[picked[i]];
		int64_t value;
		bool fits = !__builtin_add_overflow(row->value, additions[i].sum, &value);

		assert_int_equal(additions[i].applied, row->exists && fits);
		if (!additions[i].applied)
			continue;
		assert_true(additions[i].value == value);
		row->value = value;
	}
}

static struct count_edit model_edit_one(struct model *model, struct count_row *row)
{
	struct count_edit edit = {.item_id = row->item_id, .value = model_value(model)};
	bool delete = row->exists && dice_below(&model->dice, 3) == 0;

	edit.kind = !row->exists ? COUNT_INSERT : delete ? COUNT_DELETE : COUNT_UPDATE;
	row->exists = !delete;
	row->value = edit.value;
	return edit;
}

static void model_edit(struct model *model, struct count_row *rows)
{
	size_t picked[MODEL_ROWS];
	size_t count = model_pick(model, picked);
	struct count_row locked[MODEL_ROWS];
	struct count_edit edits[MODEL_ROWS];
	int64_t now_us;

	for (size_t i = 0; i < count; i++)
		locked[i] = (struct count_row){.item_id = rows[picked[i]].item_id};
	assert_int_equal(
		model->engine->counts->lock(model->session, locked, count, &now_us), STATUS_OK);
	for (size_t i = 0; i < count; i++) {
		struct count_row *row = &rows[picked[i]];

		assert_int_equal(locked[i].exists, row->exists);
		assert_true(!row->exists || locked[i].value == row->value);
		edits[i] = model_edit_one(model, row);
	}
	assert_int_equal(
		model->engine->counts->edit(model->session, edits, count, now_us), STATUS_OK);
}

static void model_compare(struct model *model)
{
	struct count_row found[MODEL_ROWS];

	memcpy(found, model->rows, sizeof(found));
	assert_int_equal(model->engine->counts->find(model->reader, found, MODEL_ROWS), STATUS_OK);
	for (size_t i = 0; i < MODEL_ROWS; i++) {
		assert_int_equal(found[i].exists, model->rows[i].exists);
		assert_true(!found[i].exists || found[i].value == model->rows[i].value);
	}
}

static void model_batch(struct model *model)
{
	struct count_row rows[MODEL_ROWS];

	memcpy(rows, model->rows, sizeof(rows));
	engine_begin(model->session);
	for (uint64_t left = 1 + dice_below(&model->dice, 3); left > 0; left--) {
		if (dice_below(&model->dice, 2))
			model_add(model, rows);
		else
			model_edit(model, rows);
	}
	if (dice_below(&model->dice, 5) == 0) {
		model->session->ops->rollback(model->session);
		return;
	}
	engine_commit(model->session);
	memcpy(model->rows, rows, sizeof(rows));
}

static void random_batches_do_what_the_model_does(void **state)
{
	struct engine *engine = *state;
	struct model model = {.engine = engine,
		.session = engine->session,
		.reader = engine_session(engine, SESSION_READ),
		.dice = {.state = 20260108}};

	for (int i = 0; i < MODEL_ROWS; i++) {
		char name[8];

		snprintf(name, sizeof(name), "%02d'%%", i);
		model.rows[i].item_id = engine_name(engine, name);
	}
	for (int i = 0; i < MODEL_BATCHES; i++) {
		model_batch(&model);
		model_compare(&model);
	}
}

/* ---- several threads --------------------------------------------------------------------- */

#define THREADS 2
#define TRANSACTIONS 150
#define SHARED_ROWS 10

struct adder {
	struct engine *engine;
	struct session *session;
	struct dice dice;
	struct slice ids[SHARED_ROWS]; /* sorted */
	int64_t sums[SHARED_ROWS];     /* committed by this thread */
	enum status (*work)(struct adder *adder, const int64_t *steps);
	enum status failed;
};

/* Draws steps, most of them not zero, and repeats the transaction until it is committed. */
static void run_transaction(struct adder *adder)
{
	struct session *session = adder->session;
	int64_t steps[SHARED_ROWS];
	enum status status;

	for (int i = 0; i < SHARED_ROWS; i++)
		steps[i] = (int64_t)dice_below(&adder->dice, 7) - 3;
	do {
		status = session->ops->begin(session, LOCK_WAIT);
		if (status == STATUS_OK)
			status = adder->work(adder, steps);
		if (status == STATUS_OK)
			status = session->ops->commit(session);
	} while (engine_is_collision(status));
	if (status != STATUS_OK)
		adder->failed = status;
	for (int i = 0; i < SHARED_ROWS; i++)
		adder->sums[i] += steps[i];
}

static void *run_adder(void *argument)
{
	struct adder *adder = argument;

	for (int i = 0; i < TRANSACTIONS && adder->failed == STATUS_OK; i++)
		run_transaction(adder);
	return NULL;
}

static enum status add_steps(struct adder *adder, const int64_t *steps)
{
	struct count_addition additions[SHARED_ROWS];
	size_t count = 0;

	for (int i = 0; i < SHARED_ROWS; i++) {
		if (steps[i] != 0)
			additions[count++] = addition_of(adder->ids[i], steps[i]);
	}
	return adder->engine->counts->add(adder->session, additions, count);
}

/* Reads, decides, writes: the first to come inserts the row. */
static enum status lock_and_edit(struct adder *adder, const int64_t *steps)
{
	struct count_row rows[SHARED_ROWS];
	struct count_edit edits[SHARED_ROWS];
	int64_t now_us;
	enum status status;

	for (int i = 0; i < SHARED_ROWS; i++)
		rows[i] = (struct count_row){.item_id = adder->ids[i]};
	status = adder->engine->counts->lock(adder->session, rows, SHARED_ROWS, &now_us);
	if (status != STATUS_OK)
		return status;
	for (int i = 0; i < SHARED_ROWS; i++)
		edits[i] = (struct count_edit){.item_id = rows[i].item_id,
			.kind = rows[i].exists ? COUNT_UPDATE : COUNT_INSERT,
			.value = (rows[i].exists ? rows[i].value : 0) + steps[i]};
	return adder->engine->counts->edit(adder->session, edits, SHARED_ROWS, now_us);
}

static void run_threads(struct engine *engine, const struct slice *ids,
	enum status (*work)(struct adder *adder, const int64_t *steps))
{
	struct adder adders[THREADS];
	pthread_t threads[THREADS];

	for (int i = 0; i < THREADS; i++) {
		adders[i] = (struct adder){.engine = engine,
			.session = engine_session(engine, SESSION_WRITE),
			.dice = {.state = (uint64_t)i + 1},
			.work = work};
		memcpy(adders[i].ids, ids, sizeof(adders[i].ids));
	}
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, run_adder, &adders[i]), 0);
	for (int i = 0; i < THREADS; i++) {
		pthread_join(threads[i], NULL);
		assert_string_equal(status_code(adders[i].failed), "OK");
	}
	for (int row = 0; row < SHARED_ROWS; row++) {
		int64_t sum = 0;

		for (int i = 0; i < THREADS; i++)
			sum += adders[i].sums[row];
		assert_value(engine, ids[row], sum);
	}
}

static const char *const shared_names[SHARED_ROWS] = {
	"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"};

static void two_threads_add_exactly(void **state)
{
	struct engine *engine = *state;
	struct slice ids[SHARED_ROWS];

	for (int i = 0; i < SHARED_ROWS; i++)
		ids[i] = new_count(engine, shared_names[i], 0);
	run_threads(engine, ids, add_steps);
}

static void two_threads_decide_exactly(void **state)
{
	struct engine *engine = *state;
	struct slice ids[SHARED_ROWS];

	for (int i = 0; i < SHARED_ROWS; i++)
		ids[i] = engine_name(engine, shared_names[i]);
	run_threads(engine, ids, lock_and_edit);
}

/* Every transaction moves value from row to row: a view that is torn has another sum. */
static enum status move_steps(struct adder *adder, const int64_t *steps)
{
	struct count_addition additions[SHARED_ROWS];
	int64_t sum = 0;

	for (int i = 0; i < SHARED_ROWS; i++) {
		int64_t step = i < SHARED_ROWS - 1 ? steps[i] : -sum;

		sum += step;
		additions[i] = addition_of(adder->ids[i], step);
	}
	return adder->engine->counts->add(adder->session, additions, SHARED_ROWS);
}

static void a_find_is_one_view(void **state)
{
	struct engine *engine = *state;
	struct session *reader = engine_session(engine, SESSION_READ);
	struct adder adder = {.engine = engine,
		.session = engine->session,
		.dice = {.state = 3},
		.work = move_steps};
	struct count_row rows[SHARED_ROWS];
	pthread_t thread;

	for (int i = 0; i < SHARED_ROWS; i++) {
		adder.ids[i] = new_count(engine, shared_names[i], 0);
		rows[i] = (struct count_row){.item_id = adder.ids[i]};
	}
	assert_int_equal(pthread_create(&thread, NULL, run_adder, &adder), 0);
	for (int round = 0; round < TRANSACTIONS; round++) {
		int64_t sum = 0;

		assert_int_equal(engine->counts->find(reader, rows, SHARED_ROWS), STATUS_OK);
		for (int i = 0; i < SHARED_ROWS; i++)
			sum += rows[i].value;
		assert_int_equal(sum, 0);
	}
	pthread_join(thread, NULL);
	assert_int_equal(adder.failed, STATUS_OK);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		ENGINE_TEST(add_tells_the_new_value),
		ENGINE_TEST(add_leaves_out_what_is_missing),
		ENGINE_TEST(add_applies_only_inside_the_bounds),
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
		ENGINE_TEST(random_batches_do_what_the_model_does),
		ENGINE_TEST(two_threads_add_exactly),
		ENGINE_TEST(two_threads_decide_exactly),
		ENGINE_TEST(a_find_is_one_view),
	};

	const struct CMUnitTest alone_tests[] = {
		ENGINE_TEST(an_addition_alone_is_there_before_commit),
		ENGINE_TEST(a_rollback_does_not_undo_an_addition_alone),
		ENGINE_TEST(an_addition_after_something_else_is_not_alone),
		ENGINE_TEST(an_addition_alone_that_is_refused_applies_nothing),
		ENGINE_TEST(an_addition_alone_to_a_row_that_is_held_applies_nothing),
		ENGINE_TEST(a_session_that_was_ended_before_leaves_no_doubt),
		ENGINE_TEST(an_addition_alone_whose_commit_fails_is_of_unknown_outcome),
	};
	int failed = cmocka_run_group_tests_name("count_repository", tests, NULL, NULL);

	if (engine_is_a_server())
		failed += cmocka_run_group_tests_name(
			"count_repository, additions alone", alone_tests, NULL, NULL);
	return failed;
}
