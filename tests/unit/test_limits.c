/* The decisions of the limiter. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/random.h"
#include "effort.h"
#include "services/gateway/limit_rules.h"

#define MINUTE_US 60000000LL

static struct limit_row row_of(int32_t rate_limit, int32_t current, int32_t reserved)
{
	return (struct limit_row){
		.exists = true,
		.rate_limit = rate_limit,
		.time_window = 2,
		.current_count = current,
		.reserved_count = reserved,
		.last_refresh_us = 1000 * MINUTE_US,
	};
}

static bool admits(struct limit_row *row, int64_t now_us, int32_t amount)
{
	int32_t slots = -1;
	bool admitted = limit_admit(row, now_us, MINUTE_US, amount, &slots) == LIMIT_ADMITTED;

	assert_int_equal(slots, admitted ? amount : 0);
	return admitted;
}

static void test_r2_3_a_send_below_the_limit_is_admitted_and_reserved(void **unused)
{
	struct limit_row row = row_of(5, 2, 2);

	(void)unused;
	assert_true(admits(&row, 1001 * MINUTE_US, 1));
	assert_int_equal(row.reserved_count, 3);
	assert_int_equal(row.current_count, 2);
}

static void test_r2_4_a_send_at_the_limit_is_refused_and_changes_nothing(void **unused)
{
	struct limit_row row = row_of(5, 3, 5);

	(void)unused;
	assert_false(admits(&row, 1001 * MINUTE_US, 1));
	assert_int_equal(row.reserved_count, 5);
	assert_int_equal(row.current_count, 3);
}

static void test_r2_2_a_window_that_has_elapsed_starts_anew_at_its_very_end(void **unused)
{
	struct limit_row row = row_of(5, 5, 5);

	(void)unused;
	assert_false(admits(&row, 1002 * MINUTE_US - 1, 1));
	assert_true(admits(&row, 1002 * MINUTE_US, 1));
	assert_true(row.last_refresh_us == 1002 * MINUTE_US);
	assert_int_equal(row.reserved_count, 1);
	assert_int_equal(row.current_count, 0);
}

/* The clock went forward and back again, which leaves a window that begins in the future. */
static void test_a_clock_that_is_set_back_frees_nothing_and_locks_nobody_out_for_long(void **unused)
{
	struct limit_row row = row_of(5, 4, 4);
	int64_t now_us = 10 * MINUTE_US;

	(void)unused;
	assert_false(admits(&row, now_us, 2));
	assert_true(admits(&row, now_us, 1)); /* the rest of the limit */
	assert_true(row.last_refresh_us == now_us);
	assert_int_equal(row.reserved_count, 5);
	assert_false(admits(&row, now_us + 2 * MINUTE_US - 1, 1));
	assert_true(admits(&row, now_us + 2 * MINUTE_US, 5));
}

static void test_a_new_window_begins_now_whatever_the_clock_was(void **unused)
{
	struct limit_row row = row_of(5, 5, 5);

	(void)unused;
	limit_refresh(&row, 10 * MINUTE_US);
	assert_true(row.last_refresh_us == 10 * MINUTE_US);
	assert_int_equal(limit_used(&row), 0);
}

/* Even if both begin within one microsecond, and the clock is behind the row. */
static void test_two_windows_never_have_the_same_start(void **unused)
{
	struct limit_row row = row_of(5, 5, 5);

	(void)unused;
	limit_refresh(&row, row.last_refresh_us);
	assert_true(row.last_refresh_us == 1000 * MINUTE_US + 1);
	limit_refresh(&row, 1000 * MINUTE_US);
	assert_true(row.last_refresh_us == 1000 * MINUTE_US + 2);
	assert_false(limit_update(&row, 1000 * MINUTE_US, MINUTE_US));
	assert_true(row.last_refresh_us == 1000 * MINUTE_US + 2);
}

static void test_an_amount_is_admitted_whole_or_not_at_all(void **unused)
{
	struct limit_row row = row_of(5, 3, 3);
	int64_t now_us = 1001 * MINUTE_US;
	int32_t slots;

	(void)unused;
	assert_int_equal(limit_admit(&row, now_us, MINUTE_US, 3, &slots), LIMIT_REFUSED);
	assert_int_equal(slots, 0);
	assert_int_equal(row.reserved_count, 3);
	assert_int_equal(limit_admit(&row, now_us, MINUTE_US, 2, &slots), LIMIT_ADMITTED);
	assert_int_equal(slots, 2);
	assert_int_equal(row.reserved_count, 5);
}

static void test_shadow_mode_counts_over_the_limit_and_stops_at_the_largest_number(void **unused)
{
	struct limit_row row = row_of(5, 5, 5);
	int64_t now_us = 1001 * MINUTE_US;
	int32_t slots;

	(void)unused;
	row.shadow = true;
	assert_int_equal(limit_admit(&row, now_us, MINUTE_US, 2, &slots), LIMIT_SHADOWED);
	assert_int_equal(row.reserved_count, 7);
	assert_int_equal(limit_left(&row), 0);
	assert_int_equal(
		limit_admit(&row, now_us, MINUTE_US, INT32_MAX - 7, &slots), LIMIT_SHADOWED);
	assert_int_equal(row.reserved_count, INT32_MAX);
	assert_int_equal(limit_admit(&row, now_us, MINUTE_US, 1, &slots), LIMIT_SHADOWED);
	assert_int_equal(slots, 0);
	assert_int_equal(row.reserved_count, INT32_MAX);
}

static void test_an_amount_is_admitted_exactly_if_as_many_single_sends_would_be(void **unused)
{
	(void)unused;
	for (uint64_t seed = 1; seed <= effort(20000, 500000); seed++) {
		struct dice dice = {.state = seed};
		int32_t current = (int32_t)dice_below(&dice, 8);
		struct limit_row together = row_of(
			1 + (int32_t)dice_below(&dice, 8), current, (int32_t)dice_below(&dice, 8));
		struct limit_row apart = together;
		int64_t now_us = (int64_t)(998 + dice_below(&dice, 6)) * MINUTE_US;
		int32_t amount = 1 + (int32_t)dice_below(&dice, 9), singles = 0;
		bool admitted;

		seed_begin(seed);
		admitted = admits(&together, now_us, amount);
		for (int32_t i = 0; i < amount; i++)
			singles += admits(&apart, now_us, 1);
		assert_int_equal(admitted, singles == amount);
		if (admitted)
			assert_memory_equal(&together, &apart, sizeof(apart));
		assert_true(!admitted || together.reserved_count <= together.rate_limit);
	}
	seeds_end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_r2_3_a_send_below_the_limit_is_admitted_and_reserved),
		cmocka_unit_test(test_r2_4_a_send_at_the_limit_is_refused_and_changes_nothing),
		cmocka_unit_test(test_r2_2_a_window_that_has_elapsed_starts_anew_at_its_very_end),
		cmocka_unit_test(
			test_a_clock_that_is_set_back_frees_nothing_and_locks_nobody_out_for_long),
		cmocka_unit_test(test_a_new_window_begins_now_whatever_the_clock_was),
		cmocka_unit_test(test_two_windows_never_have_the_same_start),
		cmocka_unit_test(test_an_amount_is_admitted_whole_or_not_at_all),
		cmocka_unit_test(
			test_shadow_mode_counts_over_the_limit_and_stops_at_the_largest_number),
		cmocka_random_test(
			test_an_amount_is_admitted_exactly_if_as_many_single_sends_would_be),
	};

	return cmocka_run_group_tests_name("limits", tests, NULL, NULL);
}
