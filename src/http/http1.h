/*
 * The state of a connection that speaks HTTP/1.1 (or 1.0). Private to http/. Several of these
 * states can apply at once (it can read while requests are in the queue):
 *
 *   reading    bytes go to the parser; a complete request becomes `held`
 *   held       a request waits to start: a change waits until everything before it on this
 *              connection is answered, and requests behind a change wait for the change.
 *              Nothing is read meanwhile.
 *   queue      requests that have started, in order; answers are sent only from the front
 *   streaming  the last answer is a stream, which goes on; see stream.h
 */
#ifndef QUIPU_HTTP_HTTP1_H
#define QUIPU_HTTP_HTTP1_H

#include "http/parser.h"

struct stream;

struct http1 {
	struct parser parser;
	struct request *first; /* the queue */
	struct request *last;
	size_t queued;
	struct request *held;
	struct stream *stream; /* NULL if the connection carries no stream */
};

/* Makes a new connection speak HTTP/1.1. */
void http1_init(struct connection *connection);

/* ---- http1_output.c; each of these may close the connection ---- */

/* Writes the answers at the front of the queue. Returns whether there were any. */
bool http1_write_answers(struct connection *connection);

/* Writes 100 Continue, unless earlier requests are not answered yet. */
void http1_write_continue(struct connection *connection);

/* Writes the waiting value of the connection's stream, if the client has read the previous value.
 * Returns whether it wrote. May end the stream. */
bool http1_write_event(struct connection *connection);

/* Sends a heartbeat if one is due. Ends the stream if its client has stopped reading or is no
 * longer allowed to read it. */
void http1_check_stream(struct connection *connection, int64_t now_ns);

#endif
