/*
 * This is the state of a connection that speaks HTTP/1.1 (or 1.0). Private to http/. Several of the
 * following can apply at once; for example, the connection can read while requests are in the
 * queue:
 *
 *   reading    bytes go to the parser; a complete request becomes `held`
 *   held       a complete request waits to start, and nothing is read. A request that changes
 *              something waits until all earlier requests of this connection are answered. A
 *              request behind a change, or behind a read whose answer may be large, waits until
 *              that change or read is answered.
 *   queue      requests that have started, in order; answers are sent only from the front
 *   streaming  the last answer is an event stream that has not ended; see stream.h
 */
#ifndef QUIPU_HTTP_HTTP1_H
#define QUIPU_HTTP_HTTP1_H

#include "http/parser.h"

struct stream;

struct http1 {
	struct parser parser;
	struct request *first; /* the front of the queue */
	struct request *last;
	size_t queued;
	struct request *held;
	struct stream *stream; /* NULL if the connection carries no stream */
};

/* Makes a new connection speak HTTP/1.1. */
void http1_init(struct connection *connection);

/* ---- http1_output.c; each of these functions may close the connection ---- */

/* Writes the answers that are ready at the front of the queue. Returns whether there were any. */
bool http1_write_answers(struct connection *connection);

/* Writes 100 Continue, unless earlier requests are not answered yet. */
void http1_write_continue(struct connection *connection);

/* Writes the waiting value of the connection's stream, if the kernel has accepted all earlier
 * output. Returns whether it wrote a value. May end the stream. */
bool http1_write_event(struct connection *connection);

/* Sends a heartbeat on the connection's stream if a heartbeat is due. Ends the stream if the client
 * has stopped reading or is no longer allowed to read the stream. */
void http1_check_stream(struct connection *connection, int64_t now_ns);

#endif
