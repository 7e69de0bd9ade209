/* How many bad tokens an address may send before its tokens are refused without verification. */
#include "check.h"

#include <pthread.h>

#include "access/bad_tokens.h"
#include "base/clock.h"

#define HERE 17
#define ELSEWHERE 18

static struct bad_tokens tokens;

static int set_up(void **state)
{
	(void)state;
	memset(&tokens, 0, sizeof(tokens));
	return 0;
}

static void add(uint64_t address, int count, int64_t now_ns)
{
	for (int i = 0; i < count; i++)
		bad_tokens_add(&tokens, address, now_ns);
}

static void an_address_has_its_number_in_each_second(void **state)
{
	(void)state;
	add(HERE, BAD_TOKENS_PER_SECOND - 1, 5 * NS_PER_S);
	assert_false(bad_tokens_are_too_many(&tokens, HERE, 5 * NS_PER_S + 1));
	add(HERE, 1, 5 * NS_PER_S + 2);
	assert_true(bad_tokens_are_too_many(&tokens, HERE, 6 * NS_PER_S - 1));
	assert_false(bad_tokens_are_too_many(&tokens, ELSEWHERE, 5 * NS_PER_S));
	assert_false(bad_tokens_are_too_many(&tokens, HERE, 6 * NS_PER_S));
	add(HERE, BAD_TOKENS_PER_SECOND, 7 * NS_PER_S);
	assert_true(bad_tokens_are_too_many(&tokens, HERE, 7 * NS_PER_S));
}

/* A thread may have read the clock just before another thread counted in the next second. */
static void a_late_look_sees_the_count_of_the_next_second(void **state)
{
	(void)state;
	add(HERE, 1, 6 * NS_PER_S);
	assert_false(bad_tokens_are_too_many(&tokens, HERE, 6 * NS_PER_S - 1));
	add(HERE, BAD_TOKENS_PER_SECOND - 2, 6 * NS_PER_S - 1);
	assert_false(bad_tokens_are_too_many(&tokens, HERE, 6 * NS_PER_S));
	add(HERE, 1, 6 * NS_PER_S);
	assert_true(bad_tokens_are_too_many(&tokens, HERE, 6 * NS_PER_S - 1));
}

static void *add_some(void *unused)
{
	(void)unused;
	add(HERE, BAD_TOKENS_PER_SECOND / 4, NS_PER_S);
	return NULL;
}

static void threads_lose_no_count(void **state)
{
	pthread_t threads[4];

	(void)state;
	for (size_t i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, add_some, NULL);
	for (size_t i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	assert_true(bad_tokens_are_too_many(&tokens, HERE, NS_PER_S));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(an_address_has_its_number_in_each_second, set_up),
		cmocka_unit_test_setup(a_late_look_sees_the_count_of_the_next_second, set_up),
		cmocka_unit_test_setup(threads_lose_no_count, set_up),
	};

	return cmocka_run_group_tests_name("bad_tokens", tests, NULL, NULL);
}
