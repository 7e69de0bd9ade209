/*
 * A stream event is one value of an event stream, as the bytes that are sent. It is rendered once
 * and shared by all streams that send it, on all loops. An event never changes; dropping the last
 * reference frees it.
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
 * Returns a new event that consists of a line such as "id: 7", each line of `data` with "data: " in
 * front, and a blank line. `id` must not be negative. The caller owns the only reference.
 * Thread-safe.
 */
struct stream_event *stream_event_new(int64_t id, struct slice data);

/* Returns an event whose bytes are a copy of `bytes`, to be sent as they are. Thread-safe. */
struct stream_event *stream_event_of(struct slice bytes);

/* Adds a reference and returns the event. Thread-safe. */
struct stream_event *stream_event_hold(struct stream_event *event);

/* Drops a reference. `event` may be NULL. Thread-safe. */
void stream_event_drop(struct stream_event *event);

#endif
