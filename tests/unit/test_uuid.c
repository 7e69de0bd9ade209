/* UUIDs of version 7 sort in the order of their creation, whatever the clock does. */
#include "check.h"

#include "base/uuid.h"

#define IDS 5000
#define NOON_US INT64_C(1767869999999000)

/* Writes the next id and checks that it sorts after the one in `last`. */
static void assert_later(int64_t time_us, char last[UUID_SIZE])
{
	char next[UUID_SIZE];

	uuid_of_time(time_us, next);
	if (strcmp(next, last) <= 0)
		fail_msg("%s, of %lld, does not sort after %s", next, (long long)time_us, last);
	assert_true(uuid_is_canonical(slice_of(next)));
	memcpy(last, next, sizeof(next));
}

static void ids_of_a_clock_that_goes_back_sort_in_the_order_of_creation(void **state)
{
	char last[UUID_SIZE] = "";

	(void)state;
	for (int64_t i = 0; i < IDS; i++)
		assert_later(NOON_US - i * 1000, last); /* a millisecond back each time */
	assert_later(0, last);
	assert_later(NOON_US - 3600 * INT64_C(1000000), last);
}

static void ids_of_a_clock_that_stands_still_sort_in_the_order_of_creation(void **state)
{
	char last[UUID_SIZE] = "";

	(void)state;
	for (int i = 0; i < IDS; i++)
		assert_later(NOON_US, last);
}

/* When the clock has caught up, ids begin with its time again. */
static void an_id_begins_with_the_milliseconds_of_its_time(void **state)
{
	char id[UUID_SIZE];

	(void)state;
	uuid_of_time(2 * NOON_US, id);
	assert_memory_equal(id, "03373a86-d6fe-7", 15);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ids_of_a_clock_that_goes_back_sort_in_the_order_of_creation),
		cmocka_unit_test(ids_of_a_clock_that_stands_still_sort_in_the_order_of_creation),
		cmocka_unit_test(an_id_begins_with_the_milliseconds_of_its_time),
	};

	return cmocka_run_group_tests_name("uuid", tests, NULL, NULL);
}
