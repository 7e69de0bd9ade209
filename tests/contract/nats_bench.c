#include "nats_bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "adapters/nats/nats_bus.h"
#include "base/hash.h"
#include "base/log.h"

static const struct bus_channel channels[] = {
	{.name = EVENTS,
		.partitions = 4,
		.stream = "ENTITLEMENTS",
		.subjects = GRANTED " " REVOKED " " EVENTS},
	{.name = OTHER, .partitions = 1},
};

/* ---- time -------------------------------------------------------------------------------- */

int64_t nats_bench_now_ms(void)
{
	return clock_steady_ns(&clock_system) / NS_PER_MS;
}

int64_t nats_bench_in_ms(int64_t ms)
{
	return clock_steady_ns(&clock_system) + ms * NS_PER_MS;
}

void nats_bench_nap_ms(long ms)
{
	const struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * NS_PER_MS};

	nanosleep(&pause, NULL);
}

/* ---- the bus ----------------------------------------------------------------------------- */

void nats_bench_wait_until(struct nats_bench *bench, bool up)
{
	int64_t until_ns = clock_steady_ns(&clock_system) + PATIENCE_NS;

	while (bench->bus->ops->is_up(bench->bus) != up &&
		clock_steady_ns(&clock_system) < until_ns)
		nats_bench_nap_ms(1);
	assert_int_equal(bench->bus->ops->is_up(bench->bus), up);
}

void nats_bench_open(struct nats_bench *bench, const char *options)
{
	char why[256] = "";

	snprintf(
		bench->url, sizeof(bench->url), "%s?%s", nats_server_url(), options ? options : "");
	bench->bus = nats_bus_new("faults", bench->url, channels, 2);
	if (!bench->bus->ops->start(bench->bus, why, sizeof(why)))
		fail_msg("%s", why);
	bench->producer = bench->bus->ops->open_producer(bench->bus);
}

void nats_bench_close(struct nats_bench *bench)
{
	if (!bench->bus)
		return;
	while (bench->consumer_count > 0)
		nats_bench_close_consumer(bench, bench->consumers[0]);
	bench->producer->ops->close(bench->producer);
	bench->bus->ops->free(bench->bus);
	bench->bus = NULL;
}

void nats_bench_reopen(struct nats_bench *bench, const char *options)
{
	nats_bench_close(bench);
	nats_bench_open(bench, options);
	nats_bench_wait_until(bench, true);
}

int nats_bench_setup(void **state)
{
	struct nats_bench *bench = qp_calloc(1, sizeof(*bench));

	log_configure(getenv("QUIPU_CONTRACT_DEBUG") ? LOG_DEBUG : LOG_ERROR, LOG_TEXT);
	hash_seed();
	nats_server_start();
	nats_bench_open(bench, NULL);
	nats_bench_wait_until(bench, true);
	*state = bench;
	return 0;
}

int nats_bench_teardown(void **state)
{
	struct nats_bench *bench = *state;

	nats_bench_close(bench);
	nats_server_remove();
	free(bench);
	return 0;
}

/* ---- publishing -------------------------------------------------------------------------- */

struct bus_message *nats_bench_make(struct nats_bench *bench, size_t count)
{
	struct bus_message *messages = &bench->sent[bench->sent_count];

	assert_true(bench->sent_count + count <= MESSAGES_MAX);
	for (size_t i = 0; i < count; i++) {
		size_t number = bench->sent_count++;
		char *id = bench->ids[number];

		snprintf(id, sizeof(bench->ids[0]), "%zu", number);
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

enum status nats_bench_publish(
	struct nats_bench *bench, struct bus_message *messages, size_t count, int64_t timeout_ms)
{
	struct producer *producer = bench->producer;

	return producer->ops->publish(producer, messages, count, nats_bench_in_ms(timeout_ms));
}

void nats_bench_publish_all(struct nats_bench *bench, size_t count, enum bus_fate fate)
{
	struct bus_message *messages = nats_bench_make(bench, count);

	assert_int_equal(nats_bench_publish(bench, messages, count, 15000), STATUS_OK);
	for (size_t i = 0; i < count; i++)
		assert_int_equal(messages[i].fate, fate);
}

void nats_bench_publish_until_confirmed(struct nats_bench *bench)
{
	int64_t until_ns = clock_steady_ns(&clock_system) + PATIENCE_NS;
	struct bus_message *message;

	do {
		assert_true(clock_steady_ns(&clock_system) < until_ns);
		nats_bench_nap_ms(20);
		message = nats_bench_make(bench, 1);
		(void)nats_bench_publish(bench, message, 1, 5000);
	} while (message->fate != BUS_CONFIRMED);
}

size_t nats_bench_count(const struct nats_bench *bench, enum bus_fate fate)
{
	size_t count = 0;

	for (size_t i = 0; i < bench->sent_count; i++)
		count += bench->sent[i].fate == fate;
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

static void count_message(struct nats_bench *bench, natsMsg *message)
{
	const char *id = NULL;

	assert_int_equal(natsMsgHeader_Get(message, "Nats-Msg-Id", &id), NATS_OK);
	bench->in_stream[atol(id)]++;
	natsMsg_Destroy(message);
}

static void read_stream(struct nats_bench *bench)
{
	struct nats_admin admin;
	jsStreamInfo *info = NULL;
	natsSubscription *all = NULL;
	jsSubOptions options;
	natsMsg *message = NULL;

	memset(bench->in_stream, 0, sizeof(bench->in_stream));
	nats_admin_open(&admin);
	assert_int_equal(js_GetStreamInfo(&info, admin.js, "ENTITLEMENTS", NULL, NULL), NATS_OK);
	jsSubOptions_Init(&options);
	options.Ordered = true;
	options.Stream = "ENTITLEMENTS";
	assert_int_equal(js_SubscribeSync(&all, admin.js, ">", NULL, &options, NULL), NATS_OK);
	for (uint64_t i = 0; i < info->State.Msgs; i++) {
		assert_int_equal(natsSubscription_NextMsg(&message, all, 10000), NATS_OK);
		count_message(bench, message);
	}
	nats_admin_end(&admin, all);
	jsStreamInfo_Destroy(info);
	nats_admin_close(&admin);
}

/* What is still on its way has time to arrive. */
void nats_bench_assert_fates(struct nats_bench *bench)
{
	nats_bench_nap_ms(500);
	read_stream(bench);
	for (size_t i = 0; i < bench->sent_count; i++) {
		if (bench->sent[i].fate == BUS_CONFIRMED && bench->in_stream[i] == 0)
			fail_msg("%zu was confirmed and is not there", i);
		if (bench->sent[i].fate == BUS_NOT_PERSISTED && bench->in_stream[i] > 0)
			fail_msg("%zu was not persisted and is there", i);
		if (bench->in_stream[i] > 1)
			fail_msg("%zu is there twice", i);
	}
}

/* ---- consuming --------------------------------------------------------------------------- */

size_t nats_bench_fetch(
	struct consumer *consumer, struct bus_delivery *deliveries, size_t max, int64_t timeout_ms)
{
	size_t count = 7;

	assert_int_equal(consumer->ops->fetch(
				 consumer, deliveries, max, &count, nats_bench_in_ms(timeout_ms)),
		STATUS_OK);
	assert_true(count <= max);
	return count;
}

struct consumer *nats_bench_consumer(struct nats_bench *bench, const char *group)
{
	struct consumer *consumer = bench->bus->ops->open_consumer(bench->bus, EVENTS, group);

	assert_true(bench->consumer_count < CONSUMERS_MAX);
	bench->consumers[bench->consumer_count++] = consumer;
	return consumer;
}

void nats_bench_close_consumer(struct nats_bench *bench, struct consumer *consumer)
{
	size_t i = 0;

	while (bench->consumers[i] != consumer)
		i++;
	bench->consumers[i] = bench->consumers[--bench->consumer_count];
	consumer->ops->close(consumer);
}

void nats_bench_ack(struct consumer *consumer, size_t count)
{
	assert_int_equal(consumer->ops->ack(consumer, count), STATUS_OK);
}
