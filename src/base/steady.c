#include "base/steady.h"

#include <time.h>

#include "base/clock.h"

void steady_cond_init(pthread_cond_t *condition)
{
	pthread_condattr_t attributes;

	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(condition, &attributes);
	pthread_condattr_destroy(&attributes);
}

bool steady_wait_until(pthread_cond_t *condition, pthread_mutex_t *lock, int64_t until_ns)
{
	struct timespec until = {
		.tv_sec = (time_t)(until_ns / NS_PER_S),
		.tv_nsec = (long)(until_ns % NS_PER_S),
	};

	if (until_ns == INT64_MAX)
		return pthread_cond_wait(condition, lock) == 0;
	if (until_ns <= clock_steady_ns(&clock_system))
		return false;
	return pthread_cond_timedwait(condition, lock, &until) == 0;
}

int64_t steady_in(int64_t ns)
{
	int64_t now_ns = clock_steady_ns(&clock_system);

	return ns > INT64_MAX - now_ns ? INT64_MAX : now_ns + ns;
}

int steady_ms_until(int64_t until_ns, int most_ms)
{
	int64_t left_ns = until_ns - clock_steady_ns(&clock_system);

	if (left_ns <= 0)
		return 0;
	if (left_ns >= most_ms * NS_PER_MS)
		return most_ms;
	return (int)((left_ns + NS_PER_MS - 1) / NS_PER_MS);
}
