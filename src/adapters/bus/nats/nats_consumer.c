/*
 * Consumers of JetStream.
 *
 * A consumer holds every message that it has fetched but neither acknowledged nor returned. The
 * next fetch returns these messages again, before newer ones. A consumer drops a held message after
 * the ack-wait, because the server then delivers the message again. Only messages that the server
 * has given up are kept longer (nats_hand.c).
 *
 * The server replies to each acknowledgement, and ack() waits for the replies. An acknowledgement
 * may be sent on another link than the one on which the message arrived, because the server
 * identifies the message by the acknowledgement's subject.
 *
 * Invariants: hand.acked <= hand.given <= hand.count; while `link` is not NULL, the mailbox, the
 * pipe and the reports are open on that link.
 */
#include <stdio.h>
#include <stdlib.h>

#include "adapters/bus/nats/nats_consuming.h"
#include "base/log.h"

#define ACK_TIMEOUT_NS (5 * NS_PER_S)

/* How long a fetch pauses before it tries again to get a link and a durable. */
#define RETRY_NS (50 * NS_PER_MS)

/* How long after a failed nats_durable_ensure() a fetch may call it again. */
#define ENSURE_RETRY_NS (200 * NS_PER_MS)

/* How often a waiting fetch checks for reports of messages that the server no longer delivers. */
#define REPORTS_NS NS_PER_S

#define AGAIN_FIRST_NS NS_PER_S
#define AGAIN_MOST_NS (60 * NS_PER_S)

struct nats_consumer {
	struct consumer base;
	struct nats_bus *bus;
	struct nats_channel *channel;
	char *group;
	struct arena arena; /* holds the deliveries of the last fetch */

	/* NULL while the bus is down; otherwise the next three members are open on this link */
	struct nats_link *link;
	struct nats_mailbox mailbox;
	struct nats_pipe pipe;
	natsSubscription *reports;
	struct nats_durable durable;
	bool ready; /* the durable existed when it was last used */
	int64_t next_ensure_ns;
	char logged_reason[160]; /* the reason in the last log line; "" while `ready` */

	struct nats_hand hand;
};

static const struct consumer_ops consumer_ops;

static struct nats_consumer *consumer_of(struct consumer *base)
{
	assert(base->ops == &consumer_ops);
	return (struct nats_consumer *)base;
}

/* ---- the link and the durable ------------------------------------------------------------ */

static void detach(struct nats_consumer *consumer)
{
	if (!consumer->link)
		return;
	nats_pipe_close(&consumer->pipe);
	nats_mailbox_close(&consumer->mailbox);
	if (consumer->reports)
		nats_link_unsubscribe(consumer->link, consumer->reports);
	consumer->reports = NULL;
	nats_link_release(consumer->link);
	consumer->link = NULL;
	consumer->ready = false;
}

/* If the consumer has no link or a broken link, takes the bus's current link and opens the mailbox,
 * the pipe and the reports on it. Returns false if that fails, e.g. because the bus is down. */
static bool attach(struct nats_consumer *consumer)
{
	if (consumer->link && !atomic_load(&consumer->link->broken))
		return true;
	detach(consumer);
	consumer->link = nats_link_hold(consumer->bus);
	if (!consumer->link)
		return false;
	if (nats_mailbox_open(&consumer->mailbox, consumer->link) &&
		nats_pipe_open(&consumer->pipe, consumer->link))
		consumer->reports = nats_durable_listen(&consumer->durable, consumer->link);
	if (!consumer->reports)
		detach(consumer);
	return consumer->link != NULL;
}

/*
 * Logs that the durable is not ready; warns only once per reason. Does not warn after wake(),
 * because wake() cuts the request for the durable short. Does not warn about a broken link either,
 * because the watcher logs broken links.
 */
static void log_not_ready(struct nats_consumer *consumer, const char *why)
{
	bool news = !atomic_load(&consumer->link->broken) && !atomic_load(&consumer->pipe.woken) &&
		    strcmp(consumer->logged_reason, why) != 0;

	if (news)
		snprintf(consumer->logged_reason, sizeof(consumer->logged_reason), "%s", why);
	log_line(news ? LOG_WARN : LOG_DEBUG, "bus",
		"%s: group %s cannot consume stream %s: %s; retrying", consumer->bus->base.name,
		consumer->group, consumer->durable.stream, why);
}

static bool ensure(struct nats_consumer *consumer)
{
	int64_t now_ns = clock_steady_ns(&clock_system);
	char why[160] = "";

	if (nats_pipe_take_missing(&consumer->pipe))
		consumer->ready = false;
	if (consumer->ready || now_ns < consumer->next_ensure_ns)
		return consumer->ready;
	consumer->ready = nats_durable_ensure(&consumer->durable, consumer->bus, &consumer->mailbox,
		&consumer->pipe.woken, why, sizeof(why));
	if (consumer->ready) {
		consumer->logged_reason[0] = '\0';
	} else {
		consumer->next_ensure_ns = clock_steady_ns(&clock_system) + ENSURE_RETRY_NS;
		log_not_ready(consumer, why);
	}
	return consumer->ready;
}

/* ---- fetch ------------------------------------------------------------------------------- */

/* Like nats_hand_take(). The channel learns the sequences of messages that other processes have
 * published, so that a producer notices when the server assigns them a second time. */
static void take_arrivals(struct nats_consumer *consumer, size_t max)
{
	size_t held = consumer->hand.count;

	nats_hand_take(&consumer->hand, &consumer->durable, &consumer->pipe, max);
	for (size_t i = held; i < consumer->hand.count; i++) {
		const struct nats_held *one = &consumer->hand.held[i];

		if (one->arrived_ns > atomic_load(&consumer->channel->lowered_ns))
			nats_channel_raise(consumer->channel, (int64_t)one->sequence);
	}
}

/* Requests more messages. Returns false if that is not possible now. */
static bool request_more(struct nats_consumer *consumer, size_t max)
{
	if (!attach(consumer) || !ensure(consumer))
		return false;
	nats_hand_read_given_up(&consumer->hand, &consumer->durable, &consumer->mailbox,
		&consumer->pipe.woken, consumer->reports, max);
	if (consumer->hand.count < max)
		nats_pipe_request(&consumer->pipe, consumer->durable.stream, consumer->durable.name,
			max - consumer->hand.count);
	return true;
}

static void wait_for_more(struct nats_consumer *consumer, bool requested, int64_t until_ns)
{
	int64_t limit_ns = clock_steady_ns(&clock_system) + (requested ? REPORTS_NS : RETRY_NS);

	if (limit_ns > until_ns)
		limit_ns = until_ns;
	if (requested)
		nats_pipe_wait(&consumer->pipe, limit_ns);
	else
		nats_pipe_nap(&consumer->pipe, limit_ns);
}

static void gather(struct nats_consumer *consumer, size_t max, int64_t until_ns)
{
	bool requested;

	take_arrivals(consumer, max);
	requested = request_more(consumer, max);
	while (consumer->hand.count == 0 && !atomic_load(&consumer->pipe.woken) &&
		clock_steady_ns(&clock_system) < until_ns) {
		wait_for_more(consumer, requested, until_ns);
		take_arrivals(consumer, max);
		if (consumer->hand.count == 0)
			requested = request_more(consumer, max);
	}
}

static void deliver(
	struct nats_consumer *consumer, const struct nats_held *held, struct bus_delivery *delivery)
{
	struct buffer text = buffer_make(&consumer->arena, NATS_NAME_SIZE + 48);
	int64_t limit = consumer->durable.max_deliver;

	nats_message_read(held->message, consumer->channel, &consumer->arena, delivery);
	buffer_format(
		&text, "%s/%llu", consumer->durable.stream, (unsigned long long)held->sequence);
	delivery->position = arena_copy(&consumer->arena, buffer_slice(&text));
	/* The time is part of the identity, because a stream that has lost its last messages
	 * assigns their sequences to new messages. */
	buffer_format(&text, "@%lld", (long long)held->time_us);
	delivery->identity = buffer_slice(&text);
	delivery->time_us = held->time_us;
	delivery->is_exhausted =
		held->given_up || (limit > 0 && held->deliveries >= (uint64_t)limit);
	delivery->handle = held->sequence;
}

static enum status fetch(struct consumer *base, struct bus_delivery *deliveries, size_t max,
	size_t *count, int64_t until_ns)
{
	struct nats_consumer *consumer = consumer_of(base);

	nats_hand_forget(&consumer->hand, &consumer->durable);
	arena_reset(&consumer->arena);
	gather(consumer, max, until_ns);
	nats_pipe_calm(&consumer->pipe);
	consumer->hand.given = consumer->hand.count < max ? consumer->hand.count : max;
	for (size_t i = 0; i < consumer->hand.given; i++)
		deliver(consumer, &consumer->hand.held[i], &deliveries[i]);
	*count = consumer->hand.given;
	return STATUS_OK;
}

/* ---- ack --------------------------------------------------------------------------------- */

static bool waits_for_ack(const struct nats_held *held)
{
	return !held->given_up && !held->returned;
}

/* Acknowledges the held messages before index `to`, and sets `*sent` to the number of
 * acknowledgements sent. Returns false if an acknowledgement could not be sent. */
static bool send_acks(struct nats_consumer *consumer, size_t to, size_t *sent)
{
	*sent = 0;
	for (size_t i = consumer->hand.acked; i < to; i++) {
		const struct nats_held *held = &consumer->hand.held[i];
		char address[NATS_ADDRESS_SIZE];

		if (!waits_for_ack(held))
			continue;
		nats_mailbox_address(&consumer->mailbox, i, address);
		if (nats_link_post(consumer->link, natsMsg_GetReply(held->message), address,
			    slice_of(held->poison ? "+TERM" : "+ACK")) != NATS_SENT)
			return false;
		++*sent;
	}
	return true;
}

/*
 * Waits for the server's replies to `wanted` acknowledgements. Returns false if replies are
 * missing. NATS_NOBODY counts as a reply: it means that the durable is gone, and a new durable
 * delivers all messages again, whether they were acknowledged or not.
 */
static bool await_acks(struct nats_consumer *consumer, size_t wanted)
{
	int64_t until_ns = clock_steady_ns(&clock_system) + ACK_TIMEOUT_NS;
	enum nats_mail mail = NATS_LETTER;

	for (; wanted > 0 && mail != NATS_NOTHING; wanted--) {
		natsMsg *answer = NULL;
		size_t number;

		mail = nats_mailbox_next(&consumer->mailbox, &answer, &number, until_ns);
		if (mail == NATS_LETTER)
			natsMsg_Destroy(answer);
		if (mail == NATS_NOBODY)
			consumer->ready = false;
	}
	return mail != NATS_NOTHING;
}

static bool acknowledge(struct nats_consumer *consumer, size_t to)
{
	size_t sent;

	if (!attach(consumer) || !nats_mailbox_begin(&consumer->mailbox))
		return false;
	if (send_acks(consumer, to, &sent) && await_acks(consumer, sent))
		return true;
	nats_mailbox_abandon(&consumer->mailbox);
	return false;
}

static enum status ack(struct consumer *base, size_t count)
{
	struct nats_consumer *consumer = consumer_of(base);

	if (count > consumer->hand.given)
		count = consumer->hand.given;
	if (count <= consumer->hand.acked)
		return STATUS_OK;
	if (!acknowledge(consumer, count))
		return STATUS_BUS_UNAVAILABLE;
	consumer->hand.acked = count;
	return STATUS_OK;
}

/* ---- the port's other functions ---------------------------------------------------------- */

/* Returns a message to the server. If this request gets lost, the server still delivers the message
 * again, after the ack-wait. */
static void give_back(
	struct nats_consumer *consumer, const struct nats_held *held, int64_t delay_ns)
{
	char words[48] = "-NAK";
	enum nats_sent sent = NATS_UNSENT;

	if (delay_ns > 0)
		snprintf(words, sizeof(words), "-NAK {\"delay\":%lld}", (long long)delay_ns);
	if (consumer->link)
		sent = nats_link_post(
			consumer->link, natsMsg_GetReply(held->message), NULL, slice_of(words));
	(void)sent;
}

static int64_t delay_after(uint64_t deliveries)
{
	int64_t delay_ns = AGAIN_FIRST_NS;

	while (deliveries-- > 1 && delay_ns < AGAIN_MOST_NS)
		delay_ns *= 2;
	return delay_ns < AGAIN_MOST_NS ? delay_ns : AGAIN_MOST_NS;
}

static void again(struct consumer *base)
{
	struct nats_consumer *consumer = consumer_of(base);
	int64_t now_ns = clock_steady_ns(&clock_system);

	for (size_t i = consumer->hand.acked; i < consumer->hand.given; i++) {
		struct nats_held *held = &consumer->hand.held[i];
		int64_t delay_ns = delay_after(held->deliveries);

		if (held->returned)
			continue;
		if (held->given_up)
			nats_hand_read_later(&consumer->hand, held->sequence, held->deliveries,
				now_ns + delay_ns);
		else
			give_back(consumer, held, delay_ns);
		held->returned = true;
	}
}

/* Marks the message, so that ack() sends +TERM for it instead of +ACK. The server then never
 * delivers the message again. The reason is not sent, because nats-server accepts a reason after
 * +TERM only since version 2.10.4. */
static void poison(struct consumer *base, size_t index, const char *why)
{
	struct nats_consumer *consumer = consumer_of(base);

	(void)why;
	assert(index < consumer->hand.given);
	consumer->hand.held[index].poison = true;
}

static void wake(struct consumer *base)
{
	nats_pipe_wake(&consumer_of(base)->pipe);
}

/* Returns to the server all held messages that still need an ack. Requests no delay, so that the
 * other members of the group receive these messages immediately. */
static void give_all_back(struct nats_consumer *consumer)
{
	nats_pipe_close(&consumer->pipe);
	take_arrivals(consumer, SIZE_MAX);
	for (size_t i = consumer->hand.acked; i < consumer->hand.count; i++) {
		if (waits_for_ack(&consumer->hand.held[i]))
			give_back(consumer, &consumer->hand.held[i], 0);
	}
}

static void close_consumer(struct consumer *base)
{
	struct nats_consumer *consumer = consumer_of(base);

	give_all_back(consumer);
	detach(consumer);
	nats_pipe_destroy(&consumer->pipe);
	atomic_fetch_sub(&consumer->bus->users, 1);
	arena_release(&consumer->arena);
	nats_hand_release(&consumer->hand);
	free(consumer->group);
	free(consumer);
}

static const struct consumer_ops consumer_ops = {
	.fetch = fetch,
	.ack = ack,
	.again = again,
	.poison = poison,
	.wake = wake,
	.close = close_consumer,
};

struct consumer *nats_consumer_open(struct bus *base, const char *channel, const char *group)
{
	struct nats_bus *bus = nats_bus_of(base);
	struct nats_consumer *consumer = qp_calloc(1, sizeof(*consumer));

	consumer->base.ops = &consumer_ops;
	consumer->bus = bus;
	consumer->channel = nats_bus_channel(bus, slice_of(channel));
	assert(consumer->channel && nats_name_is_valid(slice_of(group)));
	consumer->group = qp_strdup(group);
	consumer->durable = (struct nats_durable){.stream = consumer->channel->stream,
		.name = consumer->group,
		.subject = nats_bus_group_subject(bus, channel, group),
		.ack_wait_ns = bus->url.ack_wait_ns};
	arena_init(&consumer->arena, 64 * 1024);
	nats_pipe_init(&consumer->pipe);
	atomic_fetch_add(&bus->users, 1);
	return &consumer->base;
}
