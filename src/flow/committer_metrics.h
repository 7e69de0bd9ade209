/*
 * The metrics of one committer. The committer's thread updates them; any thread may read them to
 * write the page of metrics. Private to flow/.
 */
#ifndef QUIPU_FLOW_COMMITTER_METRICS_H
#define QUIPU_FLOW_COMMITTER_METRICS_H

#include "base/metrics.h"
#include "flow/parking.h"
#include "runtime/lane.h"

struct committer_metrics {
	const struct lane *lane;
	const struct parking *parking;
	struct histogram batch_size; /* counts changes, not commands */
	struct histogram duration;
	struct tally under_way; /* writes whose effects have not been recorded */
	struct tally aside;
	struct tally reruns;
	struct tally expired;
	struct tally poisoned;
};

/* `lane` and `parking` must outlive the metrics. */
void committer_metrics_init(
	struct committer_metrics *metrics, const struct lane *lane, const struct parking *parking);

/* Writes the metrics of all committers together, because samples of one name must be adjacent. */
void committer_metrics_collect(
	const struct committer_metrics *const *all, size_t count, struct buffer *page);

#endif
