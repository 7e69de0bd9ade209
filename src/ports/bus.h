/*
 * A message bus: what leaves one service and arrives in another, at least once. Implemented by
 * adapters/bus/local (a durable queue in an SQLite file), adapters/bus/kafka, adapters/bus/nats and
 * adapters/bus/rabbitmq; one contract suite runs on all of them.
 *
 * A channel is a Kafka topic, a JetStream stream, a RabbitMQ exchange, a local queue. A message has
 * a channel, a subject within it (routing key; Kafka carries it as a header), a key (messages with
 * one key keep their order on engines that have order), headers and a value.
 *
 * A producer or consumer is used by one thread at a time; all functions block unless said
 * otherwise. The engine may be away at any time: producers then refuse at once, consumers wait,
 * both come back by themselves.
 */
#ifndef QUIPU_PORTS_BUS_H
#define QUIPU_PORTS_BUS_H

#include <stdint.h>

#include "base/arena.h"
#include "base/slice.h"
#include "base/status.h"

#define BUS_HEADERS_MAX 8

struct bus_header {
	struct slice name;
	struct slice value;
};

/* What became of a published message. */
enum bus_fate {
	BUS_CONFIRMED,     /* the engine has it */
	BUS_NOT_PERSISTED, /* the engine certainly does not have it and will not get it */
	BUS_UNKNOWN,       /* one of the two */
};

struct bus_message {
	struct slice channel;
	struct slice subject; /* may be empty */
	struct slice key;     /* may be empty */
	struct slice id;      /* unique; sent as header event-id (JetStream: Nats-Msg-Id), by which
			       * consumers tell repeats; engines may drop a message whose id they have */
	struct bus_header headers[BUS_HEADERS_MAX]; /* those of one name keep their order */
	size_t header_count;
	struct slice value;

	enum bus_fate fate; /* out */
};

/* A message that came. Valid until the next fetch of the same consumer. */
struct bus_delivery {
	struct slice channel;
	struct slice subject;
	struct slice key;
	struct slice id; /* empty if it came without */
	struct bus_header headers[BUS_HEADERS_MAX];
	size_t header_count;
	struct slice value;
	struct slice position; /* where it lies, for people and for dedupe: "sms-outbound/2/1041",
				* or "ENTITLEMENTS/1041" */
	bool is_exhausted;     /* given too often without an ack: it comes this one last time */
	uint64_t handle;       /* the adapter's */
};

/* A group of consumers, and what it wants of its channel. */
struct bus_group {
	const char *name;
	const char *subjects; /* separated by spaces; NULL: all. NATS can do one or all */
};

/* What a program uses of a channel; made at start where it does not exist. */
struct bus_channel {
	const char *name;
	int partitions; /* for engines that have them */

	/*
	 * The groups that are known, wherever they run. One that is not named here wants all, and
	 * on engines that keep messages for each group apart (RabbitMQ) gets only what is published
	 * after it was first opened.
	 */
	const struct bus_group *groups;
	size_t group_count;

	/* For engines that file messages by subject (JetStream). */
	const char *stream;   /* "ENTITLEMENTS"; NULL: the name in capitals, with _ for . and - */
	const char *subjects; /* those of its messages, separated by spaces; NULL: the name */
};

struct producer;

struct producer_ops {
	/*
	 * Publishes all and waits for the fate of each, until steady time `until_ns` at the latest.
	 * BUS_UNAVAILABLE: the engine is known to be away; nothing was sent and every fate is
	 * NOT_PERSISTED; this takes no time. OK: look at each fate. A message to a channel that was
	 * not declared is NOT_PERSISTED. Kafka may take up to half a second longer than told,
	 * RabbitMQ a tenth.
	 */
	QP_MUST_CHECK enum status (*publish)(struct producer *producer,
		struct bus_message *messages, size_t count, int64_t until_ns);
	void (*close)(struct producer *producer);
};

struct producer {
	const struct producer_ops *ops;
};

struct consumer;

struct consumer_ops {
	/*
	 * Waits until something has come, woken, or steady time `until_ns`, and gives up to `max`
	 * deliveries, in order within a partition, in memory that is valid until the next fetch. OK
	 * with `*count` 0: nothing came.
	 */
	QP_MUST_CHECK enum status (*fetch)(struct consumer *consumer,
		struct bus_delivery *deliveries, size_t max, size_t *count, int64_t until_ns);

	/*
	 * The effect of the first `count` deliveries of the last fetch is durable: they are not
	 * given again, but for a group that is just being shared out anew or a connection that is
	 * just lost. Counts of one fetch grow. What is not acknowledged comes again with the next
	 * fetch, or after a restart. Not OK: nothing is counted as acknowledged.
	 */
	QP_MUST_CHECK enum status (*ack)(struct consumer *consumer, size_t count);

	/*
	 * The deliveries of the last fetch that are not acknowledged come again: with the next
	 * fetch, or, on engines that count how often they give a message, after a growing delay.
	 */
	void (*again)(struct consumer *consumer);

	/*
	 * Before ack: the delivery at `index` of the last fetch can never be used, and `why` says
	 * in a sentence what is wrong with it. The caller has put it aside; on RabbitMQ the ack
	 * does so too, in the queue "<group>_error", and fails where it cannot. May be NULL: the
	 * engine makes no difference.
	 */
	void (*poison)(struct consumer *consumer, size_t index, const char *why);

	/* Any thread: a fetch that waits, or the next one, returns at once. Never blocks. */
	void (*wake)(struct consumer *consumer);
	void (*close)(struct consumer *consumer);
};

struct consumer {
	const struct consumer_ops *ops;
};

struct bus;

struct bus_ops {
	/* Connects in the background. false: it can never work; `why` is a sentence for the user.
	 */
	QP_MUST_CHECK bool (*start)(struct bus *bus, char *why, size_t size);

	/* Whether messages can be sent now. Any thread, never blocks. */
	bool (*is_up)(struct bus *bus);

	struct producer *(*open_producer)(struct bus *bus);

	/*
	 * A member of the group: each message of the channel that the group wants goes to one
	 * member of it. Others are passed over, as if they were acknowledged.
	 */
	struct consumer *(*open_consumer)(struct bus *bus, const char *channel, const char *group);

	/* After all producers and consumers are closed. */
	void (*free)(struct bus *bus);
};

/* The head of each adapter's own bus. */
struct bus {
	const struct bus_ops *ops;
	const char *name;   /* "gateway-bus": what /readyz and the metrics call it */
	const char *engine; /* "local", "kafka", "nats", "rabbitmq" */
};

/* Returns the channel of that name, or NULL if it is not among `channels`. */
static inline const struct bus_channel *bus_channel_find(
	const struct bus_channel *channels, size_t count, struct slice name)
{
	for (size_t i = 0; i < count; i++) {
		if (slice_is(name, channels[i].name))
			return &channels[i];
	}
	return NULL;
}

/* The subjects that a group wants of a channel. NULL: all. */
static inline const char *bus_group_subjects(const struct bus_channel *channel, const char *group)
{
	for (size_t i = 0; i < channel->group_count; i++) {
		if (!strcmp(channel->groups[i].name, group))
			return channel->groups[i].subjects;
	}
	return NULL;
}

/* Whether `subject` is among `subjects`, as of struct bus_group. */
static inline bool bus_subjects_have(const char *subjects, struct slice subject)
{
	struct slice rest = subjects ? slice_of(subjects) : slice_make(NULL, 0);

	while (rest.data) {
		if (slice_equal(slice_cut(&rest, ' '), subject))
			return true;
	}
	return !subjects;
}

/* There must be room for it; nothing is copied. */
static inline void bus_message_add_header(
	struct bus_message *message, const char *name, struct slice value)
{
	struct bus_header *header = &message->headers[message->header_count++];

	header->name = slice_of(name);
	header->value = value;
}

static inline void consumer_poison(struct consumer *consumer, size_t index, const char *why)
{
	if (consumer->ops->poison)
		consumer->ops->poison(consumer, index, why);
}

#endif
