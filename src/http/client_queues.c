#include "http/client_queues.h"

#include "http/connection.h"

#define HOLDING_TRIES_MAX 64
#define HOLDS_LITTLE 8192 /* bytes that a short request occupies, including its arena */

static void leave(struct client_queues *queues, struct connection *connection)
{
	struct client_place *place = &connection->place;

	if (place->state == CLIENT_SERVED)
		return;
	if (place->before)
		place->before->place.next = place->next;
	else
		queues->of[place->state].first = place->next;
	if (place->next)
		place->next->place.before = place->before;
	else
		queues->of[place->state].last = place->before;
}

static void join(
	struct client_queues *queues, struct connection *connection, enum client_state state)
{
	struct client_place *place = &connection->place;

	place->state = state;
	place->next = NULL;
	place->before = NULL;
	if (state == CLIENT_SERVED)
		return;
	place->before = queues->of[state].last;
	if (place->before)
		place->before->place.next = connection;
	else
		queues->of[state].first = connection;
	queues->of[state].last = connection;
}

void client_queues_note(struct client_queues *queues, struct connection *connection,
	enum client_state state, int64_t since_ns, size_t bytes)
{
	struct client_place *place = &connection->place;

	queues->bytes += bytes - place->bytes;
	place->bytes = bytes;
	if (place->state == state && place->since_ns == since_ns)
		return;
	leave(queues, connection);
	place->since_ns = since_ns;
	join(queues, connection, state);
}

static struct connection *longer(struct connection *a, struct connection *b)
{
	if (!a || !b)
		return a ? a : b;
	return a->place.since_ns <= b->place.since_ns ? a : b;
}

static struct connection *longest(const struct client_queues *queues, enum client_state state)
{
	return queues->of[state].first;
}

/* Looks at the HOLDING_TRIES_MAX connections in the queue of `state` that have waited longest.
 * Returns the first connection that holds more memory than a short request, or NULL if none of
 * these connections does. */
static struct connection *longest_holding_much(
	const struct client_queues *queues, enum client_state state)
{
	struct connection *connection = queues->of[state].first;

	for (int tries = 0; tries < HOLDING_TRIES_MAX && connection; tries++) {
		if (connection->place.bytes > HOLDS_LITTLE)
			return connection;
		connection = connection->place.next;
	}
	return NULL;
}

struct connection *client_queues_longest_holding(
	const struct client_queues *queues, size_t connection_count)
{
	struct connection *much = longer(longest_holding_much(queues, CLIENT_HOLDS),
		longer(longest_holding_much(queues, CLIENT_SENDS),
			longest_holding_much(queues, CLIENT_READS)));

	if (much)
		return much;
	if (connection_count > 0 && queues->bytes / connection_count > HOLDS_LITTLE)
		return NULL;
	return longer(longest(queues, CLIENT_SENDS), longest(queues, CLIENT_READS));
}

struct connection *client_queues_longest(const struct client_queues *queues)
{
	return longer(longer(longest(queues, CLIENT_IDLE), longest(queues, CLIENT_HOLDS)),
		longer(longest(queues, CLIENT_SENDS), longest(queues, CLIENT_READS)));
}
