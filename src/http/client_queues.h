/*
 * Keeps track of the clients that one loop waits for. A connection whose client has to act next is
 * in one of these queues:
 *
 *   idle    the client may send a request, or close the connection
 *   holds   like idle, but the HTTP/2 state of the connection occupies memory
 *   sends   the client has to send the rest of a request
 *   reads   the client has to read its answers
 *
 * A connection joins a queue at the end, so a queue is roughly ordered by the times at which the
 * waits began. When there are too many connections or memory runs short, the connection that has
 * waited longest for its client is closed. This usually hits attackers, because they keep the
 * server waiting for as long as they can, while other clients are done in milliseconds.
 *
 * A connection is in no queue while its requests are being served, or while it carries a stream
 * that was not closed and whose client keeps reading. (For HTTP/2, see also WAITING_LITTLE in
 * http2.c.)
 *
 * Private to http/; used only on the loop's thread.
 */
#ifndef QUIPU_HTTP_CLIENT_QUEUES_H
#define QUIPU_HTTP_CLIENT_QUEUES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct connection;

enum client_state {
	CLIENT_SERVED,
	CLIENT_IDLE,
	CLIENT_HOLDS,
	CLIENT_SENDS,
	CLIENT_READS,
	CLIENT_STATES
};

/* The position of a connection in the queues, embedded in the connection. All zero means that the
 * connection is being served and that the server holds no memory for its client. */
struct client_place {
	struct connection *before;
	struct connection *next;
	int64_t since_ns;
	size_t bytes; /* memory that the server holds for the client of this connection */
	enum client_state state;
};

/* Embedded in a worker. All zero means that there are no connections. */
struct client_queues {
	struct {
		struct connection *first; /* the connection that has waited longest */
		struct connection *last;
	} of[CLIENT_STATES];
	size_t bytes; /* the memory that the server holds for all clients */
};

/*
 * Records that the connection has been in `state` since `since_ns`, and that the server now holds
 * `bytes` of memory for its client.
 */
void client_queues_note(struct client_queues *queues, struct connection *connection,
	enum client_state state, int64_t since_ns, size_t bytes);

/*
 * Returns the connection whose client has kept the server waiting longest, or NULL if all queues
 * are empty.
 */
struct connection *client_queues_longest(const struct client_queues *queues);

/*
 * Like client_queues_longest(), except that only connections that occupy memory are considered:
 * those in `sends`, `reads` or `holds`.
 *
 * Prefers connections that hold more memory than a short request, because closing any other
 * connection frees next to nothing. If the first 64 connections of each queue include no such
 * connection, the result depends on how much memory the worker's `connection_count` connections
 * hold on average:
 *
 *   as much as a short request, or less   The memory is used up only because there are so many
 *                                         connections. Returns the connection in `sends` or
 *                                         `reads` that has waited longest, or NULL if both
 *                                         queues are empty.
 *   more than a short request             Most of the memory belongs to connections that are being
 *                                         served and will soon be done. Returns NULL.
 */
struct connection *client_queues_longest_holding(
	const struct client_queues *queues, size_t connection_count);

#endif
