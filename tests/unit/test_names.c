/* Names that a route does not know: how they are refused, and which known name is suggested. */
#include "arena_fixture.h"

#include "base/nearest.h"
#include "http/names.h"

static const char *const known[] = {
	"amount", "itemId", "initialValue", "stock_keeping_unit", "why", "itemIds[]", NULL};

static void a_name_with_few_typing_errors_is_recognised(void **state)
{
	static const char *const cases[][2] = {
		{"amont", "amount"},
		{"amuont", "amount"},
		{"ammount", "amount"},
		{"Amount", "amount"},
		{"amounts", "amount"},
		{"initialvalue", "initialValue"},
		{"initial_value", "initialValue"},
		{"item_id", "itemId"},
		{"itemIds", "itemIds[]"},
		{"stockKeepingUnit", "stock_keeping_unit"},
		{"stock-keeping-unti", "stock_keeping_unit"},
		{"wyh", "why"},
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		const char *nearest = nearest_name(slice_of(cases[i][0]), known);

		if (!nearest || strcmp(nearest, cases[i][1]) != 0)
			fail_msg("%s: %s", cases[i][0], nearest ? nearest : "none");
	}
}

static void a_name_that_resembles_none_is_not_guessed(void **state)
{
	static const char *const cases[] = {
		"", "_", "x", "limit", "value", "zzzzzzzzzzzzzzzzzz", "amountamount", "\xc3\xa4"};
	static char endless[1 << 16];

	(void)state;
	for (size_t i = 0; i < COUNT_OF(cases); i++)
		assert_null(nearest_name(slice_of(cases[i]), known));
	memset(endless, 'a', sizeof(endless));
	assert_null(nearest_name(slice_make(endless, sizeof(endless)), known));
	assert_null(nearest_name(slice_of("amount"), NULL));
}

static struct unknown_names unknown_of(struct arena *arena, const char *const *names)
{
	return (struct unknown_names){
		.arena = arena, .status = STATUS_UNKNOWN_FIELD, .known = names};
}

static void known_names_pass(void **state)
{
	struct unknown_names unknown = unknown_of(*state, known);

	for (size_t i = 0; known[i]; i++)
		names_check(&unknown, slice_of(known[i]));
	assert_int_equal(unknown.count, 0);
}

static void assert_refusal(
	const struct unknown_names *unknown, const char *detail, const char *first)
{
	struct answer answer = names_refuse(unknown);

	assert_int_equal(answer.http_status, 400);
	assert_int_equal(answer.problem->status, unknown->status);
	assert_slice(answer.problem->detail, detail);
	assert_string_equal(answer.problem->errors[0].message, first);
}

static void a_refusal_names_the_nearest_name(void **state)
{
	struct unknown_names unknown = unknown_of(*state, known);

	names_check(&unknown, slice_of("amount"));
	names_check(&unknown, slice_of("amont"));
	names_check(&unknown, slice_of("nothing"));
	assert_int_equal(unknown.count, 2);
	assert_string_equal(unknown.errors[0].field, "amont");
	assert_string_equal(unknown.errors[1].field, "nothing");
	assert_refusal(&unknown, "the member \"amont\" is unknown; did you mean \"amount\"?",
		"is unknown; did you mean \"amount\"?");
}

static void a_refusal_lists_the_known_names_if_none_is_near(void **state)
{
	static const char *const few[] = {"after", "limit", NULL};
	struct unknown_names unknown = unknown_of(*state, few);

	unknown.status = STATUS_UNKNOWN_PARAMETER;
	names_check(&unknown, slice_of("x"));
	assert_refusal(&unknown,
		"the query parameter \"x\" is unknown; this route accepts \"after\", \"limit\"",
		"is unknown; this route accepts \"after\", \"limit\"");
}

static void a_route_without_names_refuses_them_all(void **state)
{
	struct unknown_names unknown = unknown_of(*state, NULL);

	names_check(&unknown, slice_of("amount"));
	assert_refusal(&unknown, "the member \"amount\" is unknown; this route accepts none",
		"is unknown; this route accepts none");
}

static void a_flood_of_long_names_makes_a_short_refusal(void **state)
{
	struct unknown_names unknown = unknown_of(*state, known);
	static char endless[1 << 16];

	memset(endless, 'a', sizeof(endless));
	for (int i = 0; i < 1000; i++) {
		snprintf(endless, sizeof(endless), "%d", i / 10);
		names_check(&unknown, slice_make(endless, sizeof(endless)));
		names_check(&unknown, slice_of("x"));
	}
	assert_int_equal(unknown.count, UNKNOWN_NAMES_MAX);
	assert_string_equal(unknown.errors[1].field, "x");
	assert_true(names_refuse(&unknown).body.len < 8192);
}

#define TEST(name) cmocka_arena_test(name)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_name_with_few_typing_errors_is_recognised),
		TEST(a_name_that_resembles_none_is_not_guessed),
		TEST(known_names_pass),
		TEST(a_refusal_names_the_nearest_name),
		TEST(a_refusal_lists_the_known_names_if_none_is_near),
		TEST(a_route_without_names_refuses_them_all),
		TEST(a_flood_of_long_names_makes_a_short_refusal),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
