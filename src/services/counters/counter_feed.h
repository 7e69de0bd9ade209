/*
 * Keeps open streams up to date. The intake publishes what this process commits to the hub at once.
 * Other processes announce their commits on the store, and through the cache if there is one,
 * without saying whose counter has changed. So the feed, a thread of its own, then reads the
 * counters of all users who have a stream here. It also does so every few seconds, because an
 * announcement can get lost.
 */
#ifndef QUIPU_SERVICES_COUNTERS_COUNTER_FEED_H
#define QUIPU_SERVICES_COUNTERS_COUNTER_FEED_H

#include "services/counters/counters.h"

struct counter_feed;

/* Starts the thread. `counters` outlives the feed. */
struct counter_feed *counter_feed_start(struct counters *counters);

/* Ends the thread and frees the feed. */
void counter_feed_stop(void *feed);

/* Publishes rows that this process has committed to its streams, and announces them to other
 * processes. Any thread. */
void counter_feed_publish(struct counters *counters, struct arena *arena,
	const struct counter_row *rows, size_t count);

#endif
