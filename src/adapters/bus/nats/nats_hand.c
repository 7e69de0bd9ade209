/*
 * A hand contains the messages that a consumer holds: messages that arrived in its pipe, and
 * messages that the server has given up, i.e. no longer delivers, and that the consumer has
 * therefore read from the stream.
 *
 * Deliveries point into held messages, so an acknowledged or returned message stays until the next
 * fetch. A message from the pipe is dropped after the ack-wait, because the server then delivers it
 * again. The server may deliver a message again while the hand still holds it. The new copy then
 * replaces the held copy, so that one fetch never returns both. A message that the server has given
 * up is kept until it is acknowledged or returned, because no other member of the group receives
 * the message.
 */
#include <stdlib.h>

#include "adapters/bus/nats/nats_consuming.h"
#include "adapters/shared/growing.h"

#define TAKE_MAX 64

/* The pause before another attempt to read a message from the stream. */
#define READ_RETRY_NS NS_PER_S

static void hold(struct nats_hand *hand, const struct nats_held *one)
{
	hand->held = growing_reserve(hand->held, hand->count, &hand->size, sizeof(hand->held[0]));
	hand->held[hand->count++] = *one;
}

/* Returns true if the server may already have delivered the message again. */
static bool is_stale(const struct nats_durable *durable, int64_t arrived_ns, int64_t now_ns)
{
	return now_ns - arrived_ns >= durable->ack_wait_ns;
}

void nats_hand_forget(struct nats_hand *hand, const struct nats_durable *durable)
{
	int64_t now_ns = clock_steady_ns(&clock_system);
	size_t kept = 0;

	for (size_t i = 0; i < hand->count; i++) {
		struct nats_held *held = &hand->held[i];
		bool stale = !held->given_up && is_stale(durable, held->arrived_ns, now_ns);

		if (i < hand->acked || held->returned || stale)
			natsMsg_Destroy(held->message);
		else
			hand->held[kept++] = *held;
	}
	hand->count = kept;
	hand->acked = 0;
	hand->given = 0;
}

/* Returns the held copy of the message with this metadata, or NULL if the message is not held. The
 * server may deliver a message again shortly before this consumer drops its copy, because the
 * ack-wait begins earlier on the server (when it sends the message) than in the consumer (when the
 * message arrives). */
static struct nats_held *find_earlier(struct nats_hand *hand, const struct nats_metadata *metadata)
{
	if (metadata->deliveries == 1)
		return NULL;
	for (size_t i = 0; i < hand->count; i++) {
		if (hand->held[i].sequence == metadata->sequence && !hand->held[i].given_up)
			return &hand->held[i];
	}
	return NULL;
}

/* Adds the message of `arrival` to the hand, or destroys it if it is stale or not readable. */
static void take_one(struct nats_hand *hand, const struct nats_durable *durable,
	const struct nats_arrival *arrival)
{
	struct nats_held one = {.message = arrival->message, .arrived_ns = arrival->arrived_ns};
	struct nats_metadata metadata = {0};
	int64_t now_ns = clock_steady_ns(&clock_system);
	struct nats_held *earlier;

	if (is_stale(durable, arrival->arrived_ns, now_ns) ||
		!nats_metadata_parse(natsMsg_GetReply(one.message), &metadata)) {
		natsMsg_Destroy(one.message);
		return;
	}
	one.sequence = metadata.sequence;
	one.deliveries = metadata.deliveries;
	one.time_us = metadata.time_us;
	earlier = find_earlier(hand, &metadata);
	if (!earlier) {
		hold(hand, &one);
		return;
	}
	natsMsg_Destroy(earlier->message);
	*earlier = one;
}

void nats_hand_take(struct nats_hand *hand, const struct nats_durable *durable,
	struct nats_pipe *pipe, size_t max)
{
	struct nats_arrival arrivals[TAKE_MAX];
	size_t count;

	do {
		size_t room = max > hand->count ? max - hand->count : 0;

		count = nats_pipe_take(pipe, arrivals, room < TAKE_MAX ? room : TAKE_MAX);
		for (size_t i = 0; i < count; i++)
			take_one(hand, durable, &arrivals[i]);
	} while (count > 0);
}

void nats_hand_release(struct nats_hand *hand)
{
	for (size_t i = 0; i < hand->count; i++)
		natsMsg_Destroy(hand->held[i].message);
	free(hand->held);
	free(hand->late);
}

/* ---- messages that the server no longer delivers ----------------------------------------- */

void nats_hand_read_later(
	struct nats_hand *hand, uint64_t sequence, uint64_t deliveries, int64_t due_ns)
{
	hand->late = growing_reserve(
		hand->late, hand->late_count, &hand->late_size, sizeof(hand->late[0]));
	hand->late[hand->late_count++] = (struct nats_late){sequence, deliveries, due_ns};
}

/* Reads a message from the stream; skips it if the stream no longer has it. Returns false if
 * reading is not possible now. */
static bool read_one(struct nats_hand *hand, const struct nats_durable *durable,
	struct nats_mailbox *mailbox, const _Atomic bool *hurry, const struct nats_late *late)
{
	struct nats_held one = {
		.sequence = late->sequence, .deliveries = late->deliveries + 1, .given_up = true};
	enum nats_found found = nats_durable_read(
		durable, mailbox, hurry, late->sequence, &one.message, &one.time_us);

	if (found == NATS_FOUND)
		hold(hand, &one);
	return found != NATS_NOT_NOW;
}

/* Reads from the stream the messages in hand->late that are due, and adds them to the hand. Stops
 * when the hand has `max` messages. */
static void read_due(struct nats_hand *hand, const struct nats_durable *durable,
	struct nats_mailbox *mailbox, const _Atomic bool *hurry, size_t max)
{
	int64_t now_ns = clock_steady_ns(&clock_system);
	size_t kept = 0;

	for (size_t i = 0; i < hand->late_count; i++) {
		struct nats_late late = hand->late[i];
		bool due = late.due_ns <= now_ns && hand->count < max;

		if (due && read_one(hand, durable, mailbox, hurry, &late))
			continue;
		if (due)
			late.due_ns = now_ns + READ_RETRY_NS;
		hand->late[kept++] = late;
	}
	hand->late_count = kept;
}

void nats_hand_read_given_up(struct nats_hand *hand, const struct nats_durable *durable,
	struct nats_mailbox *mailbox, const _Atomic bool *hurry, natsSubscription *reports,
	size_t max)
{
	uint64_t sequence = 1;

	while (hand->count + hand->late_count < max && sequence > 0) {
		sequence = nats_durable_given_up(reports);
		if (sequence > 0)
			nats_hand_read_later(hand, sequence, 0, 0);
	}
	if (hand->late_count > 0)
		read_due(hand, durable, mailbox, hurry, max);
}
