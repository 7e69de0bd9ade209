/*
 * Keeps open streams up to date. What this process commits is published to the hub at once, by the
 * intake; what other processes commit is announced on the store, and through the cache where there
 * is one, without saying whose count it is, so the feed, a thread of its own, reads the counts of
 * everybody who has a stream here. It also does so every few seconds, because an announcement can
 * get lost.
 */
#ifndef QUIPU_SERVICES_COUNTERS_COUNTER_FEED_H
#define QUIPU_SERVICES_COUNTERS_COUNTER_FEED_H

#include "services/counters/counters.h"

struct counter_feed;

/* Starts a thread. */
struct counter_feed *counter_feed_start(struct counters *counters);

/* Ends the thread and frees. */
void counter_feed_stop(struct counter_feed *feed);

/* Publishes rows that this process has committed to the streams here, and tells other processes.
 * Any thread. */
void counter_feed_publish(struct counters *counters, struct arena *arena,
	const struct counter_row *rows, size_t count);

#endif
