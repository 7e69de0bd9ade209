#include "base/clock.h"

#include <stdlib.h>
#include <time.h>

#include "base/text.h"

static int64_t wall_us(const struct clock *clock)
{
	struct timespec now;

	(void)clock;
	clock_gettime(CLOCK_REALTIME, &now);
	return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000 + clock_test_offset_us();
}

static int64_t steady_ns(const struct clock *clock)
{
	struct timespec now;

	(void)clock;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * NS_PER_S + now.tv_nsec;
}

const struct clock clock_system = {.wall_us = wall_us, .steady_ns = steady_ns};

#ifdef QUIPU_TEST_BUILD
int64_t clock_test_offset_us(void)
{
	const char *text = getenv("QUIPU_TEST_CLOCK_OFFSET");
	int64_t offset_us = 0;

	if (text && !text_to_duration_us(slice_of(text), &offset_us))
		abort();
	return offset_us;
}
#else
int64_t clock_test_offset_us(void)
{
	return 0;
}
#endif
