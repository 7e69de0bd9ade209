/*
 * The watcher is a thread that keeps requesting the cluster's metadata, with a client of its own.
 * It is the circuit breaker of the bus: while the bus is down, publish() refuses messages.
 * librdkafka alone is not enough: it reports immediately that the last broker is gone, but not that
 * a broker is back, and it does not detect a hanging broker.
 *
 *   state   event                                               next
 *   down    the cluster responds and its topics exist           up
 *   up      _ALL_BROKERS_DOWN, or no response within a timeout  down
 *
 * The watcher also creates missing topics; once it has done so, it does not check the topics again.
 * It destroys retired clients, so that no other thread is blocked while a client is being
 * destroyed.
 */
#include <stdio.h>
#include <stdlib.h>

#include "adapters/bus/kafka/kafka_internal.h"
#include "base/clock.h"
#include "base/log.h"

#define PROBE_UP_TIMEOUT_MS 3000
#define PROBE_DOWN_TIMEOUT_MS 500
#define PROBE_UP_INTERVAL_MS 1000
#define PROBE_DOWN_INTERVAL_MS 100
#define CREATE_TIMEOUT_MS 10000
#define LEADER_PAUSE_MS 10
#define CONNECT_NS (2 * NS_PER_S)

/* The largest message that a created topic accepts, about twice Kafka's default. A dead letter
 * consists of a message and additional headers; with this limit, even the largest message that the
 * default permits can become a dead letter. */
#define MESSAGE_BYTES_MAX "2097152"

/* ---- up and down ------------------------------------------------------------------------- */

static void set_up(struct kafka_bus *bus, bool up, const char *reason)
{
	if (atomic_exchange(&bus->up, up) == up && bus->has_logged_state)
		return;
	bus->has_logged_state = true;
	if (up)
		log_line(LOG_INFO, "bus", "%s: Kafka at %s is reachable", bus->base.name,
			bus->url.servers);
	else
		log_line(LOG_WARN, "bus",
			"%s: Kafka at %s is unreachable: %s; publishing is refused until it "
			"responds",
			bus->base.name, bus->url.servers, reason);
}

/* Requests the metadata of one topic. Without a topic, librdkafka would request the metadata of all
 * topics. */
static rd_kafka_resp_err_t probe(struct kafka_bus *bus)
{
	int timeout_ms = atomic_load(&bus->up) ? PROBE_UP_TIMEOUT_MS : PROBE_DOWN_TIMEOUT_MS;
	const struct rd_kafka_metadata *metadata;
	rd_kafka_resp_err_t err =
		rd_kafka_metadata(bus->watch.rk, 0, bus->probed, &metadata, timeout_ms);

	if (err == RD_KAFKA_RESP_ERR_NO_ERROR)
		rd_kafka_metadata_destroy(metadata);
	return err;
}

/* Waits at most `timeout_ms` for an event of the watcher's client. Marks the bus as down if the
 * event says that all brokers are down. */
static void wait_for_news(struct kafka_bus *bus, int timeout_ms)
{
	rd_kafka_event_t *event = rd_kafka_queue_poll(bus->news, timeout_ms);

	if (rd_kafka_event_type(event) == RD_KAFKA_EVENT_ERROR &&
		rd_kafka_event_error(event) == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN)
		set_up(bus, false, "all brokers are down");
	if (event)
		rd_kafka_event_destroy(event);
}

/* ---- topics ------------------------------------------------------------------------------ */

static bool has_topic(const struct rd_kafka_metadata *metadata, const char *topic)
{
	for (int i = 0; i < metadata->topic_cnt; i++) {
		if (!strcmp(metadata->topics[i].topic, topic))
			return true;
	}
	return false;
}

static rd_kafka_NewTopic_t *new_topic(const struct bus_channel *channel)
{
	char words[256];
	rd_kafka_NewTopic_t *topic =
		rd_kafka_NewTopic_new(channel->name, channel->partitions, -1, words, sizeof(words));
	rd_kafka_resp_err_t err;

	if (!topic)
		return NULL;
	err = rd_kafka_NewTopic_set_config(topic, "max.message.bytes", MESSAGE_BYTES_MAX);
	(void)err; /* if the option cannot be set, the broker's default applies */
	return topic;
}

static size_t list_missing(struct kafka_bus *bus, const struct rd_kafka_metadata *metadata,
	rd_kafka_NewTopic_t **topics)
{
	size_t count = 0;

	for (size_t i = 0; i < bus->channel_count; i++) {
		if (has_topic(metadata, bus->channels[i].name))
			continue;
		topics[count] = new_topic(&bus->channels[i]);
		if (topics[count])
			count++;
	}
	return count;
}

/* Requests the metadata of a topic. Brokers that create topics on demand then create the topic. */
static void request_topic(struct kafka_bus *bus, const char *name)
{
	rd_kafka_topic_t *topic = rd_kafka_topic_new(bus->watch.rk, name, NULL);
	const struct rd_kafka_metadata *metadata;

	if (!topic)
		return;
	if (rd_kafka_metadata(bus->watch.rk, 0, topic, &metadata, PROBE_UP_TIMEOUT_MS) ==
		RD_KAFKA_RESP_ERR_NO_ERROR)
		rd_kafka_metadata_destroy(metadata);
	rd_kafka_topic_destroy(topic);
}

/*
 * Waits at most CREATE_TIMEOUT_MS until the leader of each partition of a new topic responds.
 *
 * A broker becomes the leader of a new partition a moment before it accepts messages for that
 * partition. If a producer published at that moment, the broker would refuse the first messages and
 * accept the next ones; the client would then send the first messages again, out of order.
 * Therefore no producer publishes before every leader has responded.
 */
static void await_leaders(struct kafka_bus *bus, const char *name)
{
	int64_t until_ns = clock_steady_ns(&clock_system) + CREATE_TIMEOUT_MS * NS_PER_MS;
	const struct bus_channel *channel = kafka_bus_channel(bus, slice_of(name));
	int partitions = channel ? channel->partitions : 0;

	for (int i = 0; i < partitions && !atomic_load(&bus->stopping);) {
		int64_t low, high;
		rd_kafka_resp_err_t err = rd_kafka_query_watermark_offsets(
			bus->watch.rk, name, i, &low, &high, PROBE_UP_TIMEOUT_MS);

		if (err == RD_KAFKA_RESP_ERR_NO_ERROR)
			i++;
		else if (clock_steady_ns(&clock_system) < until_ns)
			wait_for_news(bus, LEADER_PAUSE_MS);
		else
			break;
	}
}

static void note_topic(struct kafka_bus *bus, const rd_kafka_topic_result_t *result)
{
	rd_kafka_resp_err_t err = rd_kafka_topic_result_error(result);
	const char *name = rd_kafka_topic_result_name(result);

	if (err == RD_KAFKA_RESP_ERR_NO_ERROR) {
		log_line(LOG_INFO, "bus", "%s: created topic %s", bus->base.name, name);
	} else if (err != RD_KAFKA_RESP_ERR_TOPIC_ALREADY_EXISTS) {
		log_line(LOG_WARN, "bus", "%s: cannot create topic %s: %s", bus->base.name, name,
			rd_kafka_err2str(err));
		request_topic(bus, name);
		return;
	}
	await_leaders(bus, name);
}

static void note_topics(struct kafka_bus *bus, rd_kafka_event_t *event)
{
	const rd_kafka_CreateTopics_result_t *result = rd_kafka_event_CreateTopics_result(event);
	size_t count = 0;
	const rd_kafka_topic_result_t **topics =
		rd_kafka_CreateTopics_result_topics(result, &count);

	for (size_t i = 0; i < count; i++)
		note_topic(bus, topics[i]);
}

/* Returns true if one of the brokers is the controller (the broker that creates topics), or if the
 * controller is not known yet. In librdkafka's mock cluster, no broker is the controller. */
static bool has_controller(struct kafka_bus *bus, const struct rd_kafka_metadata *metadata)
{
	int32_t controller = rd_kafka_controllerid(bus->watch.rk, PROBE_UP_TIMEOUT_MS);

	for (int i = 0; i < metadata->broker_cnt; i++) {
		if (metadata->brokers[i].id == controller)
			return true;
	}
	return controller < 0; /* the controller is not known yet; the cluster will elect one */
}

/* Sends the cluster a request to create the topics. Returns false if the request failed and must be
 * repeated. Returns true even if the cluster refuses to create a topic, because repeating the
 * request would not help. */
static bool create(struct kafka_bus *bus, rd_kafka_NewTopic_t **topics, size_t count)
{
	rd_kafka_queue_t *queue = rd_kafka_queue_new(bus->watch.rk);
	rd_kafka_event_t *event;
	rd_kafka_resp_err_t err;

	rd_kafka_CreateTopics(bus->watch.rk, topics, count, NULL, queue);
	event = rd_kafka_queue_poll(queue, CREATE_TIMEOUT_MS);
	err = event ? rd_kafka_event_error(event) : RD_KAFKA_RESP_ERR__TIMED_OUT;
	if (err == RD_KAFKA_RESP_ERR_NO_ERROR)
		note_topics(bus, event);
	if (event)
		rd_kafka_event_destroy(event);
	rd_kafka_queue_destroy(queue);
	return err == RD_KAFKA_RESP_ERR_NO_ERROR;
}

static bool create_missing(struct kafka_bus *bus, const struct rd_kafka_metadata *metadata)
{
	rd_kafka_NewTopic_t **topics = qp_calloc(bus->channel_count, sizeof(topics[0]));
	size_t count = list_missing(bus, metadata, topics);
	bool created = true;

	if (count > 0 && has_controller(bus, metadata))
		created = create(bus, topics, count);
	else if (count > 0)
		for (size_t i = 0; i < bus->channel_count; i++)
			request_topic(bus, bus->channels[i].name);
	rd_kafka_NewTopic_destroy_array(topics, count);
	free(topics);
	return created;
}

static bool create_topics(struct kafka_bus *bus)
{
	const struct rd_kafka_metadata *metadata;
	bool created;

	if (rd_kafka_metadata(bus->watch.rk, 1, NULL, &metadata, PROBE_UP_TIMEOUT_MS) !=
		RD_KAFKA_RESP_ERR_NO_ERROR)
		return false;
	created = create_missing(bus, metadata);
	rd_kafka_metadata_destroy(metadata);
	if (created && bus->channel_count > 0)
		bus->probed = rd_kafka_topic_new(bus->watch.rk, bus->channels[0].name, NULL);
	return created;
}

/*
 * If an earlier call has created the missing topics, returns true. Otherwise creates them now.
 * Returns false if a request to the cluster failed; the next call then tries again. Returns true
 * even if the cluster has refused to create a topic.
 *
 * Consumers wait until the topics exist, because a consumer that subscribes too early looks for its
 * topic again only minutes later.
 */
static bool has_topics(struct kafka_bus *bus)
{
	bool has;

	pthread_mutex_lock(&bus->lock);
	has = bus->has_topics;
	pthread_mutex_unlock(&bus->lock);
	if (has || !create_topics(bus))
		return has;
	pthread_mutex_lock(&bus->lock);
	bus->has_topics = true;
	pthread_cond_broadcast(&bus->changed);
	pthread_mutex_unlock(&bus->lock);
	return true;
}

/* ---- retired clients --------------------------------------------------------------------- */

static void destroy_retired(struct kafka_bus *bus)
{
	struct kafka_client *client;

	pthread_mutex_lock(&bus->lock);
	client = bus->retired;
	bus->retired = NULL;
	pthread_mutex_unlock(&bus->lock);
	while (client) {
		struct kafka_client *next = client->next;

		rd_kafka_destroy(client->rk);
		free(client);
		client = next;
	}
}

void kafka_watcher_retire(struct kafka_bus *bus, struct kafka_client *client)
{
	pthread_mutex_lock(&bus->lock);
	client->next = bus->retired;
	bus->retired = client;
	pthread_mutex_unlock(&bus->lock);
}

/* ---- the thread -------------------------------------------------------------------------- */

/* Returns true if the client may still be connecting for the first time. During that time the
 * watcher does not log that the cluster is unreachable. */
static bool is_connecting(const struct kafka_bus *bus)
{
	return !bus->has_logged_state &&
	       clock_steady_ns(&clock_system) - bus->started_ns < CONNECT_NS;
}

static void *watch(void *context)
{
	struct kafka_bus *bus = context;

	pthread_setname_np(pthread_self(), "kafka-watcher");
	while (!atomic_load(&bus->stopping)) {
		rd_kafka_resp_err_t err = probe(bus);

		if (err != RD_KAFKA_RESP_ERR_NO_ERROR && !is_connecting(bus))
			set_up(bus, false, rd_kafka_err2str(err));
		else if (err == RD_KAFKA_RESP_ERR_NO_ERROR && has_topics(bus))
			set_up(bus, true, NULL);
		destroy_retired(bus);
		wait_for_news(
			bus, atomic_load(&bus->up) ? PROBE_UP_INTERVAL_MS : PROBE_DOWN_INTERVAL_MS);
	}
	return NULL;
}

bool kafka_watcher_start(struct kafka_bus *bus, char *why, size_t size)
{
	static const struct kafka_setting settings[] = {{NULL, NULL}};
	rd_kafka_conf_t *conf = kafka_conf_new(&bus->watch, RD_KAFKA_PRODUCER, settings, why, size);

	if (!conf)
		return false;
	rd_kafka_conf_set_events(conf, RD_KAFKA_EVENT_ERROR);
	if (!kafka_client_open(&bus->watch, RD_KAFKA_PRODUCER, conf, why, size))
		return false;
	bus->news = rd_kafka_queue_get_main(bus->watch.rk);
	bus->started_ns = clock_steady_ns(&clock_system);
	if (pthread_create(&bus->thread, NULL, watch, bus) != 0) {
		snprintf(why, size, "no thread could be started for %s", bus->base.name);
		return false;
	}
	bus->running = true;
	return true;
}

void kafka_watcher_stop(struct kafka_bus *bus)
{
	if (bus->running) {
		atomic_store(&bus->stopping, true);
		rd_kafka_queue_yield(bus->news);
		pthread_join(bus->thread, NULL);
	}
	destroy_retired(bus);
	if (bus->news)
		rd_kafka_queue_destroy(bus->news);
	if (bus->probed)
		rd_kafka_topic_destroy(bus->probed);
	if (bus->watch.rk)
		rd_kafka_destroy(bus->watch.rk);
}
