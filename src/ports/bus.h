/*
 * A message bus carries messages from one service to another and delivers each at least once.
 * Implemented by adapters/bus/local (a durable queue in an SQLite file), adapters/bus/kafka,
 * adapters/bus/nats and adapters/bus/rabbitmq; one contract suite runs against all of them.
 *
 * A channel is a Kafka topic, a JetStream stream, a RabbitMQ exchange or a local queue. A message
 * has a channel, a subject, a key, headers and a value. The subject belongs to the channel; it is
 * RabbitMQ's routing key, and on Kafka it travels as a header. On engines that keep order, messages
 * with the same key stay in order.
 *
 * A producer or consumer is used by one thread at a time. All functions block unless stated
 * otherwise. The engine may become unreachable at any time: producers then refuse immediately,
 * consumers wait, and both recover by themselves.
 */
#ifndef QUIPU_PORTS_BUS_H
#define QUIPU_PORTS_BUS_H

#include <stdint.h>

#include "base/arena.h"
#include "base/metrics.h"
#include "base/slice.h"
#include "base/status.h"

#define BUS_HEADERS_MAX 8

struct bus_header {
	struct slice name;
	struct slice value;
};

/* What happened to a published message. */
enum bus_fate {
	BUS_CONFIRMED,     /* the engine has the message */
	BUS_NOT_PERSISTED, /* the engine certainly does not have the message and will not get it */
	BUS_UNKNOWN,       /* the engine may or may not have the message */
	BUS_UNDER_WAY, /* begin() has passed the message to the engine; its fate is still open */
};

struct bus_message {
	struct slice channel;
	struct slice subject; /* may be empty */
	struct slice key;     /* may be empty */

	/*
	 * A unique id, sent as the header event-id (JetStream: Nats-Msg-Id), by which consumers
	 * recognise repeated messages. An engine may drop a message whose id it already has.
	 */
	struct slice id;

	struct bus_header headers[BUS_HEADERS_MAX]; /* headers of the same name keep their order */
	size_t header_count;
	struct slice value;

	/* publish(), begin() and collect() set `fate`. They set `is_untried` to true if the message
	 * is NOT_PERSISTED because it could not be passed to the engine in time. Otherwise they may
	 * leave `is_untried` unchanged, so the caller must set it to false before publishing. The
	 * same applies to `is_unfit`, which means that the message is NOT_PERSISTED because the
	 * engine can never carry it as it is, usually because it is too large. */
	enum bus_fate fate;
	bool is_untried;
	bool is_unfit;
};

/* A message that has arrived. Valid until the next fetch of the same consumer. */
struct bus_delivery {
	struct slice channel;
	struct slice subject;
	struct slice key;
	struct slice id; /* empty if the message has no id */
	struct bus_header headers[BUS_HEADERS_MAX];
	size_t header_count;
	struct slice value;
	int64_t time_us; /* wall time of the publish; 0 if the engine does not report it */

	/* Where the message is stored, as text for logs and operators: "sms-outbound/2/1041" on
	 * Kafka, "ENTITLEMENTS/1041" on NATS. */
	struct slice position;

	/* Identifies a message that has no id, so that its repeats are recognised. If the engine
	 * may assign the position of a lost message to another message, the identity also
	 * distinguishes these two messages. */
	struct slice identity;

	/* the message was delivered too many times without an acknowledgement, and this is its last
	 * delivery */
	bool is_exhausted;
	uint64_t handle; /* private to the adapter */
};

/* A group of consumers of a channel, and the subjects that the group subscribes to. */
struct bus_group {
	const char *name;
	/* separated by spaces; NULL for all subjects of the channel. On NATS, a group subscribes
	 * either to one subject or to all. */
	const char *subjects;
};

/* A channel that a program uses. The adapter creates it at start if it does not exist. */
struct bus_channel {
	const char *name;
	int partitions; /* the number of partitions, on engines that have partitions */

	/*
	 * The groups that are known in advance, whichever process they run in. A group that is not
	 * listed here subscribes to all subjects. On engines that keep messages separately for each
	 * group (RabbitMQ), an unlisted group receives only messages published after its first
	 * consumer was opened.
	 */
	const struct bus_group *groups;
	size_t group_count;

	/* `stream` and `subjects` are for engines that store messages by subject (JetStream). */
	/* the name of the stream, e.g. "ENTITLEMENTS"; if NULL, the channel's name in capitals,
	 * with each "." and "-" replaced by "_" */
	const char *stream;
	/* the subjects of all messages, separated by spaces; if NULL, the channel's name */
	const char *subjects;
};

struct producer;

struct producer_ops {
	/*
	 * Publishes all messages and waits until the fate of each message is known, but at most
	 * until the monotonic time `until_ns`. May return later than that: by up to 0.5 s on Kafka,
	 * 0.4 s on NATS and 0.1 s on RabbitMQ.
	 *
	 * Returns OK if every message has a fate; a message to a channel that was not declared is
	 * NOT_PERSISTED. Returns BUS_UNAVAILABLE immediately if the engine is known to be
	 * unreachable: nothing was sent, and every fate is NOT_PERSISTED.
	 */
	QP_MUST_CHECK enum status (*publish)(struct producer *producer,
		struct bus_message *messages, size_t count, int64_t until_ns);

	/*
	 * The next three functions are NULL on engines that carry out one publish at a time. Use a
	 * producer either with these functions or with publish(), not with both at once.
	 *
	 * begin() publishes messages after those of earlier calls, without waiting for their fates.
	 * The messages are UNDER_WAY, and must stay at the same address until their fates are
	 * decided. At most BUS_BEGUN_MAX calls of begin() may have messages under way. begin() may
	 * block until the engine has room.
	 *
	 * collect() blocks until more fates are decided, wake() is called, or the earliest
	 * `until_ns` of the begin() calls under way has come. When that time has come, collect()
	 * gives up all messages under way, including those of later begin() calls, and decides
	 * their fates, because one message that hangs holds up all later ones. Like publish(),
	 * collect() may return later than that time.
	 *
	 * wake() makes a waiting collect() return early. If no collect() is waiting, the next
	 * collect() returns early. Thread-safe; never blocks.
	 */
	QP_MUST_CHECK enum status (*begin)(struct producer *producer, struct bus_message *messages,
		size_t count, int64_t until_ns);
	void (*collect)(struct producer *producer);
	void (*wake)(struct producer *producer);

	void (*close)(struct producer *producer);
};

#define BUS_BEGUN_MAX 8

struct producer {
	const struct producer_ops *ops;
};

struct consumer;

struct consumer_ops {
	/*
	 * Waits until a message has arrived or wake() is called, but at most until the monotonic
	 * time `until_ns`. Writes up to `max` deliveries to `deliveries`, in order within a
	 * partition. Their slices stay valid until the next fetch. If nothing arrived, returns OK
	 * and sets `*count` to 0.
	 */
	QP_MUST_CHECK enum status (*fetch)(struct consumer *consumer,
		struct bus_delivery *deliveries, size_t max, size_t *count, int64_t until_ns);

	/*
	 * Acknowledges the first `count` deliveries of the last fetch, whose effects are now
	 * durable. May be called again with a larger `count` before the next fetch. The engine does
	 * not deliver an acknowledged message again, except while the group is rebalancing or the
	 * connection breaks. A message that is not acknowledged is delivered again with the next
	 * fetch or after a restart. If the call fails, the acknowledgement may still arrive, so the
	 * messages may be delivered again or not. Therefore acknowledge only messages whose effects
	 * are durable.
	 */
	QP_MUST_CHECK enum status (*ack)(struct consumer *consumer, size_t count);

	/*
	 * Returns the unacknowledged deliveries of the last fetch to the engine. They are delivered
	 * again with the next fetch or, on engines that count deliveries, after a growing delay.
	 */
	void (*again)(struct consumer *consumer);

	/*
	 * Marks the delivery at `index` of the last fetch as unusable; `why` is a sentence that
	 * says what is wrong with the message. Call this after the message was saved elsewhere and
	 * before the ack() that covers the delivery. On RabbitMQ that ack() also copies the message
	 * to the queue "<group>_error", and fails if it cannot. `poison` is NULL on engines that
	 * treat unusable messages like other messages, so call consumer_poison() instead.
	 */
	void (*poison)(struct consumer *consumer, size_t index, const char *why);

	/* Makes a waiting fetch return immediately. If no fetch is waiting, the next fetch returns
	 * immediately. Thread-safe; never blocks. */
	void (*wake)(struct consumer *consumer);
	void (*close)(struct consumer *consumer);
};

struct consumer {
	const struct consumer_ops *ops;
};

struct bus;

struct bus_ops {
	/*
	 * Starts connecting in the background. Returns false if the bus can never work; `why` is
	 * then a sentence for the user.
	 */
	QP_MUST_CHECK bool (*start)(struct bus *bus, char *why, size_t size);

	/* Returns whether messages can be published now. Thread-safe; never blocks. */
	bool (*is_up)(struct bus *bus);

	struct producer *(*open_producer)(struct bus *bus);

	/*
	 * Opens a consumer as a member of `group`. Each message on a subject of the group goes to
	 * one of the group's members. The group skips messages on other subjects, as if it had
	 * acknowledged them.
	 */
	struct consumer *(*open_consumer)(struct bus *bus, const char *channel, const char *group);

	/* Call it after all producers and consumers are closed. */
	void (*free)(struct bus *bus);
};

/* Each adapter embeds this struct as the first member of a struct of its own. */
struct bus {
	const struct bus_ops *ops;
	const char *name;   /* the name in /readyz and the metrics, e.g. "gateway-bus" */
	const char *engine; /* "local", "kafka", "nats", "rabbitmq" */
	/* the engine delivers a message only a limited number of times, so a consumer should keep
	 * messages that it cannot use now, instead of returning and fetching them */
	bool counts_deliveries;
	struct latency latency; /* time from a publish until all of its messages have a fate */
};

/* Returns the channel with that name, or NULL if it is not among `channels`. */
static inline const struct bus_channel *bus_channel_find(
	const struct bus_channel *channels, size_t count, struct slice name)
{
	for (size_t i = 0; i < count; i++) {
		if (slice_is(name, channels[i].name))
			return &channels[i];
	}
	return NULL;
}

/* Returns the subjects that a group subscribes to, or NULL for all subjects of the channel. */
static inline const char *bus_group_subjects(const struct bus_channel *channel, const char *group)
{
	for (size_t i = 0; i < channel->group_count; i++) {
		if (!strcmp(channel->groups[i].name, group))
			return channel->groups[i].subjects;
	}
	return NULL;
}

/* Returns whether `subject` is among `subjects`, which are written as in struct bus_group. */
static inline bool bus_subjects_have(const char *subjects, struct slice subject)
{
	struct slice rest = subjects ? slice_of(subjects) : slice_make(NULL, 0);

	while (rest.data) {
		if (slice_equal(slice_cut(&rest, ' '), subject))
			return true;
	}
	return !subjects;
}

/* Adds a header without copying it. The message must have fewer than BUS_HEADERS_MAX headers. */
static inline void bus_message_add_header(
	struct bus_message *message, const char *name, struct slice value)
{
	struct bus_header *header = &message->headers[message->header_count++];

	header->name = slice_of(name);
	header->value = value;
}

/* Calls poison() unless it is NULL. */
static inline void consumer_poison(struct consumer *consumer, size_t index, const char *why)
{
	if (consumer->ops->poison)
		consumer->ops->poison(consumer, index, why);
}

#endif
