#include "rabbitmq_fixture.h"

#include <stdio.h>
#include <stdlib.h>

#include "adapters/bus/rabbitmq/rabbitmq_bus.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/random.h"
#include "captured_log.h"
#include "rabbitmq_server.h"
#include "waiting.h"

/* For what comes by another connection, after the last message. */
#define LATE_MS 200

/* ---- the bus ----------------------------------------------------------------------------- */

static void name_all(struct rabbitmq_fixture *fixture)
{
	static const char *const endings[CHANNELS + GROUPS] = {
		"events", "picky", "plain", "all", "reads", "picks"};
	struct dice dice;
	unsigned number;

	dice_init(&dice);
	number = (unsigned)dice_next(&dice);
	for (int i = 0; i < CHANNELS + GROUPS; i++)
		snprintf(fixture->names[i], sizeof(fixture->names[i]), "t-%08x-%s", number,
			endings[i]);
	for (int i = 0; i < CHANNELS; i++)
		fixture->channels[i].name = fixture->names[i];
	for (int i = 0; i < GROUPS; i++) {
		fixture->groups[i].name = fixture->names[CHANNELS + i];
		fixture->groups[i].subjects = i == ALL ? NULL : "read";
	}
	fixture->channels[EVENTS].groups = fixture->groups;
	fixture->channels[EVENTS].group_count = 2;
	fixture->channels[PICKY].groups = &fixture->groups[PICKS];
	fixture->channels[PICKY].group_count = 1;
}

struct rabbitmq_fixture *rabbitmq_fixture_new(void)
{
	struct rabbitmq_fixture *fixture = qp_calloc(1, sizeof(*fixture));

	log_configure(getenv("QUIPU_CONTRACT_DEBUG") ? LOG_DEBUG : LOG_ERROR, LOG_TEXT);
	hash_seed();
	name_all(fixture);
	return fixture;
}

void rabbitmq_fixture_free(struct rabbitmq_fixture *fixture)
{
	free(fixture);
}

void rabbitmq_fixture_open(struct rabbitmq_fixture *fixture, const char *url)
{
	char why[256] = "";

	fixture->bus = rabbitmq_bus_new("faults", url, fixture->channels, CHANNELS);
	if (!fixture->bus->ops->start(fixture->bus, why, sizeof(why)))
		fail_msg("%s", why);
	fixture->producer = fixture->bus->ops->open_producer(fixture->bus);
}

void rabbitmq_fixture_close(struct rabbitmq_fixture *fixture)
{
	if (fixture->consumer)
		fixture->consumer->ops->close(fixture->consumer);
	fixture->consumer = NULL;
	fixture->producer->ops->close(fixture->producer);
	fixture->bus->ops->free(fixture->bus);
	fixture->bus = NULL;
}

int rabbitmq_fixture_setup(void **state)
{
	struct rabbitmq_fixture *fixture = rabbitmq_fixture_new();

	rabbitmq_fixture_open(fixture, rabbitmq_server_url());
	rabbitmq_fixture_wait(fixture, true);
	*state = fixture;
	return 0;
}

int rabbitmq_fixture_teardown(void **state)
{
	struct rabbitmq_fixture *fixture = *state;

	rabbitmq_server_try("thaw"); /* a test that fails may leave it frozen */
	if (fixture->bus)
		rabbitmq_fixture_close(fixture);
	rabbitmq_fixture_free(fixture);
	return 0;
}

bool rabbitmq_fixture_is_up(struct rabbitmq_fixture *fixture)
{
	return fixture->bus->ops->is_up(fixture->bus);
}

void rabbitmq_fixture_wait(struct rabbitmq_fixture *fixture, bool up)
{
	WAIT_UNTIL(rabbitmq_fixture_is_up(fixture) == up);
}

/* ---- publishing -------------------------------------------------------------------------- */

struct bus_message *rabbitmq_fixture_make(struct rabbitmq_fixture *fixture, size_t count)
{
	struct bus_message *messages = &fixture->sent[fixture->sent_count];

	assert_true(fixture->sent_count + count <= MESSAGES_MAX);
	for (size_t i = 0; i < count; i++) {
		size_t number = fixture->sent_count++;
		char *id = fixture->ids[number];

		snprintf(id, sizeof(fixture->ids[0]), "%zu", number);
		messages[i] = (struct bus_message){
			.channel = slice_of(fixture->names[EVENTS]),
			.id = slice_of(id),
			.value = slice_of(id),
		};
	}
	return messages;
}

enum status rabbitmq_fixture_publish(struct rabbitmq_fixture *fixture, struct bus_message *messages,
	size_t count, int64_t timeout_ms)
{
	struct producer *producer = fixture->producer;

	return producer->ops->publish(producer, messages, count, in_ms(timeout_ms));
}

void rabbitmq_fixture_publish_all(
	struct rabbitmq_fixture *fixture, size_t count, enum bus_fate fate)
{
	struct bus_message *messages = rabbitmq_fixture_make(fixture, count);

	assert_int_equal(rabbitmq_fixture_publish(fixture, messages, count, HANG_MS), STATUS_OK);
	for (size_t i = 0; i < count; i++)
		assert_int_equal(messages[i].fate, fate);
}

size_t rabbitmq_fixture_count(const struct rabbitmq_fixture *fixture, enum bus_fate fate)
{
	size_t count = 0;

	for (size_t i = 0; i < fixture->sent_count; i++)
		count += fixture->sent[i].fate == fate;
	return count;
}

/* ---- consuming --------------------------------------------------------------------------- */

struct consumer *rabbitmq_fixture_consumer(struct rabbitmq_fixture *fixture)
{
	struct bus *bus = fixture->bus;

	if (!fixture->consumer)
		fixture->consumer = bus->ops->open_consumer(
			bus, fixture->names[EVENTS], fixture->groups[ALL].name);
	return fixture->consumer;
}

size_t rabbitmq_fixture_fetch(struct rabbitmq_fixture *fixture, struct bus_delivery *deliveries,
	size_t max, int64_t timeout_ms)
{
	struct consumer *consumer = rabbitmq_fixture_consumer(fixture);
	size_t count = 0;

	assert_int_equal(consumer->ops->fetch(consumer, deliveries, max, &count, in_ms(timeout_ms)),
		STATUS_OK);
	return count;
}

void rabbitmq_fixture_ack(struct rabbitmq_fixture *fixture, size_t count)
{
	assert_int_equal(fixture->consumer->ops->ack(fixture->consumer, count), STATUS_OK);
}

/* Messages that are not in the book have no id. */
static void note(struct rabbitmq_fixture *fixture, const struct bus_delivery *delivery)
{
	char number[12] = "";

	assert_true(delivery->id.len < sizeof(number));
	memcpy(number, delivery->id.data, delivery->id.len);
	if (*number)
		fixture->came[atol(number)]++;
}

/* Publishes until a message is confirmed: the producer's connection may be younger than the bus
 * knows. Returns its number. */
static size_t publish_last(struct rabbitmq_fixture *fixture)
{
	int64_t deadline_ns = hang_deadline_ns();
	struct bus_message *last = rabbitmq_fixture_make(fixture, 1);

	while (rabbitmq_fixture_publish(fixture, last, 1, HANG_MS) != STATUS_OK ||
		last->fate != BUS_CONFIRMED) {
		wait_on(deadline_ns, "a last message is confirmed");
		last = rabbitmq_fixture_make(fixture, 1);
	}
	return fixture->sent_count - 1;
}

static void take_everything(struct rabbitmq_fixture *fixture)
{
	static struct bus_delivery deliveries[500];
	size_t last = publish_last(fixture);
	size_t count;

	do {
		int64_t patience_ms = fixture->came[last] ? LATE_MS : HANG_MS;

		count = rabbitmq_fixture_fetch(fixture, deliveries, 500, patience_ms);
		for (size_t i = 0; i < count; i++)
			note(fixture, &deliveries[i]);
		rabbitmq_fixture_ack(fixture, count);
	} while (count > 0);
	assert_true(fixture->came[last] > 0);
}

void rabbitmq_fixture_assert_fates(struct rabbitmq_fixture *fixture)
{
	take_everything(fixture);
	for (size_t i = 0; i < fixture->sent_count; i++) {
		if (fixture->sent[i].fate == BUS_CONFIRMED && fixture->came[i] == 0)
			fail_msg("%zu was confirmed and did not come", i);
		if (fixture->sent[i].fate == BUS_NOT_PERSISTED && fixture->came[i] > 0)
			fail_msg("%zu was not persisted and came", i);
	}
	print_message("%zu confirmed, %zu not persisted, %zu unknown\n",
		rabbitmq_fixture_count(fixture, BUS_CONFIRMED),
		rabbitmq_fixture_count(fixture, BUS_NOT_PERSISTED),
		rabbitmq_fixture_count(fixture, BUS_UNKNOWN));
}

/* ---- the log ----------------------------------------------------------------------------- */

void rabbitmq_fixture_log_begin(void)
{
	log_configure(LOG_DEBUG, LOG_TEXT);
	captured_log_begin();
}

void rabbitmq_fixture_log_end(void)
{
	captured_log_end();
	log_configure(LOG_ERROR, LOG_TEXT);
}

void rabbitmq_fixture_wait_for_failures(int count)
{
	WAIT_UNTIL(captured_log_count("is unavailable") >= count);
}
