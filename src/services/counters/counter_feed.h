/*
 * Keeps open streams up to date. When this process commits a change, the intake publishes it to the
 * hub at once. Other processes announce their commits through the store, and also through the cache
 * if there is one. An announcement does not say whose counter has changed, so the feed, a thread of
 * its own, then reads the counters of all users who have a stream in this process. Because an
 * announcement can get lost, the feed also reads these counters every few seconds.
 */
#ifndef QUIPU_SERVICES_COUNTERS_COUNTER_FEED_H
#define QUIPU_SERVICES_COUNTERS_COUNTER_FEED_H

#include "services/counters/counters.h"

struct counter_feed;

/* Starts the thread. `counters` must outlive the feed. */
struct counter_feed *counter_feed_start(struct counters *counters);

/* Ends the thread and frees the feed. */
void counter_feed_stop(void *feed);

/* Publishes committed rows to the streams of this process, and announces to other processes that
 * counters have changed. Thread-safe. */
void counter_feed_publish(struct counters *counters, struct arena *arena,
	const struct counter_row *rows, size_t count);

#endif
