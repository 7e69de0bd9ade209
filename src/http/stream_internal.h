/*
 * How the protocol of a connection carries a stream. Private to http/: the protocols, request.c and
 * stream.c.
 */
#ifndef QUIPU_HTTP_STREAM_INTERNAL_H
#define QUIPU_HTTP_STREAM_INTERNAL_H

#include "http/connection.h"
#include "http/exchange.h"
#include "http/stream.h"

#define STREAM_HEARTBEAT ": keep-alive\n\n"

/* How many heartbeats one sweep sends; the other streams get theirs with the next sweep. */
#define HEARTBEATS_PER_SWEEP 1024

struct stream {
	struct stream_owner owner;
	struct http_worker *worker;
	struct request *request;       /* until its head is written, then NULL */
	struct connection *connection; /* from then on */
	struct stream_event *waiting;  /* the newest value, unless it was written */
	int64_t last_id;               /* the highest offered, or known to the client, or -1 */
	struct caller caller;          /* without its name, which is in the request's arena */
	struct exchange exchange;      /* that carries it in HTTP/2 */
	bool is_ending;
};

/* Call it when the stream's request is next to be answered. Sets the body of the answer and moves
 * the stream from the request to the connection. */
void stream_begin(struct stream *stream);

/* Returns the waiting value, whose reference the caller drops, and counts it as sent; or NULL. */
struct stream_event *stream_take(struct stream *stream);

/* Whether a stream that has begun should end after what is being written. */
bool stream_is_over(const struct stream *stream);

/* Whether the caller might be refused now: the token has expired, or the keys have changed. */
bool stream_has_lost_caller(const struct stream *stream);

/* Detaches the stream from its request or connection, calls the owner, and frees the stream. */
void stream_end(struct stream *stream);

#endif
