#include "flow/committer_metrics.h"

#include <stddef.h>
#include <stdio.h>

void committer_metrics_init(
	struct committer_metrics *metrics, const struct lane *lane, const struct parking *parking)
{
	metrics->lane = lane;
	metrics->parking = parking;
	histogram_init(&metrics->batch_size, &histogram_batch_size);
	histogram_init(&metrics->duration, &histogram_duration_ns);
}

struct labels {
	char text[64];
};

static struct labels labels_of(const struct committer_metrics *metrics)
{
	struct labels labels;

	snprintf(labels.text, sizeof(labels.text), "lane=\"%s\"", lane_name(metrics->lane));
	return labels;
}

/* A family of samples, and the offset of its value in struct committer_metrics. */
struct family {
	const char *name;
	const char *type;
	size_t offset;
	const char *help;
};

static void collect_tallies(const struct committer_metrics *const *all, size_t count,
	struct buffer *page, const struct family *family)
{
	metrics_family(page, family->name, family->type, family->help);
	for (size_t i = 0; i < count; i++) {
		const struct tally *tally = (const void *)((const char *)all[i] + family->offset);

		metrics_sample(page, family->name, labels_of(all[i]).text, tally_read(tally));
	}
}

static void collect_histograms(const struct committer_metrics *const *all, size_t count,
	struct buffer *page, const struct family *family)
{
	metrics_family(page, family->name, family->type, family->help);
	for (size_t i = 0; i < count; i++) {
		const struct histogram *histogram =
			(const void *)((const char *)all[i] + family->offset);

		metrics_histogram(page, family->name, labels_of(all[i]).text, histogram);
	}
}

static void collect_parked(
	const struct committer_metrics *const *all, size_t count, struct buffer *page)
{
	metrics_family(page, "quipu_parked_commands", "gauge",
		"Commands that wait for a row held by another session, or for a pending "
		"Idempotency-Key.");
	for (size_t i = 0; i < count; i++)
		metrics_sample(page, "quipu_parked_commands", labels_of(all[i]).text,
			(int64_t)parking_count(all[i]->parking));
}

void committer_metrics_collect(
	const struct committer_metrics *const *all, size_t count, struct buffer *page)
{
	static const struct family histograms[] = {
		{"quipu_batch_size", "histogram", offsetof(struct committer_metrics, batch_size),
			"Changes in one transaction."},
		{"quipu_commit_duration_seconds", "histogram",
			offsetof(struct committer_metrics, duration),
			"Time from BEGIN to COMMIT of a batch."},
	};
	static const struct family tallies[] = {
		{"quipu_effects_under_way", "gauge", offsetof(struct committer_metrics, under_way),
			"Commands whose effect outside the store has not ended or is not "
			"recorded."},
		{"quipu_aside_commands", "gauge", offsetof(struct committer_metrics, aside),
			"Commands that wait until fewer effects are under way."},
		{"quipu_reruns_total", "counter", offsetof(struct committer_metrics, reruns),
			"Transactions that were run again."},
		{"quipu_expired_commands_total", "counter",
			offsetof(struct committer_metrics, expired),
			"Commands refused before they ran, because their deadline had passed, "
			"their client had left or the server was stopping."},
		{"quipu_poisoned_commands_total", "counter",
			offsetof(struct committer_metrics, poisoned),
			"Commands that the store refused."},
	};

	collect_parked(all, count, page);
	for (size_t i = 0; i < sizeof(histograms) / sizeof(histograms[0]); i++)
		collect_histograms(all, count, page, &histograms[i]);
	for (size_t i = 0; i < sizeof(tallies) / sizeof(tallies[0]); i++)
		collect_tallies(all, count, page, &tallies[i]);
}
