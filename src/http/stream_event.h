/*
 * One value of an event stream, as the bytes that are sent: written once, then shared by every
 * stream that gets it, on whichever loop. It never changes, and whoever drops it last frees it.
 */
#ifndef QUIPU_HTTP_STREAM_EVENT_H
#define QUIPU_HTTP_STREAM_EVENT_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/slice.h"

struct stream_event {
	_Atomic size_t holders;
	int64_t id;
	size_t len;
	char bytes[];
};

/*
 * "id: 7", then "data: " before each line of `data`, then a blank line. Held once, by the caller.
 * `id` is not negative. Any thread.
 */
struct stream_event *stream_event_new(int64_t id, struct slice data);

/* Holds it once more. Any thread. */
struct stream_event *stream_event_hold(struct stream_event *event);

/* Any thread; NULL is none. */
void stream_event_drop(struct stream_event *event);

#endif
