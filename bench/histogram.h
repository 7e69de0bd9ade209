/*
 * A log-linear histogram of nanoseconds: 128 buckets for every doubling, so that a value is off by
 * less than 0.8 % whatever its size, in 58 KiB, and adding one is a shift and an increment.
 */
#ifndef BENCH_HISTOGRAM_H
#define BENCH_HISTOGRAM_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum {
	HISTOGRAM_BITS = 7,
	HISTOGRAM_STEPS = 1 << HISTOGRAM_BITS,
	HISTOGRAM_BUCKETS = HISTOGRAM_STEPS * (64 - HISTOGRAM_BITS + 1),
};

struct histogram {
	uint64_t count;
	uint64_t max_ns;
	double sum_ns;
	uint64_t buckets[HISTOGRAM_BUCKETS];
};

static inline size_t histogram_index(uint64_t ns)
{
	unsigned shift;

	if (ns < HISTOGRAM_STEPS)
		return (size_t)ns;
	shift = 63U - (unsigned)__builtin_clzll(ns) - HISTOGRAM_BITS;
	return (size_t)(shift + 1) * HISTOGRAM_STEPS + (size_t)(ns >> shift) - HISTOGRAM_STEPS;
}

/* The largest value that falls into the bucket: a quantile is never understated. */
static inline uint64_t histogram_upper(size_t index)
{
	size_t shift;

	if (index < HISTOGRAM_STEPS)
		return index;
	shift = index / HISTOGRAM_STEPS - 1;
	return ((uint64_t)(index % HISTOGRAM_STEPS + HISTOGRAM_STEPS + 1) << shift) - 1;
}

static inline void histogram_add(struct histogram *h, uint64_t ns)
{
	size_t index = histogram_index(ns);

	assert(index < HISTOGRAM_BUCKETS);
	h->buckets[index]++;
	h->count++;
	h->sum_ns += (double)ns;
	if (ns > h->max_ns)
		h->max_ns = ns;
}

static inline double histogram_quantile_ms(const struct histogram *h, double quantile)
{
	uint64_t rank = (uint64_t)(quantile * (double)h->count);
	uint64_t seen = 0;

	for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
		seen += h->buckets[i];
		if (seen > rank) {
			uint64_t upper = histogram_upper(i);

			return (double)(upper < h->max_ns ? upper : h->max_ns) / 1e6;
		}
	}
	return (double)h->max_ns / 1e6;
}

static inline void histogram_print(const char *name, const struct histogram *h)
{
	double mean_ms = h->count ? h->sum_ns / (double)h->count / 1e6 : 0;

	printf("\"%s\":{\"count\":%llu,\"mean_ms\":%.3f,\"p50_ms\":%.3f,\"p90_ms\":%.3f,"
	       "\"p99_ms\":%.3f,\"p999_ms\":%.3f,\"max_ms\":%.3f},",
		name, (unsigned long long)h->count, mean_ms, histogram_quantile_ms(h, 0.5),
		histogram_quantile_ms(h, 0.9), histogram_quantile_ms(h, 0.99),
		histogram_quantile_ms(h, 0.999), (double)h->max_ns / 1e6);
}

#endif
