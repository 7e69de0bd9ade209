/*
 * How a connection carries a stream. Private to http/: connection.c, connection_output.c,
 * request.c, worker.c and stream.c.
 */
#ifndef QUIPU_HTTP_STREAM_INTERNAL_H
#define QUIPU_HTTP_STREAM_INTERNAL_H

#include "http/connection.h"
#include "http/stream.h"

/* How many heartbeats one sweep sends; the other streams get theirs with the next sweep. */
#define HEARTBEATS_PER_SWEEP 1024

/* Call it when the stream's request is next to be answered. Sets the body of the answer and moves
 * the stream from the request to the connection. */
void stream_begin(struct stream *stream);

/* Writes the waiting value if the client has taken the one before. Returns whether it wrote. May
 * end the stream. */
bool stream_write(struct stream *stream);

/* Counts `len` bytes that the client has sent, and closes the connection if there are too many. */
void stream_read(struct stream *stream, size_t len);

/* Sends a heartbeat if one is due. Ends the stream if its client has stopped reading, its token has
 * expired, or the keys have changed. */
void stream_check(struct stream *stream, int64_t now_ns);

/* Detaches the stream from its request or connection, calls the owner, and frees the stream. */
void stream_end(struct stream *stream);

#endif
