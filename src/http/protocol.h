/*
 * The seam between a connection and what it speaks. A connection (connection.h) owns the socket,
 * TLS, the backlog of writes, whose turn it is and when it gives way; its protocol owns what lies
 * between bytes and requests: framing, the order of requests, answers and streams, and their
 * deadlines. Admission, routes, lanes and services see requests and never ask for the protocol.
 * Private to http/, and everything is for the thread of the loop.
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

/* Who has to act next, since when, and the memory that the protocol holds for this client. */
struct client_turn {
	enum client_state state;
	int64_t since_ns;
	size_t bytes;
};

struct protocol {
	const char *name; /* as in the log */

	/* One round of a pump: writes answers, starts requests, uses `connection->input`. Returns
	 * whether anything moved, so that another round may move more. May write and close. */
	bool (*advance)(struct connection *connection);

	/* Whether bytes should be read from the socket, as far as the protocol is concerned. */
	bool (*wants_input)(const struct connection *connection);

	/* Whether input is thrown away, because nothing but the end of the client matters. */
	bool (*discards_input)(const struct connection *connection);

	/* The client has shut down its side; `input_ended` is set. May write and close. */
	void (*input_ended)(struct connection *connection);

	/* Whether no request and no stream is under way. One that is being received does not count.
	 */
	bool (*is_idle)(const struct connection *connection);

	/* Whether the connection may end here during a drain: no request has begun to arrive. */
	bool (*is_between_requests)(const struct connection *connection);

	struct client_turn (*turn)(const struct connection *connection);

	/* Runs with each sweep: deadlines of what is being received or sent. May write and close.
	 */
	void (*check)(struct connection *connection, int64_t now_ns);

	/* `request` of this connection has got its answer, or its stream has started. Never writes:
	 * the connection is pumped before the loop sleeps. */
	void (*answered)(struct connection *connection, struct request *request);

	/* A large answer is about to be looked up for `request`. Returns true if that has to wait;
	 * request_submit_now() then does it. Never writes. */
	bool (*defers)(struct connection *connection, struct request *request);

	/* The server drains: ends the streams. May write and close. */
	void (*drain)(struct connection *connection);

	/* The connection is closed: drops all requests and streams. Never writes. */
	void (*drop)(struct connection *connection);

	/* ---- event streams, see stream.h ---- */

	/* `request` is going to be answered with a stream. */
	void (*stream_prepared)(struct connection *connection, struct request *request);

	/* The head of the stream is about to be written: from now on the connection carries it. */
	void (*stream_began)(
		struct connection *connection, struct request *request, struct stream *stream);

	/* A stream that the connection carries has a new value, or is ending. Never writes. */
	void (*stream_changed)(struct connection *connection, struct stream *stream);

	/* A stream that the connection carries is being freed: forget it. Never writes. */
	void (*stream_ended)(struct connection *connection, struct stream *stream);
};

extern const struct protocol protocol_http1;
extern const struct protocol protocol_http2;

#endif
