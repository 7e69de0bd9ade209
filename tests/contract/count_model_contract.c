/* Counts against a model of them, and by several threads. Part of count_repository_contract. */
#include <pthread.h>
#include <stdio.h>

#include "base/random.h"
#include "check.h"
#include "engine.h"
#include "one_count.h"

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

static bool is_within(const struct count_row *row, int64_t value)
{
	return (!row->bounds.min.is_set || value >= row->bounds.min.value) &&
	       (!row->bounds.max.is_set || value <= row->bounds.max.value);
}

static struct count_bound model_bound(struct model *model)
{
	return dice_below(&model->dice, 3) == 0 ? one_bound(model_value(model))
						: (struct count_bound){0};
}

static void model_add(struct model *model, struct count_row *rows)
{
	size_t picked[MODEL_ROWS];
	size_t count = model_pick(model, picked);
	struct count_addition additions[MODEL_ROWS];

	for (size_t i = 0; i < count; i++)
		additions[i] = one_count_addition(rows[picked[i]].item_id, model_value(model));
	assert_int_equal(model->engine->counts->ops->add(
				 model->engine->counts, model->session, additions, count),
		STATUS_OK);
	for (size_t i = 0; i < count; i++) {
		struct count_row *row = &rows[picked[i]];
		int64_t value;
		bool fits = !__builtin_add_overflow(row->value, additions[i].sum, &value);

		fits = fits && is_within(row, row->value) && is_within(row, value);
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

	edit.bounds.min = model_bound(model);
	edit.bounds.max = model_bound(model);
	edit.kind = !row->exists ? COUNT_INSERT : delete ? COUNT_DELETE : COUNT_UPDATE;
	row->exists = !delete;
	row->value = edit.value;
	row->bounds = edit.bounds;
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
	assert_int_equal(model->engine->counts->ops->lock(
				 model->engine->counts, model->session, locked, count, &now_us),
		STATUS_OK);
	for (size_t i = 0; i < count; i++) {
		struct count_row *row = &rows[picked[i]];

		assert_int_equal(locked[i].exists, row->exists);
		assert_true(!row->exists || locked[i].value == row->value);
		edits[i] = model_edit_one(model, row);
	}
	assert_int_equal(model->engine->counts->ops->edit(
				 model->engine->counts, model->session, edits, count, now_us),
		STATUS_OK);
}

static void model_compare(struct model *model)
{
	struct count_row found[MODEL_ROWS];

	memcpy(found, model->rows, sizeof(found));
	assert_int_equal(model->engine->counts->ops->find(
				 model->engine->counts, model->reader, found, MODEL_ROWS),
		STATUS_OK);
	for (size_t i = 0; i < MODEL_ROWS; i++) {
		assert_int_equal(found[i].exists, model->rows[i].exists);
		if (!found[i].exists)
			continue;
		assert_true(found[i].value == model->rows[i].value);
		one_count_assert_bounds(&found[i].bounds, &model->rows[i].bounds);
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
		status = session->ops->begin(session, TRANSACTION_WAIT);
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
			additions[count++] = one_count_addition(adder->ids[i], steps[i]);
	}
	return adder->engine->counts->ops->add(
		adder->engine->counts, adder->session, additions, count);
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
	status = adder->engine->counts->ops->lock(
		adder->engine->counts, adder->session, rows, SHARED_ROWS, &now_us);
	if (status != STATUS_OK)
		return status;
	for (int i = 0; i < SHARED_ROWS; i++)
		edits[i] = (struct count_edit){.item_id = rows[i].item_id,
			.kind = rows[i].exists ? COUNT_UPDATE : COUNT_INSERT,
			.value = (rows[i].exists ? rows[i].value : 0) + steps[i]};
	return adder->engine->counts->ops->edit(
		adder->engine->counts, adder->session, edits, SHARED_ROWS, now_us);
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
		one_count_assert_value(engine, ids[row], sum);
	}
}

static const char *const shared_names[SHARED_ROWS] = {
	"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"};

static void two_threads_add_exactly(void **state)
{
	struct engine *engine = *state;
	struct slice ids[SHARED_ROWS];

	for (int i = 0; i < SHARED_ROWS; i++)
		ids[i] = one_count_new(engine, shared_names[i], 0);
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
		additions[i] = one_count_addition(adder->ids[i], step);
	}
	return adder->engine->counts->ops->add(
		adder->engine->counts, adder->session, additions, SHARED_ROWS);
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

	if (engine_is_a_cluster())
		skip_because("the nodes of a cluster are not read at the same moment");
	for (int i = 0; i < SHARED_ROWS; i++) {
		adder.ids[i] = one_count_new(engine, shared_names[i], 0);
		rows[i] = (struct count_row){.item_id = adder.ids[i]};
	}
	assert_int_equal(pthread_create(&thread, NULL, run_adder, &adder), 0);
	for (int round = 0; round < TRANSACTIONS; round++) {
		int64_t sum = 0;

		assert_int_equal(
			engine->counts->ops->find(engine->counts, reader, rows, SHARED_ROWS),
			STATUS_OK);
		for (int i = 0; i < SHARED_ROWS; i++)
			sum += rows[i].value;
		assert_int_equal(sum, 0);
	}
	pthread_join(thread, NULL);
	assert_int_equal(adder.failed, STATUS_OK);
}

int count_model_tests(void)
{
	const struct CMUnitTest tests[] = {
		ENGINE_TEST(random_batches_do_what_the_model_does),
		ENGINE_TEST(two_threads_add_exactly),
		ENGINE_TEST(two_threads_decide_exactly),
		ENGINE_TEST(a_find_is_one_view),
	};

	return cmocka_run_group_tests_name("count_repository, many at once", tests, NULL, NULL);
}
