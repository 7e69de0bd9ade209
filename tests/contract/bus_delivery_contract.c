/* What ports/bus.h promises of deliveries: acknowledging, giving back, and waiting. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "bus_contract.h"
#include "bus_engine.h"
#include "waiting.h"

/* ---- what is not acknowledged ------------------------------------------------------------ */

#define NUMBERS_MAX 16

/* On engines with a network a fetch may give less than there is. */
static void fetch_wanted(
	struct consumer *consumer, struct bus_delivery deliveries[NUMBERS_MAX], size_t wanted)
{
	int64_t deadline_ns = hang_deadline_ns();
	size_t count = 0;

	while (count < wanted) {
		assert_true(clock_steady_ns(&clock_system) < deadline_ns);
		if (!bus_engine_delays())
			consumer->ops->again(consumer);
		count = bus_engine_fetch(consumer, deliveries, wanted);
	}
}

static void fetch_numbered(struct consumer *consumer, long first, size_t wanted)
{
	struct bus_delivery deliveries[NUMBERS_MAX];

	fetch_wanted(consumer, deliveries, wanted);
	for (size_t i = 0; i < wanted; i++)
		assert_int_equal(bus_engine_number(deliveries[i].value), first + (long)i);
}

/* Which of the numbers below NUMBERS_MAX are to come. */
struct rest {
	bool has[NUMBERS_MAX];
	size_t count;
	long order[NUMBERS_MAX]; /* in which they came last */
};

static struct rest rest_from(long first, size_t count)
{
	struct rest rest = {.count = count};

	for (size_t i = 0; i < count; i++)
		rest.has[first + (long)i] = true;
	return rest;
}

/* All of the rest and nothing else; a server that gives again after a while may do so in any
 * order. */
static void fetch_rest(struct consumer *consumer, struct rest *rest)
{
	struct bus_delivery deliveries[NUMBERS_MAX];
	bool seen[NUMBERS_MAX] = {false};

	fetch_wanted(consumer, deliveries, rest->count);
	for (size_t i = 0; i < rest->count; i++) {
		long number = bus_engine_number(deliveries[i].value);

		assert_in_range(number, 0, NUMBERS_MAX - 1);
		assert_true(rest->has[number] && !seen[number]);
		assert_true(bus_engine_delays() || i == 0 || number > rest->order[i - 1]);
		seen[number] = true;
		rest->order[i] = number;
	}
}

static void ack_first(struct consumer *consumer, struct rest *rest, size_t count)
{
	bus_engine_ack(consumer, count);
	for (size_t i = 0; i < count; i++)
		rest->has[rest->order[i]] = false;
	rest->count -= count;
}

static void publish_numbered(struct bus_engine *engine, long first, long count)
{
	for (long i = first; i < first + count; i++) {
		char id[24];

		snprintf(id, sizeof(id), "%ld", i);
		bus_engine_publish_one(engine, CHANNEL_SECOND, "k", id);
	}
}

static void what_is_given_back_comes_again(void **state)
{
	struct bus_engine *engine = *state;
	struct consumer *consumer = bus_engine_consumer(engine, CHANNEL_SECOND, "g");

	publish_numbered(engine, 0, 5);
	fetch_numbered(consumer, 0, 5);
	consumer->ops->again(consumer);
	publish_numbered(engine, 5, 2);
	if (bus_engine_delays()) {
		bus_engine_assert_all(bus_engine_collect(engine, consumer, 7), "", 7);
	} else {
		fetch_numbered(consumer, 0, 7); /* before what is new */
		bus_engine_ack(consumer, 7);
	}
	bus_engine_fetch_nothing(consumer);
	bus_engine_close(engine, consumer);
}

static void a_part_can_be_acknowledged(void **state)
{
	struct bus_engine *engine = *state;
	struct consumer *consumer = bus_engine_consumer(engine, CHANNEL_SECOND, "g");
	struct rest rest = rest_from(4, 6);

	publish_numbered(engine, 0, 10);
	fetch_numbered(consumer, 0, 10);
	bus_engine_ack(consumer, 3);
	bus_engine_ack(consumer, 4); /* the first 4 in all */
	bus_engine_ack(consumer, 2); /* which are, already */
	consumer->ops->again(consumer);
	fetch_rest(consumer, &rest);
	ack_first(consumer, &rest, 1);
	bus_engine_close(engine, consumer);

	consumer = bus_engine_consumer(engine, CHANNEL_SECOND, "g");
	fetch_rest(consumer, &rest);
	ack_first(consumer, &rest, 5);
	bus_engine_fetch_nothing(consumer);
	bus_engine_close(engine, consumer);
}

static void what_is_not_acknowledged_is_not_passed_over(void **state)
{
	struct bus_engine *engine = *state;
	struct consumer *consumer = bus_engine_consumer(engine, CHANNEL_SECOND, "g");
	struct bus_delivery delivery;

	publish_numbered(engine, 0, 3);
	bus_engine_fetch(consumer, &delivery, 1);
	bus_engine_fetch(consumer, &delivery, 1);
	bus_engine_assert_text(delivery.value, "0");
	bus_engine_ack(consumer, 1);
	bus_engine_fetch(consumer, &delivery, 1);
	bus_engine_assert_text(delivery.value, "1");
	bus_engine_close(engine, consumer);
}

static void nothing_to_acknowledge_is_fine(void **state)
{
	struct bus_engine *engine = *state;
	struct consumer *consumer = bus_engine_consumer(engine, CHANNEL_SECOND, "g");

	bus_engine_ack(consumer, 0);
	consumer->ops->again(consumer);
	bus_engine_fetch_nothing(consumer);
	bus_engine_ack(consumer, 0);
	publish_numbered(engine, 0, 1);
	fetch_numbered(consumer, 0, 1);
	consumer->ops->again(consumer);
	bus_engine_ack(consumer, 0);
	fetch_numbered(consumer, 0, 1);
	bus_engine_close(engine, consumer);
}

static void a_poisoned_delivery_is_done_when_it_is_acknowledged(void **state)
{
	struct bus_engine *engine = *state;
	struct consumer *consumer = bus_engine_consumer(engine, CHANNEL_SECOND, "g");
	struct rest rest = rest_from(0, 5);

	publish_numbered(engine, 0, 5);
	fetch_numbered(consumer, 0, 5);
	consumer_poison(consumer, 1, "nobody understands it");
	consumer_poison(consumer, 3, "nor this one");
	consumer->ops->again(consumer);
	fetch_rest(consumer, &rest);
	consumer_poison(consumer, 1, "nobody understands it");
	consumer_poison(consumer, 3, "nor this one");
	ack_first(consumer, &rest, 2);
	fetch_rest(consumer, &rest);
	consumer_poison(consumer, 1, "nor this one");
	ack_first(consumer, &rest, 3);
	bus_engine_fetch_nothing(consumer);
	bus_engine_close(engine, consumer);
}

static void a_restart_gives_what_was_not_acknowledged(void **state)
{
	struct bus_engine *engine = *state;
	struct consumer *consumer = bus_engine_consumer(engine, CHANNEL_SECOND, "g");
	struct rest rest = rest_from(6, 6);

	publish_numbered(engine, 0, 10);
	fetch_numbered(consumer, 0, 10);
	bus_engine_ack(consumer, 6);
	bus_engine_close(engine, consumer);
	bus_engine_restart(engine);

	consumer = bus_engine_consumer(engine, CHANNEL_SECOND, "g");
	publish_numbered(engine, 10, 2);
	fetch_rest(consumer, &rest);
	ack_first(consumer, &rest, 6);
	bus_engine_close(engine, consumer);
	bus_engine_restart(engine);

	consumer = bus_engine_consumer(engine, CHANNEL_SECOND, "g");
	bus_engine_fetch_nothing(consumer);
	publish_numbered(engine, 12, 1);
	fetch_numbered(consumer, 12, 1);
	bus_engine_close(engine, consumer);
}

static void everything_can_be_closed_with_messages_pending(void **state)
{
	struct bus_engine *engine = *state;
	struct consumer *consumer = bus_engine_consumer(engine, CHANNEL_FIRST, "g");
	struct consumer *idle = bus_engine_consumer(engine, CHANNEL_FIRST, "idle");
	struct bus_delivery deliveries[10];

	bus_engine_publish(engine, bus_engine_messages(engine, "m-", 100, 10), 100);
	bus_engine_fetch(consumer, deliveries, 10);
	bus_engine_close(engine, consumer);
	bus_engine_close(engine, idle);
	bus_engine_restart(engine);
	consumer = bus_engine_consumer(engine, CHANNEL_FIRST, "g");
	bus_engine_assert_all(bus_engine_collect(engine, consumer, 100), "m-", 100);
	bus_engine_close(engine, consumer);
}

/* ---- waiting ----------------------------------------------------------------------------- */

static size_t fetch_until(struct consumer *consumer, int64_t until_ns)
{
	struct bus_delivery delivery;
	size_t count = 7;

	assert_int_equal(consumer->ops->fetch(consumer, &delivery, 1, &count, until_ns), STATUS_OK);
	return count;
}

static void a_fetch_ends_at_its_time(void **state)
{
	struct bus_engine *engine = *state;
	struct consumer *consumer = bus_engine_consumer(engine, CHANNEL_FIRST, "g");
	int64_t until_ns;

	assert_int_equal(fetch_until(consumer, 0), 0);
	assert_int_equal(fetch_until(consumer, in_ms(0)), 0);
	until_ns = in_ms(100);
	assert_int_equal(fetch_until(consumer, until_ns), 0);
	assert_true(clock_steady_ns(&clock_system) >= until_ns - NS_PER_MS);
	bus_engine_close(engine, consumer);
}

struct alarm {
	struct bus_engine *engine;
	struct consumer *consumer; /* NULL: publishes instead */
};

static void *ring_later(void *context)
{
	struct alarm *alarm = context;

	nap_ms(20); /* most often the fetch waits by then */
	if (alarm->consumer)
		alarm->consumer->ops->wake(alarm->consumer);
	else
		bus_engine_publish_one(alarm->engine, CHANNEL_FIRST, "k", "late");
	return NULL;
}

/* Nothing but the alarm ends the fetch. */
static size_t fetch_with_alarm(struct alarm *alarm, struct consumer *consumer)
{
	pthread_t thread;
	size_t count;

	pthread_create(&thread, NULL, ring_later, alarm);
	count = fetch_until(consumer, in_ms(NEVER_MS));
	pthread_join(thread, NULL);
	return count;
}

static void a_fetch_can_be_woken(void **state)
{
	struct bus_engine *engine = *state;
	struct consumer *consumer = bus_engine_consumer(engine, CHANNEL_FIRST, "g");
	struct alarm alarm = {.engine = engine, .consumer = consumer};
	int64_t until_ns;

	for (int i = 0; i < 3; i++)
		assert_int_equal(fetch_with_alarm(&alarm, consumer), 0);
	consumer->ops->wake(consumer);
	consumer->ops->wake(consumer);
	assert_int_equal(fetch_until(consumer, in_ms(NEVER_MS)), 0);
	until_ns = in_ms(QUIET_MS); /* both have ended that one fetch */
	assert_int_equal(fetch_until(consumer, until_ns), 0);
	assert_true(clock_steady_ns(&clock_system) >= until_ns - NS_PER_MS);
	bus_engine_close(engine, consumer);
}

static void a_woken_consumer_loses_nothing(void **state)
{
	struct bus_engine *engine = *state;
	struct consumer *consumer = bus_engine_consumer(engine, CHANNEL_SECOND, "g");
	int64_t deadline_ns = hang_deadline_ns();
	struct bus_delivery delivery;
	long next = 0;
	size_t count;

	publish_numbered(engine, 0, 20);
	while (next < 20) {
		consumer->ops->wake(consumer);
		assert_int_equal(bus_engine_try_fetch(consumer, &delivery, 1, &count), STATUS_OK);
		if (count == 0) {
			wait_on(deadline_ns, "all 20 come");
			continue;
		}
		assert_int_equal(bus_engine_number(delivery.value), next++);
		bus_engine_ack(consumer, 1);
	}
	bus_engine_close(engine, consumer);
}

static void a_waiting_fetch_gets_what_is_published(void **state)
{
	struct bus_engine *engine = *state;
	struct consumer *consumer = bus_engine_consumer(engine, CHANNEL_FIRST, "g");
	struct alarm alarm = {.engine = engine};

	assert_int_equal(fetch_with_alarm(&alarm, consumer), 1);
	bus_engine_close(engine, consumer);
}

int bus_delivery_tests(void)
{
	const struct CMUnitTest tests[] = {
		BUS_TEST(what_is_given_back_comes_again),
		BUS_TEST(a_part_can_be_acknowledged),
		BUS_TEST(what_is_not_acknowledged_is_not_passed_over),
		BUS_TEST(nothing_to_acknowledge_is_fine),
		BUS_TEST(a_poisoned_delivery_is_done_when_it_is_acknowledged),
		BUS_TEST(a_restart_gives_what_was_not_acknowledged),
		BUS_TEST(everything_can_be_closed_with_messages_pending),
		BUS_TEST(a_fetch_ends_at_its_time),
		BUS_TEST(a_fetch_can_be_woken),
		BUS_TEST(a_woken_consumer_loses_nothing),
		BUS_TEST(a_waiting_fetch_gets_what_is_published),
	};

	return cmocka_run_group_tests_name("bus deliveries", tests, NULL, NULL);
}
