#include "manual_clock.h"

#define START_US 1000000

int64_t manual_clock_now_ns(const struct manual_clock *clock)
{
	return atomic_load(&clock->steady_ns);
}

void manual_clock_pass(struct manual_clock *clock, int64_t ns)
{
	atomic_fetch_add(&clock->steady_ns, ns);
}

static int64_t steady_ns(const struct clock *clock)
{
	return manual_clock_now_ns((const struct manual_clock *)clock);
}

static int64_t wall_us(const struct clock *clock)
{
	return START_US + steady_ns(clock) / NS_PER_US;
}

static int64_t running_steady_ns(const struct clock *clock)
{
	(void)clock;
	return clock_steady_ns(&clock_system);
}

static int64_t running_wall_us(const struct clock *clock)
{
	return clock_wall_us(&clock_system) + steady_ns(clock) / NS_PER_US;
}

void manual_clock_init_running(struct manual_clock *clock)
{
	clock->base.steady_ns = running_steady_ns;
	clock->base.wall_us = running_wall_us;
	atomic_init(&clock->steady_ns, 0);
}

void manual_clock_init(struct manual_clock *clock)
{
	clock->base.steady_ns = steady_ns;
	clock->base.wall_us = wall_us;
	atomic_init(&clock->steady_ns, 1);
}
