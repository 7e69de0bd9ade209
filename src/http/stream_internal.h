/*
 * Declares the parts of a stream that protocols use. Private to http/: only the protocols,
 * request.c, stream.c and worker.c include this header.
 */
#ifndef QUIPU_HTTP_STREAM_INTERNAL_H
#define QUIPU_HTTP_STREAM_INTERNAL_H

#include "http/connection.h"
#include "http/exchange.h"
#include "http/stream.h"

#define STREAM_HEARTBEAT ": keep-alive\n\n"

/* How many heartbeats one sweep sends at most; further streams get their heartbeats with later
 * sweeps. */
#define HEARTBEATS_PER_SWEEP 1024

struct stream {
	struct stream_owner owner;
	struct http_worker *worker;
	struct request *request;       /* set until the head is written; then NULL */
	struct connection *connection; /* set after the head is written; NULL before */
	struct stream_event *waiting;  /* the newest value, until it is written */
	/* the highest id that was offered or that the client has already received, or -1 if there
	 * is no such id; 0 after the value was retracted */
	int64_t last_id;
	/* the request's caller without its name, because the name is allocated from the request's
	 * arena, which the stream outlives */
	struct caller caller;
	struct exchange exchange; /* carries the stream in HTTP/2; unused in HTTP/1.1 */
	bool is_ending; /* the stream no longer counts as open, and takes no further value */
};

/* Moves the stream from its request to the connection and sets the body of the answer. Called just
 * before the head is written. */
void stream_begin(struct stream *stream);

/* Returns the waiting value and counts it as sent. Returns NULL if no value waits. The caller drops
 * the reference. */
struct stream_event *stream_take(struct stream *stream);

/* Returns whether a stream that has begun should end after the value that is being written. */
bool stream_is_over(const struct stream *stream);

/* Returns whether the stream's caller might be refused now, because the caller's token has expired
 * or a reload has changed the keys of the guard (see guard_generation()). */
bool stream_has_lost_caller(const struct stream *stream);

/* Detaches the stream from its request or connection, calls the owner, and frees the stream. */
void stream_end(struct stream *stream);

#endif
