/* The pages of ports/count_repository.h, on one engine. */
#include <stdio.h>

#include "check.h"
#include "engine.h"
#include "one_count.h"

/* In byte order, which is neither that of a language nor that of the numbers. */
static const char *const names[] = {
	"", " ", "10", "9", "B", "a", "aa", "\xc3\xa4", "\xef\xbf\xbd", "\xf0\x9f\x98\x80"};

#define NAMES (sizeof(names) / sizeof(names[0]))

static void create_names(struct engine *engine)
{
	for (size_t i = NAMES; i-- > 0;)
		one_count_new(engine, names[i], (int64_t)i);
}

static void assert_page(struct engine *engine, struct row_page page, size_t first, size_t count)
{
	struct count_row rows[NAMES];

	assert_int_equal(engine->counts->ops->list(
				 engine->counts, engine->session, &engine->arena, &page, rows),
		STATUS_OK);
	assert_int_equal(page.count, count);
	for (size_t i = 0; i < count; i++) {
		assert_true(slice_equal(rows[i].item_id, engine_name(engine, names[first + i])));
		assert_int_equal(rows[i].value, first + i);
		assert_true(rows[i].exists);
	}
}

/* A page of `engine`'s own names. */
static struct row_page own_page(struct engine *engine, const char *from, const char *until)
{
	return (struct row_page){
		.from = engine_name(engine, from),
		.until = engine_name(engine, until),
		.limit = NAMES,
	};
}

static void a_page_has_its_range_in_byte_order(void **state)
{
	struct engine *engine = *state;

	create_names(engine);
	assert_page(engine, own_page(engine, "", "\xf4\x8f\xbf\xbf"), 0, NAMES);
	assert_page(engine, own_page(engine, "9", "a"), 3, 2);
	assert_page(engine, own_page(engine, "90", "aa"), 4, 2);
	assert_page(engine, own_page(engine, "b", "c"), 0, 0);
	assert_page(engine, own_page(engine, "a", "9"), 0, 0);
}

static void a_page_begins_after_its_cursor(void **state)
{
	struct engine *engine = *state;
	struct row_page page = own_page(engine, "", "\xf4\x8f\xbf\xbf");

	create_names(engine);
	page.limit = 3;
	for (size_t seen = 0; seen + 1 < NAMES; seen++) {
		page.after[0] = engine_name(engine, names[seen]);
		assert_page(engine, page, seen + 1, NAMES - seen - 1 < 3 ? NAMES - seen - 1 : 3);
	}
	page.after[0] = engine_name(engine, names[NAMES - 1]);
	assert_page(engine, page, 0, 0);
}

static void a_cursor_before_the_range_changes_nothing(void **state)
{
	struct engine *engine = *state;
	struct row_page page = own_page(engine, "9", "a");

	create_names(engine);
	page.after[0] = engine_name(engine, " ");
	assert_page(engine, page, 3, 2);
	page.after[0] = engine_name(engine, "9");
	assert_page(engine, page, 4, 1);
	page.after[0] = engine_name(engine, "a");
	assert_page(engine, page, 0, 0);
}

static void a_page_without_an_end_goes_on_to_the_last_count(void **state)
{
	struct engine *engine = *state;
	struct row_page page = {.after = {engine_name(engine, names[NAMES - 2])}, .limit = 1};

	create_names(engine);
	assert_page(engine, page, NAMES - 1, 1);
	page.from = engine_name(engine, names[NAMES - 1]);
	assert_page(engine, page, NAMES - 1, 1);
}

int count_list_tests(void)
{
	const struct CMUnitTest tests[] = {
		ENGINE_TEST(a_page_has_its_range_in_byte_order),
		ENGINE_TEST(a_page_begins_after_its_cursor),
		ENGINE_TEST(a_cursor_before_the_range_changes_nothing),
		ENGINE_TEST(a_page_without_an_end_goes_on_to_the_last_count),
	};

	return cmocka_run_group_tests_name("count_repository, pages", tests, NULL, NULL);
}
