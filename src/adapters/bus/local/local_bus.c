/*
 * Starts and frees the local bus, implements its producers, and reports whether it is up.
 *
 * publish() queues its writes. The leader, which is one of the calling threads, runs all queued
 * writes in one transaction (local_work.c), so the bus needs no thread of its own. At start, all
 * expired messages are deleted. Later, publish() deletes expired messages in small chunks, so that
 * no call is delayed by a large clean-up.
 *
 * An acknowledged message can be deleted once the position of every group of its channel has
 * reached it. Such messages are deleted in chunks when messages are acknowledged or skipped, and
 * when a consumer finds nothing to fetch. When the bus starts and when it is freed, it tries to
 * delete all such messages.
 *
 * Invariant: `channels` and `declared` have the same order and length.
 */
#include "adapters/bus/local/local_bus.h"

#include <stdlib.h>

#include "adapters/bus/local/local_internal.h"

/* After a failure, is_up() returns false until some work succeeds, but for this long at most. */
#define DOWN_NS (5 * NS_PER_S)

#define EXPIRY_INTERVAL_NS (60 * NS_PER_S)

/* The largest message that the bus accepts. SQLite's own limit of 1 GB per row would be too
 * generous. */
#define MESSAGE_BYTES_MAX (64u * 1024 * 1024)

static const struct bus_ops bus_ops;

struct local_bus *local_bus_of(struct bus *base)
{
	assert(base->ops == &bus_ops);
	return (struct local_bus *)base;
}

struct local_channel *local_bus_channel(struct local_bus *bus, struct slice name)
{
	const struct bus_channel *declared =
		bus_channel_find(bus->declared, bus->channel_count, name);

	return declared ? &bus->channels[declared - bus->declared] : NULL;
}

void local_channel_changed(struct local_channel *channel)
{
	channel->changes++;
	pthread_cond_broadcast(&channel->changed);
}

/* ---- producers --------------------------------------------------------------------------- */

struct local_producer {
	struct producer base;
	struct local_bus *bus;
};

struct publish_work {
	struct local_work base;
	struct bus_message *messages;
	size_t count;
};

static const struct producer_ops producer_ops;

static struct local_producer *producer_of(struct producer *base)
{
	assert(base->ops == &producer_ops);
	return (struct local_producer *)base;
}

static bool is_acceptable(const struct bus_message *message)
{
	size_t bytes = message->value.len + message->key.len + message->subject.len;

	assert(message->header_count <= BUS_HEADERS_MAX);
	for (size_t i = 0; i < message->header_count; i++)
		bytes += message->headers[i].name.len + message->headers[i].value.len;
	return bytes <= MESSAGE_BYTES_MAX;
}

static int expire_sometimes(struct local_bus *bus)
{
	int64_t now_ns = clock_steady_ns(&clock_system);
	int deleted;

	if (now_ns < bus->next_expiry_ns)
		return SQLITE_OK;
	bus->next_expiry_ns = now_ns + EXPIRY_INTERVAL_NS;
	return local_messages_expire(bus, &deleted);
}

static int run_publish(struct local_bus *bus, struct local_work *base)
{
	struct publish_work *work = (struct publish_work *)base;
	int rc = expire_sometimes(bus);

	for (size_t i = 0; i < work->count && rc == SQLITE_OK; i++) {
		struct bus_message *message = &work->messages[i];
		struct local_channel *channel = local_bus_channel(bus, message->channel);

		if (channel && is_acceptable(message))
			rc = local_messages_add(bus, channel, message);
	}
	return rc;
}

static void settle_publish(
	struct local_bus *bus, struct local_work *base, enum local_outcome outcome)
{
	struct publish_work *work = (struct publish_work *)base;
	enum bus_fate fate = outcome == LOCAL_DONE      ? BUS_CONFIRMED
			     : outcome == LOCAL_UNKNOWN ? BUS_UNKNOWN
							: BUS_NOT_PERSISTED;

	for (size_t i = 0; i < work->count; i++) {
		struct bus_message *message = &work->messages[i];
		struct local_channel *channel = local_bus_channel(bus, message->channel);

		if (!channel || !is_acceptable(message))
			continue;
		message->fate = fate;
		if (fate != BUS_NOT_PERSISTED)
			local_channel_changed(channel);
	}
}

static enum status publish(
	struct producer *base, struct bus_message *messages, size_t count, int64_t until_ns)
{
	struct publish_work work = {
		.base = {.writes = true, .run = run_publish, .settle = settle_publish},
		.messages = messages,
		.count = count,
	};
	struct local_bus *bus = producer_of(base)->bus;
	int64_t started_ns = clock_steady_ns(&clock_system);
	enum local_outcome outcome;

	for (size_t i = 0; i < count; i++)
		messages[i].fate = BUS_NOT_PERSISTED;
	if (count == 0)
		return STATUS_OK;
	outcome = local_work_do(bus, &work.base, until_ns);
	for (size_t i = 0; i < count; i++) {
		messages[i].is_untried = outcome == LOCAL_TOO_LATE;
		messages[i].is_unfit = !is_acceptable(&messages[i]);
	}
	latency_add(&bus->base.latency, clock_steady_ns(&clock_system) - started_ns);
	return outcome == LOCAL_FAILED ? STATUS_BUS_UNAVAILABLE : STATUS_OK;
}

static void close_producer(struct producer *base)
{
	struct local_producer *producer = producer_of(base);

	pthread_mutex_lock(&producer->bus->lock);
	producer->bus->users--;
	pthread_mutex_unlock(&producer->bus->lock);
	free(producer);
}

static const struct producer_ops producer_ops = {.publish = publish, .close = close_producer};

static struct producer *open_producer(struct bus *base)
{
	struct local_bus *bus = local_bus_of(base);
	struct local_producer *producer = qp_calloc(1, sizeof(*producer));

	producer->base.ops = &producer_ops;
	producer->bus = bus;
	pthread_mutex_lock(&bus->lock);
	bus->users++;
	pthread_mutex_unlock(&bus->lock);
	return &producer->base;
}

/* ---- the bus ----------------------------------------------------------------------------- */

struct bus *local_bus_new(const char *name, const char *path, const struct bus_channel *channels,
	size_t channel_count)
{
	struct local_bus *bus = qp_calloc(1, sizeof(*bus));

	bus->base.ops = &bus_ops;
	bus->base.name = name;
	bus->base.engine = "local";
	bus->file.path = path;
	bus->declared = channels;
	bus->channels = qp_calloc(channel_count, sizeof(bus->channels[0]));
	bus->channel_count = channel_count;
	for (size_t i = 0; i < channel_count; i++) {
		bus->channels[i].name = channels[i].name;
		bus->channels[i].declared = &channels[i];
		steady_cond_init(&bus->channels[i].changed);
	}
	arena_init(&bus->scratch, 64 * 1024);
	pthread_mutex_init(&bus->lock, NULL);
	steady_cond_init(&bus->worked);
	bus->queue_last = &bus->queue_first;
	return &bus->base;
}

/* In each channel, deletes all messages up to the lowest position of the channel's groups. Ignores
 * failures, because the next start deletes the messages. */
static void trim_all(struct local_bus *bus)
{
	int deleted;

	for (size_t i = 0; i < bus->channel_count; i++) {
		while (local_messages_trim(bus, &bus->channels[i], &deleted) == SQLITE_OK &&
			deleted > 0)
			continue;
	}
}

/* Deletes acknowledged and expired messages of the previous run. */
static void tidy(struct local_bus *bus)
{
	int deleted;

	trim_all(bus);
	while (local_messages_expire(bus, &deleted) == SQLITE_OK && deleted > 0)
		continue;
	bus->next_expiry_ns = clock_steady_ns(&clock_system) + EXPIRY_INTERVAL_NS;
}

static bool start(struct bus *base, char *why, size_t size)
{
	struct local_bus *bus = local_bus_of(base);
	int rc = local_file_open(&bus->file, SQLITE_OPEN_CREATE);

	if (rc != SQLITE_OK) {
		sqlite_connection_explain_open(
			&bus->file.connection, bus->file.path, rc, why, size);
		return false;
	}
	if (!local_messages_prepare(bus, why, size)) {
		local_file_close(&bus->file);
		return false;
	}
	tidy(bus);
	atomic_store(&bus->started, true);
	return true;
}

static bool is_up(struct bus *base)
{
	struct local_bus *bus = local_bus_of(base);
	int64_t failed_at_ns = atomic_load(&bus->failed_at_ns);

	if (!atomic_load(&bus->started))
		return false;
	return failed_at_ns == 0 || clock_steady_ns(&clock_system) - failed_at_ns >= DOWN_NS;
}

static void free_bus(struct bus *base)
{
	struct local_bus *bus = local_bus_of(base);

	assert(bus->users == 0 && !bus->groups && !bus->queue_first);
	if (bus->file.connection.db && !bus->file.in_doubt)
		trim_all(bus);
	local_file_close(&bus->file);
	for (size_t i = 0; i < bus->channel_count; i++)
		pthread_cond_destroy(&bus->channels[i].changed);
	pthread_cond_destroy(&bus->worked);
	pthread_mutex_destroy(&bus->lock);
	arena_release(&bus->scratch);
	free(bus->channels);
	free(bus);
}

static const struct bus_ops bus_ops = {
	.start = start,
	.is_up = is_up,
	.open_producer = open_producer,
	.open_consumer = local_consumer_open,
	.free = free_bus,
};
