/*
 * Keeps a book of every message that was published, with the fate that the bus reported, and
 * compares it at the end with what a consumer finds. That comparison is the promise of the port; a
 * test only adds the fault.
 */
#include "bus_fixture.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/hash.h"
#include "base/log.h"
#include "captured_log.h"
#include "waiting.h"

#define FETCH_MAX 100

void bus_fixture_prepare(void)
{
	log_configure(getenv("QUIPU_CONTRACT_DEBUG") ? LOG_DEBUG : LOG_ERROR, LOG_TEXT);
	hash_seed();
}

void bus_fixture_open(struct bus_fixture *fixture, struct bus *bus)
{
	char why[256] = "";

	fixture->bus = bus;
	if (!bus->ops->start(bus, why, sizeof(why)))
		fail_msg("%s", why);
	fixture->producer = bus->ops->open_producer(bus);
}

void bus_fixture_close(struct bus_fixture *fixture)
{
	if (!fixture->bus)
		return;
	while (fixture->consumer_count > 0)
		bus_fixture_close_consumer(fixture, fixture->consumers[0]);
	fixture->producer->ops->close(fixture->producer);
	fixture->bus->ops->free(fixture->bus);
	fixture->bus = NULL;
}

bool bus_fixture_is_up(struct bus_fixture *fixture)
{
	return fixture->bus->ops->is_up(fixture->bus);
}

void bus_fixture_wait_until(struct bus_fixture *fixture, bool up)
{
	WAIT_UNTIL(bus_fixture_is_up(fixture) == up);
}

void bus_fixture_log_begin(void)
{
	captured_log_begin();
	log_configure(LOG_DEBUG, LOG_TEXT);
}

void bus_fixture_log_end(void)
{
	captured_log_end();
	log_configure(LOG_ERROR, LOG_TEXT);
}

/* ---- publishing -------------------------------------------------------------------------- */

struct bus_message *bus_fixture_make(struct bus_fixture *fixture, size_t count)
{
	struct bus_message *messages = &fixture->sent[fixture->sent_count];

	assert_true(fixture->sent_count + count <= MESSAGES_MAX);
	for (size_t i = 0; i < count; i++) {
		size_t number = fixture->sent_count++;
		char *id = fixture->ids[number];

		snprintf(id, sizeof(fixture->ids[0]), "%zu", number);
		messages[i] = (struct bus_message){
			.channel = slice_of(fixture->channel),
			.id = slice_of(id),
			.value = slice_of(id),
		};
		if (fixture->shape)
			fixture->shape(&messages[i], number);
	}
	return messages;
}

enum status bus_fixture_publish(
	struct bus_fixture *fixture, struct bus_message *messages, size_t count, int64_t timeout_ms)
{
	struct producer *producer = fixture->producer;

	return producer->ops->publish(producer, messages, count, in_ms(timeout_ms));
}

void bus_fixture_publish_all(struct bus_fixture *fixture, size_t count, enum bus_fate fate)
{
	struct bus_message *messages = bus_fixture_make(fixture, count);

	assert_int_equal(bus_fixture_publish(fixture, messages, count, HANG_MS), STATUS_OK);
	for (size_t i = 0; i < count; i++)
		assert_int_equal(messages[i].fate, fate);
}

size_t bus_fixture_publish_until_confirmed(struct bus_fixture *fixture, int64_t timeout_ms)
{
	int64_t deadline_ns = hang_deadline_ns();
	struct bus_message *message = bus_fixture_make(fixture, 1);

	while (bus_fixture_publish(fixture, message, 1, timeout_ms) != STATUS_OK ||
		message->fate != BUS_CONFIRMED) {
		wait_on(deadline_ns, "a message is confirmed");
		message = bus_fixture_make(fixture, 1);
	}
	return fixture->sent_count - 1;
}

size_t bus_fixture_count(const struct bus_fixture *fixture, enum bus_fate fate)
{
	size_t count = 0;

	for (size_t i = 0; i < fixture->sent_count; i++)
		count += fixture->sent[i].fate == fate;
	return count;
}

void bus_fixture_note(struct bus_fixture *fixture, struct slice id)
{
	char number[sizeof(fixture->ids[0])] = "";

	assert_true(id.len < sizeof(number));
	memcpy(number, id.data, id.len);
	if (*number)
		fixture->seen[atol(number)]++;
}

void bus_fixture_check_fates(const struct bus_fixture *fixture)
{
	for (size_t i = 0; i < fixture->sent_count; i++) {
		if (fixture->sent[i].fate == BUS_CONFIRMED && fixture->seen[i] == 0)
			fail_msg("%zu was confirmed and is not there", i);
		if (fixture->sent[i].fate == BUS_NOT_PERSISTED && fixture->seen[i] > 0)
			fail_msg("%zu was not persisted and is there", i);
	}
}

static void *publish_on_and_on(void *context)
{
	struct bus_load *load = context;
	struct bus_fixture *fixture = load->fixture;

	while (!atomic_load(&load->stop) && fixture->sent_count + load->batch <= load->max) {
		struct bus_message *messages = bus_fixture_make(fixture, load->batch);
		enum status status =
			bus_fixture_publish(fixture, messages, load->batch, load->timeout_ms);

		nap_ms(status == STATUS_OK ? load->pause_ms : load->refused_pause_ms);
	}
	return NULL;
}

void bus_load_start(struct bus_load *load)
{
	assert_int_equal(pthread_create(&load->thread, NULL, publish_on_and_on, load), 0);
}

void bus_load_stop(struct bus_load *load)
{
	atomic_store(&load->stop, true);
	assert_int_equal(pthread_join(load->thread, NULL), 0);
}

/* ---- consuming --------------------------------------------------------------------------- */

struct consumer *bus_fixture_consumer(struct bus_fixture *fixture, const char *group)
{
	struct bus *bus = fixture->bus;
	struct consumer *consumer = bus->ops->open_consumer(bus, fixture->channel, group);

	assert_true(fixture->consumer_count < CONSUMERS_MAX);
	fixture->consumers[fixture->consumer_count++] = consumer;
	return consumer;
}

void bus_fixture_close_consumer(struct bus_fixture *fixture, struct consumer *consumer)
{
	size_t i = 0;

	while (fixture->consumers[i] != consumer)
		i++;
	fixture->consumers[i] = fixture->consumers[--fixture->consumer_count];
	consumer->ops->close(consumer);
}

size_t bus_fixture_fetch(
	struct consumer *consumer, struct bus_delivery *deliveries, size_t max, int64_t timeout_ms)
{
	size_t count = 7;

	assert_int_equal(consumer->ops->fetch(consumer, deliveries, max, &count, in_ms(timeout_ms)),
		STATUS_OK);
	assert_true(count <= max);
	return count;
}

void bus_fixture_fetch_one(struct consumer *consumer, struct bus_delivery *delivery)
{
	assert_int_equal(bus_fixture_fetch(consumer, delivery, 1, HANG_MS), 1);
}

void bus_fixture_fetch_nothing(struct consumer *consumer, int64_t during_ms)
{
	struct bus_delivery delivery;

	assert_int_equal(bus_fixture_fetch(consumer, &delivery, 1, during_ms), 0);
}

void bus_fixture_fetch_all(
	struct consumer *consumer, struct bus_delivery *deliveries, size_t wanted)
{
	WAIT_UNTIL(bus_fixture_fetch(consumer, deliveries, wanted, HANG_MS) == wanted);
}

void bus_fixture_consume(struct consumer *consumer, size_t wanted)
{
	struct bus_delivery deliveries[FETCH_MAX];

	while (wanted > 0) {
		size_t max = wanted < FETCH_MAX ? wanted : FETCH_MAX;
		size_t count = bus_fixture_fetch(consumer, deliveries, max, HANG_MS);

		assert_true(count > 0);
		bus_fixture_ack(consumer, count);
		wanted -= count;
	}
}

void bus_fixture_ack(struct consumer *consumer, size_t count)
{
	assert_int_equal(consumer->ops->ack(consumer, count), STATUS_OK);
}
