/*
 * What the server delivers no longer, because it was not acknowledged too often, and the consumer
 * reads from the stream.
 */
#include <pthread.h>
#include <stdio.h>

#include "captured_log.h"
#include "nats_faults.h"
#include "nats_fixture.h"
#include "waiting.h"

#define ACK_WAIT_MS 300

static struct consumer *open_impatient(struct bus_fixture *fixture)
{
	nats_fixture_reopen(fixture, "max-deliver=3&ack-wait=300ms");
	return bus_fixture_consumer(fixture, "g");
}

static void assert_text(struct slice got, const char *text)
{
	assert_int_equal(got.len, strlen(text));
	assert_memory_equal(got.data, text, got.len);
}

#define IDENTITY_SIZE 128

/* The message at 0, fetched as often as it is given, and never acknowledged in time. What arrives
 * while this process is kept waiting for that long is dropped, so there may be fewer than three. */
static void let_it_be_given_up(struct consumer *consumer, char identity[IDENTITY_SIZE])
{
	struct bus_delivery delivery = {0};

	for (int i = 1; !delivery.is_exhausted; i++) {
		assert_true(i <= 3);
		bus_fixture_fetch_one(consumer, &delivery);
		snprintf(identity, IDENTITY_SIZE, "%.*s", (int)delivery.identity.len,
			delivery.identity.data);
		nap_ms(ACK_WAIT_MS + 50);
	}
}

static void publish_with_everything(struct bus_fixture *fixture)
{
	struct bus_message *message = bus_fixture_make(fixture, 1);

	message->subject = slice_of(GRANTED);
	message->key = slice_of("u-1:sku");
	message->value = slice_make("pay\0load", 8);
	message->headers[0] = (struct bus_header){slice_of("trace_id"), slice_of("abc")};
	message->headers[1] = (struct bus_header){slice_of("empty"), slice_of("")};
	message->header_count = 2;
	assert_int_equal(bus_fixture_publish(fixture, message, 1, HANG_MS), STATUS_OK);
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
	struct bus_fixture *fixture = *state;
	struct consumer *consumer = open_impatient(fixture);
	struct bus_delivery deliveries[2];
	char identity[IDENTITY_SIZE];
	int64_t began_ms;

	publish_with_everything(fixture);
	let_it_be_given_up(consumer, identity);
	assert_int_equal(bus_fixture_fetch(consumer, deliveries, 2, HANG_MS), 1);
	assert_everything(&deliveries[0]);
	assert_text(deliveries[0].identity, identity);
	assert_int_equal(bus_fixture_fetch(consumer, deliveries, 2, HANG_MS), 1); /* held */
	began_ms = steady_ms();
	consumer->ops->again(consumer);
	assert_int_equal(bus_fixture_fetch(consumer, deliveries, 2, HANG_MS), 1);
	assert_true(steady_ms() - began_ms > 900);
	assert_everything(&deliveries[0]);
	bus_fixture_ack(consumer, 1);
	bus_fixture_fetch_nothing(consumer, 2 * ACK_WAIT_MS);
	bus_fixture_close_consumer(fixture, consumer);
}

static void one_member_gets_what_was_given_up(void **state)
{
	struct bus_fixture *fixture = *state;
	struct consumer *first = open_impatient(fixture);
	struct consumer *second = bus_fixture_consumer(fixture, "g");
	int64_t deadline_ns = hang_deadline_ns();
	struct bus_delivery delivery;
	char identity[IDENTITY_SIZE];
	size_t came = 0;

	bus_fixture_publish_all(fixture, 1, BUS_CONFIRMED);
	let_it_be_given_up(first, identity);
	for (int i = 0; came == 0; i++) {
		struct consumer *consumer = i % 2 ? second : first;

		assert_true(clock_steady_ns(&clock_system) < deadline_ns);
		came = bus_fixture_fetch(consumer, &delivery, 1, 100);
		assert_true(came == 0 || delivery.is_exhausted);
		bus_fixture_ack(consumer, came);
	}
	bus_fixture_fetch_nothing(first, 2 * ACK_WAIT_MS);
	bus_fixture_fetch_nothing(second, 2 * ACK_WAIT_MS);
	bus_fixture_close_consumer(fixture, first);
	bus_fixture_close_consumer(fixture, second);
}

/* ---- a link that closes ------------------------------------------------------------------ */

/* Without the permission, the server refuses the request to read a message, and no reply comes. */
static void start_server(bool may_read)
{
	char lines[256];

	snprintf(lines, sizeof(lines),
		"accounts { A { jetstream: enabled, users = [{user: a, password: b%s}] } }\n"
		"no_auth_user: a\n",
		may_read ? "" : ", permissions: {publish: {deny: \"$JS.API.STREAM.MSG.GET.>\"}}");
	nats_server_configure(lines);
	nats_server_start();
}

#define SEVERAL 3

struct reader {
	struct consumer *consumer;
	struct bus_delivery deliveries[SEVERAL];
	size_t max;
	size_t count;
};

static void *read_some(void *context)
{
	struct reader *reader = context;

	reader->count =
		bus_fixture_fetch(reader->consumer, reader->deliveries, reader->max, NEVER_MS);
	return NULL;
}

static void what_was_given_up_comes_though_the_link_closes_while_it_is_read(void **state)
{
	struct bus_fixture *fixture = *state;
	struct reader reader = {.max = 1};
	char identity[IDENTITY_SIZE];
	pthread_t thread;

	bus_fixture_close(fixture);
	nats_server_stop();
	start_server(false);
	bus_fixture_log_begin();
	reader.consumer = open_impatient(fixture);
	publish_with_everything(fixture);
	let_it_be_given_up(reader.consumer, identity);
	pthread_create(&thread, NULL, read_some, &reader);
	WAIT_UNTIL(captured_log_count("cnats reports: Not Permitted") > 0);
	nats_server_stop();
	start_server(true);
	pthread_join(thread, NULL);
	assert_int_equal(reader.count, 1);
	assert_everything(&reader.deliveries[0]);
	assert_text(reader.deliveries[0].identity, identity);
	bus_fixture_ack(reader.consumer, 1);
	bus_fixture_close_consumer(fixture, reader.consumer);
	bus_fixture_close(fixture);
	bus_fixture_log_end();
}

/* All messages, each as often as the server delivers it; none is acknowledged. */
static void let_all_be_given_up(struct consumer *consumer)
{
	struct bus_delivery deliveries[SEVERAL];
	size_t exhausted = 0;

	while (exhausted < SEVERAL) {
		size_t count = bus_fixture_fetch(consumer, deliveries, SEVERAL, HANG_MS);

		assert_true(count > 0);
		for (size_t i = 0; i < count; i++)
			exhausted += deliveries[i].is_exhausted;
		nap_ms(ACK_WAIT_MS + 50);
	}
}

static void acknowledge_each_once(struct consumer *consumer)
{
	struct bus_delivery deliveries[SEVERAL];
	bool came[SEVERAL] = {false};

	for (size_t left = SEVERAL; left > 0;) {
		size_t count = bus_fixture_fetch(consumer, deliveries, SEVERAL, HANG_MS);

		assert_true(count > 0 && count <= left);
		for (size_t i = 0; i < count; i++) {
			size_t number = (size_t)(deliveries[i].id.data[0] - '0');

			assert_true(number < SEVERAL && !came[number]);
			came[number] = true;
		}
		bus_fixture_ack(consumer, count);
		left -= count;
	}
}

/* The first of them is being read when the link closes, and the others cannot be read either. */
static void several_that_were_given_up_come_though_the_link_closes(void **state)
{
	struct bus_fixture *fixture = *state;
	struct reader reader = {.max = SEVERAL};
	int refused;
	pthread_t thread;

	bus_fixture_close(fixture);
	nats_server_stop();
	start_server(false);
	bus_fixture_log_begin();
	reader.consumer = open_impatient(fixture);
	bus_fixture_publish_all(fixture, SEVERAL, BUS_CONFIRMED);
	let_all_be_given_up(reader.consumer);
	refused = captured_log_count("cnats reports: Not Permitted");
	pthread_create(&thread, NULL, read_some, &reader);
	/* after the first round of reads, all of them are due again at once */
	WAIT_UNTIL(captured_log_count("cnats reports: Not Permitted") > refused + SEVERAL);
	nats_server_stop();
	start_server(true);
	pthread_join(thread, NULL);
	reader.consumer->ops->again(reader.consumer);
	acknowledge_each_once(reader.consumer);
	bus_fixture_close_consumer(fixture, reader.consumer);
	bus_fixture_close(fixture);
	bus_fixture_log_end();
}

int nats_given_up_tests(void)
{
	const struct CMUnitTest tests[] = {
		NATS_TEST(what_was_given_up_comes_once_more),
		NATS_TEST(one_member_gets_what_was_given_up),
		NATS_TEST(what_was_given_up_comes_though_the_link_closes_while_it_is_read),
		NATS_TEST(several_that_were_given_up_come_though_the_link_closes),
	};

	return cmocka_run_group_tests_name("nats given up", tests, NULL, NULL);
}
