/*
 * Producers for JetStream.
 *
 * publish() sends its messages and reads the producer's mailbox until every message has a reply or
 * the deadline has passed. Each message carries its own reply address in that mailbox.
 *
 * Each publish() is a round of the mailbox. Replies that arrive after publish() has returned belong
 * to an earlier round. They stay in the queue of cnats until a later read of the mailbox drops them
 * or the mailbox is closed. A late reply therefore never changes the fate of a message after its
 * publish() has returned.
 *
 * Invariants of struct round: unheard <= under_way <= sent; a message is under way exactly if its
 * fate is UNKNOWN, even if the link broke while the message was being sent.
 */
#include <stdlib.h>

#include "adapters/bus/nats/nats_internal.h"
#include "base/log.h"

/*
 * How many messages and bytes may be under way at once: enough to keep the server busy, but few
 * enough to fit into the socket's buffers, so that sending does not wait for the server. A single
 * message may be larger.
 */
#define IN_FLIGHT_MAX 512
#define IN_FLIGHT_BYTES_MAX (1024 * 1024)

/* Codes of JetStream's errors: a message is larger than the stream allows, or its headers are
 * larger than 64 KiB. */
#define MESSAGE_EXCEEDS_MAXIMUM 10054
#define HEADERS_EXCEED_MAXIMUM 10097

struct nats_producer {
	struct producer base;
	struct nats_bus *bus;
	struct nats_mailbox mailbox; /* open on `link` while `link` is not NULL */
	/* held by the producer; may be broken; NULL until the first publish() */
	struct nats_link *link;
	struct arena scratch; /* reset for each message */
	/* per channel: the highest known sequence of its stream before the current publish() */
	int64_t *floors;
};

/* One call of publish(). */
struct round {
	struct nats_producer *producer;
	struct bus_message *messages;
	int64_t until_ns;
	size_t sent;      /* messages for which send_one() was called, even if the call failed */
	size_t under_way; /* messages that were sent and whose fate is not decided yet */
	size_t bytes_under_way;
	/* how many of the messages under way have reached no stream; cnats reports only their
	 * number */
	size_t unheard;
};

static const struct producer_ops producer_ops;

static struct nats_producer *producer_of(struct producer *base)
{
	assert(base->ops == &producer_ops);
	return (struct nats_producer *)base;
}

/* ---- the link ---------------------------------------------------------------------------- */

static void detach(struct nats_producer *producer)
{
	if (!producer->link)
		return;
	nats_mailbox_close(&producer->mailbox);
	nats_link_release(producer->link);
	producer->link = NULL;
}

/* If the producer has no link or a broken link, takes the bus's current link and opens the mailbox
 * on it. Returns false if that fails or the bus is down. */
static bool attach(struct nats_producer *producer)
{
	if (!atomic_load(&producer->bus->up))
		return false;
	if (producer->link && !atomic_load(&producer->link->broken))
		return true;
	detach(producer);
	producer->link = nats_link_hold(producer->bus);
	if (producer->link && nats_mailbox_open(&producer->mailbox, producer->link))
		return true;
	detach(producer);
	return false;
}

/* ---- replies ----------------------------------------------------------------------------- */

static void note_sequence(struct nats_producer *producer, const struct bus_message *message,
	int64_t sequence, bool duplicate)
{
	struct nats_channel *channel = nats_bus_channel(producer->bus, message->channel);
	int64_t floor = producer->floors[channel - producer->bus->channels];

	if (!nats_channel_note(channel, floor, sequence, duplicate))
		atomic_store(&producer->bus->check_soon, true);
}

/* Returns whether JetStream refused a message because of its size. */
static bool is_about_size(const json_t *error)
{
	int64_t code = nats_json_int(error, "err_code");

	return code == MESSAGE_EXCEEDS_MAXIMUM || code == HEADERS_EXCEED_MAXIMUM;
}

/* Returns the fate of the message to which `answer` replies, and sets its `is_unfit`. A duplicate
 * is CONFIRMED, because it is in the stream. If the reply is not from JetStream, the fate is
 * UNKNOWN. */
static enum bus_fate fate_of(
	struct nats_producer *producer, struct bus_message *message, natsMsg *answer)
{
	struct slice text =
		slice_make(natsMsg_GetData(answer), (size_t)natsMsg_GetDataLength(answer));
	enum bus_fate fate = BUS_UNKNOWN;
	char why[JSON_WHY_SIZE];
	const json_t *error;
	json_t *body;

	body = json_parse_object(text, why);
	error = json_object_get(body, "error");
	if (error) {
		log_line(LOG_DEBUG, "bus", "%s: JetStream refused a message: %s",
			producer->bus->base.name, nats_json_text(error, "description"));
		fate = BUS_NOT_PERSISTED;
		message->is_unfit = is_about_size(error);
	} else if (nats_json_int(body, "seq") > 0) {
		fate = BUS_CONFIRMED;
		note_sequence(producer, message, nats_json_int(body, "seq"),
			json_is_true(json_object_get(body, "duplicate")));
	}
	json_decref(body);
	return fate;
}

static size_t size_of(const struct bus_message *message)
{
	return message->value.len + message->key.len;
}

/* Sets the fate of message `number` according to a reply. Programs other than JetStream may
 * subscribe to the subject and reply too, so only the first reply from JetStream counts. */
static void settle(struct round *round, size_t number, natsMsg *answer)
{
	struct bus_message *message = &round->messages[number];
	enum bus_fate fate;

	if (number >= round->sent || message->fate != BUS_UNKNOWN)
		return;
	fate = fate_of(round->producer, message, answer);
	if (fate == BUS_UNKNOWN)
		return;
	message->fate = fate;
	assert(round->under_way > 0);
	round->under_way--;
	round->bytes_under_way -= size_of(message);
}

/* Waits for a reply and handles it. Returns false if no reply arrived in time or the link is
 * broken. */
static bool await_reply(struct round *round)
{
	struct nats_producer *producer = round->producer;
	natsMsg *answer = NULL;
	size_t number;

	switch (nats_mailbox_next(&producer->mailbox, &answer, &number, round->until_ns)) {
	case NATS_LETTER:
		settle(round, number, answer);
		natsMsg_Destroy(answer);
		return true;
	case NATS_NOBODY: /* no stream has the subject; the stream may have been deleted */
		round->unheard++;
		atomic_store(&producer->bus->check_soon, true);
		return true;
	default:
		return false;
	}
}

/* Sets the fate of the messages that have reached no stream to NOT_PERSISTED. Which messages these
 * are is known only if all other messages have a reply; otherwise all messages without a reply stay
 * UNKNOWN. */
static void settle_unheard(struct round *round)
{
	if (round->under_way != round->unheard) {
		nats_mailbox_abandon(&round->producer->mailbox);
		return;
	}
	for (size_t i = 0; i < round->sent; i++) {
		if (round->messages[i].fate == BUS_UNKNOWN)
			round->messages[i].fate = BUS_NOT_PERSISTED;
	}
}

/* ---- sending ----------------------------------------------------------------------------- */

static bool is_full(const struct round *round, const struct bus_message *message)
{
	return round->under_way - round->unheard >= IN_FLIGHT_MAX ||
	       (round->under_way > round->unheard &&
		       round->bytes_under_way + size_of(message) > IN_FLIGHT_BYTES_MAX);
}

/* Sends one message. The fate of a sent message is UNKNOWN until a reply arrives; a message that
 * cannot be sent stays NOT_PERSISTED. Returns false if the link is broken. */
static bool send_one(struct round *round, size_t number)
{
	struct nats_producer *producer = round->producer;
	struct bus_message *message = &round->messages[number];
	const struct nats_channel *channel = nats_bus_channel(producer->bus, message->channel);
	char address[NATS_ADDRESS_SIZE];
	natsMsg *converted = NULL;
	enum nats_sent sent;

	round->sent = number + 1;
	nats_mailbox_address(&producer->mailbox, number, address);
	arena_reset(&producer->scratch);
	if (channel)
		converted = nats_message_new(
			channel, message, address, producer->link->payload_max, &producer->scratch);
	if (!converted) {
		message->is_unfit = true;
		return true;
	}
	sent = nats_link_send(producer->link, converted);
	natsMsg_Destroy(converted);
	if (sent == NATS_UNSENT) {
		message->is_untried = true;
	} else {
		message->fate = BUS_UNKNOWN;
		round->under_way++;
		round->bytes_under_way += size_of(message);
	}
	return !atomic_load(&producer->link->broken);
}

static void send_all(struct round *round, size_t count)
{
	bool going_on = nats_mailbox_begin(&round->producer->mailbox);

	for (size_t i = 0; i < count && going_on; i++) {
		while (going_on && is_full(round, &round->messages[i]))
			going_on = await_reply(round);
		going_on = going_on && clock_steady_ns(&clock_system) < round->until_ns &&
			   send_one(round, i);
	}
	for (size_t i = round->sent; i < count; i++)
		round->messages[i].is_untried = true;
	while (round->under_way > round->unheard && await_reply(round))
		continue;
	settle_unheard(round);
}

static enum status publish(
	struct producer *base, struct bus_message *messages, size_t count, int64_t until_ns)
{
	struct nats_producer *producer = producer_of(base);
	struct round round = {.producer = producer, .messages = messages, .until_ns = until_ns};
	int64_t started_ns = clock_steady_ns(&clock_system);

	for (size_t i = 0; i < count; i++)
		messages[i].fate = BUS_NOT_PERSISTED;
	if (count == 0)
		return STATUS_OK;
	if (!attach(producer))
		return STATUS_BUS_UNAVAILABLE;
	for (size_t i = 0; i < producer->bus->channel_count; i++)
		producer->floors[i] = atomic_load(&producer->bus->channels[i].last);
	send_all(&round, count);
	latency_add(&producer->bus->base.latency, clock_steady_ns(&clock_system) - started_ns);
	return STATUS_OK;
}

/* ---- opening and closing ----------------------------------------------------------------- */

static void close_producer(struct producer *base)
{
	struct nats_producer *producer = producer_of(base);

	detach(producer);
	atomic_fetch_sub(&producer->bus->users, 1);
	arena_release(&producer->scratch);
	free(producer->floors);
	free(producer);
}

static const struct producer_ops producer_ops = {.publish = publish, .close = close_producer};

struct producer *nats_producer_open(struct bus *base)
{
	struct nats_producer *producer = qp_calloc(1, sizeof(*producer));

	producer->base.ops = &producer_ops;
	producer->bus = nats_bus_of(base);
	producer->floors = qp_calloc(producer->bus->channel_count, sizeof(producer->floors[0]));
	arena_init(&producer->scratch, 16 * 1024);
	atomic_fetch_add(&producer->bus->users, 1);
	return &producer->base;
}
