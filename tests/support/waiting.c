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

void wait_until(bool (*happened)(void *context), void *context, const char *what)
{
	int64_t deadline_ns = hang_deadline_ns();

	while (!happened(context)) {
		if (clock_steady_ns(&clock_system) > deadline_ns)
			fail_msg("waited %d s in vain: %s", HANG_S, what);
		wait_a_moment();
	}
}
