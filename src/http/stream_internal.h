/*
 * How a connection carries a stream. Private to http/: connection.c, server.c and stream.c.
 */
#ifndef QUIPU_HTTP_STREAM_INTERNAL_H
#define QUIPU_HTTP_STREAM_INTERNAL_H

#include "http/connection.h"
#include "http/stream.h"

/* Heartbeats of one sweep; those of further streams go out with the next. */
#define HEARTBEATS_PER_SWEEP 1024

/* It is the turn of the stream's request: writes its answer's body and moves to the connection. */
void stream_begin(struct stream *stream);

/* Writes what waits, if the client has taken what came before. true: something was written. */
bool stream_write(struct stream *stream);

/* The client has sent `len` bytes that nobody asked for. */
void stream_read(struct stream *stream, size_t len);

/* Heartbeat, or the end of a client that takes nothing, or whose token has expired. */
void stream_check(struct stream *stream, int64_t now_ns);

/* Leaves its request or connection, tells the owner, and is gone. */
void stream_end(struct stream *stream);

#endif
