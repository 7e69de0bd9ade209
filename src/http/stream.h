/*
 * Server-sent events (text/event-stream): an answer that goes on until somebody ends it. A stream
 * carries one value that changes, not a log: what is offered replaces whatever still waits, so a
 * slow reader skips values and is then given the newest. At most one value is being written and one
 * waits, whatever the client does.
 *
 *   state      event                          next       what happens
 *   prepared   stream_start()                 started    the head, and a value if there is one, are
 *                                                        sent in the request's turn
 *   prepared   request_answer()               gone       refused: a usual answer is sent instead
 *   started    client gone, or it reads       gone       the connection is closed
 *              nothing, or the server drains
 *   started    stream_close(), or the token   gone       closed behind what is being written
 *              of its caller has expired
 *
 * When it is gone, the owner is told, once, and the pointer is no longer valid.
 *
 * The body has no length and is not chunked: it ends with the connection, which is what HTTP/1.0
 * clients need anyway, and events tell by themselves whether they are complete. So a connection
 * ends with its stream. What a client still sends is thrown away, and after 64 KiB of it the
 * connection is closed.
 *
 * A stream belongs to its loop, and everything here is for that loop's thread. The calls never
 * write by themselves: the loop writes before it sleeps, so that what changes several times in one
 * round of tasks is sent once, and a write that fails tells no owner in the middle of its own work.
 */
#ifndef QUIPU_HTTP_STREAM_H
#define QUIPU_HTTP_STREAM_H

#include "http/request.h"
#include "http/stream_event.h"

struct stream;

struct stream_owner {
	/* The stream is gone: forget it. Must not call anything here. May be NULL. */
	void (*closed)(void *context, struct stream *stream);
	void *context;
};

/*
 * Makes a stream of `request`, in its route's handler, instead of answering it. Nothing is sent
 * yet, so that the handler can arrange to be told of changes before it looks what the value is now,
 * and can still refuse the request with request_answer().
 *
 * Values up to the request's Last-Event-ID are taken as known to the client and never sent. That is
 * right as long as ids never go back: who sends one that is ahead of the value hears nothing until
 * the value has passed it.
 *
 * NULL: it is answered: it was HEAD, or there are too many streams (OVERLOADED).
 */
struct stream *stream_prepare(struct request *request, struct stream_owner owner);

/* Lets the answer begin, with the newest value that was offered. Once. */
void stream_start(struct stream *stream);

/* Both at once. */
struct stream *stream_open(struct request *request, struct stream_owner owner);

/*
 * The value is now `data`, under `id`, which is not negative. An id that is not above all that this
 * stream was offered, and above Last-Event-ID, is ignored: a client never sees a value go back.
 */
void stream_offer(struct stream *stream, int64_t id, struct slice data);

/* The same with an event that others share; the stream holds it by itself. */
void stream_offer_event(struct stream *stream, struct stream_event *event);

/* Ends a stream that was started. A value that waits is not sent. The owner is told before this
 * returns. */
void stream_close(struct stream *stream);

#endif
