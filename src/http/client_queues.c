#include "http/client_queues.h"

#include "http/connection.h"

static void leave(struct turns *turns, struct connection *connection)
{
	struct turn_place *place = &connection->place;

	if (place->turn == TURN_OURS)
		return;
	if (place->before)
		place->before->place.next = place->next;
	else
		turns->queues[place->turn].first = place->next;
	if (place->next)
		place->next->place.before = place->before;
	else
		turns->queues[place->turn].last = place->before;
}

static void join(struct turns *turns, struct connection *connection, enum turn turn)
{
	struct turn_place *place = &connection->place;

	place->turn = turn;
	place->next = NULL;
	place->before = NULL;
	if (turn == TURN_OURS)
		return;
	place->before = turns->queues[turn].last;
	if (place->before)
		place->before->place.next = connection;
	else
		turns->queues[turn].first = connection;
	turns->queues[turn].last = connection;
}

void turns_note(struct turns *turns, struct connection *connection, enum turn turn,
	int64_t since_ns, size_t bytes)
{
	struct turn_place *place = &connection->place;

	turns->bytes += bytes - place->bytes;
	place->bytes = bytes;
	if (place->turn == turn && place->since_ns == since_ns)
		return;
	leave(turns, connection);
	place->since_ns = since_ns;
	join(turns, connection, turn);
}

static struct connection *longer(struct connection *a, struct connection *b)
{
	if (!a || !b)
		return a ? a : b;
	return a->place.since_ns <= b->place.since_ns ? a : b;
}

struct connection *turns_longest_holding(const struct turns *turns)
{
	return longer(turns->queues[TURN_SENDS].first, turns->queues[TURN_READS].first);
}

struct connection *turns_longest(const struct turns *turns)
{
	return longer(turns->queues[TURN_IDLE].first, turns_longest_holding(turns));
}
