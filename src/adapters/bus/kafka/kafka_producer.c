/*
 * Producers for Kafka.
 *
 * A publish passes its messages to librdkafka, waits for the delivery report of each, and at its
 * deadline purges the messages without a report. Therefore no message stays in the client after its
 * publish has returned. The fate of a message is the one that librdkafka reports, or UNKNOWN if
 * there is no report or librdkafka itself does not know the fate.
 *
 * One client can have several publishes under way, and it sends their messages in order. librdkafka
 * cannot purge the messages of a single publish, only all messages of a client. So all publishes
 * under way end at the earliest of their deadlines.
 *
 * The client is replaced in three cases: after a fatal error, if librdkafka may still be purging
 * messages, and if the fate of a message is unknown. An idempotent producer numbers its messages;
 * in the last case the broker and the client may disagree about the next number. A message purged
 * before it was sent leaves only a gap in the numbers, from which the client recovers by itself.
 */
#include <stdlib.h>

#include "adapters/bus/kafka/kafka_internal.h"
#include "base/log.h"

/* How long to wait after the deadline for the reports of purged messages. */
#define PURGE_GRACE_NS (500 * NS_PER_MS)

/* Messages of one begin() or publish(). */
struct begun {
	struct bus_message *messages;
	size_t count;
	int64_t started_ns;
	int64_t until_ns;
};

struct kafka_producer {
	struct producer base;
	struct kafka_bus *bus;
	struct kafka_client *client; /* NULL if the next publish must create it */
	pthread_mutex_t lock;        /* guards `reports`, which wake() reads on other threads */
	rd_kafka_queue_t *reports;
	struct begun begun[BUS_BEGUN_MAX]; /* publishes that have messages UNDER_WAY */
	size_t begun_count;
	size_t outstanding; /* messages that are UNDER_WAY */

	/* the client must be replaced, because the fate of a message is unknown or librdkafka may
	 * still be purging messages */
	bool lost;
};

static const struct producer_ops producer_ops;

static const struct kafka_setting settings[] = {
	{"enable.idempotence", "true"},
	{"acks", "all"},
	{"linger.ms", "0.5"},
	{"retry.backoff.ms", "50"},
	{"message.timeout.ms", "30000"},
	/* how soon the client notices that a missing topic was created */
	{"topic.metadata.refresh.interval.ms", "10000"},
	{"request.timeout.ms", "10000"},
	{"message.max.bytes", "2097152"},
	{"partitioner", "murmur2_random"}, /* the partitioner of the Java client */
	{NULL, NULL},
};

static struct kafka_producer *producer_of(struct producer *base)
{
	assert(base->ops == &producer_ops);
	return (struct kafka_producer *)base;
}

/* ---- the client -------------------------------------------------------------------------- */

static bool open_client(struct kafka_producer *producer)
{
	struct kafka_client *client = qp_calloc(1, sizeof(*client));
	char why[512] = "";
	rd_kafka_conf_t *conf;

	client->bus = producer->bus;
	conf = kafka_conf_new(client, RD_KAFKA_PRODUCER, settings, why, sizeof(why));
	if (conf)
		rd_kafka_conf_set_events(conf, RD_KAFKA_EVENT_DR);
	if (!conf || !kafka_client_open(client, RD_KAFKA_PRODUCER, conf, why, sizeof(why))) {
		log_line(LOG_ERROR, "bus", "%s: cannot create a Kafka producer: %s",
			producer->bus->base.name, why);
		free(client);
		return false;
	}
	producer->client = client;
	pthread_mutex_lock(&producer->lock);
	producer->reports = rd_kafka_queue_get_main(client->rk);
	pthread_mutex_unlock(&producer->lock);
	return true;
}

static void retire_client(struct kafka_producer *producer)
{
	pthread_mutex_lock(&producer->lock);
	rd_kafka_queue_destroy(producer->reports);
	producer->reports = NULL;
	pthread_mutex_unlock(&producer->lock);
	kafka_watcher_retire(producer->bus, producer->client);
	producer->client = NULL;
}

static bool is_broken(const struct kafka_producer *producer)
{
	char words[256];

	return rd_kafka_fatal_error(producer->client->rk, words, sizeof(words)) !=
	       RD_KAFKA_RESP_ERR_NO_ERROR;
}

/* ---- sending ----------------------------------------------------------------------------- */

static void add_header(rd_kafka_headers_t *headers, struct slice name, struct slice value)
{
	rd_kafka_resp_err_t err = rd_kafka_header_add(headers, name.len ? name.data : "",
		(ssize_t)name.len, value.len ? value.data : "", (ssize_t)value.len);

	assert(err == RD_KAFKA_RESP_ERR_NO_ERROR); /* adding fails only for read-only headers */
}

static rd_kafka_headers_t *make_headers(const struct bus_message *message)
{
	rd_kafka_headers_t *headers = rd_kafka_headers_new(message->header_count + 2);

	if (message->id.len > 0)
		add_header(headers, slice_of("event-id"), message->id);
	if (message->subject.len > 0)
		add_header(headers, slice_of("subject"), message->subject);
	for (size_t i = 0; i < message->header_count; i++)
		add_header(headers, message->headers[i].name, message->headers[i].value);
	return headers;
}

/* Passes a message to librdkafka. An empty key becomes a null key, which makes librdkafka choose a
 * random partition. An empty value does not become a null value, because a null value deletes the
 * key from a compacted topic. */
static rd_kafka_resp_err_t enqueue(
	struct kafka_producer *producer, const char *topic, struct bus_message *message)
{
	rd_kafka_headers_t *headers = make_headers(message);
	struct slice key = message->key;
	struct slice value = message->value;
	rd_kafka_vu_t parts[] = {
		{.vtype = RD_KAFKA_VTYPE_TOPIC, .u.cstr = topic},
		{.vtype = RD_KAFKA_VTYPE_KEY,
			.u.mem = {key.len ? (void *)(uintptr_t)key.data : NULL, key.len}},
		{.vtype = RD_KAFKA_VTYPE_VALUE,
			.u.mem = {(void *)(uintptr_t)(value.len ? value.data : ""), value.len}},
		{.vtype = RD_KAFKA_VTYPE_HEADERS, .u.headers = headers},
		{.vtype = RD_KAFKA_VTYPE_MSGFLAGS, .u.i = RD_KAFKA_MSG_F_COPY},
		{.vtype = RD_KAFKA_VTYPE_OPAQUE, .u.ptr = message},
	};
	rd_kafka_error_t *error =
		rd_kafka_produceva(producer->client->rk, parts, sizeof(parts) / sizeof(parts[0]));
	rd_kafka_resp_err_t code;

	if (!error)
		return RD_KAFKA_RESP_ERR_NO_ERROR;
	code = rd_kafka_error_code(error);
	rd_kafka_error_destroy(error);
	/* librdkafka takes ownership of the headers only if it accepts the message */
	rd_kafka_headers_destroy(headers);
	return code;
}

/* ---- reports ----------------------------------------------------------------------------- */

/* Returns the fate of the message to which the delivery report belongs. RD_KAFKA_RESP_ERR_UNKNOWN
 * means that the broker itself does not know whether it has the message. */
static enum bus_fate fate_of(const rd_kafka_message_t *report)
{
	switch (rd_kafka_message_status(report)) {
	case RD_KAFKA_MSG_STATUS_PERSISTED:
		return BUS_CONFIRMED;
	case RD_KAFKA_MSG_STATUS_NOT_PERSISTED:
		return report->err == RD_KAFKA_RESP_ERR_UNKNOWN ? BUS_UNKNOWN : BUS_NOT_PERSISTED;
	default:
		return BUS_UNKNOWN;
	}
}

/* Returns true if this error of a NOT_PERSISTED message means that the message was never sent to a
 * broker. */
static bool is_untried(rd_kafka_resp_err_t err)
{
	return err == RD_KAFKA_RESP_ERR__MSG_TIMED_OUT || err == RD_KAFKA_RESP_ERR__PURGE_QUEUE ||
	       err == RD_KAFKA_RESP_ERR__QUEUE_FULL;
}

/* Returns true if this error of a NOT_PERSISTED message means that the message is too large for the
 * client, the broker or the topic. */
static bool is_unfit(rd_kafka_resp_err_t err)
{
	return err == RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE;
}

static void serve(struct kafka_producer *producer, int64_t until_ns)
{
	rd_kafka_event_t *event =
		rd_kafka_queue_poll(producer->reports, steady_ms_until(until_ns, 1000));
	const rd_kafka_message_t *report;

	if (!event)
		return;
	while ((report = rd_kafka_event_message_next(event))) {
		struct bus_message *message = report->_private;

		assert(producer->outstanding > 0);
		producer->outstanding--;
		message->fate = fate_of(report);
		message->is_untried = message->fate == BUS_NOT_PERSISTED && is_untried(report->err);
		message->is_unfit = message->fate == BUS_NOT_PERSISTED && is_unfit(report->err);
		producer->lost |= message->fate == BUS_UNKNOWN;
		if (report->err != RD_KAFKA_RESP_ERR_NO_ERROR)
			log_line(LOG_DEBUG, "bus", "%s: a message to topic %s failed: %s",
				producer->bus->base.name, rd_kafka_topic_name(report->rkt),
				rd_kafka_err2str(report->err));
	}
	rd_kafka_event_destroy(event);
}

static void serve_until(struct kafka_producer *producer, int64_t until_ns)
{
	while (producer->outstanding > 0 && clock_steady_ns(&clock_system) < until_ns)
		serve(producer, until_ns);
}

/*
 * Queues one message; its fate is UNDER_WAY until its report arrives. If the queue is full, waits
 * for reports of earlier messages, because librdkafka then removes these messages from the queue.
 * If the message cannot be queued, its fate stays NOT_PERSISTED.
 */
static void send_one(struct kafka_producer *producer, struct bus_message *message, int64_t until_ns)
{
	const struct bus_channel *channel = kafka_bus_channel(producer->bus, message->channel);
	rd_kafka_resp_err_t err;

	if (!channel)
		return;
	do {
		err = enqueue(producer, channel->name, message);
		if (err == RD_KAFKA_RESP_ERR__QUEUE_FULL && producer->outstanding > 0)
			serve(producer, until_ns);
	} while (err == RD_KAFKA_RESP_ERR__QUEUE_FULL && producer->outstanding > 0 &&
		 clock_steady_ns(&clock_system) < until_ns);
	message->is_untried = is_untried(err);
	message->is_unfit = is_unfit(err);
	if (err != RD_KAFKA_RESP_ERR_NO_ERROR)
		return;
	message->fate = BUS_UNDER_WAY;
	producer->outstanding++;
}

/*
 * Purges all messages that have no report yet, and waits until librdkafka's threads have dropped
 * these messages. Otherwise a thread that purged later would drop messages of the next publish.
 * While the bus is down, purge() does not wait for the threads, because one of them may be stuck in
 * a DNS look-up. Instead it marks the client for replacement.
 */
static void purge(struct kafka_producer *producer)
{
	bool waits = atomic_load(&producer->bus->up);
	int how = RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT;
	rd_kafka_resp_err_t err = rd_kafka_purge(
		producer->client->rk, waits ? how : how | RD_KAFKA_PURGE_F_NON_BLOCKING);

	assert(err == RD_KAFKA_RESP_ERR_NO_ERROR);
	serve_until(producer, clock_steady_ns(&clock_system) + PURGE_GRACE_NS);
	producer->lost |= producer->outstanding > 0 || !waits;
}

static void replace_client(struct kafka_producer *producer)
{
	bool opened;

	retire_client(producer);
	/* opened now, so that the new client is connected when the next publish needs it */
	opened = open_client(producer);
	(void)opened; /* after a failure, the next publish tries again to open a client */
}

/* ---- publishing -------------------------------------------------------------------------- */

static bool is_under_way(const struct begun *begun)
{
	for (size_t i = 0; i < begun->count; i++) {
		if (begun->messages[i].fate == BUS_UNDER_WAY)
			return true;
	}
	return false;
}

/* Removes from `begun` the publishes that no longer have any message UNDER_WAY. Once no message of
 * the client is UNDER_WAY, replaces the client if it is lost or broken. */
static void forget_decided(struct kafka_producer *producer)
{
	size_t kept = 0;

	for (size_t i = 0; i < producer->begun_count; i++) {
		const struct begun *begun = &producer->begun[i];

		if (is_under_way(begun))
			producer->begun[kept++] = *begun;
		else
			latency_add(&producer->bus->base.latency,
				clock_steady_ns(&clock_system) - begun->started_ns);
	}
	producer->begun_count = kept;
	if (producer->outstanding == 0 && (producer->lost || is_broken(producer))) {
		replace_client(producer);
		producer->lost = false;
	}
}

static int64_t first_deadline_ns(const struct kafka_producer *producer)
{
	int64_t first_ns = INT64_MAX;

	for (size_t i = 0; i < producer->begun_count; i++) {
		if (producer->begun[i].until_ns < first_ns)
			first_ns = producer->begun[i].until_ns;
	}
	return first_ns;
}

/* Purges all messages that are UNDER_WAY. If librdkafka still sends no report of a message, the
 * message's fate becomes UNKNOWN. */
static void give_up(struct kafka_producer *producer)
{
	purge(producer);
	for (size_t i = 0; i < producer->begun_count; i++) {
		for (size_t k = 0; k < producer->begun[i].count; k++) {
			struct bus_message *message = &producer->begun[i].messages[k];

			if (message->fate == BUS_UNDER_WAY)
				message->fate = BUS_UNKNOWN;
		}
	}
	producer->outstanding = 0;
}

static void collect(struct producer *base)
{
	struct kafka_producer *producer = producer_of(base);
	int64_t until_ns = first_deadline_ns(producer);

	if (producer->outstanding == 0)
		return;
	serve(producer, until_ns);
	if (producer->outstanding > 0 && clock_steady_ns(&clock_system) >= until_ns)
		give_up(producer);
	forget_decided(producer);
}

/* Waits until another publish may begin. At most BUS_BEGUN_MAX publishes may be under way at once.
 * If the client is lost or broken, the next publish has to wait until no message of the client is
 * UNDER_WAY; the client is then replaced. */
static void make_place(struct kafka_producer *producer)
{
	while (producer->outstanding > 0 &&
		(producer->lost || is_broken(producer) || producer->begun_count == BUS_BEGUN_MAX))
		collect(&producer->base);
}

static enum status begin(
	struct producer *base, struct bus_message *messages, size_t count, int64_t until_ns)
{
	struct kafka_producer *producer = producer_of(base);
	int64_t started_ns = clock_steady_ns(&clock_system);

	for (size_t i = 0; i < count; i++)
		messages[i].fate = BUS_NOT_PERSISTED;
	if (count == 0)
		return STATUS_OK;
	if (!atomic_load(&producer->bus->up))
		return STATUS_BUS_UNAVAILABLE;
	make_place(producer);
	if (!producer->client && !open_client(producer))
		return STATUS_BUS_UNAVAILABLE;
	for (size_t i = 0; i < count; i++) {
		if (clock_steady_ns(&clock_system) < until_ns)
			send_one(producer, &messages[i], until_ns);
		else
			messages[i].is_untried = true;
	}
	producer->begun[producer->begun_count++] =
		(struct begun){messages, count, started_ns, until_ns};
	forget_decided(producer);
	return STATUS_OK;
}

static enum status publish(
	struct producer *base, struct bus_message *messages, size_t count, int64_t until_ns)
{
	enum status status = begin(base, messages, count, until_ns);

	while (producer_of(base)->outstanding > 0)
		collect(base);
	return status;
}

static void wake(struct producer *base)
{
	struct kafka_producer *producer = producer_of(base);

	pthread_mutex_lock(&producer->lock);
	if (producer->reports)
		rd_kafka_queue_yield(producer->reports);
	pthread_mutex_unlock(&producer->lock);
}

/* ---- opening and closing ----------------------------------------------------------------- */

static void close_producer(struct producer *base)
{
	struct kafka_producer *producer = producer_of(base);

	if (producer->client)
		retire_client(producer);
	atomic_fetch_sub(&producer->bus->users, 1);
	pthread_mutex_destroy(&producer->lock);
	free(producer);
}

static const struct producer_ops producer_ops = {
	.publish = publish,
	.begin = begin,
	.collect = collect,
	.wake = wake,
	.close = close_producer,
};

/* Creates the client now, so that it is connected by the time of the first publish. */
struct producer *kafka_producer_open(struct bus *base)
{
	struct kafka_producer *producer = qp_calloc(1, sizeof(*producer));
	bool opened;

	producer->base.ops = &producer_ops;
	producer->bus = kafka_bus_of(base);
	pthread_mutex_init(&producer->lock, NULL);
	atomic_fetch_add(&producer->bus->users, 1);
	opened = open_client(producer);
	(void)opened; /* after a failure, the first publish tries again to open a client */
	return &producer->base;
}
