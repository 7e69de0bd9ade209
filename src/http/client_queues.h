/*
 * Keeps track of the clients that one loop waits for. A connection whose client has to act next is
 * in one of four queues, ordered by when the wait began:
 *
 *   idle    the client may send a request, or close
 *   holds   the same, but what its protocol keeps for it occupies memory (HTTP/2)
 *   sends   the client has to send the rest of a request
 *   reads   the client has to read its answers
 *
 * Under pressure, the connection that has kept us waiting longest is closed: attackers do nothing
 * for as long as they can, while other clients are done in milliseconds. A connection is in no
 * queue while its requests are being served, or while it is a stream whose client reads.
 *
 * Private to http/; for the thread of the loop.
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

/* Embedded in a connection. A zeroed one belongs to a connection that is being served and whose
 * client occupies no memory. */
struct client_place {
	struct connection *before;
	struct connection *next;
	int64_t since_ns;
	size_t bytes; /* memory that its client makes us hold */
	enum client_state state;
};

/* Embedded in a worker. All zero means: no connections. */
struct client_queues {
	struct {
		struct connection *first; /* the longest wait */
		struct connection *last;
	} of[CLIENT_STATES];
	size_t bytes; /* over all connections */
};

/*
 * Puts the connection into `state`, which began at `since_ns`, and counts `bytes` for its client.
 */
void client_queues_note(struct client_queues *queues, struct connection *connection,
	enum client_state state, int64_t since_ns, size_t bytes);

/*
 * Returns the connection whose client has kept us waiting longest, or NULL if all queues are empty.
 */
struct connection *client_queues_longest(const struct client_queues *queues);

/*
 * The same among connections that occupy memory: those whose clients send, read or hold.
 * Connections that hold more than a short request come first, because closing the others frees next
 * to nothing. The others follow only if they are many: if the `connection_count` connections hold
 * more than that on average, it is held by some that are being served, and their turn comes soon.
 */
struct connection *client_queues_longest_holding(
	const struct client_queues *queues, size_t connection_count);

#endif
