/*
 * A clock that stands still until the test moves it, so that whatever lives by it happens when the
 * test says so, however slow the machine is. Any thread may read it.
 */
#ifndef QUIPU_TESTS_MANUAL_CLOCK_H
#define QUIPU_TESTS_MANUAL_CLOCK_H

#include <stdatomic.h>

#include "base/clock.h"

struct manual_clock {
	struct clock base;
	_Atomic int64_t steady_ns;
};

/*
 * It begins so early that by the machine's clock all its times have long passed: whoever waits for
 * one of them with the kernel's help does not wait at all.
 */
void manual_clock_init(struct manual_clock *clock);

/*
 * A clock that also runs by itself: its wall is the machine's, ahead by what manual_clock_pass()
 * has added, and its steady time is the machine's alone. For tests that share a time of day with
 * others, or move it while something waits for a real deadline.
 */
void manual_clock_init_running(struct manual_clock *clock);

int64_t manual_clock_now_ns(const struct manual_clock *clock);
void manual_clock_pass(struct manual_clock *clock, int64_t ns);

#endif
