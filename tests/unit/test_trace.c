/* Which traceparents are accepted as they are, and what a new one looks like. */
#include "check.h"

#include "base/trace.h"

#define GOOD "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

static void a_well_formed_traceparent_is_valid(void **state)
{
	assert_true(trace_is_valid(slice_of(GOOD)));
	assert_true(trace_is_valid(
		slice_of("cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00")));
}

static void everything_else_is_not(void **state)
{
	static const char *const bad[] = {
		"",
		"00",
		GOOD "-",
		GOOD "0",
		"ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		"00-00000000000000000000000000000000-b7ad6b7169203331-01",
		"00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
		"00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
		"00-0af7651916cd43dd8448eb211c80319c_b7ad6b7169203331-01",
		"00-0af7651916cd43dd8448eb211c80319g-b7ad6b7169203331-01",
		"00-0af7651916cd43dd8448eb211c80319\xff-b7ad6b7169203331-01",
	};

	for (size_t i = 0; i < COUNT_OF(bad); i++)
		assert_false(trace_is_valid(slice_of(bad[i])));
}

static void every_byte_in_every_place_is_judged(void **state)
{
	for (size_t at = 0; at < TRACEPARENT_LEN; at++) {
		for (int byte = 0; byte < 256; byte++) {
			char text[] = GOOD;
			bool is_dash = at == 2 || at == 35 || at == 52;
			bool is_digit =
				(byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'f');

			text[at] = (char)byte;
			assert_int_equal(trace_is_valid(slice_make(text, TRACEPARENT_LEN)),
				is_dash ? byte == '-' : is_digit);
		}
	}
}

static void a_new_one_is_valid_and_different_each_time(void **state)
{
	char before[TRACEPARENT_LEN + 1] = "", now[TRACEPARENT_LEN + 1];

	for (int i = 0; i < 1000; i++) {
		trace_new(now);
		assert_true(trace_is_valid(slice_of(now)));
		assert_string_not_equal(now, before);
		memcpy(before, now, sizeof(now));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_well_formed_traceparent_is_valid),
		cmocka_unit_test(everything_else_is_not),
		cmocka_unit_test(every_byte_in_every_place_is_judged),
		cmocka_unit_test(a_new_one_is_valid_and_different_each_time),
	};

	return cmocka_run_group_tests_name("trace", tests, NULL, NULL);
}
