/* What ports/bus.h promises, on the engine that QUIPU_CONTRACT_BUS names (see bus_engine.h). */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "bus_engine.h"

#define MANY 10000

static void nap(int64_t duration_ns)
{
	const struct timespec pause = {
		.tv_sec = duration_ns / NS_PER_S, .tv_nsec = duration_ns % NS_PER_S};

	nanosleep(&pause, NULL);
}

static void assert_slice(struct slice got, const void *data, size_t len)
{
	assert_int_equal(got.len, len);
	if (len > 0)
		assert_memory_equal(got.data, data, len);
}

static void assert_text(struct slice got, const char *text)
{
	assert_slice(got, text, strlen(text));
}

/* The number that a value ends with: "m-17" is 17. Values do not end with a NUL. */
static long number_in(struct slice value)
{
	char digits[24] = "";

	if (slice_starts_with(value, "m-"))
		value = slice_make(value.data + 2, value.len - 2);
	assert_true(value.len < sizeof(digits));
	memcpy(digits, value.data, value.len);
	return strtol(digits, NULL, 10);
}

static enum status try_fetch(
	struct consumer *consumer, struct bus_delivery *deliveries, size_t max, size_t *count)
{
	return consumer->ops->fetch(
		consumer, deliveries, max, count, bus_engine_in(100 * NS_PER_MS));
}

/* ---- one message ------------------------------------------------------------------------- */

static void what_is_published_comes_and_after_ack_not_again(void **state)
{
	struct bus_engine *engine = *state;
	struct consumer *consumer = bus_engine_consumer(engine, CHANNEL_FIRST, "g");
	struct bus_delivery delivery;

	bus_engine_publish_one(engine, CHANNEL_FIRST, "k", "id-1");
	assert_int_equal(bus_engine_fetch(consumer, &delivery, 1), 1);
	assert_text(delivery.channel, engine->names[CHANNEL_FIRST]);
	assert_text(delivery.id, "id-1");
	assert_text(delivery.key, "k");
	assert_text(delivery.value, "id-1");
	bus_engine_ack(consumer, 1);
	bus_engine_fetch_nothing(consumer);
	bus_engine_close(engine, consumer);
}

/* Headers of different names may come in another order; those of one name keep theirs. */
static void assert_header(
	const struct bus_delivery *delivery, struct bus_header sent, size_t earlier_of_name)
{
	for (size_t i = 0; i < delivery->header_count; i++) {
		struct bus_header came = delivery->headers[i];

		if (!slice_equal(came.name, sent.name) || earlier_of_name-- > 0)
			continue;
		assert_slice(came.value, sent.value.data, sent.value.len);
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
	bus_engine_publish(engine, &message, 1);

	bus_engine_fetch(consumer, &delivery, 1);
	assert_slice(delivery.subject, message.subject.data, message.subject.len);
	assert_text(delivery.id, "id-1");
	assert_slice(delivery.key, bytes, sizeof(bytes));
	assert_slice(delivery.value, bytes, sizeof(bytes));
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
		assert_slice(deliveries[0].value, value, size - (size_t)i);
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
	assert_int_equal(producer->ops->publish(producer, messages, 2, bus_engine_in(PATIENCE_NS)),
		STATUS_OK);
	assert_int_equal(messages[0].fate, BUS_NOT_PERSISTED);
	assert_int_equal(messages[1].fate, BUS_CONFIRMED);
	assert_text(*bus_engine_collect(engine, consumer, 1), "found");
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
				    bus_engine_in(PATIENCE_NS)) != STATUS_OK;
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

static void ten_thousand_come_each_once(void **state)
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

/*
 * Deadlines of a few milliseconds hit every moment in the life of a message. What was confirmed is
 * there, what was not persisted is not, whatever comes later.
 */
static void any_deadline_tells_the_truth(void **state)
{
	struct bus_engine *engine = *state;
	struct consumer *consumer = bus_engine_consumer(engine, CHANNEL_FIRST, "g");
	struct bus_message *messages = bus_engine_messages(engine, "m-", 3100, 100);
	struct producer *producer = engine->producer;
	unsigned char *came = arena_calloc(&engine->arena, 3100, 1);
	struct bus_delivery deliveries[100];
	size_t count;

	bus_engine_publish(engine, messages + 3050, 50); /* what connects late is connected now */
	for (int i = 0; i < 60; i++)
		assert_int_equal(producer->ops->publish(producer, messages + i * 50, 50,
					 bus_engine_in(i % 30 * NS_PER_MS)),
			STATUS_OK);
	bus_engine_publish(engine, messages + 3000, 50);
	while (!came[3049]) { /* the last of them: in no order, so the rest is waited for below */
		count = bus_engine_fetch(consumer, deliveries, 100);
		for (size_t i = 0; i < count; i++)
			came[number_in(deliveries[i].value)]++;
		bus_engine_ack(consumer, count);
	}
	do {
		assert_int_equal(consumer->ops->fetch(consumer, deliveries, 100, &count,
					 bus_engine_in(NS_PER_S)),
			STATUS_OK);
		for (size_t i = 0; i < count; i++)
			came[number_in(deliveries[i].value)]++;
		bus_engine_ack(consumer, count);
	} while (count > 0);
	for (size_t i = 0; i < 3100; i++) {
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

/* ---- groups ------------------------------------------------------------------------------ */

static void each_group_gets_everything(void **state)
{
	struct bus_engine *engine = *state;
	struct consumer *first = bus_engine_consumer(engine, CHANNEL_FIRST, "one");
	struct consumer *second = bus_engine_consumer(engine, CHANNEL_FIRST, "two");

	bus_engine_publish(engine, bus_engine_messages(engine, "m-", 100, 10), 100);
	bus_engine_assert_all(bus_engine_collect(engine, first, 100), "m-", 100);
	bus_engine_assert_all(bus_engine_collect(engine, second, 100), "m-", 100);
	bus_engine_fetch_nothing(first);
	bus_engine_fetch_nothing(second);
	bus_engine_close(engine, first);
	bus_engine_close(engine, second);
}

static void channels_are_apart(void **state)
{
	struct bus_engine *engine = *state;
	struct consumer *first = bus_engine_consumer(engine, CHANNEL_FIRST, "g");
	struct consumer *second = bus_engine_consumer(engine, CHANNEL_SECOND, "g");
	struct bus_message both[2] = {
		bus_engine_message(engine, CHANNEL_FIRST, "k", "a"),
		bus_engine_message(engine, CHANNEL_SECOND, "k", "b"),
	};

	bus_engine_publish(engine, both, 2);
	assert_text(*bus_engine_collect(engine, first, 1), "a");
	assert_text(*bus_engine_collect(engine, second, 1), "b");
	bus_engine_fetch_nothing(first);
	bus_engine_fetch_nothing(second);
	bus_engine_close(engine, first);
	bus_engine_close(engine, second);
}

/* ---- subjects ---------------------------------------------------------------------------- */

static const char *const subjects[] = {"news", "read", "alarm", "", "new", "newsy", "read"};

#define SUBJECTS (sizeof(subjects) / sizeof(subjects[0]))

/* NATS files the subjects of all channels together. */
static struct slice subject_of(struct bus_engine *engine, int channel, const char *subject)
{
	if (!bus_engine_is_nats() || !*subject)
		return slice_of(subject);
	return bus_engine_subject(engine, channel, subject);
}

/* Message i has subject i, over and over, and the id "<prefix><i>". */
static void publish_subjects(struct bus_engine *engine, const char *prefix, size_t count)
{
	struct bus_message *messages = bus_engine_messages(engine, prefix, count, 3);

	for (size_t i = 0; i < count; i++)
		messages[i].subject = subject_of(engine, CHANNEL_FIRST, subjects[i % SUBJECTS]);
	bus_engine_publish(engine, messages, count);
}

/* The ids are those of messages with one of two subjects, each once. */
static void assert_subjects(const struct slice *ids, size_t count, const char *one, const char *two)
{
	unsigned char seen[7 * 40] = {0};

	for (size_t i = 0; i < count; i++) {
		size_t number = strtoul(ids[i].data + 2, NULL, 10);
		const char *subject = subjects[number % SUBJECTS];

		assert_true(number < sizeof(seen) && !seen[number]++);
		if (strcmp(subject, one) && strcmp(subject, two))
			fail_msg("%s has the subject %s", ids[i].data, subject);
	}
}

static void a_group_gets_only_the_subjects_it_wants(void **state)
{
	struct bus_engine *engine = *state;
	struct consumer *all = bus_engine_consumer(engine, CHANNEL_FIRST, "g");
	struct consumer *news = bus_engine_consumer(engine, CHANNEL_FIRST, "news");
	struct consumer *reads = bus_engine_consumer(engine, CHANNEL_FIRST, "read");

	publish_subjects(engine, "m-", 7 * 40);
	bus_engine_assert_all(bus_engine_collect(engine, all, 7 * 40), "m-", 7 * 40);
	if (bus_engine_is_nats()) /* where a group wants one subject or all */
		assert_subjects(bus_engine_collect(engine, news, 40), 40, "news", "news");
	else
		assert_subjects(bus_engine_collect(engine, news, 80), 80, "news", "alarm");
	assert_subjects(bus_engine_collect(engine, reads, 80), 80, "read", "read");
	bus_engine_fetch_nothing(all);
	bus_engine_fetch_nothing(news);
	bus_engine_fetch_nothing(reads);
	bus_engine_close(engine, all);
	bus_engine_close(engine, news);
	bus_engine_close(engine, reads);
}

static void what_is_passed_over_never_comes(void **state)
{
	static const char *const ids[] = {"wanted-1", "wanted-2", "wanted-3"};
	struct bus_engine *engine = *state;
	struct consumer *reads = bus_engine_consumer(engine, CHANNEL_SECOND, "read");
	struct bus_message message = bus_engine_message(engine, CHANNEL_SECOND, "k", "wanted");
	struct bus_delivery delivery;

	message.subject = subject_of(engine, CHANNEL_SECOND, "read");
	for (int round = 0; round < 3; round++) {
		message.id = slice_of(ids[round]);
		for (int i = 0; i < 20; i++)
			bus_engine_publish_one(engine, CHANNEL_SECOND, "k", "unwanted");
		bus_engine_fetch_nothing(reads);
		bus_engine_publish(engine, &message, 1);
		bus_engine_publish_one(engine, CHANNEL_SECOND, "k", "unwanted");
		bus_engine_fetch(reads, &delivery, 1);
		assert_true(slice_equal(delivery.subject, message.subject));
		assert_text(delivery.id, ids[round]);
		bus_engine_fetch(reads, &delivery, 1); /* it is not acknowledged */
		assert_text(delivery.id, ids[round]);
		bus_engine_ack(reads, 1);
		bus_engine_fetch_nothing(reads);
		bus_engine_close(engine, reads);
		if (round == 1)
			bus_engine_restart(engine);
		reads = bus_engine_consumer(engine, CHANNEL_SECOND, "read");
	}
	bus_engine_fetch_nothing(reads);
	bus_engine_close(engine, reads);
}

/* ---- groups that come and go ------------------------------------------------------------- */

static void a_new_group_begins_at_the_oldest(void **state)
{
	struct bus_engine *engine = *state;
	struct consumer *consumer;

	bus_engine_publish(engine, bus_engine_messages(engine, "m-", 20, 5), 20);
	consumer = bus_engine_consumer(engine, CHANNEL_FIRST, "late");
	bus_engine_assert_all(bus_engine_collect(engine, consumer, 20), "m-", 20);
	bus_engine_close(engine, consumer);
}

/* Two members of a group, each in a thread. */
struct member {
	struct consumer *consumer;
	pthread_t thread;
	_Atomic bool *stop;
	_Atomic unsigned char *seen; /* by number of a message "m-…" */
	_Atomic size_t *total;
	_Atomic size_t came;
};

static void *take_part(void *context)
{
	struct member *member = context;
	struct consumer *consumer = member->consumer;
	struct bus_delivery deliveries[16];

	while (!atomic_load(member->stop)) {
		size_t count = 0;

		if (try_fetch(consumer, deliveries, 16, &count) != STATUS_OK)
			break;
		for (size_t i = 0; i < count; i++) {
			if (!slice_starts_with(deliveries[i].value, "m-"))
				continue;
			atomic_fetch_add(&member->seen[number_in(deliveries[i].value)], 1);
			atomic_fetch_add(member->total, 1);
		}
		if (consumer->ops->ack(consumer, count) == STATUS_OK)
			atomic_fetch_add(&member->came, count);
	}
	return NULL;
}

/* Publishes what does not count until both have work. */
static void wait_for_both(struct bus_engine *engine, struct member members[2])
{
	int64_t until_ns = bus_engine_in(PATIENCE_NS);

	for (int i = 0; members[0].came == 0 || members[1].came == 0; i++) {
		char prefix[24];

		assert_true(clock_steady_ns(&clock_system) < until_ns);
		snprintf(prefix, sizeof(prefix), "w%d-", i); /* an id that comes twice is dropped */
		bus_engine_publish(engine, bus_engine_messages(engine, prefix, 64, 64), 64);
		nap(50 * NS_PER_MS);
	}
}

static void members_of_a_group_share_without_overlap(void **state)
{
	struct bus_engine *engine = *state;
	static _Atomic unsigned char seen[1000];
	_Atomic size_t total = 0;
	_Atomic bool stop = false;
	struct member members[2] = {0};
	int64_t until_ns;

	memset((void *)seen, 0, sizeof(seen));
	for (size_t i = 0; i < 2; i++) {
		members[i].consumer = bus_engine_consumer(engine, CHANNEL_FIRST, "g");
		members[i].stop = &stop;
		members[i].seen = seen;
		members[i].total = &total;
		pthread_create(&members[i].thread, NULL, take_part, &members[i]);
	}
	wait_for_both(engine, members);
	members[0].came = members[1].came = 0;
	bus_engine_publish(engine, bus_engine_messages(engine, "x-", 100, 10), 100);
	bus_engine_publish(engine, bus_engine_messages(engine, "m-", 1000, 200), 1000);
	until_ns = bus_engine_in(PATIENCE_NS);
	while (total < 1000 && clock_steady_ns(&clock_system) < until_ns)
		nap(5 * NS_PER_MS);
	nap(QUIET_NS);
	atomic_store(&stop, true);
	for (size_t i = 0; i < 2; i++) {
		pthread_join(members[i].thread, NULL);
		bus_engine_close(engine, members[i].consumer);
	}
	assert_int_equal(total, 1000);
	for (size_t i = 0; i < 1000; i++)
		assert_int_equal(seen[i], 1);
	assert_true(members[0].came > 0 && members[1].came > 0);
}

struct guest {
	struct bus_engine *engine;
	struct consumer *consumer;
};

/* Takes part until it has messages in hand; its consumer is then closed. */
static void *come_and_go(void *context)
{
	struct guest *guest = context;
	struct consumer *consumer = guest->consumer;
	struct bus_delivery deliveries[16];
	int64_t until_ns = bus_engine_in(10 * NS_PER_S);
	size_t count = 0;

	while (count == 0 && clock_steady_ns(&clock_system) < until_ns)
		if (try_fetch(consumer, deliveries, 16, &count) != STATUS_OK)
			break;
	nap(200 * NS_PER_MS);
	return NULL;
}

static size_t count_new(struct member *host, size_t wanted)
{
	size_t found = 0;

	for (size_t i = 0; i < wanted; i++)
		found += host->seen[i] > 0;
	return found;
}

static void members_that_come_and_go_lose_nothing(void **state)
{
	struct bus_engine *engine = *state;
	static _Atomic unsigned char seen[600];
	_Atomic size_t total = 0;
	_Atomic bool stop = false;
	struct member host = {.stop = &stop, .seen = seen, .total = &total};
	struct bus_message *messages = bus_engine_messages(engine, "m-", 600, 60);
	struct guest guest = {.engine = engine};
	int64_t until_ns;
	pthread_t thread;

	memset((void *)seen, 0, sizeof(seen));
	host.consumer = bus_engine_consumer(engine, CHANNEL_FIRST, "g");
	pthread_create(&host.thread, NULL, take_part, &host);
	bus_engine_publish(engine, messages, 200);
	guest.consumer = bus_engine_consumer(engine, CHANNEL_FIRST, "g");
	pthread_create(&thread, NULL, come_and_go, &guest);
	for (size_t i = 200; i < 600; i += 20) {
		bus_engine_publish(engine, messages + i, 20);
		nap(20 * NS_PER_MS);
	}
	pthread_join(thread, NULL);
	bus_engine_close(engine, guest.consumer);
	until_ns = bus_engine_in(PATIENCE_NS);
	while (count_new(&host, 600) < 600 && clock_steady_ns(&clock_system) < until_ns)
		nap(10 * NS_PER_MS);
	atomic_store(&stop, true);
	pthread_join(host.thread, NULL);
	assert_int_equal(count_new(&host, 600), 600);
}

/* ---- what is not acknowledged ------------------------------------------------------------ */

#define NUMBERS_MAX 16

/* On engines with a network a fetch may give less than there is. */
static void fetch_wanted(
	struct consumer *consumer, struct bus_delivery deliveries[NUMBERS_MAX], size_t wanted)
{
	int64_t until_ns = bus_engine_in(PATIENCE_NS);
	size_t count = 0;

	while (count < wanted) {
		assert_true(clock_steady_ns(&clock_system) < until_ns);
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
		assert_int_equal(number_in(deliveries[i].value), first + (long)i);
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

/* All of the rest and nothing else; a server that gives again after a while may do so in any order.
 */
static void fetch_rest(struct consumer *consumer, struct rest *rest)
{
	struct bus_delivery deliveries[NUMBERS_MAX];
	bool seen[NUMBERS_MAX] = {false};

	fetch_wanted(consumer, deliveries, rest->count);
	for (size_t i = 0; i < rest->count; i++) {
		long number = number_in(deliveries[i].value);

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
	assert_text(delivery.value, "0");
	bus_engine_ack(consumer, 1);
	bus_engine_fetch(consumer, &delivery, 1);
	assert_text(delivery.value, "1");
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

static int64_t timed_fetch(struct consumer *consumer, int64_t until_ns, size_t *count)
{
	int64_t before_ns = clock_steady_ns(&clock_system);
	struct bus_delivery delivery;

	assert_int_equal(consumer->ops->fetch(consumer, &delivery, 1, count, until_ns), STATUS_OK);
	return clock_steady_ns(&clock_system) - before_ns;
}

static void a_fetch_ends_at_its_time(void **state)
{
	struct bus_engine *engine = *state;
	struct consumer *consumer = bus_engine_consumer(engine, CHANNEL_FIRST, "g");
	size_t count = 7;
	int64_t took_ns;

	assert_true(timed_fetch(consumer, 0, &count) < NS_PER_S);
	assert_int_equal(count, 0);
	assert_true(timed_fetch(consumer, clock_steady_ns(&clock_system), &count) < NS_PER_S);
	assert_int_equal(count, 0);
	took_ns = timed_fetch(consumer, bus_engine_in(200 * NS_PER_MS), &count);
	assert_int_equal(count, 0);
	assert_true(took_ns >= 199 * NS_PER_MS && took_ns < 2 * NS_PER_S);
	bus_engine_close(engine, consumer);
}

struct alarm {
	struct bus_engine *engine;
	struct consumer *consumer; /* NULL: publishes instead */
};

static void *ring_later(void *context)
{
	struct alarm *alarm = context;

	nap(100 * NS_PER_MS);
	if (alarm->consumer)
		alarm->consumer->ops->wake(alarm->consumer);
	else
		bus_engine_publish_one(alarm->engine, CHANNEL_FIRST, "k", "late");
	return NULL;
}

static int64_t fetch_with_alarm(struct alarm *alarm, struct consumer *consumer, size_t *count)
{
	pthread_t thread;
	int64_t took_ns;

	pthread_create(&thread, NULL, ring_later, alarm);
	took_ns = timed_fetch(consumer, bus_engine_in(PATIENCE_NS), count);
	pthread_join(thread, NULL);
	return took_ns;
}

static void a_fetch_can_be_woken(void **state)
{
	struct bus_engine *engine = *state;
	struct consumer *consumer = bus_engine_consumer(engine, CHANNEL_FIRST, "g");
	struct alarm alarm = {.engine = engine, .consumer = consumer};
	size_t count;

	for (int i = 0; i < 3; i++) {
		assert_true(fetch_with_alarm(&alarm, consumer, &count) < 5 * NS_PER_S);
		assert_int_equal(count, 0);
	}
	consumer->ops->wake(consumer);
	consumer->ops->wake(consumer);
	assert_true(timed_fetch(consumer, bus_engine_in(PATIENCE_NS), &count) < 5 * NS_PER_S);
	assert_true(timed_fetch(consumer, bus_engine_in(QUIET_NS), &count) >= QUIET_NS / 2);
	bus_engine_close(engine, consumer);
}

static void a_woken_consumer_loses_nothing(void **state)
{
	struct bus_engine *engine = *state;
	struct consumer *consumer = bus_engine_consumer(engine, CHANNEL_SECOND, "g");
	struct bus_delivery delivery;
	size_t next = 0;
	size_t count;

	publish_numbered(engine, 0, 20);
	for (int i = 0; i < 2000 && next < 20; i++) {
		char expected[24];

		consumer->ops->wake(consumer);
		assert_int_equal(try_fetch(consumer, &delivery, 1, &count), STATUS_OK);
		if (count == 0) {
			nap(5 * NS_PER_MS);
			continue;
		}
		snprintf(expected, sizeof(expected), "%zu", next++);
		assert_text(delivery.value, expected);
		bus_engine_ack(consumer, 1);
	}
	assert_int_equal(next, 20);
	bus_engine_close(engine, consumer);
}

static void a_waiting_fetch_gets_what_is_published(void **state)
{
	struct bus_engine *engine = *state;
	struct consumer *consumer = bus_engine_consumer(engine, CHANNEL_FIRST, "g");
	struct alarm alarm = {.engine = engine};
	size_t count;

	assert_true(fetch_with_alarm(&alarm, consumer, &count) < 15 * NS_PER_S);
	assert_int_equal(count, 1);
	bus_engine_close(engine, consumer);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		BUS_TEST(what_is_published_comes_and_after_ack_not_again),
		BUS_TEST(everything_of_a_message_travels),
		BUS_TEST(as_many_headers_as_there_may_be_travel),
		BUS_TEST(a_message_may_be_empty),
		BUS_TEST(a_value_may_have_a_megabyte),
		BUS_TEST(a_position_names_the_place),
		BUS_TEST(nothing_to_publish_is_fine),
		BUS_TEST(a_channel_that_nobody_named_does_not_exist),
		BUS_TEST(several_threads_publish_at_once),
		BUS_TEST(ten_thousand_come_each_once),
		BUS_TEST(any_deadline_tells_the_truth),
		BUS_TEST(messages_of_a_key_keep_their_order),
		BUS_TEST(each_group_gets_everything),
		BUS_TEST(channels_are_apart),
		BUS_TEST(a_group_gets_only_the_subjects_it_wants),
		BUS_TEST(what_is_passed_over_never_comes),
		BUS_TEST(a_new_group_begins_at_the_oldest),
		BUS_TEST(members_of_a_group_share_without_overlap),
		BUS_TEST(members_that_come_and_go_lose_nothing),
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

	return cmocka_run_group_tests_name("bus", tests, NULL, NULL);
}
