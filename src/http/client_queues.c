#include "http/client_queues.h"

#include "http/connection.h"

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

struct connection *client_queues_longest_holding(const struct client_queues *queues)
{
	return longer(queues->of[CLIENT_SENDS].first, queues->of[CLIENT_READS].first);
}

struct connection *client_queues_longest(const struct client_queues *queues)
{
	return longer(queues->of[CLIENT_IDLE].first, client_queues_longest_holding(queues));
}
