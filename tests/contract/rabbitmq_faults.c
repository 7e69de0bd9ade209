/*
 * RabbitMQ that goes away, freezes, takes no messages, or loses what was declared. A real broker,
 * see rabbitmq_server.h. What is special to single messages is in rabbitmq_message_faults.c.
 */
#include <stdio.h>
#include <stdlib.h>

#include "captured_log.h"
#include "rabbitmq_fixture.h"
#include "rabbitmq_server.h"
#include "waiting.h"

#define MEGABYTE (1024u * 1024)

/* ---- a broker that goes away ------------------------------------------------------------- */

/* The bus refuses by itself: nobody waits for the deadline. */
static void assert_refused_at_once(struct rabbitmq_fixture *fixture)
{
	struct bus_message *messages = bus_fixture_make(&fixture->base, 10);

	messages[0].fate = BUS_CONFIRMED;
	assert_int_equal(bus_fixture_publish(&fixture->base, messages, 10, NEVER_MS),
		STATUS_BUS_UNAVAILABLE);
	for (size_t i = 0; i < 10; i++)
		assert_int_equal(messages[i].fate, BUS_NOT_PERSISTED);
}

static void assert_waits_for_its_broker(struct rabbitmq_fixture *fixture)
{
	struct consumer *consumer = rabbitmq_fixture_consumer(fixture);
	struct bus_delivery delivery;

	assert_refused_at_once(fixture);
	/* Its connection is another than the one by which the bus has noticed. */
	WAIT_UNTIL(bus_fixture_fetch(consumer, &delivery, 1, 0) == 0);
	bus_fixture_fetch_nothing(consumer, 100);
	consumer->ops->wake(consumer);
	bus_fixture_fetch_nothing(consumer, NEVER_MS);
}

static void assert_works_again(struct rabbitmq_fixture *fixture)
{
	bus_fixture_wait_until(&fixture->base, true);
	bus_fixture_publish_all(&fixture->base, 10, BUS_CONFIRMED);
	rabbitmq_fixture_assert_fates(fixture);
}

/* A broker takes seconds to start, so one end of it serves two buses: one that worked until then,
 * and one that has never seen it. */
static void without_a_broker_buses_refuse_at_once_and_come_up_with_it(void **state)
{
	struct rabbitmq_fixture *fixture = *state;
	struct rabbitmq_fixture *newcomer = rabbitmq_fixture_new();

	rabbitmq_fixture_consumer(fixture);
	bus_fixture_publish_all(&fixture->base, 10, BUS_CONFIRMED);
	rabbitmq_server_tell("stop");
	bus_fixture_wait_until(&fixture->base, false);
	assert_waits_for_its_broker(fixture);
	bus_fixture_log_begin();
	rabbitmq_fixture_open(newcomer, rabbitmq_server_url());
	rabbitmq_fixture_wait_for_failures(2);
	bus_fixture_log_end();
	assert_false(bus_fixture_is_up(&newcomer->base));
	assert_waits_for_its_broker(newcomer);
	rabbitmq_server_tell("start");
	assert_works_again(fixture);
	assert_works_again(newcomer);
	bus_fixture_close(&newcomer->base);
	rabbitmq_fixture_free(newcomer);
}

static void a_broker_that_comes_and_goes_under_load(void **state)
{
	static const char *const faults[] = {"drop", "freeze", "kill"};
	struct rabbitmq_fixture *fixture = *state;
	struct bus_load load = {.fixture = &fixture->base,
		.batch = 20,
		.max = 10000,
		.timeout_ms = 400,
		.pause_ms = 5,
		.refused_pause_ms = 200};

	rabbitmq_fixture_consumer(fixture);
	bus_load_start(&load);
	for (size_t i = 0; i < 3; i++) {
		nap_ms(300);
		rabbitmq_server_tell("%s", faults[i]);
		nap_ms(700);
		if (strcmp(faults[i], "freeze") == 0)
			rabbitmq_server_tell("thaw");
		else if (strcmp(faults[i], "kill") == 0)
			rabbitmq_server_tell("start");
	}
	bus_fixture_wait_until(&fixture->base, true);
	bus_load_stop(&load);
	bus_fixture_publish_all(&fixture->base, 10, BUS_CONFIRMED);
	rabbitmq_fixture_assert_fates(fixture);
}

/* ---- a broker that is silent ------------------------------------------------------------- */

/*
 * Publishes while the broker is frozen. Returns false if the time was too short on this machine:
 * the deadline came before everything was written, or the bus noticed before there was a publish.
 */
static bool publish_to_a_frozen_broker(struct rabbitmq_fixture *fixture,
	struct bus_message *messages, size_t count, int64_t timeout_ms)
{
	int64_t until_ns;
	enum status status;

	rabbitmq_server_tell("freeze");
	until_ns = in_ms(timeout_ms);
	status = bus_fixture_publish(&fixture->base, messages, count, timeout_ms);
	assert_true(status == STATUS_BUS_UNAVAILABLE || clock_steady_ns(&clock_system) >= until_ns);
	return status == STATUS_OK;
}

static void thaw(struct rabbitmq_fixture *fixture)
{
	rabbitmq_server_tell("thaw");
	bus_fixture_wait_until(&fixture->base, true);
	bus_fixture_publish_until_confirmed(&fixture->base, HANG_MS);
}

/* The messages' memory is gone before the broker goes on: nothing late may touch it. */
static bool all_become_unknown(struct rabbitmq_fixture *fixture, int64_t timeout_ms)
{
	struct bus_message *messages = qp_calloc(100, sizeof(*messages));
	bool published;

	memcpy(messages, bus_fixture_make(&fixture->base, 100), 100 * sizeof(*messages));
	fixture->base.sent_count -= 100;
	published = publish_to_a_frozen_broker(fixture, messages, 100, timeout_ms);
	for (size_t i = 0; i < 100; i++) {
		fixture->base.sent[fixture->base.sent_count++].fate = messages[i].fate;
		assert_int_not_equal(messages[i].fate, BUS_CONFIRMED);
		published = published && messages[i].fate == BUS_UNKNOWN;
	}
	free(messages);
	thaw(fixture);
	return published;
}

static void a_frozen_broker_leaves_fates_unknown_at_the_deadline(void **state)
{
	struct rabbitmq_fixture *fixture = *state;

	bus_fixture_publish_all(&fixture->base, 10, BUS_CONFIRMED);
	for (int round = 0; round < 3; round++) {
		int64_t timeout_ms = 300;

		while (!all_become_unknown(fixture, timeout_ms))
			assert_true((timeout_ms *= 2) < HANG_MS);
	}
	rabbitmq_fixture_assert_fates(fixture);
}

/* More than the socket holds: the thread is stuck in a write, and has to be cut off. */
static bool a_write_blocks(struct rabbitmq_fixture *fixture, int64_t timeout_ms)
{
	struct bus_message *messages = bus_fixture_make(&fixture->base, 64);
	char *value = qp_calloc(1, MEGABYTE);
	bool published;

	for (size_t i = 0; i < 64; i++)
		messages[i].value = slice_make(value, MEGABYTE);
	published = publish_to_a_frozen_broker(fixture, messages, 64, timeout_ms);
	free(value);
	assert_int_equal(messages[63].fate, BUS_NOT_PERSISTED);
	thaw(fixture);
	return published && messages[0].fate == BUS_UNKNOWN;
}

static void a_write_that_blocks_ends_at_the_deadline(void **state)
{
	struct rabbitmq_fixture *fixture = *state;
	int64_t timeout_ms = 700;

	bus_fixture_publish_all(&fixture->base, 1, BUS_CONFIRMED);
	while (!a_write_blocks(fixture, timeout_ms))
		assert_true((timeout_ms *= 2) < HANG_MS);
	rabbitmq_fixture_assert_fates(fixture);
}

static void a_silent_broker_is_noticed_and_nothing_hangs(void **state)
{
	struct rabbitmq_fixture *fixture = *state;
	struct bus_delivery delivery;

	bus_fixture_publish_all(&fixture->base, 1, BUS_CONFIRMED);
	bus_fixture_fetch_one(rabbitmq_fixture_consumer(fixture), &delivery);
	rabbitmq_server_tell("freeze");
	bus_fixture_wait_until(&fixture->base, false);
	assert_refused_at_once(fixture);
	bus_fixture_close(&fixture->base); /* it does not wait for an answer */
	rabbitmq_server_tell("thaw");
	rabbitmq_fixture_open(fixture, rabbitmq_server_url());
	bus_fixture_wait_until(&fixture->base, true);
	rabbitmq_fixture_assert_fates(fixture);
}

/* Heartbeats of three seconds, of which a broker misses no more than two: it is far longer until
 * then than a busy machine keeps a thread waiting. */
static void a_consumer_may_take_its_time(void **state)
{
	struct rabbitmq_fixture *fixture = *state;
	struct bus_delivery deliveries[10];
	char url[160];

	bus_fixture_close(&fixture->base);
	snprintf(url, sizeof(url), "%s?heartbeat=3", rabbitmq_server_url());
	rabbitmq_fixture_open(fixture, url);
	bus_fixture_wait_until(&fixture->base, true);
	bus_fixture_publish_all(&fixture->base, 10, BUS_CONFIRMED);
	bus_fixture_fetch_all(rabbitmq_fixture_consumer(fixture), deliveries, 10);
	nap_ms(10000);
	bus_fixture_ack(rabbitmq_fixture_consumer(fixture), 10);
	bus_fixture_publish_all(
		&fixture->base, 1, BUS_CONFIRMED); /* its connection has lived too */
	assert_int_equal(
		bus_fixture_fetch(rabbitmq_fixture_consumer(fixture), deliveries, 10, HANG_MS), 1);
}

/* ---- a broker that is short of memory ---------------------------------------------------- */

/* The broker says so to a connection that publishes, when it gets to it; by then the connection may
 * have been replaced because of the deadline, and the next has to publish too. */
static void refuse_under_alarm(struct rabbitmq_fixture *fixture)
{
	int64_t deadline_ns = hang_deadline_ns();

	do {
		struct bus_message *messages = bus_fixture_make(&fixture->base, 50);
		enum status status = bus_fixture_publish(&fixture->base, messages, 50, 500);

		assert_true(status == STATUS_OK || !bus_fixture_is_up(&fixture->base));
		for (size_t i = 0; i < 50; i++)
			assert_int_not_equal(messages[i].fate, BUS_CONFIRMED);
		wait_on(deadline_ns, "the bus is down because of the alarm");
	} while (bus_fixture_is_up(&fixture->base));
	assert_refused_at_once(fixture);
}

static void an_alarm_stops_producers_and_not_consumers(void **state)
{
	struct rabbitmq_fixture *fixture = *state;
	struct bus_delivery delivery;
	struct producer *other;

	bus_fixture_publish_all(&fixture->base, 20, BUS_CONFIRMED);
	assert_true(rabbitmq_server_try("alarm on"));
	refuse_under_alarm(fixture);
	for (int i = 0; i < 20; i++) {
		bus_fixture_fetch_one(rabbitmq_fixture_consumer(fixture), &delivery);
		fixture->base.seen[i]++;
		bus_fixture_ack(rabbitmq_fixture_consumer(fixture), 1);
	}
	other = fixture->base.bus->ops->open_producer(fixture->base.bus);
	assert_int_equal(
		other->ops->publish(other, bus_fixture_make(&fixture->base, 1), 1, in_ms(NEVER_MS)),
		STATUS_BUS_UNAVAILABLE);
	other->ops->close(other);
	rabbitmq_server_tell("alarm off");
	bus_fixture_wait_until(&fixture->base, true);
	bus_fixture_publish_all(&fixture->base, 20, BUS_CONFIRMED);
	rabbitmq_fixture_assert_fates(fixture);
}

/* A bus that is closed while the broker reads nothing does not wait for it. */
static void a_bus_can_be_closed_under_an_alarm(void **state)
{
	struct rabbitmq_fixture *fixture = *state;

	assert_true(rabbitmq_server_try("alarm on"));
	refuse_under_alarm(fixture);
	bus_fixture_close(&fixture->base); /* returns while the alarm is on */
	rabbitmq_server_tell("alarm off");
}

/* ---- what was declared is gone ----------------------------------------------------------- */

static void a_queue_that_is_deleted_under_its_consumer_comes_back(void **state)
{
	struct rabbitmq_fixture *fixture = *state;
	struct consumer *consumer = rabbitmq_fixture_consumer(fixture);
	struct bus_delivery delivery;

	bus_fixture_publish_all(&fixture->base, 1, BUS_CONFIRMED);
	bus_fixture_fetch_one(consumer, &delivery);
	rabbitmq_server_tell("delete-queue %s", fixture->groups[ALL].name);
	WAIT_UNTIL(bus_fixture_fetch(consumer, &delivery, 1, 0) == 0); /* it was in the queue */
	fixture->base.sent_count = 0;
	bus_fixture_publish_until_confirmed(&fixture->base, HANG_MS);
	bus_fixture_publish_all(&fixture->base, 10, BUS_CONFIRMED);
	rabbitmq_fixture_assert_fates(fixture);
}

/* Closes every connection, and waits until the consumer of a queue has noticed. */
static void drop_connections_and_wait_for(const char *queue)
{
	char loss[96];

	snprintf(loss, sizeof(loss), "%s: RabbitMQ at", queue);
	bus_fixture_log_begin();
	rabbitmq_server_tell("drop");
	WAIT_UNTIL(captured_log_count(loss) > 0);
	bus_fixture_log_end();
}

static void an_ack_of_what_is_gone_fails(void **state)
{
	struct rabbitmq_fixture *fixture = *state;
	struct bus_delivery deliveries[10];

	bus_fixture_publish_all(&fixture->base, 10, BUS_CONFIRMED);
	bus_fixture_fetch_all(rabbitmq_fixture_consumer(fixture), deliveries, 10);
	drop_connections_and_wait_for(fixture->groups[ALL].name);
	assert_int_equal(rabbitmq_fixture_consumer(fixture)->ops->ack(
				 rabbitmq_fixture_consumer(fixture), 10),
		STATUS_BUS_UNAVAILABLE);
	assert_memory_equal(deliveries[9].id.data, "9", 1); /* still to be read */
	rabbitmq_fixture_assert_fates(fixture);             /* it comes again */
}

/* The other queue of the channel takes the message; for the one that is gone it is lost. */
static void queues_without_a_consumer_are_declared_again(void **state)
{
	struct rabbitmq_fixture *fixture = *state;
	struct bus_message message = {.subject = slice_of("read"), .id = slice_of("x")};
	struct producer *producer = fixture->base.producer;
	int64_t deadline_ns = hang_deadline_ns();

	message.channel = slice_of(fixture->names[PICKY]);
	assert_int_equal(producer->ops->publish(producer, &message, 1, in_ms(HANG_MS)), STATUS_OK);
	assert_int_equal(message.fate, BUS_CONFIRMED);
	rabbitmq_server_tell("delete-queue %s", fixture->groups[PICKS].name);
	assert_int_equal(producer->ops->publish(producer, &message, 1, in_ms(HANG_MS)), STATUS_OK);
	assert_int_equal(message.fate, BUS_NOT_PERSISTED);
	while (message.fate != BUS_CONFIRMED) {
		wait_on(deadline_ns, "the queue is declared again");
		assert_int_equal(
			producer->ops->publish(producer, &message, 1, in_ms(HANG_MS)), STATUS_OK);
	}
	assert_string_equal(rabbitmq_server_tell("count %s", fixture->groups[PICKS].name), "1");
}

static enum bus_fate publish_without_the_exchange(struct rabbitmq_fixture *fixture)
{
	struct bus_message *message;

	bus_fixture_publish_until_confirmed(&fixture->base, HANG_MS);
	rabbitmq_server_tell("delete-exchange %s", fixture->names[EVENTS]);
	message = bus_fixture_make(&fixture->base, 1);
	(void)bus_fixture_publish(&fixture->base, message, 1, HANG_MS);
	return message->fate;
}

/* The broker closes the channel of whoever publishes to it; unless the bus, which looks for it
 * every second, has noticed before. */
static void an_exchange_that_is_deleted_comes_back(void **state)
{
	struct rabbitmq_fixture *fixture = *state;

	WAIT_UNTIL(publish_without_the_exchange(fixture) == BUS_UNKNOWN);
	bus_fixture_publish_until_confirmed(&fixture->base, HANG_MS);
	rabbitmq_fixture_assert_fates(fixture);
}

/* ---- something else has the name --------------------------------------------------------- */

static void assert_waits_for(const char *make, const char *name, const char *kind,
	const char *remove, const char *complaint)
{
	struct rabbitmq_fixture *fixture = rabbitmq_fixture_new();
	char full[64];

	snprintf(full, sizeof(full), "%.10s-%s", fixture->names[0], name);
	rabbitmq_server_tell("%s %s %s", make, full, kind);
	bus_fixture_log_begin();
	rabbitmq_fixture_open(fixture, rabbitmq_server_url());
	rabbitmq_fixture_wait_for_failures(5);
	assert_false(bus_fixture_is_up(&fixture->base));
	assert_refused_at_once(fixture);
	rabbitmq_server_tell("%s %s", remove, full);
	bus_fixture_wait_until(&fixture->base, true);
	bus_fixture_close(&fixture->base);
	assert_true(captured_log_count(complaint) >= 5);
	assert_true(captured_log_count(full) >= 5);
	assert_int_equal(captured_log_count(" warn "), 1); /* and not one at every try */
	bus_fixture_log_end();
	rabbitmq_fixture_free(fixture);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		FIXTURE_TEST(without_a_broker_buses_refuse_at_once_and_come_up_with_it),
		FIXTURE_TEST(a_broker_that_comes_and_goes_under_load),
		FIXTURE_TEST(a_frozen_broker_leaves_fates_unknown_at_the_deadline),
		FIXTURE_TEST(a_write_that_blocks_ends_at_the_deadline),
		FIXTURE_TEST(a_silent_broker_is_noticed_and_nothing_hangs),
		FIXTURE_TEST(a_consumer_may_take_its_time),
		FIXTURE_TEST(an_alarm_stops_producers_and_not_consumers),
		FIXTURE_TEST(a_bus_can_be_closed_under_an_alarm),
		FIXTURE_TEST(a_queue_that_is_deleted_under_its_consumer_comes_back),
		FIXTURE_TEST(an_ack_of_what_is_gone_fails),
		FIXTURE_TEST(queues_without_a_consumer_are_declared_again),
		FIXTURE_TEST(an_exchange_that_is_deleted_comes_back),
		cmocka_unit_test(a_queue_of_another_kind_is_complained_about),
		cmocka_unit_test(an_exchange_of_another_kind_is_complained_about),
	};
	int failed;

	rabbitmq_server_start();
	failed = cmocka_run_group_tests_name("rabbitmq faults", tests, NULL, NULL);
	rabbitmq_server_end();
	return failed;
}
