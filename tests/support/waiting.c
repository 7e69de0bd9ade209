#include "waiting.h"

#include <time.h>

#include "base/clock.h"
#include "check.h"

#define MOMENT_NS (5 * NS_PER_MS)

int64_t hang_deadline_ns(void)
{
	return clock_steady_ns(&clock_system) + HANG_NS;
}

void wait_a_moment(void)
{
	const struct timespec moment = {.tv_nsec = MOMENT_NS};

	nanosleep(&moment, NULL);
}

void wait_on(int64_t deadline_ns, const char *what)
{
	if (clock_steady_ns(&clock_system) > deadline_ns)
		fail_msg("waited %d s in vain: %s", HANG_S, what);
	wait_a_moment();
}

void wait_until(bool (*happened)(void *context), void *context, const char *what)
{
	int64_t deadline_ns = hang_deadline_ns();

	while (!happened(context))
		wait_on(deadline_ns, what);
}

int64_t steady_ms(void)
{
	return clock_steady_ns(&clock_system) / NS_PER_MS;
}

int64_t in_ms(int64_t ms)
{
	return clock_steady_ns(&clock_system) + ms * NS_PER_MS;
}

void nap_ms(int64_t ms)
{
	const struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * NS_PER_MS};

	nanosleep(&pause, NULL);
}
