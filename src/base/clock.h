/*
 * Functions that need the time get a clock as an argument, so that tests can pass a clock of their
 * own. Wall time (wall_us) is for times that are stored or shown. Monotonic time (steady_ns) never
 * steps back and is for deadlines and durations.
 */
#ifndef QUIPU_BASE_CLOCK_H
#define QUIPU_BASE_CLOCK_H

#include <stdint.h>

struct clock {
	int64_t (*wall_us)(const struct clock *clock);
	int64_t (*steady_ns)(const struct clock *clock);
};

#define NS_PER_US 1000LL
#define NS_PER_MS 1000000LL
#define NS_PER_S 1000000000LL

/* The clock of the machine. Thread-safe. */
extern const struct clock clock_system;

static inline int64_t clock_wall_us(const struct clock *clock)
{
	return clock->wall_us(clock);
}

static inline int64_t clock_steady_ns(const struct clock *clock)
{
	return clock->steady_ns(clock);
}

/*
 * Returns by how much a test has shifted wall time in this process (QUIPU_TEST_CLOCK_OFFSET), or 0
 * in release builds. An adapter whose engine has a clock of its own adds the same offset to that
 * clock.
 */
int64_t clock_test_offset_us(void);

#endif
