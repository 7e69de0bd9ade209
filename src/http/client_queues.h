/*
 * Whose turn it is on each connection of one loop. Where the client has to do something next, its
 * connection waits in one of three queues, in the order in which the queues began:
 *
 *   idle    to send a request, or to close
 *   sends   to send the rest of one
 *   reads   to read its answers
 *
 * Under pressure the client that has kept us waiting longest gives way: attackers do nothing for
 * as long as they can, and the others are done in milliseconds. Connections whose requests are
 * being worked on wait in no queue, and streams whose clients read do not either.
 *
 * Private to http/. On the loop's thread.
 */
#ifndef QUIPU_HTTP_CLIENT_QUEUES_H
#define QUIPU_HTTP_CLIENT_QUEUES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct connection;

enum client_state { CLIENT_SERVED, CLIENT_IDLE, CLIENT_SENDS, CLIENT_READS, CLIENT_STATES };

/* What a connection embeds. All zero: ours, and nothing held. */
struct client_place {
	struct connection *before;
	struct connection *next;
	int64_t since_ns;
	size_t bytes; /* that its client makes us hold */
	enum client_state state;
};

/* What a loop embeds. All zero: no connections. */
struct client_queues {
	struct {
		struct connection *first; /* waits longest */
		struct connection *last;
	} of[CLIENT_STATES];
	size_t bytes; /* of all places */
};

/* From now on it is `state`, which began at `since_ns`, and the client makes us hold `bytes`. */
void client_queues_note(struct client_queues *queues, struct connection *connection,
	enum client_state state, int64_t since_ns, size_t bytes);

/* The connection whose client has kept us waiting longest, NULL: none waits for its client. */
struct connection *client_queues_longest(const struct client_queues *queues);

/* The same among those that hold memory: who sends or reads. */
struct connection *client_queues_longest_holding(const struct client_queues *queues);

#endif
