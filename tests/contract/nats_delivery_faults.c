/*
 * What is given and given again, and a NATS server that goes while somebody consumes. What the
 * server gives up is in nats_given_up_faults.c, what it loses in nats_loss_faults.c; what
 * publishing sees is in nats_faults.c.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "base/arena.h"
#include "nats_faults.h"
#include "nats_fixture.h"
#include "waiting.h"

#define SKIPPED 77

static void assert_text(struct slice got, const char *text)
{
	assert_int_equal(got.len, strlen(text));
	assert_memory_equal(got.data, text, got.len);
}

/* ---- redelivery -------------------------------------------------------------------------- */

static void what_a_closed_consumer_had_goes_to_others_at_once(void **state)
{
	struct bus_fixture *fixture = *state;
	struct consumer *first;
	struct consumer *second;
	struct bus_delivery deliveries[10];

	nats_fixture_reopen(fixture, "ack-wait=1h");
	first = bus_fixture_consumer(fixture, "g");
	second = bus_fixture_consumer(fixture, "g");
	bus_fixture_publish_all(fixture, 10, BUS_CONFIRMED);
	bus_fixture_fetch_all(first, deliveries, 10);
	bus_fixture_ack(first, 4);
	bus_fixture_fetch_nothing(second, 100);
	bus_fixture_close_consumer(fixture, first);
	bus_fixture_consume(second, 6); /* long before they are too old */
	bus_fixture_fetch_nothing(second, 100);
	bus_fixture_close_consumer(fixture, second);
}

static void what_is_kept_too_long_goes_to_others(void **state)
{
	struct bus_fixture *fixture = *state;
	struct consumer *first;
	struct consumer *second;
	struct bus_delivery delivery;

	nats_fixture_reopen(fixture, "ack-wait=5s"); /* far longer than any step takes here */
	first = bus_fixture_consumer(fixture, "g");
	second = bus_fixture_consumer(fixture, "g");
	bus_fixture_publish_all(fixture, 1, BUS_CONFIRMED);
	bus_fixture_fetch_one(first, &delivery);
	bus_fixture_fetch_one(first, &delivery); /* held */
	bus_fixture_fetch_one(second, &delivery);
	bus_fixture_ack(second, 1);
	/* The first consumer counts from the message's arrival, which is later than the server's
	 * sending. */
	WAIT_UNTIL(bus_fixture_fetch(first, &delivery, 1, 100) == 0);
	bus_fixture_close_consumer(fixture, first);
	bus_fixture_close_consumer(fixture, second);
}

/*
 * Shortens the ack-wait on the server without the bus knowing, so that a message seems to have been
 * in flight for a long time. The server delivers it for ever: if it gave the message up, as the bus
 * expects after two deliveries, it would report that, and the bus would read the message from the
 * stream as well.
 */
static void shorten_ack_wait(struct nats_admin *admin)
{
	jsConsumerInfo *info = NULL;

	assert_int_equal(
		js_GetConsumerInfo(&info, admin->js, "ENTITLEMENTS", "g", NULL, NULL), NATS_OK);
	info->Config->AckWait = 100 * NS_PER_MS;
	info->Config->MaxDeliver = -1;
	assert_int_equal(
		js_AddConsumer(NULL, admin->js, "ENTITLEMENTS", info->Config, NULL, NULL), NATS_OK);
	jsConsumerInfo_Destroy(info);
}

static void what_comes_again_while_it_is_held_is_returned_once(void **state)
{
	struct bus_fixture *fixture = *state;
	struct bus_delivery deliveries[10];
	struct consumer *consumer;
	struct nats_admin admin;

	nats_fixture_reopen(fixture, "ack-wait=1h&max-deliver=2");
	consumer = bus_fixture_consumer(fixture, "g");
	bus_fixture_publish_all(fixture, 1, BUS_CONFIRMED);
	bus_fixture_fetch_one(consumer, deliveries);
	assert_false(deliveries[0].is_exhausted);
	nats_admin_open(&admin);
	shorten_ack_wait(&admin);
	do {
		assert_int_equal(bus_fixture_fetch(consumer, deliveries, 10, 100), 1);
	} while (!deliveries[0].is_exhausted); /* until its second copy has come */
	bus_fixture_ack(consumer, 1);
	nats_admin_close(&admin);
	bus_fixture_close_consumer(fixture, consumer);
}

static void what_is_given_back_waits_longer_each_time_and_the_last_is_marked(void **state)
{
	struct bus_fixture *fixture = *state;
	struct consumer *consumer;
	struct bus_delivery delivery;

	nats_fixture_reopen(fixture, "max-deliver=3&ack-wait=1h");
	consumer = bus_fixture_consumer(fixture, "g");
	bus_fixture_publish_all(fixture, 1, BUS_CONFIRMED);
	bus_fixture_fetch_one(consumer, &delivery);
	for (int64_t delay_ms = 1000; delay_ms <= 2000; delay_ms *= 2) {
		int64_t began_ms = steady_ms();

		assert_false(delivery.is_exhausted);
		consumer->ops->again(consumer);
		bus_fixture_fetch_one(consumer, &delivery);
		assert_true(steady_ms() - began_ms >= delay_ms - 50);
	}
	assert_true(delivery.is_exhausted);
	consumer_poison(consumer, 0, "given too often");
	bus_fixture_ack(consumer, 1);
	consumer->ops->again(consumer); /* nothing is left to give back */
	bus_fixture_fetch_nothing(consumer, 300);
	bus_fixture_close_consumer(fixture, consumer);
}

/* The messages that the server keeps for "g": those not yet given, and those not acknowledged. */
static uint64_t kept_for_g(struct nats_admin *admin)
{
	jsConsumerInfo *info = NULL;
	uint64_t kept;

	assert_int_equal(
		js_GetConsumerInfo(&info, admin->js, "ENTITLEMENTS", "g", NULL, NULL), NATS_OK);
	kept = info->NumPending + (uint64_t)info->NumAckPending;
	jsConsumerInfo_Destroy(info);
	return kept;
}

static void poison_is_not_given_again(void **state)
{
	struct bus_fixture *fixture = *state;
	struct consumer *consumer = bus_fixture_consumer(fixture, "g");
	struct bus_delivery deliveries[3];
	struct nats_admin admin;

	bus_fixture_publish_all(fixture, 3, BUS_CONFIRMED);
	bus_fixture_fetch_all(consumer, deliveries, 3);
	consumer_poison(consumer, 1, "a test says so");
	bus_fixture_ack(consumer, 2);
	assert_int_equal(bus_fixture_fetch(consumer, deliveries, 3, HANG_MS), 1);
	assert_text(deliveries[0].value, "2");
	nats_admin_open(&admin);
	WAIT_UNTIL(kept_for_g(&admin) == 1);
	bus_fixture_ack(consumer, 1);
	WAIT_UNTIL(kept_for_g(&admin) == 0);
	nats_admin_close(&admin);
	bus_fixture_close_consumer(fixture, consumer);
}

/* ---- a server that goes ------------------------------------------------------------------ */

static void end_server(bool crash)
{
	if (crash)
		nats_server_kill();
	else
		nats_server_stop();
}

static void an_ack_without_a_server_fails(void **state)
{
	struct bus_fixture *fixture = *state;
	struct consumer *consumer = bus_fixture_consumer(fixture, "g");
	struct bus_delivery deliveries[5];

	for (int crash = 0; crash < 2; crash++) {
		bus_fixture_publish_all(fixture, 5, BUS_CONFIRMED);
		bus_fixture_fetch_all(consumer, deliveries, 5);
		end_server(crash);
		assert_int_equal(consumer->ops->ack(consumer, 5), STATUS_BUS_UNAVAILABLE);
		bus_fixture_wait_until(fixture, false); /* before it can be up again */
		nats_server_start();
		bus_fixture_wait_until(fixture, true);
		bus_fixture_ack(consumer, 5); /* the server knows them by their subjects */
		if (!crash) /* a server that crashes may forget what it has given to whom */
			bus_fixture_fetch_nothing(consumer, 300);
	}
	bus_fixture_close_consumer(fixture, consumer);
}

static void an_ack_to_a_server_that_hangs_fails(void **state)
{
	struct bus_fixture *fixture = *state;
	struct consumer *consumer = bus_fixture_consumer(fixture, "g");
	struct bus_delivery delivery;

	bus_fixture_publish_all(fixture, 1, BUS_CONFIRMED);
	bus_fixture_fetch_one(consumer, &delivery);
	nats_server_freeze();
	assert_int_equal(consumer->ops->ack(consumer, 1), STATUS_BUS_UNAVAILABLE);
	nats_server_thaw();
	bus_fixture_wait_until(fixture, true);
	bus_fixture_ack(consumer, 1);
	bus_fixture_fetch_nothing(consumer, 300);
	bus_fixture_close_consumer(fixture, consumer);
}

static void a_consumer_may_be_closed_while_its_server_hangs(void **state)
{
	struct bus_fixture *fixture = *state;
	struct consumer *consumer = bus_fixture_consumer(fixture, "g");
	struct bus_delivery delivery;

	bus_fixture_publish_all(fixture, 2, BUS_CONFIRMED);
	bus_fixture_fetch_one(consumer, &delivery);
	nats_server_freeze();
	assert_int_equal(bus_fixture_fetch(consumer, &delivery, 1, 100), 1); /* held */
	bus_fixture_close_consumer(fixture, consumer); /* returns though nobody answers */
	nats_server_thaw();
	bus_fixture_wait_until(fixture, true);
	consumer = bus_fixture_consumer(fixture, "g");
	bus_fixture_consume(consumer, 2);
	bus_fixture_close_consumer(fixture, consumer);
}

static void a_consumer_may_be_opened_before_its_server(void **state)
{
	struct bus_fixture *fixture = *state;
	struct consumer *consumer;
	struct bus_delivery delivery;

	bus_fixture_close(fixture);
	nats_server_stop();
	nats_fixture_open(fixture, NULL);
	consumer = bus_fixture_consumer(fixture, "g");
	bus_fixture_fetch_nothing(consumer, 200);
	nats_server_start();
	bus_fixture_wait_until(fixture, true);
	bus_fixture_publish_all(fixture, 1, BUS_CONFIRMED);
	bus_fixture_fetch_one(consumer, &delivery);
	bus_fixture_ack(consumer, 1);
	nats_server_kill();
	bus_fixture_close_consumer(fixture, consumer);
}

static void a_durable_that_is_gone_is_made_anew(void **state)
{
	struct bus_fixture *fixture = *state;
	struct consumer *consumer = bus_fixture_consumer(fixture, "g");
	struct nats_admin admin;

	bus_fixture_publish_all(fixture, 3, BUS_CONFIRMED);
	bus_fixture_consume(consumer, 3);
	nats_admin_open(&admin);
	assert_int_equal(js_DeleteConsumer(admin.js, "ENTITLEMENTS", "g", NULL, NULL), NATS_OK);
	bus_fixture_consume(consumer, 3); /* all of them, again */
	assert_int_equal(js_DeleteStream(admin.js, "ENTITLEMENTS", NULL, NULL), NATS_OK);
	(void)bus_fixture_publish_until_confirmed(fixture, 5000);
	bus_fixture_consume(consumer, 1);
	nats_admin_close(&admin);

	nats_server_kill();
	bus_fixture_wait_until(fixture, false); /* before it can be up again */
	nats_server_wipe();
	nats_server_start();
	bus_fixture_wait_until(fixture, true);
	bus_fixture_publish_all(fixture, 3, BUS_CONFIRMED);
	bus_fixture_consume(consumer, 3);
	bus_fixture_close_consumer(fixture, consumer);
}

/* A delivery of a durable that is gone can be acknowledged: there is nothing to wait for. */
static void an_ack_for_a_durable_that_is_gone_is_no_failure(void **state)
{
	struct bus_fixture *fixture = *state;
	struct consumer *consumer = bus_fixture_consumer(fixture, "g");
	struct bus_delivery delivery;
	struct nats_admin admin;

	bus_fixture_publish_all(fixture, 1, BUS_CONFIRMED);
	bus_fixture_fetch_one(consumer, &delivery);
	nats_admin_open(&admin);
	assert_int_equal(js_DeleteConsumer(admin.js, "ENTITLEMENTS", "g", NULL, NULL), NATS_OK);
	nats_admin_close(&admin);
	bus_fixture_ack(consumer, 1);
	bus_fixture_consume(consumer, 1);
	bus_fixture_close_consumer(fixture, consumer);
}

/* Every message comes, however often the server goes; consuming and publishing at once. */
struct eater {
	struct consumer *consumer;
	_Atomic bool stop;
	_Atomic unsigned char *came;
};

static void *eat(void *context)
{
	struct eater *eater = context;
	struct consumer *consumer = eater->consumer;
	struct bus_delivery deliveries[50];

	while (!atomic_load(&eater->stop)) {
		size_t count = 0;

		if (consumer->ops->fetch(consumer, deliveries, 50, &count, in_ms(100)) != STATUS_OK)
			break;
		for (size_t i = 0; i < count; i++)
			atomic_store(&eater->came[deliveries[i].handle], 1);
		if (consumer->ops->ack(consumer, count) != STATUS_OK)
			consumer->ops->again(consumer);
	}
	return NULL;
}

static uint64_t last_sequence(void)
{
	struct nats_admin admin;
	jsStreamInfo *info = NULL;
	uint64_t last;

	nats_admin_open(&admin);
	assert_int_equal(js_GetStreamInfo(&info, admin.js, "ENTITLEMENTS", NULL, NULL), NATS_OK);
	last = info->State.LastSeq;
	jsStreamInfo_Destroy(info);
	nats_admin_close(&admin);
	return last;
}

static void publish_while_it_goes(struct bus_fixture *fixture, int round)
{
	for (int i = 0; i < 20; i++) {
		(void)bus_fixture_publish(fixture, bus_fixture_make(fixture, 20), 20, 200);
		if (i == 5 && round % 3 != 2)
			end_server(round % 3);
		if (i == 5 && round % 3 == 2)
			nats_server_freeze();
		if (i == 10 && round % 3 != 2)
			nats_server_start();
		if (i == 10 && round % 3 == 2)
			nats_server_thaw();
		nap_ms(10);
	}
	bus_fixture_wait_until(fixture, true);
}

static size_t count_missing(_Atomic unsigned char *came, uint64_t last)
{
	size_t missing = 0;

	for (uint64_t i = 1; i <= last; i++)
		missing += !atomic_load(&came[i]);
	return missing;
}

static void nothing_is_lost_when_the_server_comes_and_goes(void **state)
{
	static _Atomic unsigned char came[MESSAGES_MAX + 1];
	struct bus_fixture *fixture = *state;
	struct eater eaters[2] = {{.came = came}, {.came = came}};
	pthread_t threads[2];
	uint64_t last;

	nats_fixture_reopen(fixture, "ack-wait=1s");
	for (int i = 0; i < 2; i++) {
		eaters[i].consumer = bus_fixture_consumer(fixture, "g");
		pthread_create(&threads[i], NULL, eat, &eaters[i]);
	}
	for (int i = 0; i < 6; i++)
		publish_while_it_goes(fixture, i);
	last = last_sequence();
	assert_true(last > 0);
	WAIT_UNTIL(count_missing(came, last) == 0);
	for (int i = 0; i < 2; i++) {
		atomic_store(&eaters[i].stop, true);
		pthread_join(threads[i], NULL);
		bus_fixture_close_consumer(fixture, eaters[i].consumer);
	}
	nats_fixture_assert_fates(fixture);
}

/* ---- waiting ----------------------------------------------------------------------------- */

struct alarm {
	struct bus_fixture *fixture;
	struct consumer *consumer; /* NULL: publishes instead */
};

static void *ring(void *context)
{
	struct alarm *alarm = context;

	nap_ms(20); /* most often the fetch waits by then */
	if (alarm->consumer)
		alarm->consumer->ops->wake(alarm->consumer);
	else
		bus_fixture_publish_all(alarm->fixture, 1, BUS_CONFIRMED);
	return NULL;
}

/* Nothing but the alarm ends the fetch. */
static void fetch_until_it_rings(struct alarm *alarm, struct consumer *consumer, size_t wanted)
{
	struct bus_delivery delivery;

	for (int i = 0; i < 10; i++) {
		pthread_t thread;

		pthread_create(&thread, NULL, ring, alarm);
		assert_int_equal(bus_fixture_fetch(consumer, &delivery, 1, NEVER_MS), wanted);
		pthread_join(thread, NULL);
		bus_fixture_ack(consumer, wanted);
	}
}

static void a_fetch_wakes_whatever_its_server_does(void **state)
{
	struct bus_fixture *fixture = *state;
	struct consumer *consumer = bus_fixture_consumer(fixture, "g");
	struct alarm publish = {.fixture = fixture};
	struct alarm wake = {.consumer = consumer};

	fetch_until_it_rings(&publish, consumer, 1);
	fetch_until_it_rings(&wake, consumer, 0);
	nats_server_freeze();
	fetch_until_it_rings(&wake, consumer, 0);
	nats_server_kill();
	fetch_until_it_rings(&wake, consumer, 0);
	bus_fixture_close_consumer(fixture, consumer);
}

static int64_t cpu_ms(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000 +
	       (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1000;
}

/* A consumer that waits sleeps: of its time it uses a small part. A busy machine makes the time
 * longer and not the part larger. */
static void waiting_costs_nothing(void **state)
{
	struct bus_fixture *fixture = *state;
	struct consumer *consumer = bus_fixture_consumer(fixture, "g");
	int64_t before_ms, began_ms;

	bus_fixture_fetch_nothing(consumer, 100);
	before_ms = cpu_ms();
	began_ms = steady_ms();
	bus_fixture_fetch_nothing(consumer, 1500);
	assert_true(cpu_ms() - before_ms < (steady_ms() - began_ms) / 10);
	bus_fixture_close_consumer(fixture, consumer);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		NATS_TEST(what_a_closed_consumer_had_goes_to_others_at_once),
		NATS_TEST(what_is_kept_too_long_goes_to_others),
		NATS_TEST(what_comes_again_while_it_is_held_is_returned_once),
		NATS_TEST(what_is_given_back_waits_longer_each_time_and_the_last_is_marked),
		NATS_TEST(poison_is_not_given_again),
		NATS_TEST(an_ack_without_a_server_fails),
		NATS_TEST(an_ack_to_a_server_that_hangs_fails),
		NATS_TEST(a_consumer_may_be_closed_while_its_server_hangs),
		NATS_TEST(a_consumer_may_be_opened_before_its_server),
		NATS_TEST(a_durable_that_is_gone_is_made_anew),
		NATS_TEST(an_ack_for_a_durable_that_is_gone_is_no_failure),
		NATS_TEST(nothing_is_lost_when_the_server_comes_and_goes),
		NATS_TEST(a_fetch_wakes_whatever_its_server_does),
		NATS_TEST(waiting_costs_nothing),
	};

	if (!nats_server_exists()) {
		fprintf(stderr, "skipped: NATS is not installed (no nats-server)\n");
		return SKIPPED;
	}
	return cmocka_run_group_tests_name("nats delivery faults", tests, NULL, NULL) +
	       nats_given_up_tests() + nats_loss_tests();
}
