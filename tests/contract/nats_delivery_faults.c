/*
 * What is given, given again, given up and not understood, and a NATS server that goes while
 * somebody consumes. What publishing sees is in nats_faults.c.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "base/arena.h"
#include "nats_fixture.h"

#define SKIPPED 77

/* What comes without waiting; on a busy machine. */
#define SOON_MS 3000
#define AT_ONCE_NS                                                                                 \
	(1500 * NS_PER_MS) /* on a machine that may stop for a while; else it is SOON_MS */

static void assert_text(struct slice got, const char *text)
{
	assert_int_equal(got.len, strlen(text));
	assert_memory_equal(got.data, text, got.len);
}

static void fetch_nothing(struct consumer *consumer, int64_t during_ms)
{
	struct bus_delivery delivery;

	assert_int_equal(nats_fixture_fetch(consumer, &delivery, 1, during_ms), 0);
}

/* A fetch that waits may be given the first alone; what is not acknowledged comes with the rest. */
static void fetch_all(struct consumer *consumer, struct bus_delivery *deliveries, size_t wanted)
{
	int64_t until_ms = nats_fixture_now_ms() + SOON_MS;

	while (nats_fixture_fetch(consumer, deliveries, wanted, SOON_MS) < wanted)
		assert_true(nats_fixture_now_ms() < until_ms);
}

/* Fetches and acknowledges until so many have come. */
static void consume(struct consumer *consumer, size_t wanted)
{
	struct bus_delivery deliveries[100];
	int64_t until_ms = nats_fixture_now_ms() + 30000;

	while (wanted > 0) {
		size_t max = wanted < 100 ? wanted : 100;
		size_t count = nats_fixture_fetch(consumer, deliveries, max, 1000);

		assert_true(nats_fixture_now_ms() < until_ms);
		nats_fixture_ack(consumer, count);
		wanted -= count;
	}
}

/* ---- redelivery -------------------------------------------------------------------------- */

static void what_a_closed_consumer_had_goes_to_others_at_once(void **state)
{
	struct nats_fixture *fixture = *state;
	struct consumer *first = nats_fixture_consumer(fixture, "g");
	struct consumer *second = nats_fixture_consumer(fixture, "g");
	struct bus_delivery deliveries[10];
	int64_t began_ms;

	nats_fixture_publish_all(fixture, 10, BUS_CONFIRMED);
	fetch_all(first, deliveries, 10);
	nats_fixture_ack(first, 4);
	fetch_nothing(second, 200);
	began_ms = nats_fixture_now_ms();
	nats_fixture_close_consumer(fixture, first);
	consume(second, 6);
	assert_true(nats_fixture_now_ms() - began_ms < SOON_MS);
	fetch_nothing(second, 200);
	nats_fixture_close_consumer(fixture, second);
}

static void what_is_kept_too_long_goes_to_others(void **state)
{
	struct nats_fixture *fixture = *state;
	struct consumer *first;
	struct consumer *second;
	struct bus_delivery delivery;

	nats_fixture_reopen(fixture, "ack-wait=3s");
	first = nats_fixture_consumer(fixture, "g");
	second = nats_fixture_consumer(fixture, "g");
	nats_fixture_publish_all(fixture, 1, BUS_CONFIRMED);
	assert_int_equal(nats_fixture_fetch(first, &delivery, 1, SOON_MS), 1);
	assert_int_equal(nats_fixture_fetch(first, &delivery, 1, SOON_MS), 1); /* held */
	fetch_nothing(second, 300);
	assert_int_equal(nats_fixture_fetch(second, &delivery, 1, 2 * SOON_MS), 1);
	fetch_nothing(first, 200); /* no longer */
	nats_fixture_ack(second, 1);
	fetch_nothing(first, 3500);
	nats_fixture_close_consumer(fixture, first);
	nats_fixture_close_consumer(fixture, second);
}

static void what_is_given_back_waits_longer_each_time(void **state)
{
	struct nats_fixture *fixture = *state;
	struct consumer *consumer = nats_fixture_consumer(fixture, "g");
	struct bus_delivery deliveries[5];

	nats_fixture_publish_all(fixture, 1, BUS_CONFIRMED);
	assert_int_equal(nats_fixture_fetch(consumer, deliveries, 5, SOON_MS), 1);
	for (int64_t delay_ms = 1000; delay_ms <= 4000; delay_ms *= 2) {
		int64_t began_ms = nats_fixture_now_ms();

		consumer->ops->again(consumer);
		assert_int_equal(
			nats_fixture_fetch(consumer, deliveries, 5, delay_ms + SOON_MS), 1);
		assert_in_range(nats_fixture_now_ms() - began_ms, delay_ms - 50, 2 * delay_ms - 50);
		assert_false(deliveries[0].is_exhausted);
	}
	nats_fixture_ack(consumer, 1);
	consumer->ops->again(consumer); /* nothing is left to give back */
	fetch_nothing(consumer, 1500);
	nats_fixture_close_consumer(fixture, consumer);
}

static void poison_is_not_given_again(void **state)
{
	struct nats_fixture *fixture = *state;
	struct consumer *consumer;
	struct bus_delivery deliveries[3];

	nats_fixture_reopen(fixture, "ack-wait=2s");
	consumer = nats_fixture_consumer(fixture, "g");
	nats_fixture_publish_all(fixture, 3, BUS_CONFIRMED);
	fetch_all(consumer, deliveries, 3);
	consumer_poison(consumer, 1, "a test says so");
	nats_fixture_ack(consumer, 2);
	assert_int_equal(nats_fixture_fetch(consumer, deliveries, 3, SOON_MS), 1);
	assert_text(deliveries[0].value, "2");
	nats_fixture_ack(consumer, 1);
	fetch_nothing(consumer, 2500);
	nats_fixture_close_consumer(fixture, consumer);
}

/* ---- giving up --------------------------------------------------------------------------- */

static struct consumer *open_impatient(struct nats_fixture *fixture)
{
	nats_fixture_reopen(fixture, "max-deliver=3&ack-wait=1s");
	return nats_fixture_consumer(fixture, "g");
}

/* The message at 0, fetched so often, and never acknowledged. */
static void fetch_unacknowledged(struct consumer *consumer, int times)
{
	struct bus_delivery delivery;

	for (int i = 1; i <= times; i++) {
		assert_int_equal(nats_fixture_fetch(consumer, &delivery, 1, SOON_MS), 1);
		assert_int_equal(delivery.is_exhausted, i == 3);
		nats_fixture_nap_ms(1100);
	}
}

static void the_last_time_is_marked(void **state)
{
	struct nats_fixture *fixture = *state;
	struct consumer *consumer = open_impatient(fixture);
	struct bus_delivery delivery;

	nats_fixture_publish_all(fixture, 1, BUS_CONFIRMED);
	fetch_unacknowledged(consumer, 2);
	assert_int_equal(nats_fixture_fetch(consumer, &delivery, 1, SOON_MS), 1);
	assert_true(delivery.is_exhausted);
	consumer_poison(consumer, 0, "given too often");
	nats_fixture_ack(consumer, 1);
	fetch_nothing(consumer, 1500);
	nats_fixture_close_consumer(fixture, consumer);
}

static void publish_with_everything(struct nats_fixture *fixture)
{
	struct bus_message *message = nats_fixture_make(fixture, 1);

	message->subject = slice_of(GRANTED);
	message->key = slice_of("u-1:sku");
	message->value = slice_make("pay\0load", 8);
	message->headers[0] = (struct bus_header){slice_of("trace_id"), slice_of("abc")};
	message->headers[1] = (struct bus_header){slice_of("empty"), slice_of("")};
	message->header_count = 2;
	assert_int_equal(nats_fixture_publish(fixture, message, 1, 5000), STATUS_OK);
	assert_int_equal(message->fate, BUS_CONFIRMED);
}

static void assert_everything(const struct bus_delivery *delivery)
{
	assert_true(delivery->is_exhausted);
	assert_text(delivery->id, "0");
	assert_text(delivery->subject, GRANTED);
	assert_text(delivery->key, "u-1:sku");
	assert_text(delivery->position, "ENTITLEMENTS/1");
	assert_int_equal(delivery->value.len, 8);
	assert_memory_equal(delivery->value.data, "pay\0load", 8);
	assert_int_equal(delivery->header_count, 2);
}

/* The server reports it, and it is read from the stream. */
static void what_was_given_up_comes_once_more(void **state)
{
	struct nats_fixture *fixture = *state;
	struct consumer *consumer = open_impatient(fixture);
	struct bus_delivery deliveries[2];
	int64_t began_ms;

	publish_with_everything(fixture);
	fetch_unacknowledged(consumer, 3);
	assert_int_equal(nats_fixture_fetch(consumer, deliveries, 2, 2 * SOON_MS), 1);
	assert_everything(&deliveries[0]);
	assert_int_equal(nats_fixture_fetch(consumer, deliveries, 2, SOON_MS), 1); /* held */
	consumer->ops->again(consumer);
	began_ms = nats_fixture_now_ms();
	assert_int_equal(nats_fixture_fetch(consumer, deliveries, 2, 2 * SOON_MS), 1);
	assert_true(nats_fixture_now_ms() - began_ms > 900);
	assert_everything(&deliveries[0]);
	nats_fixture_ack(consumer, 1);
	fetch_nothing(consumer, 2500);
	nats_fixture_close_consumer(fixture, consumer);
}

static void one_member_gets_what_was_given_up(void **state)
{
	struct nats_fixture *fixture = *state;
	struct consumer *first = open_impatient(fixture);
	struct consumer *second = nats_fixture_consumer(fixture, "g");
	struct bus_delivery delivery;
	size_t came = 0;

	nats_fixture_publish_all(fixture, 1, BUS_CONFIRMED);
	fetch_unacknowledged(first, 3);
	for (int i = 0; i < 6; i++) {
		struct consumer *consumer = i % 2 ? second : first;
		size_t count = nats_fixture_fetch(consumer, &delivery, 1, 500);

		assert_true(count == 0 || delivery.is_exhausted);
		nats_fixture_ack(consumer, count);
		came += count;
	}
	assert_int_equal(came, 1);
	nats_fixture_close_consumer(fixture, first);
	nats_fixture_close_consumer(fixture, second);
}

/* ---- what others send -------------------------------------------------------------------- */

static const struct {
	const char *headers; /* NULL: none */
	const char *id;
	const char *key;
	size_t header_count;
} foreign[] = {
	{NULL, "", "", 0},
	{"NATS/1.0\r\n\r\n", "", "", 0},
	{"NATS/1.0\r\nevent-id: e-1\r\nkey: k\r\na: b\r\n\r\n", "e-1", "k", 1},
	{"NATS/1.0\r\nNats-Msg-Id: n-1\r\nevent-id: e-1\r\n\r\n", "n-1", "", 1},
	{"NATS/1.0\r\nname*: UTF-8''%00%zz%4\r\nother*: x\r\n\r\n", "", "", 2},
	{"NATS/1.0\r\n1:a\r\n2:a\r\n3:a\r\n4:a\r\n5:a\r\n6:a\r\n7:a\r\n8:a\r\n9:a\r\nkey:k\r\n"
	 "event-id:e-2\r\n\r\n",
		"e-2", "k", 8},
	{"NATS/1.0\r\nno colon\r\n\r\n", "", "", 0},
	{"NATS/1.0\r\n: no name\r\n\r\n", "", "", 0},
	{"NATS/1.0\r\na: no end", "", "", 0},
	{"NATS/1.0", "", "", 0},
	{"garbage: x\r\n\r\n", "", "", 0},
	{"\xff\xfe\x01", "", "", 0},
	{"NATS/1.0\r\n a: folded\r\n\r\n", "", "", 0},
	{"NATS/1.0 503\r\n\r\n", "", "", 1},
};

#define FOREIGN (sizeof(foreign) / sizeof(foreign[0]))

static void what_others_send_comes_whatever_its_headers(void **state)
{
	struct nats_fixture *fixture = *state;
	struct consumer *consumer = nats_fixture_consumer(fixture, "g");

	for (size_t i = 0; i < FOREIGN; i++) {
		const char *headers = foreign[i].headers;
		struct bus_delivery delivery;

		nats_server_publish(
			EVENTS, headers, headers ? strlen(headers) : 0, "x:y\r\nz: 1\r\n", 11);
		assert_int_equal(nats_fixture_fetch(consumer, &delivery, 1, SOON_MS), 1);
		assert_int_equal(delivery.subject.len, 0); /* it is the channel's name */
		assert_int_equal(delivery.value.len, 11);
		assert_memory_equal(delivery.value.data, "x:y\r\nz: 1\r\n", 11);
		assert_text(delivery.id, foreign[i].id);
		assert_text(delivery.key, foreign[i].key);
		assert_int_equal(delivery.header_count, foreign[i].header_count);
		nats_fixture_ack(consumer, 1);
	}
	nats_fixture_close_consumer(fixture, consumer);
}

/* ---- a server that goes ------------------------------------------------------------------ */

static void end_server(bool crash)
{
	if (crash)
		nats_server_kill();
	else
		nats_server_stop();
}

static void an_ack_without_a_server_fails_in_time(void **state)
{
	struct nats_fixture *fixture = *state;
	struct consumer *consumer = nats_fixture_consumer(fixture, "g");
	struct bus_delivery deliveries[5];

	for (int crash = 0; crash < 2; crash++) {
		int64_t began_ms;

		nats_fixture_publish_all(fixture, 5, BUS_CONFIRMED);
		fetch_all(consumer, deliveries, 5);
		end_server(crash);
		began_ms = nats_fixture_now_ms();
		assert_int_equal(consumer->ops->ack(consumer, 5), STATUS_BUS_UNAVAILABLE);
		assert_true(nats_fixture_now_ms() - began_ms < 2000); /* it would wait for 5 s */
		nats_server_start();
		nats_fixture_wait_until(fixture, true);
		nats_fixture_ack(consumer, 5); /* the server knows them by their subjects */
		if (!crash) /* a server that crashes may forget what it has given to whom */
			fetch_nothing(consumer, 300);
	}
	nats_fixture_close_consumer(fixture, consumer);
}

static void an_ack_to_a_server_that_hangs_fails_in_time(void **state)
{
	struct nats_fixture *fixture = *state;
	struct consumer *consumer = nats_fixture_consumer(fixture, "g");
	struct bus_delivery delivery;
	int64_t began_ms;

	nats_fixture_publish_all(fixture, 1, BUS_CONFIRMED);
	assert_int_equal(nats_fixture_fetch(consumer, &delivery, 1, SOON_MS), 1);
	nats_server_freeze();
	began_ms = nats_fixture_now_ms();
	assert_int_equal(consumer->ops->ack(consumer, 1), STATUS_BUS_UNAVAILABLE);
	assert_true(nats_fixture_now_ms() - began_ms < 7000);
	nats_server_thaw();
	nats_fixture_wait_until(fixture, true);
	nats_fixture_ack(consumer, 1);
	fetch_nothing(consumer, 300);
	nats_fixture_close_consumer(fixture, consumer);
}

static void a_consumer_may_be_closed_while_its_server_hangs(void **state)
{
	struct nats_fixture *fixture = *state;
	struct consumer *consumer = nats_fixture_consumer(fixture, "g");
	struct bus_delivery delivery;
	int64_t began_ms;

	nats_fixture_publish_all(fixture, 2, BUS_CONFIRMED);
	assert_int_equal(nats_fixture_fetch(consumer, &delivery, 1, SOON_MS), 1);
	nats_server_freeze();
	assert_int_equal(nats_fixture_fetch(consumer, &delivery, 1, 100), 1); /* held */
	began_ms = nats_fixture_now_ms();
	nats_fixture_close_consumer(fixture, consumer);
	assert_true(nats_fixture_now_ms() - began_ms < SOON_MS);
	nats_server_thaw();
	nats_fixture_wait_until(fixture, true);
	consumer = nats_fixture_consumer(fixture, "g");
	consume(consumer, 2);
	nats_fixture_close_consumer(fixture, consumer);
}

static void a_consumer_may_be_opened_before_its_server(void **state)
{
	struct nats_fixture *fixture = *state;
	struct consumer *consumer;
	struct bus_delivery delivery;

	nats_fixture_close(fixture);
	nats_server_stop();
	nats_fixture_open(fixture, NULL);
	consumer = nats_fixture_consumer(fixture, "g");
	fetch_nothing(consumer, 200);
	nats_server_start();
	nats_fixture_wait_until(fixture, true);
	nats_fixture_publish_all(fixture, 1, BUS_CONFIRMED);
	assert_int_equal(nats_fixture_fetch(consumer, &delivery, 1, SOON_MS), 1);
	nats_fixture_ack(consumer, 1);
	nats_server_kill();
	nats_fixture_close_consumer(fixture, consumer);
}

static void a_durable_that_is_gone_is_made_anew(void **state)
{
	struct nats_fixture *fixture = *state;
	struct consumer *consumer = nats_fixture_consumer(fixture, "g");
	struct nats_admin admin;

	nats_fixture_publish_all(fixture, 3, BUS_CONFIRMED);
	consume(consumer, 3);
	nats_admin_open(&admin);
	assert_int_equal(js_DeleteConsumer(admin.js, "ENTITLEMENTS", "g", NULL, NULL), NATS_OK);
	consume(consumer, 3); /* all of them, again */
	assert_int_equal(js_DeleteStream(admin.js, "ENTITLEMENTS", NULL, NULL), NATS_OK);
	nats_fixture_publish_until_confirmed(fixture);
	consume(consumer, 1);
	nats_admin_close(&admin);

	nats_server_kill();
	nats_server_wipe();
	nats_server_start();
	nats_fixture_wait_until(fixture, false);
	nats_fixture_wait_until(fixture, true);
	nats_fixture_publish_all(fixture, 3, BUS_CONFIRMED);
	consume(consumer, 3);
	nats_fixture_close_consumer(fixture, consumer);
}

/* A delivery of a durable that is gone can be acknowledged: there is nothing to wait for. */
static void an_ack_for_a_durable_that_is_gone_is_no_failure(void **state)
{
	struct nats_fixture *fixture = *state;
	struct consumer *consumer = nats_fixture_consumer(fixture, "g");
	struct bus_delivery delivery;
	struct nats_admin admin;

	nats_fixture_publish_all(fixture, 1, BUS_CONFIRMED);
	assert_int_equal(nats_fixture_fetch(consumer, &delivery, 1, SOON_MS), 1);
	nats_admin_open(&admin);
	assert_int_equal(js_DeleteConsumer(admin.js, "ENTITLEMENTS", "g", NULL, NULL), NATS_OK);
	nats_admin_close(&admin);
	nats_fixture_ack(consumer, 1);
	consume(consumer, 1);
	nats_fixture_close_consumer(fixture, consumer);
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

		if (consumer->ops->fetch(
			    consumer, deliveries, 50, &count, nats_fixture_in_ms(100)) != STATUS_OK)
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

static void publish_while_it_goes(struct nats_fixture *fixture, int round)
{
	for (int i = 0; i < 20; i++) {
		(void)nats_fixture_publish(fixture, nats_fixture_make(fixture, 20), 20, 200);
		if (i == 5 && round % 3 != 2)
			end_server(round % 3);
		if (i == 5 && round % 3 == 2)
			nats_server_freeze();
		if (i == 10 && round % 3 != 2)
			nats_server_start();
		if (i == 10 && round % 3 == 2)
			nats_server_thaw();
		nats_fixture_nap_ms(10);
	}
	nats_fixture_wait_until(fixture, true);
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
	struct nats_fixture *fixture = *state;
	struct eater eaters[2] = {{.came = came}, {.came = came}};
	pthread_t threads[2];
	int64_t until_ms;
	uint64_t last;

	nats_fixture_reopen(fixture, "ack-wait=2s");
	for (int i = 0; i < 2; i++) {
		eaters[i].consumer = nats_fixture_consumer(fixture, "g");
		pthread_create(&threads[i], NULL, eat, &eaters[i]);
	}
	for (int i = 0; i < 6; i++)
		publish_while_it_goes(fixture, i);
	last = last_sequence();
	assert_true(last > 500);
	until_ms = nats_fixture_now_ms() + 30000;
	while (count_missing(came, last) > 0 && nats_fixture_now_ms() < until_ms)
		nats_fixture_nap_ms(20);
	assert_int_equal(count_missing(came, last), 0);
	for (int i = 0; i < 2; i++) {
		atomic_store(&eaters[i].stop, true);
		pthread_join(threads[i], NULL);
		nats_fixture_close_consumer(fixture, eaters[i].consumer);
	}
	nats_fixture_assert_fates(fixture);
}

/* ---- waiting ----------------------------------------------------------------------------- */

struct alarm {
	struct nats_fixture *fixture;
	struct consumer *consumer; /* NULL: publishes instead */
	_Atomic int64_t rang_ns;
};

static void *ring(void *context)
{
	struct alarm *alarm = context;

	nats_fixture_nap_ms(50);
	atomic_store(&alarm->rang_ns, clock_steady_ns(&clock_system));
	if (alarm->consumer)
		alarm->consumer->ops->wake(alarm->consumer);
	else
		nats_fixture_publish_all(alarm->fixture, 1, BUS_CONFIRMED);
	return NULL;
}

/* From the ring to the end of the fetch. */
static int64_t fetch_until_it_rings(struct alarm *alarm, struct consumer *consumer, size_t wanted)
{
	struct bus_delivery delivery;
	pthread_t thread;
	int64_t ended_ns;

	pthread_create(&thread, NULL, ring, alarm);
	assert_int_equal(nats_fixture_fetch(consumer, &delivery, 1, 20000), wanted);
	ended_ns = clock_steady_ns(&clock_system);
	pthread_join(thread, NULL);
	nats_fixture_ack(consumer, wanted);
	return ended_ns - alarm->rang_ns;
}

static int64_t longest_of(struct nats_fixture *fixture, struct consumer *consumer, bool publishes)
{
	struct alarm alarm = {.fixture = fixture, .consumer = publishes ? NULL : consumer};
	int64_t longest_ns = 0;

	for (int i = 0; i < 20; i++) {
		int64_t took_ns = fetch_until_it_rings(&alarm, consumer, publishes);

		if (took_ns > longest_ns)
			longest_ns = took_ns;
	}
	return longest_ns;
}

static void a_fetch_wakes_at_once(void **state)
{
	struct nats_fixture *fixture = *state;
	struct consumer *consumer = nats_fixture_consumer(fixture, "g");
	int64_t published_ns = longest_of(fixture, consumer, true);
	int64_t woken_ns = longest_of(fixture, consumer, false);

	print_message("longest of 20: %.2f ms from wake, %.2f ms from publish\n",
		(double)woken_ns / NS_PER_MS, (double)published_ns / NS_PER_MS);
	assert_true(woken_ns < AT_ONCE_NS && published_ns < AT_ONCE_NS);
	nats_server_freeze();
	assert_true(longest_of(fixture, consumer, false) < AT_ONCE_NS);
	nats_server_kill();
	assert_true(longest_of(fixture, consumer, false) < AT_ONCE_NS);
	nats_fixture_close_consumer(fixture, consumer);
}

static int64_t cpu_ms(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000 +
	       (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1000;
}

static void waiting_costs_nothing(void **state)
{
	struct nats_fixture *fixture = *state;
	struct consumer *consumer = nats_fixture_consumer(fixture, "g");
	int64_t before_ms;

	fetch_nothing(consumer, 100);
	before_ms = cpu_ms();
	for (int i = 0; i < 3; i++)
		fetch_nothing(consumer, 2000);
	print_message("%lld ms of CPU in 6 s\n", (long long)(cpu_ms() - before_ms));
	assert_true(cpu_ms() - before_ms < 300);
	nats_fixture_close_consumer(fixture, consumer);
}

static void speed_of_consuming(void **state)
{
	struct nats_fixture *fixture = *state;
	struct consumer *consumer = nats_fixture_consumer(fixture, "g");
	int64_t began_ns;

	for (int i = 0; i < 20; i++)
		nats_fixture_publish_all(fixture, 1000, BUS_CONFIRMED);
	began_ns = clock_steady_ns(&clock_system);
	consume(consumer, 20000);
	print_message("%.0f messages/s fetched and acknowledged, 100 at a time\n",
		20000.0 * NS_PER_S / (double)(clock_steady_ns(&clock_system) - began_ns));
	nats_fixture_close_consumer(fixture, consumer);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		NATS_TEST(what_a_closed_consumer_had_goes_to_others_at_once),
		NATS_TEST(what_is_kept_too_long_goes_to_others),
		NATS_TEST(what_is_given_back_waits_longer_each_time),
		NATS_TEST(poison_is_not_given_again),
		NATS_TEST(the_last_time_is_marked),
		NATS_TEST(what_was_given_up_comes_once_more),
		NATS_TEST(one_member_gets_what_was_given_up),
		NATS_TEST(what_others_send_comes_whatever_its_headers),
		NATS_TEST(an_ack_without_a_server_fails_in_time),
		NATS_TEST(an_ack_to_a_server_that_hangs_fails_in_time),
		NATS_TEST(a_consumer_may_be_closed_while_its_server_hangs),
		NATS_TEST(a_consumer_may_be_opened_before_its_server),
		NATS_TEST(a_durable_that_is_gone_is_made_anew),
		NATS_TEST(an_ack_for_a_durable_that_is_gone_is_no_failure),
		NATS_TEST(nothing_is_lost_when_the_server_comes_and_goes),
		NATS_TEST(a_fetch_wakes_at_once),
		NATS_TEST(waiting_costs_nothing),
		NATS_TEST(speed_of_consuming),
	};

	if (!nats_server_exists()) {
		fprintf(stderr, "skipped: NATS is not installed (no nats-server)\n");
		return SKIPPED;
	}
	return cmocka_run_group_tests_name("nats delivery faults", tests, NULL, NULL);
}
