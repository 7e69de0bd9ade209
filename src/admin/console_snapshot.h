/*
 * Condenses a page of metrics to a snapshot in JSON. The console gets a snapshot every second:
 *
 *   {"version":"0.2.0","at":"2026-11-16T15:50:00.120Z","roles":"counts",
 *    "requests":{"counts":{"2xx":120311,"4xx":12},"program":{"2xx":7}},
 *    "histograms":{"commit":{"sum":1.25,"count":812,"buckets":[[0.001,700],[0.0025,812]]},…},
 *    "samples":[["quipu_lane_depth","lane=\"counts-0\"",3],…]}
 *
 * Requests are summed by role and status class. Each of the three histograms is a sum over all
 * lanes or routes. "samples" has every sample of the page except numbers of requests, durations of
 * requests, buckets of histograms, and zeros. The only zeros in "samples" are those that mean that
 * a dependency is down. The console computes rates and percentiles from the difference between two
 * snapshots, so the server need not remember the last snapshot.
 */
#ifndef QUIPU_ADMIN_CONSOLE_SNAPSHOT_H
#define QUIPU_ADMIN_CONSOLE_SNAPSHOT_H

#include "base/buffer.h"
#include "http/router.h"

/* Condenses the metrics in `page`. Appends the members "requests", "histograms" and "samples" to
 * the object in `json`, each after a comma, so the object must already have a member.
 * Thread-safe. */
void console_snapshot_write(struct buffer *json, struct slice page, const struct router *router);

#endif
