/*
 * One bus per test, on the engine under test. Servers are shared by all tests of a run, so channels
 * and groups get a prefix that is unique for the test. Every wait has a deadline that only ends a
 * hang.
 */
#include "bus_engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "adapters/bus/kafka/kafka_bus.h"
#include "adapters/bus/local/local_bus.h"
#include "adapters/bus/nats/nats_bus.h"
#include "adapters/bus/rabbitmq/rabbitmq_bus.h"
#include "base/buffer.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/random.h"
#include "waiting.h"

#define FETCH_MAX 500

static const char *bus_url(void)
{
	const char *url = getenv("QUIPU_CONTRACT_BUS");

	return url && *url ? url : "local:";
}

bool bus_engine_is_local(void)
{
	return strncmp(bus_url(), "local:", 6) == 0;
}

bool bus_engine_is_nats(void)
{
	return strncmp(bus_url(), "nats:", 5) == 0;
}

bool bus_engine_delays(void)
{
	return bus_engine_is_nats();
}

/* ---- a test's bus ------------------------------------------------------------------------ */

static char *new_path(void)
{
	const char *parent = getenv("TMPDIR");
	char folder[256];
	char path[300];

	snprintf(folder, sizeof(folder), "%s/quipu-bus-XXXXXX", parent ? parent : "/tmp");
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/bus.db", folder);
	return qp_strdup(path);
}

static void remove_files(char *path)
{
	static const char *const endings[] = {"", "-wal", "-shm", "-journal"};

	for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++) {
		char name[320];

		snprintf(name, sizeof(name), "%s%s", path, endings[i]);
		unlink(name);
	}
	*strrchr(path, '/') = '\0';
	rmdir(path);
}

static struct bus *new_bus(const struct bus_engine *engine)
{
	if (engine->path)
		return local_bus_new("contract", engine->path, engine->channels, CHANNEL_COUNT);
	if (bus_engine_is_nats())
		return nats_bus_new("contract", bus_url(), engine->channels, CHANNEL_COUNT);
	if (strncmp(bus_url(), "amqp", 4) == 0)
		return rabbitmq_bus_new("contract", bus_url(), engine->channels, CHANNEL_COUNT);
	return kafka_bus_new("contract", bus_url(), engine->channels, CHANNEL_COUNT);
}

static void open_bus(struct bus_engine *engine)
{
	char why[512] = "";

	engine->bus = new_bus(engine);
	assert_false(engine->bus->ops->is_up(engine->bus));
	if (!engine->bus->ops->start(engine->bus, why, sizeof(why)))
		fail_msg("%s", why);
	WAIT_UNTIL(engine->bus->ops->is_up(engine->bus));
	engine->producer = engine->bus->ops->open_producer(engine->bus);
}

static const char *group_name(struct bus_engine *engine, int channel, const char *group)
{
	struct buffer name = buffer_make(&engine->arena, 64);

	buffer_format(&name, "%s-%s%c", engine->names[channel], group, '\0');
	return name.data;
}

struct consumer *bus_engine_consumer(struct bus_engine *engine, int channel, const char *group)
{
	struct bus *bus = engine->bus;
	const char *name = group_name(engine, channel, group);
	struct consumer *consumer = bus->ops->open_consumer(bus, engine->names[channel], name);

	assert_true(engine->consumer_count < CONSUMERS_MAX);
	engine->consumers[engine->consumer_count++] = consumer;
	return consumer;
}

void bus_engine_close(struct bus_engine *engine, struct consumer *consumer)
{
	size_t i = 0;

	while (engine->consumers[i] != consumer)
		i++;
	engine->consumers[i] = engine->consumers[--engine->consumer_count];
	consumer->ops->close(consumer);
}

static void close_bus(struct bus_engine *engine)
{
	while (engine->consumer_count > 0)
		bus_engine_close(engine, engine->consumers[0]);
	engine->producer->ops->close(engine->producer);
	engine->bus->ops->free(engine->bus);
}

void bus_engine_restart(struct bus_engine *engine)
{
	close_bus(engine);
	open_bus(engine);
}

static const char *group_subject(struct bus_engine *engine, int channel, const char *subject)
{
	return arena_copy(&engine->arena, bus_engine_subject(engine, channel, subject)).data;
}

static void name_groups(struct bus_engine *engine, int channel)
{
	static const struct bus_group groups[GROUP_COUNT] = {{"g", NULL}, {"one", NULL},
		{"two", NULL}, {"late", NULL}, {"idle", NULL}, {"news", "news alarm"},
		{"read", "read"}};

	for (size_t i = 0; i < GROUP_COUNT; i++) {
		engine->groups[channel][i].name = group_name(engine, channel, groups[i].name);
		engine->groups[channel][i].subjects = groups[i].subjects;
		if (bus_engine_is_nats() && groups[i].subjects)
			engine->groups[channel][i].subjects =
				group_subject(engine, channel, groups[i].name);
	}
	engine->channels[channel].groups = engine->groups[channel];
	engine->channels[channel].group_count = GROUP_COUNT;
}

static void name_channels(struct bus_engine *engine)
{
	static const char *const endings[CHANNEL_COUNT] = {"first", "second"};
	static const int partitions[CHANNEL_COUNT] = {4, 1};
	struct dice dice;
	unsigned number;

	dice_init(&dice);
	number = (unsigned)dice_next(&dice);
	for (int i = 0; i < CHANNEL_COUNT; i++) {
		snprintf(engine->names[i], sizeof(engine->names[i]), "test-%08x-%s", number,
			endings[i]);
		snprintf(engine->subjects[i], sizeof(engine->subjects[i]), "%s %s.>",
			engine->names[i], engine->names[i]);
		engine->channels[i].name = engine->names[i];
		engine->channels[i].subjects = engine->subjects[i];
		engine->channels[i].partitions = partitions[i];
		name_groups(engine, i);
	}
}

int bus_engine_setup(void **state)
{
	struct bus_engine *engine = qp_calloc(1, sizeof(*engine));

	log_configure(getenv("QUIPU_CONTRACT_DEBUG") ? LOG_DEBUG : LOG_ERROR, LOG_TEXT);
	hash_seed();
	arena_init(&engine->arena, 64 * 1024);
	name_channels(engine);
	engine->path = bus_engine_is_local() ? new_path() : NULL;
	open_bus(engine);
	*state = engine;
	return 0;
}

int bus_engine_teardown(void **state)
{
	struct bus_engine *engine = *state;

	close_bus(engine);
	if (engine->path)
		remove_files(engine->path);
	free(engine->path);
	arena_release(&engine->arena);
	free(engine);
	return 0;
}

/* ---- names ------------------------------------------------------------------------------- */

struct slice bus_engine_subject(struct bus_engine *engine, int channel, const char *ending)
{
	struct buffer subject = buffer_make(&engine->arena, 64);

	buffer_format(&subject, "%s.%s", engine->names[channel], ending);
	return buffer_slice(&subject);
}

/* JetStream knows streams and sequences, the others topics and partitions. */
struct slice bus_engine_place(struct bus_engine *engine, int channel)
{
	struct buffer place = buffer_make(&engine->arena, 64);

	buffer_format(&place, bus_engine_is_nats() ? "%s/" : "%s/0/", engine->names[channel]);
	for (size_t i = 0; bus_engine_is_nats() && i < place.len; i++) {
		char c = place.data[i];

		place.data[i] = (char)(c == '-' ? '_' : c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
	}
	return buffer_slice(&place);
}

/* ---- publishing -------------------------------------------------------------------------- */

struct bus_message bus_engine_message(
	struct bus_engine *engine, int channel, const char *key, const char *id)
{
	return (struct bus_message){
		.channel = slice_of(engine->names[channel]),
		.key = arena_copy(&engine->arena, slice_of(key)),
		.id = arena_copy(&engine->arena, slice_of(id)),
		.value = arena_copy(&engine->arena, slice_of(id)),
	};
}

struct bus_message *bus_engine_messages(
	struct bus_engine *engine, const char *prefix, size_t count, size_t keys)
{
	struct bus_message *messages = arena_array(&engine->arena, struct bus_message, count);

	for (size_t i = 0; i < count; i++) {
		char id[64];
		char key[32];

		snprintf(id, sizeof(id), "%s%zu", prefix, i);
		snprintf(key, sizeof(key), "key-%zu", i % keys);
		messages[i] = bus_engine_message(engine, CHANNEL_FIRST, key, id);
	}
	return messages;
}

void bus_engine_publish(struct bus_engine *engine, struct bus_message *messages, size_t count)
{
	struct producer *producer = engine->producer;

	assert_int_equal(
		producer->ops->publish(producer, messages, count, in_ms(HANG_MS)), STATUS_OK);
	for (size_t i = 0; i < count; i++)
		assert_int_equal(messages[i].fate, BUS_CONFIRMED);
}

void bus_engine_publish_one(struct bus_engine *engine, int channel, const char *key, const char *id)
{
	struct bus_message message = bus_engine_message(engine, channel, key, id);

	bus_engine_publish(engine, &message, 1);
}

/* ---- consuming --------------------------------------------------------------------------- */

size_t bus_engine_fetch(struct consumer *consumer, struct bus_delivery *deliveries, size_t max)
{
	size_t count = 0;

	assert_int_equal(
		consumer->ops->fetch(consumer, deliveries, max, &count, in_ms(HANG_MS)), STATUS_OK);
	assert_true(count > 0 && count <= max);
	return count;
}

void bus_engine_fetch_nothing(struct consumer *consumer)
{
	struct bus_delivery delivery;
	size_t count = 7;

	assert_int_equal(
		consumer->ops->fetch(consumer, &delivery, 1, &count, in_ms(QUIET_MS)), STATUS_OK);
	if (count > 0)
		fail_msg("a message came that must not: %.*s at %.*s", (int)delivery.id.len,
			delivery.id.data, (int)delivery.position.len, delivery.position.data);
}

void bus_engine_ack(struct consumer *consumer, size_t count)
{
	assert_int_equal(consumer->ops->ack(consumer, count), STATUS_OK);
}

struct slice *bus_engine_collect(struct bus_engine *engine, struct consumer *consumer, size_t count)
{
	struct slice *ids = arena_array(&engine->arena, struct slice, count);
	static struct bus_delivery deliveries[FETCH_MAX];
	size_t have = 0;

	while (have < count) {
		size_t left = count - have;
		size_t came =
			bus_engine_fetch(consumer, deliveries, left < FETCH_MAX ? left : FETCH_MAX);

		for (size_t i = 0; i < came; i++)
			ids[have++] = arena_copy(&engine->arena, deliveries[i].id);
		bus_engine_ack(consumer, came);
	}
	return ids;
}

void bus_engine_assert_all(const struct slice *ids, const char *prefix, size_t count)
{
	unsigned char *seen = qp_calloc(count, 1);
	size_t skip = strlen(prefix);

	for (size_t i = 0; i < count; i++) {
		size_t number;

		assert_true(slice_starts_with(ids[i], prefix));
		number = strtoul(ids[i].data + skip, NULL, 10); /* arena_copy() ends with a NUL */
		assert_true(number < count);
		if (seen[number]++)
			fail_msg("%s came twice", ids[i].data);
	}
	free(seen);
}

enum status bus_engine_try_fetch(
	struct consumer *consumer, struct bus_delivery *deliveries, size_t max, size_t *count)
{
	return consumer->ops->fetch(consumer, deliveries, max, count, in_ms(100));
}

/* ---- comparing --------------------------------------------------------------------------- */

void bus_engine_assert_bytes(struct slice got, const void *data, size_t len)
{
	assert_int_equal(got.len, len);
	if (len > 0)
		assert_memory_equal(got.data, data, len);
}

void bus_engine_assert_text(struct slice got, const char *text)
{
	bus_engine_assert_bytes(got, text, strlen(text));
}

long bus_engine_number(struct slice value)
{
	char digits[24] = "";

	if (slice_starts_with(value, "m-"))
		value = slice_make(value.data + 2, value.len - 2);
	assert_true(value.len < sizeof(digits));
	memcpy(digits, value.data, value.len);
	return strtol(digits, NULL, 10);
}
