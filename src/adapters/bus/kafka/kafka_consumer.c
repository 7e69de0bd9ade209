/*
 * Consumers of Kafka.
 *
 * A consumer holds every message that it has fetched but not acknowledged. The next fetch returns
 * these messages again, before newer ones. Therefore the port's again() has nothing to do. Messages
 * are acknowledged in the order in which they are held, so a commit never skips an unacknowledged
 * message.
 *
 * Messages that the group does not want are skipped on arrival. A commit of a later message covers
 * the skipped messages before it. While the consumer holds no message, it commits the offsets of
 * skipped messages separately, at most once a second.
 *
 * Rebalances happen only while librdkafka is polled: during a fetch, or while the consumer is being
 * closed. In a rebalance, the consumer drops the held messages of each partition that it loses.
 *
 * Each consumer is closed on a separate thread, because rd_kafka_consumer_close() has no deadline:
 * if Kafka has not answered a commit, that function waits until the group's coordinator is back. A
 * consumer that is not closed in time is abandoned: the closing thread, the consumer's memory and
 * the bus stay until the process exits.
 *
 * On arrival, each message is checked by kafka_places_take(), which detects when Kafka has lost the
 * end of a log.
 *
 * Invariants between calls: acked <= given <= held_count, and `held` is in order of arrival.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "adapters/bus/kafka/kafka_internal.h"
#include "adapters/shared/growing.h"
#include "base/log.h"

/* A fetch that has a message to return stops polling once the held messages and the messages that
 * it has skipped have this many bytes. A consumer that holds this many bytes is full. */
#define FETCH_BYTES_MAX (16 * 1024 * 1024)

#define COMMIT_TIMEOUT_MS 5000
#define CLOSE_TIMEOUT_NS (3 * NS_PER_S)
#define SKIP_COMMIT_INTERVAL_NS NS_PER_S
#define FULL_POLL_INTERVAL_NS NS_PER_S

/* The longest wait of a poll while the position in some partition is not settled. The wait is
 * short, because kafka_places_settle(), which settles positions, is called again only before the
 * next poll. */
#define UNSETTLED_POLL_MS 50

struct kafka_consumer {
	struct consumer base;
	struct kafka_client client;
	const char *topic;
	char *group;
	const char *subjects; /* the subjects that the group wants; NULL means all */
	struct arena arena;   /* for the positions and identities in the last fetch's deliveries */
	struct kafka_places places;

	rd_kafka_message_t **held; /* in order of arrival */
	size_t held_size;
	size_t held_count;
	size_t held_bytes; /* in the held messages */
	size_t given;      /* how many held messages the last fetch returned */
	size_t acked;      /* how many messages of the last fetch are acknowledged */

	/* for each partition, the offset up to which messages were skipped */
	rd_kafka_topic_partition_list_t *skipped;
	int64_t skip_commit_due_ns; /* when `skipped` may be committed next */

	int64_t full_poll_due_ns; /* when poll_full() may poll next */

	_Atomic bool woken;

	/* wake() uses this queue to end the wait of a fetch. NULL until the client is created.
	 * Guarded by the bus's lock. */
	rd_kafka_queue_t *queue;
	bool is_closed; /* the client is destroyed; guarded by the bus's lock */
};

static const struct consumer_ops consumer_ops;

static const struct kafka_setting settings[] = {
	{"enable.auto.commit", "false"},
	{"enable.auto.offset.store", "false"},
	{"auto.offset.reset", "earliest"},
	{"enable.partition.eof", "false"},
	{"fetch.error.backoff.ms", "100"},
	/* A short time, because a broker that waits for new messages delays its answers to all
	 * later requests on the same connection. */
	{"fetch.wait.max.ms", "100"},
	{"queued.min.messages", "10000"},
	{"queued.max.messages.kbytes", "16384"},
	{NULL, NULL},
};

static struct kafka_consumer *consumer_of(struct consumer *base)
{
	assert(base->ops == &consumer_ops);
	return (struct kafka_consumer *)base;
}

/* ---- held messages ----------------------------------------------------------------------- */

static size_t bytes_of(const rd_kafka_message_t *message)
{
	return message->len + message->key_len;
}

/* Returns true if the consumer may hold no more messages than it holds. */
static bool is_full(const struct kafka_consumer *consumer, size_t max)
{
	return consumer->held_count >= max || consumer->held_bytes >= FETCH_BYTES_MAX;
}

static void hold(struct kafka_consumer *consumer, rd_kafka_message_t *message)
{
	consumer->held = growing_reserve((void *)consumer->held, consumer->held_count,
		&consumer->held_size, sizeof(consumer->held[0]));
	consumer->held[consumer->held_count++] = message;
	consumer->held_bytes += bytes_of(message);

	/* The commit of this message covers the messages that were skipped before it. */
	rd_kafka_topic_partition_list_del(consumer->skipped, consumer->topic, message->partition);
}

/*
 * Drops the first `count` held messages. If `partitions` is not NULL, also drops all held messages
 * of these partitions. The remaining messages keep their order.
 */
static void drop(struct kafka_consumer *consumer, size_t count,
	const rd_kafka_topic_partition_list_t *partitions)
{
	size_t kept = 0;

	for (size_t i = 0; i < consumer->held_count; i++) {
		rd_kafka_message_t *message = consumer->held[i];
		bool chosen = i < count;

		for (int p = 0; partitions && !chosen && p < partitions->cnt; p++)
			chosen = partitions->elems[p].partition == message->partition;
		if (!chosen) {
			consumer->held[kept++] = message;
			continue;
		}
		consumer->held_bytes -= bytes_of(message);
		rd_kafka_message_destroy(message);
	}
	consumer->held_count = kept;
}

/* Drops the acknowledged messages. Only the next fetch may call this, because until then the
 * caller's deliveries point into these messages. */
static void forget_acked(struct kafka_consumer *consumer)
{
	drop(consumer, consumer->acked, NULL);
	consumer->acked = 0;
	consumer->given = 0;
}

/* ---- skipped messages -------------------------------------------------------------------- */

static bool is_wanted(const struct kafka_consumer *consumer, const rd_kafka_message_t *message)
{
	rd_kafka_headers_t *headers;
	const void *value = NULL;
	size_t size = 0;

	if (!consumer->subjects)
		return true;
	if (rd_kafka_message_headers(message, &headers) != RD_KAFKA_RESP_ERR_NO_ERROR ||
		rd_kafka_header_get(headers, 0, "subject", &value, &size) !=
			RD_KAFKA_RESP_ERR_NO_ERROR)
		size = 0;
	return bus_subjects_have(consumer->subjects, slice_make(value, value ? size : 0));
}

/* Sets the partition's entry in `offsets` to the offset after `message`, with the message's name
 * (kafka_message_name()) as metadata. A commit of `offsets` then covers all messages of the
 * partition up to `message`. */
static void note_done(rd_kafka_topic_partition_list_t *offsets, const char *topic,
	const rd_kafka_message_t *message)
{
	rd_kafka_topic_partition_t *entry =
		rd_kafka_topic_partition_list_find(offsets, topic, message->partition);
	char name[KAFKA_NAME_SIZE];

	if (!entry)
		entry = rd_kafka_topic_partition_list_add(offsets, topic, message->partition);
	kafka_message_name(message, name);
	free(entry->metadata);
	entry->metadata = qp_strdup(name);
	entry->metadata_size = strlen(name);
	entry->offset = message->offset + 1;
}

static void skip(struct kafka_consumer *consumer, rd_kafka_message_t *message)
{
	note_done(consumer->skipped, consumer->topic, message);
	rd_kafka_message_destroy(message);
}

static void forget_skipped(struct kafka_consumer *consumer)
{
	rd_kafka_topic_partition_list_destroy(consumer->skipped);
	consumer->skipped = rd_kafka_topic_partition_list_new(4);
}

/* ---- the client -------------------------------------------------------------------------- */

static void rebalance(rd_kafka_t *rk, rd_kafka_resp_err_t err,
	rd_kafka_topic_partition_list_t *partitions, void *opaque)
{
	struct kafka_consumer *consumer = ((struct kafka_client *)opaque)->consumer;
	rd_kafka_resp_err_t done;

	if (err == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS) {
		kafka_places_assign(&consumer->places, partitions);
		done = rd_kafka_assign(rk, partitions);
	} else {
		kafka_places_release(&consumer->places);
		drop(consumer, 0, partitions);
		forget_skipped(consumer);
		done = rd_kafka_assign(rk, NULL);
	}
	log_line(LOG_DEBUG, "bus", "%s: a consumer %s %d partitions of topic %s (%s)",
		consumer->client.bus->base.name,
		err == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS ? "got" : "lost", partitions->cnt,
		consumer->topic, rd_kafka_err2name(done));
}

static void subscribe(struct kafka_consumer *consumer)
{
	rd_kafka_topic_partition_list_t *topics = rd_kafka_topic_partition_list_new(1);
	rd_kafka_resp_err_t err;

	rd_kafka_topic_partition_list_add(topics, consumer->topic, RD_KAFKA_PARTITION_UA);
	err = rd_kafka_subscribe(consumer->client.rk, topics);
	rd_kafka_topic_partition_list_destroy(topics);
	/* rd_kafka_subscribe() only records the topics, so it cannot fail */
	assert(err == RD_KAFKA_RESP_ERR_NO_ERROR);
}

static bool set_group(struct kafka_consumer *consumer, rd_kafka_conf_t *conf)
{
	char ignored[256];

	rd_kafka_conf_set_rebalance_cb(conf, rebalance);
	kafka_places_watch(conf);
	return rd_kafka_conf_set(conf, "group.id", consumer->group, ignored, sizeof(ignored)) ==
	       RD_KAFKA_CONF_OK;
}

/* ---- opening ----------------------------------------------------------------------------- */

static bool open_client(struct kafka_consumer *consumer)
{
	struct kafka_client *client = &consumer->client;
	struct kafka_bus *bus = client->bus;
	char why[512] = "librdkafka does not accept the group's name";
	rd_kafka_conf_t *conf =
		kafka_conf_new(client, RD_KAFKA_CONSUMER, settings, why, sizeof(why));
	bool opened = conf && set_group(consumer, conf);

	if (conf && !opened)
		rd_kafka_conf_destroy(conf);
	opened = opened && kafka_client_open(client, RD_KAFKA_CONSUMER, conf, why, sizeof(why));
	if (!opened) {
		log_line(LOG_ERROR, "bus", "%s: cannot create a consumer of topic %s: %s",
			bus->base.name, consumer->topic, why);
		return false;
	}
	rd_kafka_poll_set_consumer(client->rk);
	pthread_mutex_lock(&bus->lock);
	consumer->queue = rd_kafka_queue_get_consumer(client->rk);
	pthread_mutex_unlock(&bus->lock);
	subscribe(consumer);
	return true;
}

/*
 * Waits until `*condition` is true or the consumer is woken, but not beyond monotonic time
 * `until_ns`. The caller holds the bus's lock.
 */
static void wait_for(struct kafka_consumer *consumer, const bool *condition, int64_t until_ns)
{
	struct kafka_bus *bus = consumer->client.bus;
	bool in_time = true;

	while (!*condition && !atomic_load(&consumer->woken) && in_time)
		in_time = steady_wait_until(&bus->changed, &bus->lock, until_ns);
}

/*
 * If the consumer has no client yet, waits until the topics exist and then creates the client.
 * Returns true if the consumer has a client. Returns false if the topics do not exist by
 * `until_ns`, or if the consumer is woken before the topics exist. If the client cannot be created,
 * waits until `until_ns` or until the consumer is woken, and then returns false; the next fetch
 * tries again.
 */
static bool wait_for_client(struct kafka_consumer *consumer, int64_t until_ns)
{
	struct kafka_bus *bus = consumer->client.bus;
	const bool never = false;
	bool ready;

	if (consumer->client.rk)
		return true;
	pthread_mutex_lock(&bus->lock);
	wait_for(consumer, &bus->has_topics, until_ns);
	ready = bus->has_topics;
	pthread_mutex_unlock(&bus->lock);
	if (!ready)
		return false;
	if (open_client(consumer))
		return true;
	pthread_mutex_lock(&bus->lock);
	wait_for(consumer, &never, until_ns);
	pthread_mutex_unlock(&bus->lock);
	return false;
}

/* ---- polling ----------------------------------------------------------------------------- */

static rd_kafka_message_t *poll_client(struct kafka_consumer *consumer, int timeout_ms)
{
	struct kafka_client *client = &consumer->client;

	if (!kafka_places_settle(&consumer->places, client, consumer->topic) &&
		timeout_ms > UNSETTLED_POLL_MS)
		timeout_ms = UNSETTLED_POLL_MS;
	return rd_kafka_consumer_poll(client->rk, timeout_ms);
}

/* Polls once. Returns true if anything arrived. If the consumer is full, drops the new message and
 * makes it arrive again later. Adds the bytes of a message that is held or skipped to `*bytes`. */
static bool poll_one(struct kafka_consumer *consumer, size_t max, int timeout_ms, size_t *bytes)
{
	rd_kafka_message_t *message = poll_client(consumer, timeout_ms);

	if (!message)
		return false;
	if (message->err != RD_KAFKA_RESP_ERR_NO_ERROR) {
		log_line(LOG_DEBUG, "bus", "%s: the consumer of topic %s reports: %s",
			consumer->client.bus->base.name, consumer->topic,
			rd_kafka_message_errstr(message));
		rd_kafka_message_destroy(message);
		return true;
	}
	if (is_full(consumer, max)) {
		kafka_places_return(&consumer->places, message);
		rd_kafka_message_destroy(message);
		return true;
	}
	if (!kafka_places_take(&consumer->places, &consumer->client, message)) {
		rd_kafka_message_destroy(message);
		return true;
	}
	*bytes += bytes_of(message);
	if (is_wanted(consumer, message))
		hold(consumer, message);
	else
		skip(consumer, message);
	return true;
}

static void wait_for_first(
	struct kafka_consumer *consumer, size_t max, int64_t until_ns, size_t *bytes)
{
	bool in_time = true;

	while (consumer->held_count == 0 && in_time && !atomic_load(&consumer->woken)) {
		poll_one(consumer, max, steady_ms_until(until_ns, 1000), bytes);
		in_time = clock_steady_ns(&clock_system) < until_ns;
	}
}

/*
 * Polls although the consumer is full of unacknowledged messages: rebalances happen only while
 * polling, and without rebalances no other member could join the group. The consumer drops a
 * message that arrives during this poll, so Kafka must send the message a second time. Therefore
 * this function polls at most once a second.
 */
static void poll_full(struct kafka_consumer *consumer, size_t max)
{
	int64_t now_ns = clock_steady_ns(&clock_system);
	size_t ignored = 0;

	if (now_ns < consumer->full_poll_due_ns)
		return;
	consumer->full_poll_due_ns = now_ns + FULL_POLL_INTERVAL_NS;
	poll_one(consumer, max, 0, &ignored);
}

/* Polls for new messages and adds them to the held ones. If the consumer holds no message yet,
 * waits for the first one, but not beyond monotonic time `until_ns`. */
static void gather(struct kafka_consumer *consumer, size_t max, int64_t until_ns)
{
	size_t bytes;
	bool more = true;

	if (is_full(consumer, max))
		poll_full(consumer, max);
	bytes = consumer->held_bytes;
	if (consumer->held_count == 0)
		wait_for_first(consumer, max, until_ns, &bytes);
	while (more && !is_full(consumer, max) && bytes < FETCH_BYTES_MAX)
		more = poll_one(consumer, max, 0, &bytes);
}

static void read_headers(const rd_kafka_message_t *message, struct bus_delivery *delivery)
{
	rd_kafka_headers_t *headers;
	const char *name;
	const void *value;
	size_t size;

	if (rd_kafka_message_headers(message, &headers) != RD_KAFKA_RESP_ERR_NO_ERROR)
		return;
	for (size_t i = 0; rd_kafka_header_get_all(headers, i, &name, &value, &size) ==
			   RD_KAFKA_RESP_ERR_NO_ERROR;
		i++) {
		struct bus_header header = {slice_of(name), slice_make(value, value ? size : 0)};

		if (slice_is(header.name, "event-id") && delivery->id.len == 0)
			delivery->id = header.value;
		else if (slice_is(header.name, "subject") && delivery->subject.len == 0)
			delivery->subject = header.value;
		else if (delivery->header_count < BUS_HEADERS_MAX)
			delivery->headers[delivery->header_count++] = header;
	}
}

static int64_t time_of(const rd_kafka_message_t *message)
{
	rd_kafka_timestamp_type_t type;
	int64_t time_ms = rd_kafka_message_timestamp(message, &type);

	return type == RD_KAFKA_TIMESTAMP_NOT_AVAILABLE || time_ms < 0 ? 0 : time_ms * 1000;
}

/* Returns `position` followed by the message's time and digest. The position alone is not enough:
 * once Kafka has lost the end of the log, another message may get the same position. */
static struct slice identity_of(
	struct kafka_consumer *consumer, const rd_kafka_message_t *message, struct slice position)
{
	struct buffer text = buffer_make(&consumer->arena, position.len + KAFKA_NAME_SIZE);
	char name[KAFKA_NAME_SIZE];
	struct slice time, digest;

	kafka_message_name(message, name);
	digest = slice_of(name);
	slice_cut(&digest, ' ');
	time = slice_cut(&digest, ' ');
	buffer_add(&text, position);
	buffer_char(&text, '@');
	buffer_add(&text, time);
	buffer_char(&text, '-');
	buffer_add(&text, digest);
	return buffer_slice(&text);
}

static void deliver(struct kafka_consumer *consumer, const rd_kafka_message_t *message,
	struct bus_delivery *delivery)
{
	struct buffer position = buffer_make(&consumer->arena, 64);

	memset(delivery, 0, sizeof(*delivery));
	buffer_format(&position, "%s/%" PRId32 "/%" PRId64, consumer->topic, message->partition,
		message->offset);
	delivery->channel = slice_of(consumer->topic);
	delivery->time_us = time_of(message);
	delivery->key = slice_make(message->key, message->key_len);
	delivery->value = slice_make(message->payload, message->len);
	delivery->position = buffer_slice(&position);
	delivery->identity = identity_of(consumer, message, delivery->position);
	delivery->handle = (uint64_t)message->offset;
	read_headers(message, delivery);
}

/* ---- commit ------------------------------------------------------------------------------ */

static rd_kafka_topic_partition_list_t *offsets_of(
	const struct kafka_consumer *consumer, size_t from, size_t to)
{
	rd_kafka_topic_partition_list_t *offsets = rd_kafka_topic_partition_list_new(8);

	for (size_t i = from; i < to; i++)
		note_done(offsets, consumer->topic, consumer->held[i]);
	return offsets;
}

/* Returns true if this error of a commit means that the group is rebalancing or has rebalanced
 * without this consumer. The next owner of the partition then reads the messages again, so the
 * commit need not be repeated. */
static bool is_overtaken(rd_kafka_resp_err_t err)
{
	switch (err) {
	case RD_KAFKA_RESP_ERR_ILLEGAL_GENERATION:
	case RD_KAFKA_RESP_ERR_UNKNOWN_MEMBER_ID:
	case RD_KAFKA_RESP_ERR_REBALANCE_IN_PROGRESS:
	case RD_KAFKA_RESP_ERR_FENCED_INSTANCE_ID:
	case RD_KAFKA_RESP_ERR__ASSIGNMENT_LOST:
		return true;
	default:
		return false;
	}
}

/* Commits with a timeout. rd_kafka_commit() would wait for an unreachable coordinator until the
 * session times out. */
static rd_kafka_resp_err_t commit(
	struct kafka_consumer *consumer, const rd_kafka_topic_partition_list_t *offsets)
{
	rd_kafka_t *rk = consumer->client.rk;
	rd_kafka_queue_t *queue = rd_kafka_queue_new(rk);
	rd_kafka_resp_err_t err = rd_kafka_commit_queue(rk, offsets, queue, NULL, NULL);

	if (err == RD_KAFKA_RESP_ERR_NO_ERROR) {
		rd_kafka_event_t *event = rd_kafka_queue_poll(queue, COMMIT_TIMEOUT_MS);

		err = event ? rd_kafka_event_error(event) : RD_KAFKA_RESP_ERR__TIMED_OUT;
		if (event)
			rd_kafka_event_destroy(event);
	}
	rd_kafka_queue_destroy(queue);
	return err;
}

/* Commits the offsets of skipped messages. Does nothing while the consumer holds messages: a commit
 * covers all earlier messages of the partition, so it could cover a held message. */
static void commit_skipped(struct kafka_consumer *consumer)
{
	int64_t now_ns = clock_steady_ns(&clock_system);

	if (consumer->skipped->cnt == 0 || consumer->held_count > 0 ||
		now_ns < consumer->skip_commit_due_ns)
		return;
	consumer->skip_commit_due_ns = now_ns + SKIP_COMMIT_INTERVAL_NS;
	if (commit(consumer, consumer->skipped) == RD_KAFKA_RESP_ERR_NO_ERROR)
		forget_skipped(consumer);
}

/* ---- fetch and ack ----------------------------------------------------------------------- */

static enum status fetch(struct consumer *base, struct bus_delivery *deliveries, size_t max,
	size_t *count, int64_t until_ns)
{
	struct kafka_consumer *consumer = consumer_of(base);

	forget_acked(consumer);
	commit_skipped(consumer);
	arena_reset(&consumer->arena);
	if (wait_for_client(consumer, until_ns))
		gather(consumer, max, until_ns);
	atomic_store(&consumer->woken, false);
	consumer->given = consumer->held_count < max ? consumer->held_count : max;
	for (size_t i = 0; i < consumer->given; i++)
		deliver(consumer, consumer->held[i], &deliveries[i]);
	*count = consumer->given;
	return STATUS_OK;
}

static enum status ack(struct consumer *base, size_t count)
{
	struct kafka_consumer *consumer = consumer_of(base);
	rd_kafka_topic_partition_list_t *offsets;
	rd_kafka_resp_err_t err;

	if (count > consumer->given)
		count = consumer->given;
	if (count <= consumer->acked)
		return STATUS_OK;
	offsets = offsets_of(consumer, consumer->acked, count);
	err = commit(consumer, offsets);
	rd_kafka_topic_partition_list_destroy(offsets);
	if (err != RD_KAFKA_RESP_ERR_NO_ERROR && !is_overtaken(err)) {
		log_line(LOG_DEBUG, "bus", "%s: cannot commit offsets of topic %s: %s",
			consumer->client.bus->base.name, consumer->topic, rd_kafka_err2str(err));
		return STATUS_BUS_UNAVAILABLE;
	}
	consumer->acked = count;
	return STATUS_OK;
}

/* ---- the port's other functions ---------------------------------------------------------- */

static void again(struct consumer *base)
{
	struct kafka_consumer *consumer = consumer_of(base);

	/* Nothing to do: the next fetch returns the unacknowledged messages again. */
	assert(consumer->acked <= consumer->given);
}

static void wake(struct consumer *base)
{
	struct kafka_consumer *consumer = consumer_of(base);
	struct kafka_bus *bus = consumer->client.bus;

	pthread_mutex_lock(&bus->lock);
	atomic_store(&consumer->woken, true);
	pthread_cond_broadcast(&bus->changed);
	if (consumer->queue)
		rd_kafka_queue_yield(consumer->queue);
	pthread_mutex_unlock(&bus->lock);
}

/* ---- closing ----------------------------------------------------------------------------- */

/* The body of the closing thread: leaves the group and destroys the client. */
static void *close_client(void *context)
{
	struct kafka_consumer *consumer = context;
	struct kafka_bus *bus = consumer->client.bus;

	pthread_setname_np(pthread_self(), "kafka-closer");
	rd_kafka_consumer_close(consumer->client.rk);
	rd_kafka_destroy(consumer->client.rk);
	pthread_mutex_lock(&bus->lock);
	consumer->is_closed = true;
	pthread_cond_broadcast(&bus->changed);
	pthread_mutex_unlock(&bus->lock);
	return NULL;
}

/* Closes and destroys the client on a separate thread. Returns false if that takes longer than
 * CLOSE_TIMEOUT_NS. */
static bool close_in_time(struct kafka_consumer *consumer)
{
	struct kafka_bus *bus = consumer->client.bus;
	int64_t until_ns = clock_steady_ns(&clock_system) + CLOSE_TIMEOUT_NS;
	bool in_time = true;
	bool is_closed;
	pthread_t thread;
	int failed;

	rd_kafka_queue_destroy(consumer->queue);
	failed = pthread_create(&thread, NULL, close_client, consumer);
	assert(!failed);
	pthread_mutex_lock(&bus->lock);
	while (!consumer->is_closed && in_time)
		in_time = steady_wait_until(&bus->changed, &bus->lock, until_ns);
	is_closed = consumer->is_closed;
	pthread_mutex_unlock(&bus->lock);
	if (is_closed)
		pthread_join(thread, NULL);
	else
		pthread_detach(thread);
	return is_closed;
}

static void close_consumer(struct consumer *base)
{
	struct kafka_consumer *consumer = consumer_of(base);
	struct kafka_bus *bus = consumer->client.bus;

	drop(consumer, consumer->held_count, NULL);
	if (consumer->client.rk && !close_in_time(consumer)) {
		log_line(LOG_WARN, "bus",
			"%s: Kafka does not answer, so a consumer of topic %s ends without leaving "
			"its group; the group drops it when its session times out",
			bus->base.name, consumer->topic);
		kafka_bus_abandon(bus);
		return;
	}
	atomic_fetch_sub(&bus->users, 1);
	rd_kafka_topic_partition_list_destroy(consumer->skipped);
	kafka_places_release(&consumer->places);
	arena_release(&consumer->arena);
	free(consumer->held);
	free(consumer->group);
	free(consumer);
}

static const struct consumer_ops consumer_ops = {
	.fetch = fetch,
	.ack = ack,
	.again = again,
	.wake = wake,
	.close = close_consumer,
};

struct consumer *kafka_consumer_open(struct bus *base, const char *channel, const char *group)
{
	struct kafka_bus *bus = kafka_bus_of(base);
	struct kafka_consumer *consumer = qp_calloc(1, sizeof(*consumer));
	const struct bus_channel *found;

	consumer->base.ops = &consumer_ops;
	consumer->client.bus = bus;
	consumer->client.consumer = consumer;
	found = kafka_bus_channel(bus, slice_of(channel));
	assert(found);
	consumer->topic = found->name;
	consumer->group = qp_strdup(group);
	consumer->subjects = bus_group_subjects(found, group);
	consumer->skipped = rd_kafka_topic_partition_list_new(4);
	arena_init(&consumer->arena, 64 * 1024);
	atomic_fetch_add(&bus->users, 1);
	return &consumer->base;
}
