#include "nats_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "adapters/bus/nats/nats_bus.h"
#include "base/hash.h"
#include "base/log.h"
#include "captured_log.h"
#include "waiting.h"

static const struct bus_channel channels[] = {
	{.name = EVENTS,
		.partitions = 4,
		.stream = "ENTITLEMENTS",
		.subjects = GRANTED " " REVOKED " " EVENTS},
	{.name = OTHER, .partitions = 1},
};

/* ---- the bus ----------------------------------------------------------------------------- */

void nats_fixture_wait_until(struct nats_fixture *fixture, bool up)
{
	WAIT_UNTIL(fixture->bus->ops->is_up(fixture->bus) == up);
}

void nats_fixture_capture_log(void)
{
	captured_log_begin();
	log_configure(LOG_DEBUG, LOG_TEXT);
}

void nats_fixture_open(struct nats_fixture *fixture, const char *options)
{
	char why[256] = "";

	snprintf(fixture->url, sizeof(fixture->url), "%s?%s", nats_server_url(),
		options ? options : "");
	fixture->bus = nats_bus_new("faults", fixture->url, channels, 2);
	if (!fixture->bus->ops->start(fixture->bus, why, sizeof(why)))
		fail_msg("%s", why);
	fixture->producer = fixture->bus->ops->open_producer(fixture->bus);
}

void nats_fixture_close(struct nats_fixture *fixture)
{
	if (!fixture->bus)
		return;
	while (fixture->consumer_count > 0)
		nats_fixture_close_consumer(fixture, fixture->consumers[0]);
	fixture->producer->ops->close(fixture->producer);
	fixture->bus->ops->free(fixture->bus);
	fixture->bus = NULL;
}

void nats_fixture_reopen(struct nats_fixture *fixture, const char *options)
{
	nats_fixture_close(fixture);
	nats_fixture_open(fixture, options);
	nats_fixture_wait_until(fixture, true);
}

int nats_fixture_setup(void **state)
{
	struct nats_fixture *fixture = qp_calloc(1, sizeof(*fixture));

	log_configure(getenv("QUIPU_CONTRACT_DEBUG") ? LOG_DEBUG : LOG_ERROR, LOG_TEXT);
	hash_seed();
	nats_server_start();
	nats_fixture_open(fixture, NULL);
	nats_fixture_wait_until(fixture, true);
	*state = fixture;
	return 0;
}

int nats_fixture_teardown(void **state)
{
	struct nats_fixture *fixture = *state;

	nats_fixture_close(fixture);
	nats_server_remove();
	free(fixture);
	return 0;
}

/* ---- publishing -------------------------------------------------------------------------- */

struct bus_message *nats_fixture_make(struct nats_fixture *fixture, size_t count)
{
	struct bus_message *messages = &fixture->sent[fixture->sent_count];

	assert_true(fixture->sent_count + count <= MESSAGES_MAX);
	for (size_t i = 0; i < count; i++) {
		size_t number = fixture->sent_count++;
		char *id = fixture->ids[number];

		snprintf(id, sizeof(fixture->ids[0]), "%zu", number);
		messages[i] = (struct bus_message){
			.channel = slice_of(EVENTS),
			.subject = slice_of(number % 2 ? GRANTED : REVOKED),
			.key = slice_of(id),
			.id = slice_of(id),
			.value = slice_of(id),
		};
	}
	return messages;
}

enum status nats_fixture_publish(struct nats_fixture *fixture, struct bus_message *messages,
	size_t count, int64_t timeout_ms)
{
	struct producer *producer = fixture->producer;

	return producer->ops->publish(producer, messages, count, in_ms(timeout_ms));
}

void nats_fixture_publish_all(struct nats_fixture *fixture, size_t count, enum bus_fate fate)
{
	struct bus_message *messages = nats_fixture_make(fixture, count);

	assert_int_equal(nats_fixture_publish(fixture, messages, count, HANG_MS), STATUS_OK);
	for (size_t i = 0; i < count; i++)
		assert_int_equal(messages[i].fate, fate);
}

void nats_fixture_publish_until_confirmed(struct nats_fixture *fixture)
{
	int64_t deadline_ns = hang_deadline_ns();
	struct bus_message *message;

	do {
		wait_on(deadline_ns, "a message is confirmed");
		message = nats_fixture_make(fixture, 1);
		(void)nats_fixture_publish(fixture, message, 1, 5000);
	} while (message->fate != BUS_CONFIRMED);
}

size_t nats_fixture_count(const struct nats_fixture *fixture, enum bus_fate fate)
{
	size_t count = 0;

	for (size_t i = 0; i < fixture->sent_count; i++)
		count += fixture->sent[i].fate == fate;
	return count;
}

/* ---- the stream, seen from outside ------------------------------------------------------- */

void nats_admin_open(struct nats_admin *admin)
{
	assert_int_equal(natsConnection_ConnectTo(&admin->connection, nats_server_url()), NATS_OK);
	assert_int_equal(natsConnection_JetStream(&admin->js, admin->connection, NULL), NATS_OK);
}

void nats_admin_close(struct nats_admin *admin)
{
	jsCtx_Destroy(admin->js);
	natsConnection_Destroy(admin->connection);
}

void nats_admin_end(struct nats_admin *admin, natsSubscription *subscription)
{
	natsSubscription_Unsubscribe(subscription);
	assert_int_equal(natsConnection_Flush(admin->connection), NATS_OK);
	natsSubscription_Destroy(subscription);
}

static void count_message(struct nats_fixture *fixture, natsMsg *message)
{
	const char *id = NULL;

	assert_int_equal(natsMsgHeader_Get(message, "Nats-Msg-Id", &id), NATS_OK);
	fixture->in_stream[atol(id)]++;
	natsMsg_Destroy(message);
}

static void read_stream(struct nats_fixture *fixture)
{
	struct nats_admin admin;
	jsStreamInfo *info = NULL;
	natsSubscription *all = NULL;
	jsSubOptions options;
	natsMsg *message = NULL;

	memset(fixture->in_stream, 0, sizeof(fixture->in_stream));
	nats_admin_open(&admin);
	assert_int_equal(js_GetStreamInfo(&info, admin.js, "ENTITLEMENTS", NULL, NULL), NATS_OK);
	jsSubOptions_Init(&options);
	options.Ordered = true;
	options.Stream = "ENTITLEMENTS";
	assert_int_equal(js_SubscribeSync(&all, admin.js, ">", NULL, &options, NULL), NATS_OK);
	for (uint64_t i = 0; i < info->State.Msgs; i++) {
		assert_int_equal(natsSubscription_NextMsg(&message, all, HANG_MS), NATS_OK);
		count_message(fixture, message);
	}
	nats_admin_end(&admin, all);
	jsStreamInfo_Destroy(info);
	nats_admin_close(&admin);
}

/* What is still on its way has time to arrive. */
void nats_fixture_assert_fates(struct nats_fixture *fixture)
{
	nap_ms(100);
	read_stream(fixture);
	for (size_t i = 0; i < fixture->sent_count; i++) {
		if (fixture->sent[i].fate == BUS_CONFIRMED && fixture->in_stream[i] == 0)
			fail_msg("%zu was confirmed and is not there", i);
		if (fixture->sent[i].fate == BUS_NOT_PERSISTED && fixture->in_stream[i] > 0)
			fail_msg("%zu was not persisted and is there", i);
		if (fixture->in_stream[i] > 1)
			fail_msg("%zu is there twice", i);
	}
}

/* ---- consuming --------------------------------------------------------------------------- */

size_t nats_fixture_fetch(
	struct consumer *consumer, struct bus_delivery *deliveries, size_t max, int64_t timeout_ms)
{
	size_t count = 7;

	assert_int_equal(consumer->ops->fetch(consumer, deliveries, max, &count, in_ms(timeout_ms)),
		STATUS_OK);
	assert_true(count <= max);
	return count;
}

void nats_fixture_fetch_one(struct consumer *consumer, struct bus_delivery *delivery)
{
	assert_int_equal(nats_fixture_fetch(consumer, delivery, 1, HANG_MS), 1);
}

void nats_fixture_fetch_nothing(struct consumer *consumer, int64_t during_ms)
{
	struct bus_delivery delivery;

	assert_int_equal(nats_fixture_fetch(consumer, &delivery, 1, during_ms), 0);
}

void nats_fixture_fetch_all(
	struct consumer *consumer, struct bus_delivery *deliveries, size_t wanted)
{
	WAIT_UNTIL(nats_fixture_fetch(consumer, deliveries, wanted, HANG_MS) == wanted);
}

void nats_fixture_consume(struct consumer *consumer, size_t wanted)
{
	struct bus_delivery deliveries[100];

	while (wanted > 0) {
		size_t max = wanted < 100 ? wanted : 100;
		size_t count = nats_fixture_fetch(consumer, deliveries, max, HANG_MS);

		assert_true(count > 0);
		nats_fixture_ack(consumer, count);
		wanted -= count;
	}
}

struct consumer *nats_fixture_consumer(struct nats_fixture *fixture, const char *group)
{
	struct consumer *consumer = fixture->bus->ops->open_consumer(fixture->bus, EVENTS, group);

	assert_true(fixture->consumer_count < CONSUMERS_MAX);
	fixture->consumers[fixture->consumer_count++] = consumer;
	return consumer;
}

void nats_fixture_close_consumer(struct nats_fixture *fixture, struct consumer *consumer)
{
	size_t i = 0;

	while (fixture->consumers[i] != consumer)
		i++;
	fixture->consumers[i] = fixture->consumers[--fixture->consumer_count];
	consumer->ops->close(consumer);
}

void nats_fixture_ack(struct consumer *consumer, size_t count)
{
	assert_int_equal(consumer->ops->ack(consumer, count), STATUS_OK);
}
