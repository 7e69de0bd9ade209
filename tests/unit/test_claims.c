/* How a claim ends after an attempt, and when its row is due again. */
#include "check.h"

#include "flow/claims.h"

#define SECOND_US 1000000LL
#define ATTEMPTS_MAX 10

static void the_wait_doubles_from_one_second_to_sixty_within_half_and_one_and_a_half(void **state)
{
	static const int64_t seconds[] = {1, 2, 4, 8, 16, 32, 60, 60, 60};
	struct dice dice = {.state = 7};

	(void)state;
	for (int32_t attempt = 0; attempt < (int32_t)COUNT_OF(seconds); attempt++) {
		int64_t whole_us = seconds[attempt] * SECOND_US, least_us = whole_us * 10,
			most_us = 0;

		for (int i = 0; i < 1000; i++) {
			int64_t wait_us = claim_backoff_us(attempt, &dice);

			least_us = wait_us < least_us ? wait_us : least_us;
			most_us = wait_us > most_us ? wait_us : most_us;
		}
		assert_true(least_us >= whole_us / 2 && least_us < whole_us * 6 / 10);
		assert_true(most_us < whole_us * 3 / 2 && most_us > whole_us * 14 / 10);
	}
}

static void an_attempt_of_any_number_has_a_wait(void **state)
{
	struct dice dice = {.state = 7};

	(void)state;
	assert_true(claim_backoff_us(INT32_MAX, &dice) <= 90 * SECOND_US);
}

static void every_way_a_try_can_end_has_its_next_state(void **state)
{
	static const struct {
		enum claim_try try;
		int32_t attempts_before;
		enum claim_end expected;
	} rows[] = {
		{TRY_WORKED, 0, CLAIM_DONE},
		{TRY_WORKED, 9, CLAIM_DONE},
		{TRY_FAILED, 0, CLAIM_RETRY},
		{TRY_FAILED, 8, CLAIM_RETRY},
		{TRY_FAILED, 9, CLAIM_FAILED},
		{TRY_FAILED, 50, CLAIM_FAILED},
		{TRY_AWAY, 0, CLAIM_DELAYED},
		{TRY_AWAY, 9, CLAIM_DELAYED},
		{TRY_AWAY, 100000, CLAIM_DELAYED},
		{TRY_NOT_MADE, 0, CLAIM_RETURNED},
		{TRY_NOT_MADE, 9, CLAIM_RETURNED},
		{TRY_REFUSED, 0, CLAIM_FAILED},
	};
	struct dice dice = {.state = 7};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct claim claim = {.attempt_count = rows[i].attempts_before};
		enum claim_end end = rows[i].expected;
		bool has_error = end != CLAIM_DONE && end != CLAIM_RETURNED;

		claim_conclude(&claim, rows[i].try, ATTEMPTS_MAX, &dice, slice_of("it was so"));
		assert_int_equal(claim.end, end);
		assert_slice(claim.error, has_error ? "it was so" : "");
		assert_true((claim.delay_us > 0) == (end == CLAIM_RETRY || end == CLAIM_DELAYED));
	}
}

static void who_was_away_is_tried_again_soon_however_long_it_lasts(void **state)
{
	struct dice dice = {.state = 7};

	(void)state;
	for (int32_t before = 0; before < 100; before++) {
		struct claim claim = {.attempt_count = before};

		claim_conclude(&claim, TRY_AWAY, ATTEMPTS_MAX, &dice, slice_of("away"));
		assert_in_range(claim.delay_us, SECOND_US / 2, 2 * SECOND_US);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			the_wait_doubles_from_one_second_to_sixty_within_half_and_one_and_a_half),
		cmocka_unit_test(an_attempt_of_any_number_has_a_wait),
		cmocka_unit_test(every_way_a_try_can_end_has_its_next_state),
		cmocka_unit_test(who_was_away_is_tried_again_soon_however_long_it_lasts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
