/*
 * A stream sends server-sent events (text/event-stream): it is an answer that goes on until one
 * side ends it. A stream carries one value that changes, not a log: a new value replaces a value
 * that still waits, so a slow client misses some values but always gets the newest. Whatever the
 * client does, at most one value is being written and one waits.
 *
 *   state      event                          next       what happens
 *   prepared   stream_start()                 started    the head, and a value if there is one, are
 *                                                        sent as the request's answer
 *   prepared   request_answer()               gone       an ordinary answer is sent instead
 *   prepared   the client is gone             gone       nothing is sent
 *   started    the client is gone, or reads   gone       the connection is closed
 *              nothing, or the server drains
 *   any        stream_close(), or the token   gone       the connection is closed after the value
 *              of the caller expires, or the             that is being written
 *              keys of the guard change
 *
 * When a stream is gone, its owner is called once, and pointers to the stream are no longer valid.
 * Where the table says that the connection is closed, HTTP/2 ends only the stream's exchange, and
 * resets it if the client has not read the rest of the value --stream-stall after stream_close().
 * From stream_close() on, the stream no longer counts as open.
 *
 * In HTTP/1.1 the body has no Content-Length and is not chunked, because HTTP/1.0 clients cannot
 * read chunks; the body ends with the connection. A client can still detect an incomplete event,
 * because every event ends with a blank line. Further input from the client is discarded; after
 * 64 KiB of such input the connection is closed.
 *
 * A stream belongs to its loop, and everything here is for that loop's thread. No call writes at
 * once: the loop writes before it sleeps. So a value that changes several times while the loop runs
 * its tasks is sent once, and a socket error never calls an owner in the middle of the owner's own
 * work.
 */
#ifndef QUIPU_HTTP_STREAM_H
#define QUIPU_HTTP_STREAM_H

#include "http/request.h"
#include "http/stream_event.h"

struct stream;

struct stream_owner {
	/* Called when the stream is gone, so that the owner forgets the stream. Must not call
	 * functions of this header. May be NULL. */
	void (*closed)(void *context, struct stream *stream);
	void *context;
};

/*
 * Turns `request` into a stream. The route's handler calls this instead of answering. Nothing is
 * sent yet, so that the handler can subscribe to changes before it looks up the current value, and
 * can still refuse the request with request_answer().
 *
 * Values with an id up to the request's Last-Event-ID are never sent, because the client already
 * knows them. So the ids of values must only grow: if they started over from a small number, a
 * client would receive nothing until an id exceeds its Last-Event-ID. Only the event with id 0 that
 * hub_retract() publishes lets ids start over.
 *
 * For HEAD, or if there are too many streams (OVERLOADED), answers the request at once and returns
 * NULL.
 */
struct stream *stream_prepare(struct request *request, struct stream_owner owner);

/* Starts the answer, with the newest value that was offered. Call it once. */
void stream_start(struct stream *stream);

/* Prepares and starts a stream. Returns NULL if stream_prepare() returns NULL. */
struct stream *stream_open(struct request *request, struct stream_owner owner);

/*
 * Offers the value `data` with an `id`, which must not be negative. The value is sent only if its
 * id is above Last-Event-ID and above all ids offered before, so that a client never receives an
 * older value after a newer value.
 */
void stream_offer(struct stream *stream, int64_t id, struct slice data);

/* Like stream_offer(), except that the value is an event that other streams share, and that an
 * event with id 0 is also sent to a client that knows a higher id: it says that there is no value
 * any more. The stream takes its own reference. */
void stream_offer_event(struct stream *stream, struct stream_event *event);

/*
 * Ends a stream and drops the waiting value, if there is one. If the stream was started, the owner
 * is called before stream_close() returns. If the stream was only prepared, the route's handler
 * must still start it or answer the request; the stream ends, and the owner is called, only after
 * that.
 */
void stream_close(struct stream *stream);

#endif
