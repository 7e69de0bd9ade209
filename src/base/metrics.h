/*
 * Metrics for Prometheus. A module embeds its tallies and histograms, which are plain atomics. The
 * registry knows only collectors: functions that append a module's samples to the page of metrics
 * when somebody requests the page. So counting never takes a lock.
 */
#ifndef QUIPU_BASE_METRICS_H
#define QUIPU_BASE_METRICS_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/buffer.h"

/* A number in the metrics. It usually only grows; if it is set or gets negative steps, it is a
 * gauge. Thread-safe. */
struct tally {
	_Atomic int64_t value;
};

static inline void tally_add(struct tally *tally, int64_t step)
{
	atomic_fetch_add_explicit(&tally->value, step, memory_order_relaxed);
}

static inline void tally_set(struct tally *gauge, int64_t value)
{
	atomic_store_explicit(&gauge->value, value, memory_order_relaxed);
}

static inline int64_t tally_read(const struct tally *tally)
{
	return atomic_load_explicit(&tally->value, memory_order_relaxed);
}

/* How often something was done and how long it took in total; total_ns / count is the average. A
 * latency costs less than a histogram. Thread-safe. */
struct latency {
	struct tally count;
	struct tally total_ns;
};

static inline void latency_add(struct latency *latency, int64_t duration_ns)
{
	tally_add(&latency->count, 1);
	tally_add(&latency->total_ns, duration_ns);
}

#define HISTOGRAM_BUCKETS 16

/* The upper bounds of the buckets, ascending, and the factor that converts their unit to the unit
 * on the page of metrics (1e-9 from nanoseconds to seconds). */
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

/* `shape` must outlive the histogram. */
void histogram_init(struct histogram *histogram, const struct histogram_shape *shape);

/* Thread-safe. */
void histogram_observe(struct histogram *histogram, int64_t value);

/*
 * These functions append to a page. The samples of one name must be adjacent, so a collector with
 * several series of a name calls metrics_family() once and then writes each series. `labels` is
 * `a="b",c="d"`, or "".
 */
void metrics_family(struct buffer *page, const char *name, const char *type, const char *help);
void metrics_sample(struct buffer *page, const char *name, const char *labels, int64_t value);
void metrics_histogram(struct buffer *page, const char *name, const char *labels,
	const struct histogram *histogram);

/* Appends `latency` as a summary without quantiles: the total time in seconds, and the count. */
void metrics_latency(
	struct buffer *page, const char *name, const char *labels, const struct latency *latency);

/* Appends a label value with the escapes that the text format of Prometheus requires, but without
 * quotes. */
void metrics_label_value(struct buffer *labels, struct slice value);

#define METRICS_COLLECTORS 32

struct metrics {
	struct {
		void (*collect)(void *context, struct buffer *page);
		void *context;
	} collectors[METRICS_COLLECTORS];
	size_t count;
};

/* Registers a collector. Call it only at start. */
void metrics_add(struct metrics *metrics, void (*collect)(void *, struct buffer *), void *context);

/* Runs all collectors, on the calling thread, so that they append their samples to `page`. */
void metrics_write(const struct metrics *metrics, struct buffer *page);

#endif
