/*
 * A hub brings values from the threads that commit them to the streams that want them. Each stream
 * wants one key (a user's id); what is published under a key reaches all its streams, on all loops:
 *
 *   publisher, any thread     hub_publish() notes the value as the newest of its key, and posts one
 *                             task to each loop that has streams for it
 *   loop                      the task offers the newest value of each changed key to its streams
 *
 * Values may be skipped, the last never: while a loop has not taken a value, a newer one replaces
 * it, and however much is published meanwhile costs that loop one wake-up. Versions never go back:
 * publishers need no order among themselves, an older version than the newest is dropped.
 *
 * A value that nobody wants costs one look-up. Nothing is kept for keys without streams.
 *
 * A stream misses nothing if it is subscribed before the current value is looked up:
 *
 *   stream = hub_subscribe(hub, request, key);
 *   ... look the value up, e.g. with request_submit_then() ...
 *   stream_offer(stream, version, data); stream_start(stream);
 */
#ifndef QUIPU_HTTP_HUB_H
#define QUIPU_HTTP_HUB_H

#include "http/stream.h"

struct hub;

struct hub *hub_new(void);

/* After server_free(), and after the last publisher has ended. */
void hub_free(struct hub *hub);

/*
 * Makes a stream of `request` (see stream_prepare(), also for NULL) that is offered what is
 * published under `key` from now on, and at once what the hub knows to be its newest value. The hub
 * owns it and forgets it when it is gone. On the request's loop.
 */
struct stream *hub_subscribe(struct hub *hub, struct request *request, struct slice key);

/* `key` now has the value `data`, as of `version`, which is not negative. Any thread, also while
 * the server is being freed. */
void hub_publish(struct hub *hub, struct slice key, int64_t version, struct slice data);

/* Whether anybody wants `key` now, to save making a value that nobody does. Any thread. */
bool hub_wants(struct hub *hub, struct slice key);

/*
 * Every key that has streams now, copied into `arena`; returns how many. Any thread. For whoever
 * was told that something has changed elsewhere, and not what.
 */
size_t hub_keys(struct hub *hub, struct arena *arena, struct slice **keys);

#endif
