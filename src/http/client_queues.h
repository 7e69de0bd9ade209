/*
 * Keeps track of the clients that one loop waits for. A connection whose client has to act next is
 * in one of four queues, ordered by when the wait began:
 *
 *   idle    the client may send a request, or close
 *   holds   the same, but its protocol (HTTP/2) keeps memory for it
 *   sends   the client has to send the rest of a request
 *   reads   the client has to read its answers
 *
 * Under pressure, the connection that has kept us waiting longest is closed: attackers do nothing
 * for as long as they can, while other clients are done in milliseconds. A connection is in no
 * queue while its requests are being served, or while it is a stream whose client reads.
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

/* The place of a connection in the queues, embedded in the connection. All zero means that the
 * connection is being served and that its client occupies no memory. */
struct client_place {
	struct connection *before;
	struct connection *next;
	int64_t since_ns;
	size_t bytes; /* memory that its client makes us hold */
	enum client_state state;
};

/* Embedded in a worker. All zero means that there are no connections. */
struct client_queues {
	struct {
		struct connection *first; /* the connection that has waited longest */
		struct connection *last;
	} of[CLIENT_STATES];
	size_t bytes; /* the sum over all connections */
};

/*
 * Puts the connection into `state`, which began at `since_ns`, and sets the memory of its client to
 * `bytes`.
 */
void client_queues_note(struct client_queues *queues, struct connection *connection,
	enum client_state state, int64_t since_ns, size_t bytes);

/*
 * Returns the connection whose client has kept us waiting longest, or NULL if all queues are empty.
 */
struct connection *client_queues_longest(const struct client_queues *queues);

/*
 * The same, but considers only connections that occupy memory: those in `sends`, `reads` or
 * `holds`.
 *
 * Prefers connections that hold more memory than a short request, because closing a smaller one
 * frees next to nothing. Returns a smaller one only if the `connection_count` connections hold no
 * more than a short request on average, because then their number is the cause. Otherwise the
 * memory belongs to connections that are being served, which will soon be done.
 */
struct connection *client_queues_longest_holding(
	const struct client_queues *queues, size_t connection_count);

#endif
