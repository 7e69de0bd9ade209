#include "kafka_fixture.h"

#include <stdio.h>
#include <stdlib.h>

#include "adapters/bus/kafka/kafka_bus.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "waiting.h"

static const struct bus_channel channels[] = {{.name = "events", .partitions = 4}};

/* ---- the cluster ------------------------------------------------------------------------- */

void cluster_set_down(struct cluster *cluster)
{
	assert_int_equal(rd_kafka_mock_broker_set_down(cluster->mock, 1), 0);
}

void cluster_set_up(struct cluster *cluster)
{
	assert_int_equal(rd_kafka_mock_broker_set_up(cluster->mock, 1), 0);
}

void cluster_set_slow(struct cluster *cluster, int rtt_ms)
{
	assert_int_equal(rd_kafka_mock_broker_set_rtt(cluster->mock, 1, rtt_ms), 0);
}

void cluster_set_silent(struct cluster *cluster)
{
	cluster_set_slow(cluster, (int)(2 * HANG_MS)); /* no test waits that long for an answer */
}

bool cluster_is_up(struct cluster *cluster)
{
	return cluster->bus->ops->is_up(cluster->bus);
}

void cluster_start_bus(struct cluster *cluster)
{
	char why[256] = "";

	cluster->bus = kafka_bus_new("faults", cluster->url, channels, 1);
	if (!cluster->bus->ops->start(cluster->bus, why, sizeof(why)))
		fail_msg("%s", why);
	cluster->producer = cluster->bus->ops->open_producer(cluster->bus);
}

struct consumer *cluster_open_consumer(struct cluster *cluster)
{
	cluster->consumer = cluster->bus->ops->open_consumer(cluster->bus, "events", "g");
	return cluster->consumer;
}

void cluster_close_consumer(struct cluster *cluster)
{
	if (cluster->consumer)
		cluster->consumer->ops->close(cluster->consumer);
	cluster->consumer = NULL;
}

int cluster_setup(void **state)
{
	struct cluster *cluster = qp_calloc(1, sizeof(*cluster));
	rd_kafka_conf_t *conf = rd_kafka_conf_new();
	char words[256];

	log_configure(getenv("QUIPU_CONTRACT_DEBUG") ? LOG_DEBUG : LOG_ERROR, LOG_TEXT);
	hash_seed();
	rd_kafka_conf_set_log_cb(conf, NULL);
	cluster->rk = rd_kafka_new(RD_KAFKA_PRODUCER, conf, words, sizeof(words));
	assert_non_null(cluster->rk);
	cluster->mock = rd_kafka_mock_cluster_new(cluster->rk, 1);
	assert_non_null(cluster->mock);
	snprintf(cluster->url, sizeof(cluster->url),
		"kafka://%s?session.timeout.ms=6000&heartbeat.interval.ms=500",
		rd_kafka_mock_cluster_bootstraps(cluster->mock));
	cluster_start_bus(cluster);
	WAIT_UNTIL(cluster_is_up(cluster));
	*state = cluster;
	return 0;
}

int cluster_teardown(void **state)
{
	struct cluster *cluster = *state;

	cluster_close_consumer(cluster);
	if (cluster->other)
		cluster->other->ops->close(cluster->other);
	cluster->producer->ops->close(cluster->producer);
	cluster->bus->ops->free(cluster->bus);
	rd_kafka_mock_cluster_destroy(cluster->mock);
	rd_kafka_destroy(cluster->rk);
	free(cluster);
	return 0;
}

/* ---- publishing, and what is on the topic after ------------------------------------------- */

struct bus_message *cluster_make(struct cluster *cluster, size_t count)
{
	struct bus_message *messages = &cluster->sent[cluster->sent_count];

	assert_true(cluster->sent_count + count <= MESSAGES_MAX);
	for (size_t i = 0; i < count; i++) {
		size_t number = cluster->sent_count++;
		char *id = cluster->ids[number];

		snprintf(id, sizeof(cluster->ids[0]), "%zu", number);
		messages[i] = (struct bus_message){
			.channel = slice_of("events"),
			.key = slice_of(id),
			.id = slice_of(id),
			.value = slice_of(id),
		};
	}
	return messages;
}

enum status cluster_publish(
	struct cluster *cluster, struct bus_message *messages, size_t count, int64_t timeout_ms)
{
	struct producer *producer = cluster->producer;

	return producer->ops->publish(producer, messages, count, in_ms(timeout_ms));
}

void cluster_publish_all(struct cluster *cluster, size_t count, enum bus_fate fate)
{
	struct bus_message *messages = cluster_make(cluster, count);

	assert_int_equal(cluster_publish(cluster, messages, count, HANG_MS), STATUS_OK);
	for (size_t i = 0; i < count; i++)
		assert_int_equal(messages[i].fate, fate);
}

void cluster_publish_until_confirmed(struct cluster *cluster)
{
	struct bus_message *messages;
	int64_t deadline_ns = hang_deadline_ns();

	do {
		assert_true(clock_steady_ns(&clock_system) < deadline_ns);
		messages = cluster_make(cluster, 1);
		assert_int_equal(cluster_publish(cluster, messages, 1, 5000), STATUS_OK);
		if (messages[0].fate != BUS_CONFIRMED)
			nap_ms(100);
	} while (messages[0].fate != BUS_CONFIRMED);
}

/* An independent look: no group, every partition from its beginning to its end. */
static void read_partition(struct cluster *cluster, rd_kafka_t *rk, int32_t partition)
{
	rd_kafka_topic_t *topic = rd_kafka_topic_new(rk, "events", NULL);
	int64_t low = 0;
	int64_t high = 0;
	int64_t next = 0;

	assert_int_equal(
		rd_kafka_query_watermark_offsets(rk, "events", partition, &low, &high, HANG_MS), 0);
	assert_int_equal(rd_kafka_consume_start(topic, partition, low), 0);
	for (next = low; next < high;) {
		rd_kafka_message_t *message = rd_kafka_consume(topic, partition, HANG_MS);

		assert_non_null(message);
		if (message->err == 0) {
			char number[12] = "";

			assert_true(message->len < sizeof(number));
			memcpy(number, message->payload, message->len);
			cluster->on_topic[atol(number)]++;
			next = message->offset + 1;
		}
		rd_kafka_message_destroy(message);
	}
	rd_kafka_consume_stop(topic, partition);
	rd_kafka_topic_destroy(topic);
}

static void read_topic(struct cluster *cluster)
{
	rd_kafka_conf_t *conf = rd_kafka_conf_new();
	char words[256];
	rd_kafka_t *rk;

	rd_kafka_conf_set_log_cb(conf, NULL);
	rd_kafka_conf_set(conf, "bootstrap.servers",
		rd_kafka_mock_cluster_bootstraps(cluster->mock), words, sizeof(words));
	rk = rd_kafka_new(RD_KAFKA_CONSUMER, conf, words, sizeof(words));
	assert_non_null(rk);
	memset(cluster->on_topic, 0, sizeof(cluster->on_topic));
	for (int32_t partition = 0; partition < 4; partition++)
		read_partition(cluster, rk, partition);
	rd_kafka_destroy(rk);
}

void cluster_assert_fates(struct cluster *cluster)
{
	nap_ms(100);
	read_topic(cluster);
	for (size_t i = 0; i < cluster->sent_count; i++) {
		if (cluster->sent[i].fate == BUS_CONFIRMED && cluster->on_topic[i] == 0)
			fail_msg("%zu was confirmed and is not there", i);
		if (cluster->sent[i].fate == BUS_NOT_PERSISTED && cluster->on_topic[i] > 0)
			fail_msg("%zu was not persisted and is there", i);
	}
}

size_t cluster_count_fate(const struct cluster *cluster, enum bus_fate fate)
{
	size_t count = 0;

	for (size_t i = 0; i < cluster->sent_count; i++)
		count += cluster->sent[i].fate == fate;
	return count;
}
