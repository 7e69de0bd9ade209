#include "one_count.h"

enum status one_count_edit(
	struct engine *engine, struct slice id, enum count_edit_kind kind, int64_t value)
{
	struct count_edit edit = {.item_id = id, .kind = kind, .value = value};

	return engine->counts->ops->edit(engine->counts, engine->session, &edit, 1, 1000);
}

struct slice one_count_new(struct engine *engine, const char *name, int64_t value)
{
	struct slice id = engine_name(engine, name);

	engine_begin(engine->session);
	assert_int_equal(one_count_edit(engine, id, COUNT_INSERT, value), STATUS_OK);
	engine_commit(engine->session);
	return id;
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
		.least = sum < 0 ? INT64_MIN - sum : INT64_MIN,
		.most = sum > 0 ? INT64_MAX - sum : INT64_MAX,
		.value = 77};
}
