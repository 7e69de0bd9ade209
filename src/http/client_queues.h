/*
 * Keeps track of the clients that one loop waits for. A connection whose client has to act next is
 * in one of four queues. A connection joins at the end, so that a queue is roughly ordered by when
 * the waits began:
 *
 *   idle    the client may send a request, or close
 *   holds   the same as idle, but HTTP/2 keeps memory for the connection
 *   sends   the client has to send the rest of a request
 *   reads   the client has to read its answers
 *
 * When there are too many connections or memory runs short, the connection that has kept us waiting
 * longest is closed: attackers do nothing for as long as they can, while other clients are done in
 * milliseconds. A connection is in no queue while its requests are being served, or while it
 * carries a stream whose client reads.
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
 * connection is being served and that its client occupies no memory. */
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
 * Returns the connection whose client has kept us waiting longest, or NULL if all queues are empty.
 */
struct connection *client_queues_longest(const struct client_queues *queues);

/*
 * The same as client_queues_longest(), but considers only connections that occupy memory: those in
 * `sends`, `reads` or `holds`.
 *
 * Prefers connections that hold more memory than a short request, because closing any other
 * connection frees next to nothing. If there is no such connection, the result depends on how much
 * memory the `connection_count` connections hold on average. If that is no more than a short
 * request, there are simply too many connections, and a connection in `sends` or `reads` is
 * returned. If it is more, NULL is returned: most of the memory belongs to connections that are
 * being served, and these will soon be done.
 */
struct connection *client_queues_longest_holding(
	const struct client_queues *queues, size_t connection_count);

#endif
