/*
 * What ports/bus.h promises, on the engine that QUIPU_CONTRACT_BUS names (see bus_engine.h). Here:
 * messages and publishing. Groups and deliveries have files of their own.
 */
#include "bus_contract.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "bus_engine.h"
#include "check.h"
#include "waiting.h"

#define MANY 3000

/* ---- one message ------------------------------------------------------------------------- */

#define US_PER_S INT64_C(1000000)

static void what_is_published_comes_and_after_ack_not_again(void **state)
{
	struct bus_engine *engine = *state;
	struct consumer *consumer = bus_engine_consumer(engine, CHANNEL_FIRST, "g");
	struct bus_delivery delivery;

	bus_engine_publish_one(engine, CHANNEL_FIRST, "k", "id-1");
	assert_int_equal(bus_engine_fetch(consumer, &delivery, 1), 1);
	bus_engine_assert_text(delivery.channel, engine->names[CHANNEL_FIRST]);
	bus_engine_assert_text(delivery.id, "id-1");
	bus_engine_assert_text(delivery.key, "k");
	bus_engine_assert_text(delivery.value, "id-1");
	bus_engine_ack(consumer, 1);
	bus_engine_fetch_nothing(consumer);
	bus_engine_close(engine, consumer);
}

static void a_publish_is_timed(void **state)
{
	struct bus_engine *engine = *state;

	assert_int_equal(tally_read(&engine->bus->latency.count), 0);
	bus_engine_publish_one(engine, CHANNEL_FIRST, "k", "id-1");
	assert_int_equal(tally_read(&engine->bus->latency.count), 1);
	assert_true(tally_read(&engine->bus->latency.total_ns) > 0);
}

/* Headers of different names may come in another order; those of one name keep theirs. */
static void assert_header(
	const struct bus_delivery *delivery, struct bus_header sent, size_t earlier_of_name)
{
	for (size_t i = 0; i < delivery->header_count; i++) {
		struct bus_header came = delivery->headers[i];

		if (!slice_equal(came.name, sent.name) || earlier_of_name-- > 0)
			continue;
		bus_engine_assert_bytes(came.value, sent.value.data, sent.value.len);
		return;
	}
	fail_msg("the header %.*s did not come", (int)sent.name.len, sent.name.data);
}

static void everything_of_a_message_travels(void **state)
{
	struct bus_engine *engine = *state;
	struct consumer *consumer = bus_engine_consumer(engine, CHANNEL_FIRST, "g");
	struct bus_message message = bus_engine_message(engine, CHANNEL_FIRST, "", "id-1");
	struct bus_delivery delivery;
	char bytes[256];
	int64_t before_us;

	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (char)i;
	message.subject = bus_engine_subject(engine, CHANNEL_FIRST, "events.granted");
	message.key = slice_make(bytes, sizeof(bytes));
	message.value = slice_make(bytes, sizeof(bytes));
	message.headers[0] = (struct bus_header){slice_of("traceparent"), slice_of("00-ab-cd-01")};
	message.headers[1] = (struct bus_header){slice_of("empty"), slice_make(NULL, 0)};
	message.headers[2] = (struct bus_header){slice_of("bytes"), message.value};
	message.headers[3] = (struct bus_header){slice_of("bytes"), slice_of("twice")};
	message.header_count = 4;
	before_us = clock_wall_us(&clock_system);
	bus_engine_publish(engine, &message, 1);

	bus_engine_fetch(consumer, &delivery, 1);
	if (delivery.time_us != 0) /* some engines do not say, or only to the second */
		assert_in_range(delivery.time_us, before_us - US_PER_S,
			clock_wall_us(&clock_system) + US_PER_S);
	bus_engine_assert_bytes(delivery.subject, message.subject.data, message.subject.len);
	bus_engine_assert_text(delivery.id, "id-1");
	bus_engine_assert_bytes(delivery.key, bytes, sizeof(bytes));
	bus_engine_assert_bytes(delivery.value, bytes, sizeof(bytes));
	assert_int_equal(delivery.header_count, 4);
	for (size_t i = 0; i < 4; i++)
		assert_header(&delivery, message.headers[i], i == 3 ? 1 : 0);
	bus_engine_close(engine, consumer);
}

static void as_many_headers_as_there_may_be_travel(void **state)
{
	struct bus_engine *engine = *state;
	struct consumer *consumer = bus_engine_consumer(engine, CHANNEL_FIRST, "g");
	struct bus_message message = bus_engine_message(engine, CHANNEL_FIRST, "k", "id-1");
	struct bus_delivery delivery;

	message.subject = bus_engine_subject(engine, CHANNEL_FIRST, "s");
	for (size_t i = 0; i < BUS_HEADERS_MAX; i++)
		message.headers[i] = (struct bus_header){slice_of("name"), slice_of("value")};
	message.header_count = BUS_HEADERS_MAX;
	bus_engine_publish(engine, &message, 1);
	bus_engine_fetch(consumer, &delivery, 1);
	assert_int_equal(delivery.header_count, BUS_HEADERS_MAX);
	bus_engine_close(engine, consumer);
}

static void a_message_may_be_empty(void **state)
{
	struct bus_engine *engine = *state;
	struct consumer *consumer = bus_engine_consumer(engine, CHANNEL_FIRST, "g");
	struct bus_message message = {.channel = slice_of(engine->names[CHANNEL_FIRST])};
	struct bus_delivery delivery;

	bus_engine_publish(engine, &message, 1);
	bus_engine_fetch(consumer, &delivery, 1);
	assert_int_equal(delivery.subject.len, 0);
	assert_int_equal(delivery.key.len, 0);
	assert_int_equal(delivery.id.len, 0);
	assert_int_equal(delivery.value.len, 0);
	assert_int_equal(delivery.header_count, 0);
	bus_engine_close(engine, consumer);
}

static void a_value_may_have_a_megabyte(void **state)
{
	struct bus_engine *engine = *state;
	struct consumer *consumer = bus_engine_consumer(engine, CHANNEL_FIRST, "g");
	static const char *const ids[3] = {"big-0", "big-1", "big-2"};
	size_t size = 1024 * 1024;
	char *value = arena_alloc(&engine->arena, size);
	struct bus_message messages[3];
	struct bus_delivery deliveries[3];
	uint32_t x = 1;

	for (size_t i = 0; i < size; i++) {
		x = x * 1664525 + 1013904223;
		value[i] = (char)(x >> 24);
	}
	for (int i = 0; i < 3; i++) {
		messages[i] = bus_engine_message(engine, CHANNEL_FIRST, "k", ids[i]);
		messages[i].value = slice_make(value, size - (size_t)i);
		messages[i].headers[0] = (struct bus_header){slice_of("a"), slice_of("b")};
		messages[i].header_count = 1;
	}
	bus_engine_publish(engine, messages, 3);
	for (int i = 0; i < 3; i++) {
		bus_engine_fetch(consumer, deliveries, 1);
		bus_engine_assert_bytes(deliveries[0].value, value, size - (size_t)i);
		bus_engine_ack(consumer, 1);
	}
	bus_engine_close(engine, consumer);
}

static void a_position_names_the_place(void **state)
{
	struct bus_engine *engine = *state;
	struct consumer *consumer = bus_engine_consumer(engine, CHANNEL_SECOND, "g");
	struct slice place = bus_engine_place(engine, CHANNEL_SECOND);
	struct bus_delivery deliveries[2];

	bus_engine_publish_one(engine, CHANNEL_SECOND, "k", "a");
	bus_engine_publish_one(engine, CHANNEL_SECOND, "k", "b");
	for (int i = 0; i < 2; i++) {
		bus_engine_fetch(consumer, &deliveries[i], 1);
		deliveries[i].position = arena_copy(&engine->arena, deliveries[i].position);
		bus_engine_ack(consumer, 1);
	}
	assert_false(slice_equal(deliveries[0].position, deliveries[1].position));
	assert_true(deliveries[0].position.len > place.len);
	assert_memory_equal(deliveries[0].position.data, place.data, place.len);
	bus_engine_close(engine, consumer);
}

/* ---- publishing -------------------------------------------------------------------------- */

static void nothing_to_publish_is_fine(void **state)
{
	struct bus_engine *engine = *state;

	bus_engine_publish(engine, NULL, 0);
}

static void a_channel_that_nobody_named_does_not_exist(void **state)
{
	struct bus_engine *engine = *state;
	struct consumer *consumer = bus_engine_consumer(engine, CHANNEL_FIRST, "g");
	struct bus_message messages[2] = {
		bus_engine_message(engine, CHANNEL_FIRST, "k", "lost"),
		bus_engine_message(engine, CHANNEL_FIRST, "k", "found"),
	};
	struct producer *producer = engine->producer;

	messages[0].channel = slice_of("no-such-channel");
	messages[0].fate = BUS_CONFIRMED;
	assert_int_equal(producer->ops->publish(producer, messages, 2, in_ms(HANG_MS)), STATUS_OK);
	assert_int_equal(messages[0].fate, BUS_NOT_PERSISTED);
	assert_int_equal(messages[1].fate, BUS_CONFIRMED);
	bus_engine_assert_text(*bus_engine_collect(engine, consumer, 1), "found");
	bus_engine_close(engine, consumer);
}

#define PUBLISHERS 8
#define EACH 250

struct publisher {
	struct bus_engine *engine;
	struct bus_message *messages;
	pthread_t thread;
};

static void *publish_slowly(void *context)
{
	struct publisher *publisher = context;
	struct bus *bus = publisher->engine->bus;
	struct producer *producer = bus->ops->open_producer(bus);
	size_t failures = 0;

	for (size_t i = 0; i < EACH; i += 10)
		failures += producer->ops->publish(producer, publisher->messages + i, 10,
				    in_ms(HANG_MS)) != STATUS_OK;
	producer->ops->close(producer);
	return (void *)failures;
}

static void several_threads_publish_at_once(void **state)
{
	struct bus_engine *engine = *state;
	struct consumer *consumer = bus_engine_consumer(engine, CHANNEL_FIRST, "g");
	struct bus_message *messages = bus_engine_messages(engine, "t-", PUBLISHERS * EACH, 100);
	struct publisher publishers[PUBLISHERS];
	struct slice *ids;

	for (size_t i = 0; i < PUBLISHERS; i++) {
		publishers[i].engine = engine;
		publishers[i].messages = messages + i * EACH;
		pthread_create(&publishers[i].thread, NULL, publish_slowly, &publishers[i]);
	}
	for (size_t i = 0; i < PUBLISHERS; i++) {
		void *failures;

		pthread_join(publishers[i].thread, &failures);
		assert_null(failures);
	}
	for (size_t i = 0; i < PUBLISHERS * EACH; i++)
		assert_int_equal(messages[i].fate, BUS_CONFIRMED);
	ids = bus_engine_collect(engine, consumer, PUBLISHERS * EACH);
	bus_engine_assert_all(ids, "t-", PUBLISHERS * EACH);
	bus_engine_fetch_nothing(consumer);
	bus_engine_close(engine, consumer);
}

static void thousands_come_each_once(void **state)
{
	struct bus_engine *engine = *state;
	struct consumer *consumer = bus_engine_consumer(engine, CHANNEL_FIRST, "g");
	struct bus_message *messages = bus_engine_messages(engine, "m-", MANY, 97);
	struct slice *ids;

	for (size_t i = 0; i < MANY; i += 500)
		bus_engine_publish(engine, messages + i, 500);
	ids = bus_engine_collect(engine, consumer, MANY);
	bus_engine_assert_all(ids, "m-", MANY);
	bus_engine_fetch_nothing(consumer);
	bus_engine_close(engine, consumer);
}

#define HASTY 3000
#define PATIENT 100

/* Notes what comes until everything that was confirmed has come, in any order. */
static void take_all_confirmed(
	struct consumer *consumer, const struct bus_message *messages, unsigned char *came)
{
	struct bus_delivery deliveries[100];

	for (size_t i = 0; i < HASTY + PATIENT; i++) {
		while (messages[i].fate == BUS_CONFIRMED && came[i] == 0) {
			size_t count = bus_engine_fetch(consumer, deliveries, 100);

			for (size_t k = 0; k < count; k++)
				came[bus_engine_number(deliveries[k].value)]++;
			bus_engine_ack(consumer, count);
		}
	}
}

/* What may still be on its way. */
static void take_the_rest(struct consumer *consumer, unsigned char *came)
{
	struct bus_delivery deliveries[100];
	size_t count;

	do {
		assert_int_equal(
			consumer->ops->fetch(consumer, deliveries, 100, &count, in_ms(QUIET_MS)),
			STATUS_OK);
		for (size_t i = 0; i < count; i++)
			came[bus_engine_number(deliveries[i].value)]++;
		bus_engine_ack(consumer, count);
	} while (count > 0);
}

/*
 * Deadlines of a few milliseconds hit every moment in the life of a message. What was confirmed is
 * there, what was not persisted is not, whatever comes later.
 */
static void any_deadline_tells_the_truth(void **state)
{
	struct bus_engine *engine = *state;
	struct consumer *consumer = bus_engine_consumer(engine, CHANNEL_FIRST, "g");
	struct bus_message *messages = bus_engine_messages(engine, "m-", HASTY + PATIENT, 100);
	struct producer *producer = engine->producer;
	unsigned char *came = arena_calloc(&engine->arena, HASTY + PATIENT, 1);

	bus_engine_publish(engine, messages + HASTY, 50); /* what connects late is connected now */
	for (int i = 0; i < HASTY / 50; i++)
		assert_int_equal(
			producer->ops->publish(producer, messages + i * 50, 50, in_ms(i % 30)),
			STATUS_OK);
	bus_engine_publish(engine, messages + HASTY + 50, 50);
	take_all_confirmed(consumer, messages, came);
	take_the_rest(consumer, came);
	for (size_t i = 0; i < HASTY + PATIENT; i++) {
		if (messages[i].fate == BUS_CONFIRMED && came[i] != 1)
			fail_msg("m-%zu was confirmed and came %d times", i, came[i]);
		if (messages[i].fate == BUS_NOT_PERSISTED && came[i] != 0)
			fail_msg("m-%zu was not persisted and came", i);
	}
	bus_engine_close(engine, consumer);
}

static void messages_of_a_key_keep_their_order(void **state)
{
	struct bus_engine *engine = *state;
	struct consumer *consumer = bus_engine_consumer(engine, CHANNEL_FIRST, "g");
	struct bus_message *messages = bus_engine_messages(engine, "", 1000, 7);
	long last[7] = {-1, -1, -1, -1, -1, -1, -1};
	struct slice *ids;

	for (size_t i = 0; i < 1000; i += 50)
		bus_engine_publish(engine, messages + i, 50);
	ids = bus_engine_collect(engine, consumer, 1000);
	for (size_t i = 0; i < 1000; i++) {
		long number = strtol(ids[i].data, NULL, 10);

		assert_true(number > last[number % 7]);
		last[number % 7] = number;
	}
	bus_engine_close(engine, consumer);
}

/* Whoever waits for a publish that is under way can be woken for the next one. */
static void publishes_that_are_under_way_together_keep_their_order(void **state)
{
	struct bus_engine *engine = *state;
	struct consumer *consumer = bus_engine_consumer(engine, CHANNEL_FIRST, "g");
	struct bus_message *messages = bus_engine_messages(engine, "", 8 * BUS_BEGUN_MAX, 1);
	struct producer *producer = engine->producer;
	struct slice *ids;

	if (!producer->ops->begin)
		skip_because("this engine carries out one publish at a time");
	producer->ops->wake(producer);
	producer->ops->collect(producer); /* nothing is under way */
	for (size_t i = 0; i < BUS_BEGUN_MAX; i++)
		assert_int_equal(
			producer->ops->begin(producer, messages + 8 * i, 8, in_ms(HANG_MS)),
			STATUS_OK);
	for (size_t i = 0; i < 8 * BUS_BEGUN_MAX; i++) {
		while (messages[i].fate == BUS_UNDER_WAY)
			producer->ops->collect(producer);
		assert_int_equal(messages[i].fate, BUS_CONFIRMED);
	}
	assert_int_equal(tally_read(&engine->bus->latency.count), BUS_BEGUN_MAX);
	ids = bus_engine_collect(engine, consumer, 8 * BUS_BEGUN_MAX);
	for (size_t i = 0; i < 8 * BUS_BEGUN_MAX; i++)
		assert_int_equal(strtol(ids[i].data, NULL, 10), i);
	bus_engine_close(engine, consumer);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		BUS_TEST(what_is_published_comes_and_after_ack_not_again),
		BUS_TEST(a_publish_is_timed),
		BUS_TEST(everything_of_a_message_travels),
		BUS_TEST(as_many_headers_as_there_may_be_travel),
		BUS_TEST(a_message_may_be_empty),
		BUS_TEST(a_value_may_have_a_megabyte),
		BUS_TEST(a_position_names_the_place),
		BUS_TEST(nothing_to_publish_is_fine),
		BUS_TEST(a_channel_that_nobody_named_does_not_exist),
		BUS_TEST(several_threads_publish_at_once),
		BUS_TEST(thousands_come_each_once),
		BUS_TEST(any_deadline_tells_the_truth),
		BUS_TEST(messages_of_a_key_keep_their_order),
		BUS_TEST(publishes_that_are_under_way_together_keep_their_order),
	};
	int failed = cmocka_run_group_tests_name("bus messages", tests, NULL, NULL);

	return failed + bus_group_tests() + bus_delivery_tests();
}
