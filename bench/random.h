/*
 * Pseudo-random numbers for the load generator: small, fast, and the same for a seed on every
 * machine, so that a run can be repeated. Inline because they stand on the path of every request.
 */
#ifndef BENCH_RANDOM_H
#define BENCH_RANDOM_H

#include <stdint.h>

/* splitmix64 */
struct random {
	uint64_t state;
};

static inline uint64_t random_next(struct random *r)
{
	uint64_t z = r->state += 0x9e3779b97f4a7c15;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
	return z ^ (z >> 31);
}

static inline double random_unit(struct random *r)
{
	return (double)(random_next(r) >> 11) * 0x1p-53;
}

static inline uint32_t random_below(struct random *r, uint32_t bound)
{
	return (uint32_t)(((random_next(r) >> 32) * bound) >> 32);
}

/*
 * An exponential variate of mean 1 by von Neumann's comparisons: how long a run of falling uniforms
 * is decides whether its first is taken. Exact, and needs no libm.
 */
static inline double random_exponential(struct random *r)
{
	for (double whole = 0;; whole += 1) {
		double first = random_unit(r);
		double last = first;
		unsigned run = 1;

		for (double next = random_unit(r); next <= last; next = random_unit(r)) {
			last = next;
			run++;
		}
		if (run % 2 == 1)
			return whole + first;
	}
}

#endif
