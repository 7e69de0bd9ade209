/*
 * This is the interface between a connection and the protocol that it speaks. A connection
 * (connection.h) owns the socket, TLS and the output that waits for the socket, and decides when
 * other connections go first. Its protocol owns everything between bytes and requests: the framing,
 * the order of requests, the answers and streams, and the deadlines of all these. Admission,
 * routes, lanes and services see only requests, which are the same in all protocols. Private to
 * http/; used only on the loop's thread.
 *
 * Any operation that may write may also close the connection; the caller checks `is_closed`.
 */
#ifndef QUIPU_HTTP_PROTOCOL_H
#define QUIPU_HTTP_PROTOCOL_H

#include <stdbool.h>
#include <stdint.h>

#include "http/client_queues.h"

struct connection;
struct request;
struct stream;

/* Who has to act next on a connection (the client or the server), since when, and how much memory
 * the protocol holds for the client. */
struct client_standing {
	enum client_state state;
	int64_t since_ns;
	size_t bytes;
};

struct protocol {
	const char *name; /* the name in the access log */

	/* connection_pump() calls this repeatedly. Writes answers, starts requests and uses bytes
	 * of `connection->input`. Returns true if it did anything, because the next call may then
	 * do more. May write and close. */
	bool (*advance)(struct connection *connection);

	/* Returns whether the protocol could use bytes from the socket now. */
	bool (*wants_input)(const struct connection *connection);

	/* Returns true if the protocol discards all input. The connection then reads only to notice
	 * that the client closes. */
	bool (*discards_input)(const struct connection *connection);

	/* Called after the client has shut down its side and `input_ended` was set. May write and
	 * close. */
	void (*input_ended)(struct connection *connection);

	/* Returns true if no request is being served or answered, and no stream is open. A request
	 * that is still being received does not count. */
	bool (*is_idle)(const struct connection *connection);

	/* Returns true if a drain may end the connection now, because no request has begun to
	 * arrive. In HTTP/2, returns true only after the final GOAWAY. */
	bool (*is_between_requests)(const struct connection *connection);

	struct client_standing (*standing)(const struct connection *connection);

	/* Runs with each sweep: checks the deadlines of everything that is being received or sent.
	 * May write and close. */
	void (*check)(struct connection *connection, int64_t now_ns);

	/* Called when a request of this connection has its answer, when its stream has started, or
	 * when the command of an abandoned request is back. Never writes: the connection is pumped
	 * before the loop sleeps. */
	void (*answered)(struct connection *connection, struct request *request);

	/* Called before a large answer is looked up for `request`. Returns true if the look-up has
	 * to wait; the protocol later calls request_submit_now(). Never writes. */
	bool (*defers)(struct connection *connection, struct request *request);

	/* Called when the server begins to drain. HTTP/1.1 ends the connection's stream. HTTP/2
	 * announces the drain to the client, and ends the connection's streams with the next sweep.
	 * May write and close. */
	void (*drain)(struct connection *connection);

	/* Called when the connection is closed, to drop all requests and streams. Never writes. */
	void (*drop)(struct connection *connection);

	/* ---- event streams, see stream.h ---- */

	/* Called by stream_prepare(), when `request` is to be answered with a stream. */
	void (*stream_prepared)(struct connection *connection, struct request *request);

	/* Called before the head of the stream is written. From now on the connection carries the
	 * stream. */
	void (*stream_began)(
		struct connection *connection, struct request *request, struct stream *stream);

	/* Called when a stream that the connection carries has a new value or is ending. Never
	 * writes. */
	void (*stream_changed)(struct connection *connection, struct stream *stream);

	/* Called when a stream that the connection carries is being freed, so that the protocol
	 * forgets the stream. Never writes. */
	void (*stream_ended)(struct connection *connection, struct stream *stream);
};

extern const struct protocol protocol_http1;
extern const struct protocol protocol_http2;

#endif
