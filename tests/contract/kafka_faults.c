/*
 * Kafka that fails, which only librdkafka's mock cluster can be told to do: brokers that are down,
 * slow, or answer with errors. Most tests end by comparing the fates of their messages with the
 * topic, see kafka_fixture.h.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "captured_log.h"
#include "kafka_fixture.h"
#include "waiting.h"

#define SLOW_MS 1500
#define PRODUCE 0 /* the protocol's numbers of requests */
#define FETCH 1
#define ROUNDS_PER_ERROR 50
#define LARGE_COUNT 24
#define LARGE_SIZE 900000
#define HELD_BYTES_MAX (16 * 1024 * 1024)

/* ---- brokers that are down --------------------------------------------------------------- */

static void a_bus_without_brokers_refuses_at_once_and_comes_back(void **state)
{
	struct cluster *cluster = *state;

	cluster_publish_all(cluster, 10, BUS_CONFIRMED);
	for (int round = 0; round < 3; round++) {
		struct bus_message *messages;

		cluster_set_down(cluster);
		WAIT_UNTIL(!cluster_is_up(cluster));
		messages = cluster_make(cluster, 10);
		messages[0].fate = BUS_CONFIRMED;
		assert_int_equal(
			cluster_publish(cluster, messages, 10, NEVER_MS), STATUS_BUS_UNAVAILABLE);
		for (size_t i = 0; i < 10; i++)
			assert_int_equal(messages[i].fate, BUS_NOT_PERSISTED);
		cluster_set_up(cluster);
		WAIT_UNTIL(cluster_is_up(cluster));
		cluster_publish_all(cluster, 10, BUS_CONFIRMED);
	}
	cluster_assert_fates(cluster);
}

static void a_bus_may_start_before_its_brokers(void **state)
{
	struct cluster *cluster = *state;
	struct consumer *consumer;
	struct bus_delivery delivery;
	size_t count = 7;

	cluster->producer->ops->close(cluster->producer);
	cluster->bus->ops->free(cluster->bus);
	cluster_set_down(cluster);
	cluster_start_bus(cluster);
	nap_ms(300);
	assert_false(cluster_is_up(cluster));
	assert_int_equal(cluster_publish(cluster, cluster_make(cluster, 1), 1, NEVER_MS),
		STATUS_BUS_UNAVAILABLE);
	consumer = cluster_open_consumer(cluster);
	assert_int_equal(
		consumer->ops->fetch(consumer, &delivery, 1, &count, in_ms(200)), STATUS_OK);
	assert_int_equal(count, 0);
	consumer->ops->wake(consumer);
	assert_int_equal(
		consumer->ops->fetch(consumer, &delivery, 1, &count, in_ms(NEVER_MS)), STATUS_OK);
	cluster_set_up(cluster);
	WAIT_UNTIL(cluster_is_up(cluster));
	cluster_publish_all(cluster, 1, BUS_CONFIRMED);
	assert_int_equal(
		consumer->ops->fetch(consumer, &delivery, 1, &count, in_ms(HANG_MS)), STATUS_OK);
	assert_int_equal(count, 1);
	cluster_close_consumer(cluster);
	cluster_assert_fates(cluster);
}

struct load {
	struct cluster *cluster;
	_Atomic bool stop;
};

static void *publish_on_and_on(void *context)
{
	struct load *load = context;

	while (!atomic_load(&load->stop) && load->cluster->sent_count + 100 <= MESSAGES_MAX) {
		struct bus_message *messages = cluster_make(load->cluster, 20);
		enum status status = cluster_publish(load->cluster, messages, 20, 150);

		nap_ms(status == STATUS_OK ? 0 : 20);
	}
	return NULL;
}

static void brokers_that_come_and_go_under_load(void **state)
{
	struct cluster *cluster = *state;
	struct load load = {.cluster = cluster};
	pthread_t thread;

	cluster_publish_all(cluster, 1, BUS_CONFIRMED);
	pthread_create(&thread, NULL, publish_on_and_on, &load);
	for (int i = 0; i < 6; i++) {
		nap_ms(300);
		cluster_set_down(cluster);
		nap_ms(i % 2 ? 300 : 20);
		cluster_set_up(cluster);
		if (i == 3) {
			nap_ms(200);
			cluster_set_slow(cluster, 250);
			nap_ms(500);
			cluster_set_slow(cluster, 0);
		}
	}
	WAIT_UNTIL(cluster_is_up(cluster));
	nap_ms(500);
	atomic_store(&load.stop, true);
	pthread_join(thread, NULL);
	cluster_publish_all(cluster, 10, BUS_CONFIRMED);
	cluster_assert_fates(cluster);
	print_message("%zu confirmed, %zu not persisted, %zu unknown\n",
		cluster_count_fate(cluster, BUS_CONFIRMED),
		cluster_count_fate(cluster, BUS_NOT_PERSISTED),
		cluster_count_fate(cluster, BUS_UNKNOWN));
}

/* The group may have to be joined again, so another member may have the messages before the ack. */
static void acknowledge_something(struct consumer *consumer)
{
	int64_t deadline_ns = hang_deadline_ns();
	struct bus_delivery deliveries[5];
	size_t count = 0;

	while (count == 0 || consumer->ops->ack(consumer, count) != STATUS_OK) {
		assert_true(clock_steady_ns(&clock_system) < deadline_ns);
		assert_int_equal(consumer->ops->fetch(consumer, deliveries, 5, &count, in_ms(1000)),
			STATUS_OK);
	}
}

/* Opens a consumer and lets it acknowledge messages after `break_it` was called. */
static struct consumer *acknowledge_in_vain(
	struct cluster *cluster, void (*break_it)(struct cluster *))
{
	struct consumer *consumer = cluster_open_consumer(cluster);
	struct bus_delivery deliveries[5];
	size_t count = 0;

	cluster_publish_all(cluster, 5, BUS_CONFIRMED);
	assert_int_equal(
		consumer->ops->fetch(consumer, deliveries, 5, &count, in_ms(HANG_MS)), STATUS_OK);
	assert_true(count > 0);
	break_it(cluster);
	assert_int_equal(consumer->ops->ack(consumer, count), STATUS_BUS_UNAVAILABLE);
	return consumer;
}

/* The library may send the ack once the brokers are back; then only new messages come. */
static void an_ack_without_brokers_fails(void **state)
{
	struct cluster *cluster = *state;
	struct consumer *consumer = acknowledge_in_vain(cluster, cluster_set_down);

	cluster_set_up(cluster);
	WAIT_UNTIL(cluster_is_up(cluster));
	cluster_publish_until_confirmed(cluster);
	acknowledge_something(consumer);
}

/* librdkafka would wait for its coordinator as long as that does not answer the commit. */
static void a_consumer_ends_while_its_brokers_do_not_answer(void **state)
{
	struct cluster *cluster = *state;
	int64_t deadline_ns = hang_deadline_ns();

	acknowledge_in_vain(cluster, cluster_set_silent);
	cluster_close_consumer(cluster);
	assert_true(clock_steady_ns(&clock_system) < deadline_ns);
}

/* ---- slow brokers ------------------------------------------------------------------------ */

/* Publishes to a slow broker. Returns false if this machine kept the publish waiting until the
 * answers could come. */
static bool ends_before_the_answers(struct cluster *cluster)
{
	struct bus_message *messages = cluster_make(cluster, 500);
	int64_t answers_ns = in_ms(SLOW_MS);
	size_t unknown = 0;
	size_t confirmed = 0;
	bool is_early;

	cluster_set_slow(cluster, SLOW_MS);
	assert_int_equal(cluster_publish(cluster, messages, 500, 300), STATUS_OK);
	is_early = clock_steady_ns(&clock_system) < answers_ns;
	cluster_set_slow(cluster, 0);
	for (size_t i = 0; i < 500; i++) {
		confirmed += messages[i].fate == BUS_CONFIRMED;
		unknown += messages[i].fate == BUS_UNKNOWN;
	}
	print_message("%zu of 500 unknown, %zu confirmed\n", unknown, confirmed);
	assert_true(confirmed == 0 || !is_early);
	nap_ms(SLOW_MS); /* until they have come */
	return is_early;
}

/* The answers are still on their way when the deadline passes, and come to nobody. */
static void a_slow_broker_leaves_fates_unknown_at_the_deadline(void **state)
{
	struct cluster *cluster = *state;

	cluster_publish_all(cluster, 100, BUS_CONFIRMED);
	for (int round = 0; round < 2; round++) {
		WAIT_UNTIL(ends_before_the_answers(cluster));
		WAIT_UNTIL(cluster_is_up(cluster));
		cluster_publish_all(cluster, 100, BUS_CONFIRMED);
	}
	cluster_assert_fates(cluster);
}

/* Deadlines of a few milliseconds hit every moment in the life of a message. */
static void any_deadline_tells_the_truth(void **state)
{
	struct cluster *cluster = *state;

	cluster_publish_all(cluster, 50, BUS_CONFIRMED);
	cluster_set_slow(cluster, 5);
	for (int i = 0; i < 60; i++) {
		struct bus_message *messages = cluster_make(cluster, 50);

		assert_int_equal(cluster_publish(cluster, messages, 50, i % 30), STATUS_OK);
	}
	cluster_set_slow(cluster, 0);
	cluster_publish_all(cluster, 50, BUS_CONFIRMED);
	cluster_assert_fates(cluster);
	print_message("%zu confirmed, %zu not persisted, %zu unknown\n",
		cluster_count_fate(cluster, BUS_CONFIRMED),
		cluster_count_fate(cluster, BUS_NOT_PERSISTED),
		cluster_count_fate(cluster, BUS_UNKNOWN));
}

/* ---- errors ------------------------------------------------------------------------------ */

struct injection {
	rd_kafka_resp_err_t err;
	enum bus_fate fate;
};

static const struct injection injections[] = {
	{RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE, BUS_NOT_PERSISTED},
	{RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED, BUS_NOT_PERSISTED},
	{RD_KAFKA_RESP_ERR_INVALID_RECORD, BUS_NOT_PERSISTED},
	{RD_KAFKA_RESP_ERR_UNKNOWN, BUS_UNKNOWN}, /* the server does not know either */
	{RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS, BUS_CONFIRMED}, /* tried again, as the next are */
	{RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS_AFTER_APPEND, BUS_CONFIRMED},
	{RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT, BUS_CONFIRMED},
	{RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION, BUS_CONFIRMED},
	{RD_KAFKA_RESP_ERR__TRANSPORT, BUS_CONFIRMED},
	{RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER, BUS_UNKNOWN}, /* fatal: a new client */
};

static void errors_become_the_right_fates(void **state)
{
	struct cluster *cluster = *state;

	cluster_publish_all(cluster, 1, BUS_CONFIRMED);
	for (size_t i = 0; i < sizeof(injections) / sizeof(injections[0]); i++) {
		struct bus_message *message = cluster_make(cluster, 1);

		rd_kafka_mock_push_request_errors(cluster->mock, PRODUCE, 1, injections[i].err);
		assert_int_equal(cluster_publish(cluster, message, 1, HANG_MS), STATUS_OK);
		if (message->fate != injections[i].fate)
			fail_msg("%s became fate %d", rd_kafka_err2name(injections[i].err),
				message->fate);
		rd_kafka_mock_clear_request_errors(cluster->mock, PRODUCE);
		cluster_publish_until_confirmed(cluster);
	}
	cluster_assert_fates(cluster);
}

static void an_error_hits_only_the_messages_of_its_request(void **state)
{
	struct cluster *cluster = *state;
	struct bus_message *messages;

	cluster_publish_all(cluster, 20, BUS_CONFIRMED);
	rd_kafka_mock_push_request_errors(
		cluster->mock, PRODUCE, 1, RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED);
	messages = cluster_make(cluster, 200); /* four partitions: four requests at least */
	assert_int_equal(cluster_publish(cluster, messages, 200, HANG_MS), STATUS_OK);
	assert_true(cluster_count_fate(cluster, BUS_NOT_PERSISTED) > 0);
	assert_true(cluster_count_fate(cluster, BUS_CONFIRMED) > 20);
	cluster_assert_fates(cluster);
}

static void a_message_that_is_too_large_is_refused_alone(void **state)
{
	struct cluster *cluster = *state;
	struct bus_message *messages = cluster_make(cluster, 2);
	size_t size = 3 * 1024 * 1024;
	char *value = qp_calloc(size, 1);

	messages[0].value = slice_make(value, size);
	assert_int_equal(cluster_publish(cluster, messages, 2, HANG_MS), STATUS_OK);
	assert_int_equal(messages[0].fate, BUS_NOT_PERSISTED);
	assert_int_equal(messages[1].fate, BUS_CONFIRMED);
	assert_true(messages[0].is_unfit);
	assert_false(messages[1].is_unfit);
	free(value);
	cluster_assert_fates(cluster);
}

/* ---- messages that are not acknowledged --------------------------------------------------- */

static void publish_large(struct cluster *cluster)
{
	struct bus_message *message = cluster_make(cluster, 1);
	char *value = qp_calloc(LARGE_SIZE, 1);

	message->value = slice_make(value, LARGE_SIZE);
	assert_int_equal(cluster_publish(cluster, message, 1, HANG_MS), STATUS_OK);
	assert_int_equal(message->fate, BUS_CONFIRMED);
	free(value);
}

/* Returns how many messages the consumer holds now. */
static size_t fetch_large(struct consumer *consumer)
{
	struct bus_delivery deliveries[LARGE_COUNT + 1];
	size_t count = 0;

	assert_int_equal(
		consumer->ops->fetch(consumer, deliveries, LARGE_COUNT + 1, &count, in_ms(100)),
		STATUS_OK);
	assert_true(count * LARGE_SIZE < HELD_BYTES_MAX + LARGE_SIZE);
	return count;
}

/* Fetches until the consumer holds `wanted` messages or is full. */
static void hold_large(struct consumer *consumer, size_t wanted)
{
	int64_t deadline_ns = hang_deadline_ns();
	size_t count = 0;

	while (count < wanted && count * LARGE_SIZE < HELD_BYTES_MAX) {
		assert_true(clock_steady_ns(&clock_system) < deadline_ns);
		count = fetch_large(consumer);
	}
}

static void acknowledge_large(struct consumer *consumer, size_t wanted)
{
	int64_t deadline_ns = hang_deadline_ns();

	for (size_t done = 0, count; done < wanted; done += count) {
		assert_true(clock_steady_ns(&clock_system) < deadline_ns);
		count = fetch_large(consumer);
		assert_int_equal(consumer->ops->ack(consumer, count), STATUS_OK);
	}
}

/* The consumer of another group, which acknowledges every message, shows that the messages have
 * arrived. They are published one by one, because the mock cluster keeps 5 MiB per partition. */
static void a_consumer_that_acknowledges_nothing_holds_a_limited_number_of_bytes(void **state)
{
	struct cluster *cluster = *state;
	struct consumer *consumer = cluster_open_consumer(cluster);

	cluster->other = cluster->bus->ops->open_consumer(cluster->bus, "events", "other");
	for (size_t i = 0; i < LARGE_COUNT; i++) {
		publish_large(cluster);
		acknowledge_large(cluster->other, 1);
		hold_large(consumer, i + 1);
	}
	acknowledge_large(consumer, LARGE_COUNT);
	assert_int_equal(fetch_large(consumer), 0);
}

/* ---- logs that get shorter ---------------------------------------------------------------- */

/* The consumer's connection stays. librdkafka goes to the beginning of the log by itself, unless it
 * is just seeking; then it ignores the error. */
static void an_older_message_than_the_last_one_is_a_loss(void **state)
{
	struct cluster *cluster = *state;
	struct consumer *consumer = cluster_open_consumer(cluster);
	struct bus_delivery deliveries[5];
	int64_t deadline_ns = hang_deadline_ns();
	size_t count = 0, rounds = 0;

	cluster_publish_all(cluster, 5, BUS_CONFIRMED);
	acknowledge_something(consumer);
	captured_log_begin();
	log_configure(LOG_WARN, LOG_TEXT);
	while (captured_log_count("has lost the end") == 0) {
		assert_true(clock_steady_ns(&clock_system) < deadline_ns);
		if (rounds++ % ROUNDS_PER_ERROR == 0)
			rd_kafka_mock_push_request_errors(
				cluster->mock, FETCH, 1, RD_KAFKA_RESP_ERR_OFFSET_OUT_OF_RANGE);
		assert_int_equal(consumer->ops->fetch(consumer, deliveries, 5, &count, in_ms(100)),
			STATUS_OK);
		assert_int_equal(consumer->ops->ack(consumer, count), STATUS_OK);
	}
	rd_kafka_mock_clear_request_errors(cluster->mock, FETCH);
	captured_log_end();
	log_configure(LOG_ERROR, LOG_TEXT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		FAULT_TEST(a_bus_without_brokers_refuses_at_once_and_comes_back),
		FAULT_TEST(a_bus_may_start_before_its_brokers),
		FAULT_TEST(brokers_that_come_and_go_under_load),
		FAULT_TEST(an_ack_without_brokers_fails),
		FAULT_TEST(a_slow_broker_leaves_fates_unknown_at_the_deadline),
		FAULT_TEST(any_deadline_tells_the_truth),
		FAULT_TEST(errors_become_the_right_fates),
		FAULT_TEST(an_error_hits_only_the_messages_of_its_request),
		FAULT_TEST(a_message_that_is_too_large_is_refused_alone),
		FAULT_TEST(a_consumer_that_acknowledges_nothing_holds_a_limited_number_of_bytes),
		FAULT_TEST(an_older_message_than_the_last_one_is_a_loss),
		/* the last one, because it leaves a client behind that only exit() ends */
		FAULT_TEST(a_consumer_ends_while_its_brokers_do_not_answer),
	};

	return cmocka_run_group_tests_name("kafka faults", tests, NULL, NULL);
}
