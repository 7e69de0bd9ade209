#include "one_count.h"

enum status one_count_edit(
	struct engine *engine, struct slice id, enum count_edit_kind kind, int64_t value)
{
	struct count_edit edit = {.item_id = id, .kind = kind, .value = value};

	return engine->counts->ops->edit(engine->counts, engine->session, &edit, 1, 1000);
}

struct slice one_count_bounded(
	struct engine *engine, const char *name, int64_t value, struct count_bounds bounds)
{
	struct count_edit edit = {.item_id = engine_name(engine, name),
		.kind = COUNT_INSERT,
		.value = value,
		.bounds = bounds};

	engine_begin(engine->session);
	assert_int_equal(engine->counts->ops->edit(engine->counts, engine->session, &edit, 1, 1000),
		STATUS_OK);
	engine_commit(engine->session);
	return edit.item_id;
}

struct slice one_count_new(struct engine *engine, const char *name, int64_t value)
{
	return one_count_bounded(engine, name, value, (struct count_bounds){0});
}

struct count_bound one_bound(int64_t value)
{
	return (struct count_bound){.is_set = true, .value = value};
}

void one_count_assert_bounds(const struct count_bounds *bounds, const struct count_bounds *expected)
{
	assert_int_equal(bounds->min.is_set, expected->min.is_set);
	assert_int_equal(bounds->max.is_set, expected->max.is_set);
	assert_true(!bounds->min.is_set || bounds->min.value == expected->min.value);
	assert_true(!bounds->max.is_set || bounds->max.value == expected->max.value);
}

struct count_row one_count_find(struct engine *engine, struct session *session, struct slice id)
{
	struct count_row row = {.item_id = id, .exists = true, .busy = true, .value = 77};

	assert_int_equal(engine->counts->ops->find(engine->counts, session, &row, 1), STATUS_OK);
	assert_false(row.busy);
	return row;
}

void one_count_assert_value(struct engine *engine, struct slice id, int64_t value)
{
	struct count_row row = one_count_find(engine, engine->session, id);

	assert_true(row.exists);
	assert_true(row.value == value);
}

void one_count_assert_missing(struct engine *engine, struct slice id)
{
	assert_false(one_count_find(engine, engine->session, id).exists);
}

struct count_addition one_count_addition(struct slice id, int64_t sum)
{
	return (struct count_addition){.item_id = id,
		.sum = sum,
		.lowest = sum < 0 ? sum : 0,
		.highest = sum > 0 ? sum : 0,
		.value = 77};
}
