/* Waits on the steady clock: deadlines in the past, wake-ups, and rounding. */
#include "check.h"

#include <limits.h>
#include <pthread.h>

#include "base/clock.h"
#include "base/steady.h"

struct flag {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool is_set;
};

static void flag_init(struct flag *flag)
{
	*flag = (struct flag){0};
	pthread_mutex_init(&flag->lock, NULL);
	steady_cond_init(&flag->changed);
}

static void flag_release(struct flag *flag)
{
	pthread_cond_destroy(&flag->changed);
	pthread_mutex_destroy(&flag->lock);
}

static void *set_flag(void *context)
{
	struct flag *flag = context;

	pthread_mutex_lock(&flag->lock);
	flag->is_set = true;
	pthread_cond_signal(&flag->changed);
	pthread_mutex_unlock(&flag->lock);
	return NULL;
}

/* Returns whether the flag was set before `until_ns`. */
static bool wait_while_another_thread_sets(struct flag *flag, int64_t until_ns)
{
	bool in_time = true;
	pthread_t thread;

	pthread_mutex_lock(&flag->lock);
	assert_int_equal(pthread_create(&thread, NULL, set_flag, flag), 0);
	while (!flag->is_set && in_time)
		in_time = steady_wait_until(&flag->changed, &flag->lock, until_ns);
	pthread_mutex_unlock(&flag->lock);
	pthread_join(thread, NULL);
	return in_time;
}

static void a_signal_ends_a_wait(void **state)
{
	const int64_t untils[] = {INT64_MAX, INT64_MAX - 1, steady_in(3600 * NS_PER_S)};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(untils); i++) {
		struct flag flag;

		flag_init(&flag);
		assert_true(wait_while_another_thread_sets(&flag, untils[i]));
		flag_release(&flag);
	}
}

static void a_time_that_has_passed_is_not_waited_for(void **state)
{
	const int64_t untils[] = {-1, 0, 1, clock_steady_ns(&clock_system)};
	struct flag flag;

	(void)state;
	flag_init(&flag);
	pthread_mutex_lock(&flag.lock);
	for (size_t i = 0; i < COUNT_OF(untils); i++)
		assert_false(steady_wait_until(&flag.changed, &flag.lock, untils[i]));
	pthread_mutex_unlock(&flag.lock);
	flag_release(&flag);
}

static void a_wait_lasts_until_its_time(void **state)
{
	int64_t until_ns = steady_in(5 * NS_PER_MS);
	struct flag flag;

	(void)state;
	flag_init(&flag);
	pthread_mutex_lock(&flag.lock);
	while (steady_wait_until(&flag.changed, &flag.lock, until_ns))
		continue;
	assert_true(clock_steady_ns(&clock_system) >= until_ns);
	pthread_mutex_unlock(&flag.lock);
	flag_release(&flag);
}

static void a_time_from_now_does_not_overflow(void **state)
{
	int64_t now_ns = clock_steady_ns(&clock_system);

	(void)state;
	assert_true(steady_in(0) >= now_ns);
	assert_true(steady_in(NS_PER_S) >= now_ns + NS_PER_S);
	assert_true(steady_in(INT64_MAX) == INT64_MAX);
}

static void milliseconds_are_rounded_up_and_bounded(void **state)
{
	int64_t now_ns = clock_steady_ns(&clock_system);

	(void)state;
	assert_int_equal(steady_ms_until(now_ns, 1000), 0);
	assert_int_equal(steady_ms_until(0, 1000), 0);
	assert_int_equal(steady_ms_until(INT64_MAX, 1000), 1000);
	assert_int_equal(steady_ms_until(INT64_MAX, INT_MAX), INT_MAX);
	assert_int_equal(steady_ms_until(steady_in(3600 * NS_PER_S), 1000), 1000);
	assert_true(steady_ms_until(steady_in(3600 * NS_PER_S) + 1, INT_MAX) <= 3600 * 1000 + 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_signal_ends_a_wait),
		cmocka_unit_test(a_time_that_has_passed_is_not_waited_for),
		cmocka_unit_test(a_wait_lasts_until_its_time),
		cmocka_unit_test(a_time_from_now_does_not_overflow),
		cmocka_unit_test(milliseconds_are_rounded_up_and_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
