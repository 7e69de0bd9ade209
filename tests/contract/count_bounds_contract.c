/* The bounds of counts: which additions they let through, up to both ends of int64, and that they
 * are kept. Part of count_repository_contract. */
#include <pthread.h>
#include <stdio.h>

#include "engine.h"
#include "one_count.h"

/* ---- which additions apply ----------------------------------------------------------------- */

#define VALUES 7
#define BOUNDS (VALUES + 1) /* each value, and none */
#define ROWS (VALUES * BOUNDS * BOUNDS)

static const int64_t values[VALUES] = {
	INT64_MIN, INT64_MIN + 1, -1, 0, 1, INT64_MAX - 1, INT64_MAX};

static struct count_bound bound_of(size_t i)
{
	return i < VALUES ? one_bound(values[i]) : (struct count_bound){0};
}

/* Counts of every value with every pair of bounds, also those that the value is outside of. */
static void insert_all(struct engine *engine, struct count_edit *edits)
{
	for (size_t i = 0; i < ROWS; i++) {
		char name[8];

		snprintf(name, sizeof(name), "%04zu", i);
		edits[i] = (struct count_edit){.item_id = engine_name(engine, name),
			.kind = COUNT_INSERT,
			.value = values[i % VALUES],
			.bounds = {.min = bound_of(i / VALUES % BOUNDS),
				.max = bound_of(i / VALUES / BOUNDS)}};
	}
	engine_begin(engine->session);
	assert_int_equal(
		engine->counts->ops->edit(engine->counts, engine->session, edits, ROWS, 1000),
		STATUS_OK);
	engine_commit(engine->session);
}

/* With numbers that are wide enough for every sum. */
static bool may_reach(const struct count_edit *count, int64_t step)
{
	__int128 reached = (__int128)count->value + step;
	int64_t min = count->bounds.min.is_set ? count->bounds.min.value : INT64_MIN;
	int64_t max = count->bounds.max.is_set ? count->bounds.max.value : INT64_MAX;

	return reached >= min && reached <= max;
}

/* Adds the same to all counts, compares, and takes it back. */
static void try_all(
	struct engine *engine, const struct count_edit *counts, struct count_addition like)
{
	struct count_addition additions[ROWS];

	for (size_t i = 0; i < ROWS; i++) {
		additions[i] = like;
		additions[i].item_id = counts[i].item_id;
	}
	engine_begin(engine->session);
	assert_int_equal(engine->counts->ops->add(engine->counts, engine->session, additions, ROWS),
		STATUS_OK);
	engine->session->ops->rollback(engine->session);
	for (size_t i = 0; i < ROWS; i++) {
		bool fits =
			may_reach(&counts[i], like.lowest) && may_reach(&counts[i], like.highest);

		assert_int_equal(additions[i].applied, fits);
		assert_true(!fits || additions[i].value == counts[i].value + like.sum);
	}
}

static void add_applies_only_where_every_step_is_within_the_bounds(void **state)
{
	static const int64_t lows[] = {0, -1, INT64_MIN + 1, INT64_MIN};
	static const int64_t highs[] = {0, 1, INT64_MAX};
	struct engine *engine = *state;
	struct count_edit counts[ROWS];

	insert_all(engine, counts);
	for (size_t low = 0; low < 4; low++) {
		for (size_t high = 0; high < 3; high++) {
			struct count_addition like = {.lowest = lows[low], .highest = highs[high]};

			try_all(engine, counts, like);
			like.sum = like.lowest;
			try_all(engine, counts, like);
			like.sum = like.highest;
			try_all(engine, counts, like);
		}
	}
}

/* ---- bounds are kept ------------------------------------------------------------------------ */

static void assert_found(struct engine *engine, struct slice id, struct count_bounds expected)
{
	struct count_row found = one_count_find(engine, engine->session, id);

	assert_true(found.exists);
	one_count_assert_bounds(&found.bounds, &expected);
}

static void bounds_are_found_locked_and_listed(void **state)
{
	struct engine *engine = *state;
	struct count_bounds bounds[3] = {{one_bound(INT64_MIN), one_bound(INT64_MAX)},
		{.max = one_bound(0)}, {.min = one_bound(-7)}};
	struct count_row locked[3] = {0}, listed[3];
	struct row_page page = {.after = {engine_name(engine, "")}, .limit = 3};
	int64_t now_us;

	for (int i = 0; i < 3; i++) {
		const char name[2] = {(char)('a' + i), '\0'};

		locked[i].item_id = one_count_bounded(engine, name, 0, bounds[i]);
		locked[i].bounds = (struct count_bounds){one_bound(77), one_bound(77)};
	}
	engine_begin(engine->session);
	assert_int_equal(
		engine->counts->ops->lock(engine->counts, engine->session, locked, 3, &now_us),
		STATUS_OK);
	engine_commit(engine->session);
	assert_int_equal(engine->counts->ops->list(
				 engine->counts, engine->session, &engine->arena, &page, listed),
		STATUS_OK);
	assert_int_equal(page.count, 3);
	for (int i = 0; i < 3; i++) {
		assert_found(engine, locked[i].item_id, bounds[i]);
		one_count_assert_bounds(&locked[i].bounds, &bounds[i]);
		one_count_assert_bounds(&listed[i].bounds, &bounds[i]);
	}
}

static void edit_replaces_bounds_and_add_leaves_them(void **state)
{
	struct engine *engine = *state;
	struct count_bounds both = {one_bound(0), one_bound(9)};
	struct count_edit edit = {.item_id = one_count_bounded(engine, "a", 5, both),
		.kind = COUNT_UPDATE,
		.value = 6,
		.bounds = {.max = one_bound(8)}};
	struct count_addition addition = one_count_addition(edit.item_id, 2);

	engine_begin(engine->session);
	assert_int_equal(engine->counts->ops->edit(engine->counts, engine->session, &edit, 1, 2000),
		STATUS_OK);
	assert_int_equal(
		engine->counts->ops->add(engine->counts, engine->session, &addition, 1), STATUS_OK);
	engine_commit(engine->session);
	assert_true(addition.applied && addition.value == 8);
	assert_found(engine, edit.item_id, edit.bounds);
}

/* ---- two threads ---------------------------------------------------------------------------- */

#define LEFT 100
#define TAKES 150

struct taker {
	struct engine *engine;
	struct session *session;
	struct slice id;
	int taken;
	enum status failed;
};

static enum status take_one(struct taker *taker, bool *taken)
{
	struct count_addition addition = one_count_addition(taker->id, -1);
	enum status status = taker->session->ops->begin(taker->session, TRANSACTION_WAIT);

	if (status == STATUS_OK)
		status = taker->engine->counts->ops->add(
			taker->engine->counts, taker->session, &addition, 1);
	if (status == STATUS_OK)
		status = taker->session->ops->commit(taker->session);
	*taken = status == STATUS_OK && addition.applied;
	return status;
}

static void *run_taker(void *argument)
{
	struct taker *taker = argument;

	for (int i = 0; i < TAKES && taker->failed == STATUS_OK; i++) {
		enum status status;
		bool taken;

		do
			status = take_one(taker, &taken);
		while (engine_is_collision(status));
		taker->taken += taken;
		taker->failed = status;
	}
	return NULL;
}

static void two_threads_take_exactly_what_is_left(void **state)
{
	struct engine *engine = *state;
	struct slice id =
		one_count_bounded(engine, "a", LEFT, (struct count_bounds){.min = one_bound(0)});
	struct taker takers[2];
	pthread_t threads[2];

	for (int i = 0; i < 2; i++) {
		takers[i] = (struct taker){.engine = engine,
			.session = engine_session(engine, SESSION_WRITE),
			.id = id};
		assert_int_equal(pthread_create(&threads[i], NULL, run_taker, &takers[i]), 0);
	}
	for (int i = 0; i < 2; i++) {
		pthread_join(threads[i], NULL);
		assert_string_equal(status_code(takers[i].failed), "OK");
	}
	assert_int_equal(takers[0].taken + takers[1].taken, LEFT);
	one_count_assert_value(engine, id, 0);
}

int count_bounds_tests(void)
{
	const struct CMUnitTest tests[] = {
		ENGINE_TEST(add_applies_only_where_every_step_is_within_the_bounds),
		ENGINE_TEST(bounds_are_found_locked_and_listed),
		ENGINE_TEST(edit_replaces_bounds_and_add_leaves_them),
		ENGINE_TEST(two_threads_take_exactly_what_is_left),
	};

	return cmocka_run_group_tests_name("count_repository, bounds", tests, NULL, NULL);
}
