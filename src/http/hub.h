/*
 * A hub passes values from the threads that commit them to the streams that show them. Each stream
 * subscribes to one key (a user's id); a value published under a key reaches all streams of that
 * key, on all loops:
 *
 *   any thread   hub_publish() stores the value as the newest of its key, and posts one task to
 *                each loop that has streams of that key
 *   loop         the task offers the newest value of each changed key to the streams of that key
 *
 * A newer value replaces a value that a loop has not taken yet. So an old value may be skipped, but
 * the newest never is, and a loop wakes up only once for everything published since it last woke
 * up. The hub drops a value whose version is not above the newest version of its key. So a stream
 * never goes back to an older version, and threads may publish in any order. hub_retract() is the
 * exception: it says that the value of a key is gone.
 *
 * Publishing to a key without streams costs one look-up, and the hub stores nothing.
 *
 * A stream misses nothing if it subscribes before the current value is looked up:
 *
 *   stream = hub_subscribe(hub, request, key);
 *   ... look the value up, e.g. with request_submit_then() ...
 *   stream_offer(stream, version, data); stream_start(stream);
 */
#ifndef QUIPU_HTTP_HUB_H
#define QUIPU_HTTP_HUB_H

#include "http/stream.h"

struct hub;

/* Creates a hub. A user may have at most `streams_per_user` streams open, counted over all tokens
 * of that user. Other callers are limited only by the server's own limits. */
struct hub *hub_new(size_t streams_per_user);

/* Call it after server_free(), when no thread calls hub_publish() any more. */
void hub_free(struct hub *hub);

/*
 * Turns `request` into a stream. Returns NULL if stream_prepare() returns NULL. The hub offers the
 * stream the newest known value of `key`, and the values published from now on. The hub owns the
 * stream and forgets it when the stream ends. If the caller of the request is a user, `key` must be
 * that user's id; if the user already has as many streams as allowed, the user's oldest stream is
 * closed. Call it on the request's loop.
 */
struct stream *hub_subscribe(struct hub *hub, struct request *request, struct slice key);

/* Publishes `data` as the value of `key` with this `version`, which must not be negative. Returns
 * false if the version was retracted; see hub_retract(). Thread-safe, even while the server is
 * being freed. Blocks only for a lock that is never held for long. */
bool hub_publish(struct hub *hub, struct slice key, int64_t version, struct slice data);

/*
 * Returns whether `key` has streams now. If not, there is no need to prepare a value for
 * hub_publish(). Thread-safe.
 */
bool hub_wants(struct hub *hub, struct slice key);

struct hub_key {
	struct slice key;
	int64_t version; /* the newest version of the key, or -1 if none has been published */
};

/*
 * Sets `*keys` to copies, allocated from `arena`, of all keys that have streams now, and returns
 * the number of these keys. Thread-safe. For callers that know that another process has changed
 * values, but not which values.
 */
size_t hub_keys(struct hub *hub, struct arena *arena, struct hub_key **keys);

/*
 * Publishes with version 0 that there is no value of `key` any more; `data` is what clients get.
 * `key` comes from a call of hub_keys() before the caller found that there is no value. If another
 * version has been published since, or if the newest version is already 0, does nothing. Drops
 * what is published later with the retracted version or a lower one, for example from a cache, as
 * long as the key has streams. Call it only if all values that streams are offered are published
 * too, also those that were looked up. Thread-safe, like hub_publish().
 */
void hub_retract(struct hub *hub, const struct hub_key *key, struct slice data);

#endif
