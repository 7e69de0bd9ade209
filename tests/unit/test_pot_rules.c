/* What a command does to a pot. */
#include "check.h"

#include "services/pots/pot_rules.h"

static void test_names(void **unused)
{
	static const struct {
		const char *name;
		bool is_valid;
	} rows[] = {
		{"PP-P", true},
		{"PPP", true},
		{"PP P", true},
		{"PP_P", true},
		{"PP", false},
		{"PP.", false},
		{"PP.P", false},
		{"PP-", false},
		{"", false},
		{"P", false},
		{"a1b", true},
		{"000", true},
		{"-PP", false},
		{"P-PP", false},
		{" PPP", false},
		{"PPP ", false},
		{"PP--P", false},
		{"PP -P", false},
		{"PP-P-P_P P", true},
		{"PP-PP-PP", true},
		{"PP\tP", false},
		{"PP\nP", false},
		{"PPP\n", false},
		{"PP\xc3\xa9", false},
		{"Pe\xcc\x81P", false},
	};

	(void)unused;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		if (pot_name_is_valid(slice_of(rows[i].name)) != rows[i].is_valid)
			fail_msg("\"%s\" must be %s", rows[i].name,
				rows[i].is_valid ? "valid" : "refused");
	}
}

static void test_a_name_has_a_longest_length(void **unused)
{
	char name[POT_NAME_MAX + 2];

	(void)unused;
	memset(name, 'P', sizeof(name));
	assert_true(pot_name_is_valid(slice_make(name, POT_NAME_MAX)));
	assert_false(pot_name_is_valid(slice_make(name, POT_NAME_MAX + 1)));
	name[POT_NAME_MAX - 1] = '-'; /* the separator would be the last character */
	assert_false(pot_name_is_valid(slice_make(name, POT_NAME_MAX)));
}

static void assert_coins(const struct coins *coins, int32_t bronze, int32_t silver, int32_t gold)
{
	assert_int_equal(coins->of[COIN_BRONZE], bronze);
	assert_int_equal(coins->of[COIN_SILVER], silver);
	assert_int_equal(coins->of[COIN_GOLD], gold);
}

static void test_coins_are_added_up_to_the_most_and_not_one_more(void **unused)
{
	struct pot_state pot = {.max_coins = 10, .coins = {{1, 2, 3}}};
	const struct asked_coins four = {{4, 0, 0}}, one = {{0, 0, 1}};
	struct coins added = {{9, 9, 9}};

	(void)unused;
	assert_int_equal(pot_add(&pot, &four, &added), STATUS_OK);
	assert_coins(&added, 4, 0, 0);
	assert_coins(&pot.coins, 5, 2, 3);
	assert_int_equal(pot_add(&pot, &one, &added), STATUS_POT_FULL);
	assert_coins(&added, 4, 0, 0);
	assert_coins(&pot.coins, 5, 2, 3);
}

static void test_no_number_of_coins_is_too_large_to_be_refused(void **unused)
{
	struct pot_state pot = {.max_coins = INT32_MAX, .coins = {{INT32_MAX - 1, 0, 0}}};
	const struct asked_coins rows[] = {{{2, 0, 0}}, {{INT32_MAX, INT32_MAX, INT32_MAX}},
		{{INT64_MAX, 0, 0}}, {{INT64_MAX / 2, INT64_MAX / 2, INT64_MAX / 2}}};
	const struct asked_coins fits = {{0, 1, 0}};
	struct coins added;

	(void)unused;
	for (size_t i = 0; i < COUNT_OF(rows); i++)
		assert_int_equal(pot_add(&pot, &rows[i], &added), STATUS_POT_FULL);
	assert_int_equal(pot_add(&pot, &fits, &added), STATUS_OK);
	assert_coins(&pot.coins, INT32_MAX - 1, 1, 0);
}

static void test_a_pot_that_holds_too_much_takes_nothing_more(void **unused)
{
	struct pot_state pot = {.max_coins = 6, .coins = {{5, 5, 5}}};
	const struct asked_coins one = {{1, 0, 0}};
	struct coins added;

	(void)unused;
	assert_int_equal(pot_add(&pot, &one, &added), STATUS_POT_FULL);
}

static void test_of_each_kind_comes_out_what_is_asked_at_most_what_is_there(void **unused)
{
	struct pot_state pot = {.max_coins = 100, .coins = {{5, 5, 0}}};
	const struct asked_coins asked = {{3, INT64_MAX, 7}};
	struct coins removed = pot_remove(&pot, &asked);

	(void)unused;
	assert_coins(&removed, 3, 5, 0);
	assert_coins(&pot.coins, 2, 0, 0);
	removed = pot_remove(&pot, &asked);
	assert_coins(&removed, 2, 0, 0);
	removed = pot_remove(&pot, &asked);
	assert_coins(&removed, 0, 0, 0);
}

static void test_a_draw_takes_as_many_as_asked_at_most_all(void **unused)
{
	struct pot_state pot = {.max_coins = 100, .coins = {{5, 6, 7}}};
	struct dice dice = {.state = 3};
	struct coins removed = pot_remove_any(&pot, 10, &dice);

	(void)unused;
	assert_int_equal(coins_total(&removed), 10);
	assert_int_equal(coins_total(&pot.coins), 8);
	for (size_t kind = 0; kind < COIN_KINDS; kind++)
		assert_int_equal(removed.of[kind] + pot.coins.of[kind], 5 + (int32_t)kind);
	removed = pot_remove_any(&pot, INT32_MAX, &dice);
	assert_int_equal(coins_total(&removed), 8);
	assert_coins(&pot.coins, 0, 0, 0);
	removed = pot_remove_any(&pot, 1, &dice);
	assert_coins(&removed, 0, 0, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_a_name_has_a_longest_length),
		cmocka_unit_test(test_coins_are_added_up_to_the_most_and_not_one_more),
		cmocka_unit_test(test_no_number_of_coins_is_too_large_to_be_refused),
		cmocka_unit_test(test_a_pot_that_holds_too_much_takes_nothing_more),
		cmocka_unit_test(test_of_each_kind_comes_out_what_is_asked_at_most_what_is_there),
		cmocka_unit_test(test_a_draw_takes_as_many_as_asked_at_most_all),
	};

	return cmocka_run_group_tests_name("pot rules", tests, NULL, NULL);
}
