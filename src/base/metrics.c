#include "base/metrics.h"

#include <assert.h>

#include "base/clock.h"

const struct histogram_shape histogram_duration_ns = {
	.bounds = {100 * NS_PER_US, 250 * NS_PER_US, 500 * NS_PER_US, 1 * NS_PER_MS,
		2500 * NS_PER_US, 5 * NS_PER_MS, 10 * NS_PER_MS, 25 * NS_PER_MS, 50 * NS_PER_MS,
		100 * NS_PER_MS, 200 * NS_PER_MS, 500 * NS_PER_MS, 1 * NS_PER_S, 2 * NS_PER_S,
		5 * NS_PER_S, 10 * NS_PER_S},
	.scale = 1e-9,
};

const struct histogram_shape histogram_batch_size = {
	.bounds = {1, 2, 4, 8, 16, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 4096},
	.scale = 1,
};

void histogram_init(struct histogram *histogram, const struct histogram_shape *shape)
{
	memset(histogram, 0, sizeof(*histogram));
	histogram->shape = shape;
}

void histogram_observe(struct histogram *histogram, int64_t value)
{
	size_t i = 0;

	while (i < HISTOGRAM_BUCKETS && value > histogram->shape->bounds[i])
		i++;
	atomic_fetch_add_explicit(&histogram->buckets[i], 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&histogram->sum, value, memory_order_relaxed);
}

void metrics_family(struct buffer *page, const char *name, const char *type, const char *help)
{
	buffer_format(page, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

void metrics_sample(struct buffer *page, const char *name, const char *labels, int64_t value)
{
	if (*labels)
		buffer_format(page, "%s{%s} ", name, labels);
	else
		buffer_format(page, "%s ", name);
	buffer_int(page, value);
	buffer_char(page, '\n');
}

static void write_sum_and_count(
	struct buffer *page, const char *name, const char *labels, double sum, uint64_t count)
{
	buffer_format(page, *labels ? "%s_sum{%s} " : "%s_sum%s ", name, labels);
	buffer_format(page, "%.9g\n", sum);
	buffer_format(page, *labels ? "%s_count{%s} " : "%s_count%s ", name, labels);
	buffer_format(page, "%llu\n", (unsigned long long)count);
}

void metrics_histogram(struct buffer *page, const char *name, const char *labels,
	const struct histogram *histogram)
{
	const char *comma = *labels ? "," : "";
	double scale = histogram->shape->scale;
	int64_t sum = atomic_load_explicit(&histogram->sum, memory_order_relaxed);
	uint64_t total = 0;

	for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
		total += atomic_load_explicit(&histogram->buckets[i], memory_order_relaxed);
		buffer_format(page, "%s_bucket{%s%sle=\"%g\"} %llu\n", name, labels, comma,
			(double)histogram->shape->bounds[i] * scale, (unsigned long long)total);
	}
	total += atomic_load_explicit(&histogram->buckets[HISTOGRAM_BUCKETS], memory_order_relaxed);
	buffer_format(page, "%s_bucket{%s%sle=\"+Inf\"} %llu\n", name, labels, comma,
		(unsigned long long)total);
	write_sum_and_count(page, name, labels, (double)sum * scale, total);
}

void metrics_latency(
	struct buffer *page, const char *name, const char *labels, const struct latency *latency)
{
	write_sum_and_count(page, name, labels, (double)tally_read(&latency->total_ns) * 1e-9,
		(uint64_t)tally_read(&latency->count));
}

void metrics_label_value(struct buffer *labels, struct slice value)
{
	for (size_t i = 0; i < value.len; i++) {
		if (value.data[i] == '"' || value.data[i] == '\\')
			buffer_char(labels, '\\');
		if (value.data[i] == '\n')
			buffer_text(labels, "\\n");
		else
			buffer_char(labels, value.data[i]);
	}
}

void metrics_add(struct metrics *metrics, void (*collect)(void *, struct buffer *), void *context)
{
	assert(metrics->count < METRICS_COLLECTORS);
	metrics->collectors[metrics->count].collect = collect;
	metrics->collectors[metrics->count].context = context;
	metrics->count++;
}

void metrics_write(const struct metrics *metrics, struct buffer *page)
{
	for (size_t i = 0; i < metrics->count; i++)
		metrics->collectors[i].collect(metrics->collectors[i].context, page);
}
