/*
 * RabbitMQ that goes away, freezes, takes no messages, or loses what was declared. A real broker,
 * see rabbitmq_server.h. What is special to single messages is in rabbitmq_message_faults.c.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "rabbitmq_bench.h"
#include "rabbitmq_server.h"

#define MEGABYTE (1024u * 1024)

/* ---- a broker that goes away ------------------------------------------------------------- */

static void assert_refused_at_once(struct bench *bench)
{
	struct bus_message *messages = bench_make(bench, 10);
	int64_t began_ns = clock_steady_ns(&clock_system);

	messages[0].fate = BUS_CONFIRMED;
	assert_int_equal(bench_publish(bench, messages, 10, 15000), STATUS_BUS_UNAVAILABLE);
	assert_true(ms_since(began_ns) < 100);
	for (size_t i = 0; i < 10; i++)
		assert_int_equal(messages[i].fate, BUS_NOT_PERSISTED);
}

static void a_bus_without_a_broker_refuses_at_once_and_comes_back(void **state)
{
	static const char *const ends[] = {"stop", "kill"};
	struct bench *bench = *state;

	bench_consumer(bench);
	bench_publish_all(bench, 10, BUS_CONFIRMED);
	for (size_t i = 0; i < 2; i++) {
		int64_t began_ns;

		rabbitmq_server_tell("%s", ends[i]);
		bench_wait(bench, false);
		assert_refused_at_once(bench);
		rabbitmq_server_tell("start");
		began_ns = clock_steady_ns(&clock_system);
		bench_wait(bench, true);
		bench_publish_all(bench, 10, BUS_CONFIRMED);
		print_message("after %s: published again within %d ms of the start\n", ends[i],
			(int)ms_since(began_ns));
	}
	bench_assert_fates(bench);
}

static void a_bus_may_start_before_its_broker(void **state)
{
	struct bench *bench = *state;
	struct bus_delivery delivery;

	bench_close(bench);
	rabbitmq_server_tell("stop");
	bench_open(bench, rabbitmq_server_url());
	nap_ms(300);
	assert_false(bench_is_up(bench));
	assert_refused_at_once(bench);
	assert_int_equal(bench_fetch(bench, &delivery, 1, 200), 0);
	bench->consumer->ops->wake(bench->consumer);
	assert_int_equal(bench_fetch(bench, &delivery, 1, PATIENCE_MS), 0);
	rabbitmq_server_tell("start");
	bench_wait(bench, true);
	bench_publish_all(bench, 1, BUS_CONFIRMED);
	assert_int_equal(bench_fetch(bench, &delivery, 1, PATIENCE_MS), 1);
	bench_assert_fates(bench);
}

struct load {
	struct bench *bench;
	_Atomic bool stop;
};

static void *publish_on_and_on(void *context)
{
	struct load *load = context;

	while (!atomic_load(&load->stop) && load->bench->sent_count < MESSAGES_MAX / 2) {
		struct bus_message *messages = bench_make(load->bench, 20);
		enum status status = bench_publish(load->bench, messages, 20, 400);

		nap_ms(status == STATUS_OK ? 5 : 200);
	}
	return NULL;
}

static void a_broker_that_comes_and_goes_under_load(void **state)
{
	static const char *const faults[] = {"kill", "drop", "freeze", "kill"};
	struct bench *bench = *state;
	struct load load = {.bench = bench};
	pthread_t thread;

	bench_consumer(bench);
	pthread_create(&thread, NULL, publish_on_and_on, &load);
	for (size_t i = 0; i < 4; i++) {
		nap_ms(300);
		rabbitmq_server_tell("%s", faults[i]);
		nap_ms(700);
		if (strcmp(faults[i], "freeze") == 0)
			rabbitmq_server_tell("thaw");
		else if (strcmp(faults[i], "kill") == 0)
			rabbitmq_server_tell("start");
	}
	bench_wait(bench, true);
	nap_ms(300);
	atomic_store(&load.stop, true);
	pthread_join(thread, NULL);
	bench_publish_all(bench, 10, BUS_CONFIRMED);
	bench_assert_fates(bench);
	assert_true(bench_count(bench, BUS_CONFIRMED) > 200);
}

/* ---- a broker that is silent ------------------------------------------------------------- */

/* The messages' memory is gone before the broker goes on: nothing late may touch it. */
static void a_frozen_broker_leaves_fates_unknown_at_the_deadline(void **state)
{
	struct bench *bench = *state;

	bench_publish_all(bench, 10, BUS_CONFIRMED);
	for (int round = 0; round < 3; round++) {
		struct bus_message *messages = qp_calloc(100, sizeof(*messages));
		int64_t began_ns;

		memcpy(messages, bench_make(bench, 100), 100 * sizeof(*messages));
		bench->sent_count -= 100;
		rabbitmq_server_tell("freeze");
		began_ns = clock_steady_ns(&clock_system);
		assert_int_equal(bench_publish(bench, messages, 100, 500), STATUS_OK);
		assert_in_range(ms_since(began_ns), 490, 900);
		for (size_t i = 0; i < 100; i++)
			bench->sent[bench->sent_count++].fate = messages[i].fate;
		free(messages);
		rabbitmq_server_tell("thaw");
		bench_wait(bench, true);
		bench_publish_all(bench, 10, BUS_CONFIRMED);
	}
	assert_int_equal(bench_count(bench, BUS_UNKNOWN), 300);
	bench_assert_fates(bench);
}

/* More than the socket holds: the thread is stuck in a write, and has to be cut off. */
static void a_write_that_blocks_ends_at_the_deadline(void **state)
{
	struct bench *bench = *state;
	char *value = qp_calloc(1, MEGABYTE);
	struct bus_message *messages;
	int64_t began_ns;

	bench_publish_all(bench, 1, BUS_CONFIRMED);
	messages = bench_make(bench, 64);
	for (size_t i = 0; i < 64; i++)
		messages[i].value = slice_make(value, MEGABYTE);
	rabbitmq_server_tell("freeze");
	began_ns = clock_steady_ns(&clock_system);
	assert_int_equal(bench_publish(bench, messages, 64, 700), STATUS_OK);
	assert_in_range(ms_since(began_ns), 690, 1200);
	free(value);
	assert_int_equal(messages[0].fate, BUS_UNKNOWN);
	assert_int_equal(messages[63].fate, BUS_NOT_PERSISTED);
	rabbitmq_server_tell("thaw");
	bench_wait(bench, true);
	bench_publish_all(bench, 1, BUS_CONFIRMED);
	bench_assert_fates(bench);
}

static void a_silent_broker_is_noticed_and_nothing_hangs(void **state)
{
	struct bench *bench = *state;
	struct bus_delivery delivery;
	int64_t began_ns;

	bench_publish_all(bench, 1, BUS_CONFIRMED);
	assert_int_equal(bench_fetch(bench, &delivery, 1, PATIENCE_MS), 1);
	rabbitmq_server_tell("freeze");
	began_ns = clock_steady_ns(&clock_system);
	bench_wait(bench, false);
	print_message("a silent broker was noticed after %d ms\n", (int)ms_since(began_ns));
	assert_true(ms_since(began_ns) < 8000);
	assert_refused_at_once(bench);
	began_ns = clock_steady_ns(&clock_system);
	bench_close(bench);
	assert_true(ms_since(began_ns) < 10000);
	rabbitmq_server_tell("thaw");
	bench_open(bench, rabbitmq_server_url());
	bench_wait(bench, true);
	bench_assert_fates(bench);
}

/* Heartbeats of a second, and an application that thinks for five. */
static void a_consumer_may_take_its_time(void **state)
{
	struct bench *bench = *state;
	struct bus_delivery deliveries[10];
	char url[160];

	bench_close(bench);
	snprintf(url, sizeof(url), "%s?heartbeat=1", rabbitmq_server_url());
	bench_open(bench, url);
	bench_wait(bench, true);
	bench_publish_all(bench, 10, BUS_CONFIRMED);
	while (bench_fetch(bench, deliveries, 10, PATIENCE_MS) < 10)
		continue;
	nap_ms(5000);
	bench_ack(bench, 10);
	bench_publish_all(bench, 1, BUS_CONFIRMED); /* its connection has lived too */
	assert_int_equal(bench_fetch(bench, deliveries, 10, PATIENCE_MS), 1);
}

/* ---- a broker that is short of memory ---------------------------------------------------- */

static void refuse_under_alarm(struct bench *bench)
{
	struct bus_message *messages = bench_make(bench, 50);
	int64_t began_ns = clock_steady_ns(&clock_system);

	assert_int_equal(bench_publish(bench, messages, 50, 1000), STATUS_OK);
	assert_true(ms_since(began_ns) < 1500);
	for (size_t i = 0; i < 50; i++)
		assert_int_not_equal(messages[i].fate, BUS_CONFIRMED);
	assert_false(bench_is_up(bench));
	assert_refused_at_once(bench);
}

static void an_alarm_stops_producers_and_not_consumers(void **state)
{
	struct bench *bench = *state;
	struct bus_delivery delivery;
	struct producer *other;

	bench_publish_all(bench, 20, BUS_CONFIRMED);
	if (!rabbitmq_server_try("alarm on"))
		skip();
	refuse_under_alarm(bench);
	for (int i = 0; i < 20; i++) {
		assert_int_equal(bench_fetch(bench, &delivery, 1, PATIENCE_MS), 1);
		bench->came[i]++;
		bench_ack(bench, 1);
	}
	other = bench->bus->ops->open_producer(bench->bus);
	assert_int_equal(other->ops->publish(other, bench_make(bench, 1), 1, in_ms(1000)),
		STATUS_BUS_UNAVAILABLE);
	other->ops->close(other);
	rabbitmq_server_tell("alarm off");
	bench_wait(bench, true);
	bench_publish_all(bench, 20, BUS_CONFIRMED);
	bench_assert_fates(bench);
}

/* A bus that is closed while the broker reads nothing does not wait for it for long. */
static void a_bus_can_be_closed_under_an_alarm(void **state)
{
	struct bench *bench = *state;
	int64_t began_ns;

	if (!rabbitmq_server_try("alarm on"))
		skip();
	refuse_under_alarm(bench);
	began_ns = clock_steady_ns(&clock_system);
	bench_close(bench);
	assert_true(ms_since(began_ns) < 5000);
	rabbitmq_server_tell("alarm off");
}

/* ---- what was declared is gone ----------------------------------------------------------- */

static void a_queue_that_is_deleted_under_its_consumer_comes_back(void **state)
{
	struct bench *bench = *state;
	struct bus_delivery delivery;

	bench_publish_all(bench, 1, BUS_CONFIRMED);
	assert_int_equal(bench_fetch(bench, &delivery, 1, PATIENCE_MS), 1);
	rabbitmq_server_tell("delete-queue %s", bench->groups[ALL].name);
	assert_int_equal(bench_fetch(bench, &delivery, 1, 500), 0); /* it was in the queue */
	bench->sent_count = 0;
	bench_publish_all(bench, 10, BUS_CONFIRMED);
	bench_assert_fates(bench);
}

static void an_ack_of_what_is_gone_fails(void **state)
{
	struct bench *bench = *state;
	struct bus_delivery deliveries[10];
	int64_t began_ns;

	bench_publish_all(bench, 10, BUS_CONFIRMED);
	while (bench_fetch(bench, deliveries, 10, PATIENCE_MS) < 10)
		continue;
	rabbitmq_server_tell("drop");
	nap_ms(200);
	began_ns = clock_steady_ns(&clock_system);
	assert_int_equal(bench->consumer->ops->ack(bench->consumer, 10), STATUS_BUS_UNAVAILABLE);
	assert_true(ms_since(began_ns) < 1000);
	assert_memory_equal(deliveries[9].id.data, "9", 1); /* still to be read */
	bench_assert_fates(bench);                          /* it comes again */
}

/* The other queue of the channel takes the message; for the one that is gone it is lost. */
static void queues_without_a_consumer_are_declared_again(void **state)
{
	struct bench *bench = *state;
	struct bus_message message = {.subject = slice_of("read"), .id = slice_of("x")};
	struct producer *producer = bench->producer;
	int64_t until_ns = in_ms(PATIENCE_MS);

	message.channel = slice_of(bench->names[PICKY]);
	assert_int_equal(producer->ops->publish(producer, &message, 1, in_ms(5000)), STATUS_OK);
	assert_int_equal(message.fate, BUS_CONFIRMED);
	rabbitmq_server_tell("delete-queue %s", bench->groups[PICKS].name);
	assert_int_equal(producer->ops->publish(producer, &message, 1, in_ms(5000)), STATUS_OK);
	assert_int_equal(message.fate, BUS_NOT_PERSISTED);
	while (message.fate != BUS_CONFIRMED) {
		assert_true(clock_steady_ns(&clock_system) < until_ns);
		nap_ms(50);
		assert_int_equal(
			producer->ops->publish(producer, &message, 1, in_ms(5000)), STATUS_OK);
	}
	assert_string_equal(rabbitmq_server_tell("count %s", bench->groups[PICKS].name), "1");
}

static void an_exchange_that_is_deleted_comes_back(void **state)
{
	struct bench *bench = *state;
	int64_t until_ns = in_ms(PATIENCE_MS);
	struct bus_message *message = NULL;

	bench_publish_all(bench, 1, BUS_CONFIRMED);
	rabbitmq_server_tell("delete-exchange %s", bench->names[EVENTS]);
	message = bench_make(bench, 1);
	assert_int_equal(bench_publish(bench, message, 1, 5000), STATUS_OK);
	assert_int_equal(message->fate, BUS_UNKNOWN); /* the broker closes the channel */
	do {
		assert_true(clock_steady_ns(&clock_system) < until_ns);
		nap_ms(50);
		message = bench_make(bench, 1);
	} while (bench_publish(bench, message, 1, 5000) != STATUS_OK ||
		 message->fate != BUS_CONFIRMED);
	bench_assert_fates(bench);
}

/* ---- something else has the name --------------------------------------------------------- */

static size_t count_warnings(struct slice log, const char *name, const char *words)
{
	size_t count = 0;

	while (log.data) {
		struct slice line = slice_cut(&log, '\n');

		count += memmem(line.data, line.len, " warn ", 6) &&
			 memmem(line.data, line.len, name, strlen(name)) &&
			 memmem(line.data, line.len, words, strlen(words));
	}
	return count;
}

static void assert_waits_for(
	const char *make, const char *name, const char *kind, const char *remove, const char *words)
{
	struct bench *bench = bench_new();
	const char *log;
	char full[64];

	snprintf(full, sizeof(full), "%.10s-%s", bench->names[0], name);
	rabbitmq_server_tell("%s %s %s", make, full, kind);
	bench_log_begin();
	bench_open(bench, rabbitmq_server_url());
	nap_ms(3000);
	assert_false(bench_is_up(bench));
	assert_refused_at_once(bench);
	rabbitmq_server_tell("%s %s", remove, full);
	bench_wait(bench, true);
	bench_close(bench);
	log = bench_log_end();
	if (count_warnings(slice_of(log), full, words) != 1) /* and not one at every try */
		fail_msg("%s", log);
	bench_free(bench);
}

static void a_queue_of_another_kind_is_complained_about(void **state)
{
	(void)state;
	assert_waits_for(
		"make-queue", "all", "transient", "delete-queue", "inequivalent arg 'durable'");
}

static void an_exchange_of_another_kind_is_complained_about(void **state)
{
	(void)state;
	assert_waits_for(
		"make-exchange", "events", "fanout", "delete-exchange", "inequivalent arg 'type'");
}

/* ---- speed ------------------------------------------------------------------------------- */

static void publishing_is_fast(void **state)
{
	struct bench *bench = *state;
	int64_t began_ns = clock_steady_ns(&clock_system);

	bench_publish_all(bench, 1, BUS_CONFIRMED);
	print_message("the first message, with its connection: %d ms\n", (int)ms_since(began_ns));
	began_ns = clock_steady_ns(&clock_system);
	for (int i = 0; i < 100; i++)
		bench_publish_all(bench, 1, BUS_CONFIRMED);
	print_message("100 messages one by one: %d ms\n", (int)ms_since(began_ns));
	assert_true(ms_since(began_ns) < PATIENCE_MS); /* none of them waits for its deadline */
	began_ns = clock_steady_ns(&clock_system);
	bench_publish_all(bench, 1000, BUS_CONFIRMED);
	print_message("1000 messages at once: %d ms\n", (int)ms_since(began_ns));
	began_ns = clock_steady_ns(&clock_system);
	for (int i = 0; i < 10; i++)
		bench_publish_all(bench, 1000, BUS_CONFIRMED);
	print_message("10 times 1000 messages: %d ms\n", (int)ms_since(began_ns));
	began_ns = clock_steady_ns(&clock_system);
	bench_assert_fates(bench);
	print_message("and all of them fetched: %d ms, of which 1500 to be sure\n",
		(int)ms_since(began_ns));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		BENCH_TEST(publishing_is_fast),
		BENCH_TEST(a_bus_without_a_broker_refuses_at_once_and_comes_back),
		BENCH_TEST(a_bus_may_start_before_its_broker),
		BENCH_TEST(a_broker_that_comes_and_goes_under_load),
		BENCH_TEST(a_frozen_broker_leaves_fates_unknown_at_the_deadline),
		BENCH_TEST(a_write_that_blocks_ends_at_the_deadline),
		BENCH_TEST(a_silent_broker_is_noticed_and_nothing_hangs),
		BENCH_TEST(a_consumer_may_take_its_time),
		BENCH_TEST(an_alarm_stops_producers_and_not_consumers),
		BENCH_TEST(a_bus_can_be_closed_under_an_alarm),
		BENCH_TEST(a_queue_that_is_deleted_under_its_consumer_comes_back),
		BENCH_TEST(an_ack_of_what_is_gone_fails),
		BENCH_TEST(queues_without_a_consumer_are_declared_again),
		BENCH_TEST(an_exchange_that_is_deleted_comes_back),
		cmocka_unit_test(a_queue_of_another_kind_is_complained_about),
		cmocka_unit_test(an_exchange_of_another_kind_is_complained_about),
	};
	int failed;

	rabbitmq_server_start();
	failed = cmocka_run_group_tests_name("rabbitmq faults", tests, NULL, NULL);
	rabbitmq_server_end();
	return failed;
}
