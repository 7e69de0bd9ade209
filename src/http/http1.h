/*
 * What a connection keeps while it speaks HTTP/1.1 (or 1.0). Private to http/. Several of these
 * states can apply at once (it reads while requests are in the queue):
 *
 *   reading    bytes go to the parser; a complete request becomes `held`
 *   held       a request waits to start: a change starts only when everything before it on this
 *              connection is answered, and nothing starts after a change. Reading stops meanwhile.
 *   queue      requests have started, in order; their answers leave from the front only
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
	struct stream *stream; /* NULL if it has none */
};

/* Makes a new connection speak HTTP/1.1. */
void http1_init(struct connection *connection);

/* ---- http1_output.c; each of these may close the connection ---- */

/* Writes the answers at the front of the queue. Returns whether there was one. */
bool http1_write_answers(struct connection *connection);

/* Writes 100 Continue, unless answers to earlier requests are still to come. */
void http1_write_continue(struct connection *connection);

/* Writes the waiting value of the connection's stream if the client has taken the one before.
 * Returns whether it wrote. May end the stream. */
bool http1_write_event(struct connection *connection);

/* Sends a heartbeat if one is due. Ends the stream if its client has stopped reading or the caller
 * has lost the right to it. */
void http1_check_stream(struct connection *connection, int64_t now_ns);

#endif
