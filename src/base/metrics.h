/*
 * What the program tells Prometheus. Things that are counted often are plain atomics that their
 * owner embeds; a metrics registry only knows collectors, functions that append their samples to
 * the page when it is asked for. So counting never takes a lock.
 */
#ifndef QUIPU_BASE_METRICS_H
#define QUIPU_BASE_METRICS_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/buffer.h"

/* A number that grows, or (with negative steps) one that goes up and down. Any thread. */
struct tally {
	_Atomic int64_t value;
};

static inline void tally_add(struct tally *counter, int64_t step)
{
	atomic_fetch_add_explicit(&counter->value, step, memory_order_relaxed);
}

static inline int64_t tally_read(const struct tally *counter)
{
	return atomic_load_explicit(&counter->value, memory_order_relaxed);
}

#define HISTOGRAM_BUCKETS 16

/* Upper bounds, ascending, and what one unit is worth on the page (1e-9 for nanoseconds). */
struct histogram_shape {
	int64_t bounds[HISTOGRAM_BUCKETS];
	double scale;
};

extern const struct histogram_shape histogram_duration_ns;
extern const struct histogram_shape histogram_batch_size;

struct histogram {
	const struct histogram_shape *shape;
	_Atomic uint64_t buckets[HISTOGRAM_BUCKETS + 1];
	_Atomic int64_t sum;
};

void histogram_init(struct histogram *histogram, const struct histogram_shape *shape);
void histogram_observe(struct histogram *histogram, int64_t value);

/*
 * One page. Samples of one name must stand together, so a collector that has several series of a
 * name writes metrics_family() once and then each series. `labels` is `a="b",c="d"`, or "".
 */
void metrics_family(struct buffer *page, const char *name, const char *type, const char *help);
void metrics_sample(struct buffer *page, const char *name, const char *labels, int64_t value);
void metrics_histogram(struct buffer *page, const char *name, const char *labels,
	const struct histogram *histogram);

/* Appends a label value with the escapes of the format, without quotes. */
void metrics_label_value(struct buffer *labels, struct slice value);

#define METRICS_COLLECTORS 32

struct metrics {
	struct {
		void (*collect)(void *context, struct buffer *page);
		void *context;
	} collectors[METRICS_COLLECTORS];
	size_t count;
};

/* At start only; collectors run on whichever thread writes the page. */
void metrics_add(struct metrics *metrics, void (*collect)(void *, struct buffer *), void *context);
void metrics_write(const struct metrics *metrics, struct buffer *page);

#endif
