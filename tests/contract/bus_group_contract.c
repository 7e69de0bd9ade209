/* What ports/bus.h promises of groups: who gets what, and how members share. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "bus_contract.h"
#include "bus_engine.h"
#include "waiting.h"

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
	bus_engine_assert_text(*bus_engine_collect(engine, first, 1), "a");
	bus_engine_assert_text(*bus_engine_collect(engine, second, 1), "b");
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
		bus_engine_assert_text(delivery.id, ids[round]);
		bus_engine_fetch(reads, &delivery, 1); /* it is not acknowledged */
		bus_engine_assert_text(delivery.id, ids[round]);
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

		if (bus_engine_try_fetch(consumer, deliveries, 16, &count) != STATUS_OK)
			break;
		for (size_t i = 0; i < count; i++) {
			if (!slice_starts_with(deliveries[i].value, "m-"))
				continue;
			atomic_fetch_add(&member->seen[bus_engine_number(deliveries[i].value)], 1);
			atomic_fetch_add(member->total, 1);
		}
		if (consumer->ops->ack(consumer, count) == STATUS_OK)
			atomic_fetch_add(&member->came, count);
	}
	return NULL;
}

/* Publishes what does not count until both have work. `name` is one letter, another each time. */
static void wait_for_both(struct bus_engine *engine, struct member members[2], const char *name)
{
	int64_t deadline_ns = hang_deadline_ns();

	for (int i = 0; members[0].came == 0 || members[1].came == 0; i++) {
		char prefix[24];

		/* an id that comes twice is dropped */
		snprintf(prefix, sizeof(prefix), "%s%d-", name, i);
		bus_engine_publish(engine, bus_engine_messages(engine, prefix, 64, 64), 64);
		nap_ms(50);
		wait_on(deadline_ns, "both members have work");
	}
}

static void members_of_a_group_share_without_overlap(void **state)
{
	struct bus_engine *engine = *state;
	static _Atomic unsigned char seen[1000];
	_Atomic size_t total = 0;
	_Atomic bool stop = false;
	struct member members[2] = {0};

	memset((void *)seen, 0, sizeof(seen));
	for (size_t i = 0; i < 2; i++) {
		members[i].consumer = bus_engine_consumer(engine, CHANNEL_FIRST, "g");
		members[i].stop = &stop;
		members[i].seen = seen;
		members[i].total = &total;
		pthread_create(&members[i].thread, NULL, take_part, &members[i]);
	}
	wait_for_both(engine, members, "v");
	members[0].came = members[1].came = 0;
	bus_engine_publish(engine, bus_engine_messages(engine, "x-", 100, 10), 100);
	bus_engine_publish(engine, bus_engine_messages(engine, "m-", 1000, 200), 1000);
	WAIT_UNTIL(total >= 1000);
	nap_ms(QUIET_MS);                    /* for those that come twice */
	wait_for_both(engine, members, "w"); /* one may have been faster until now */
	atomic_store(&stop, true);
	for (size_t i = 0; i < 2; i++) {
		pthread_join(members[i].thread, NULL);
		bus_engine_close(engine, members[i].consumer);
	}
	assert_int_equal(total, 1000);
	for (size_t i = 0; i < 1000; i++)
		assert_int_equal(seen[i], 1);
}

#define COMING_MAX 6000
#define COMING_STEP 20

struct guest {
	struct consumer *consumer;
	_Atomic bool has_some;
	_Atomic bool may_go;
};

/* Takes part until it has messages in hand, and keeps them until its consumer is closed. */
static void *come_and_go(void *context)
{
	struct guest *guest = context;
	struct bus_delivery deliveries[16];
	size_t count = 0;

	while (count == 0 && !guest->may_go)
		if (bus_engine_try_fetch(guest->consumer, deliveries, 16, &count) != STATUS_OK)
			break;
	guest->has_some = count > 0;
	return NULL;
}

/* Publishes, more and more slowly, until the guest has some of it; returns how many messages that
 * took. A member that joins may have to wait for seconds. */
static size_t publish_until_the_guest_has_some(
	struct bus_engine *engine, struct bus_message *messages, struct guest *guest)
{
	size_t count = 0;

	while (!guest->has_some && count < COMING_MAX) {
		bus_engine_publish(engine, messages + count, COMING_STEP);
		count += COMING_STEP;
		nap_ms(20 + (int64_t)(count / COMING_STEP));
	}
	return count;
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
	static _Atomic unsigned char seen[COMING_MAX];
	_Atomic size_t total = 0;
	_Atomic bool stop = false;
	struct member host = {.stop = &stop, .seen = seen, .total = &total};
	struct bus_message *messages = bus_engine_messages(engine, "m-", COMING_MAX, 60);
	struct guest guest = {0};
	size_t published;
	pthread_t thread;

	memset((void *)seen, 0, sizeof(seen));
	host.consumer = bus_engine_consumer(engine, CHANNEL_FIRST, "g");
	pthread_create(&host.thread, NULL, take_part, &host);
	guest.consumer = bus_engine_consumer(engine, CHANNEL_FIRST, "g");
	pthread_create(&thread, NULL, come_and_go, &guest);
	published = publish_until_the_guest_has_some(engine, messages, &guest);
	guest.may_go = true;
	pthread_join(thread, NULL);
	assert_true(guest.has_some);
	bus_engine_close(engine, guest.consumer);
	WAIT_UNTIL(count_new(&host, published) == published);
	atomic_store(&stop, true);
	pthread_join(host.thread, NULL);
}

/* A member that cannot use what it gets, and so acknowledges nothing. */
struct stuck_member {
	struct consumer *consumer;
	pthread_t thread;
	_Atomic bool stop;
	_Atomic size_t full_fetches;
};

static void *acknowledge_nothing(void *context)
{
	struct stuck_member *member = context;
	struct bus_delivery deliveries[2];
	size_t count;

	while (!member->stop) {
		if (bus_engine_try_fetch(member->consumer, deliveries, 2, &count) != STATUS_OK)
			break;
		member->consumer->ops->again(member->consumer);
		member->full_fetches += count == 2;
	}
	return NULL;
}

static void a_member_that_acknowledges_nothing_keeps_nobody_out(void **state)
{
	struct bus_engine *engine = *state;
	struct bus_message *messages = bus_engine_messages(engine, "m-", COMING_MAX, 60);
	/* not on the stack, which a test that fails leaves to its threads */
	static struct stuck_member host;
	static struct guest guest;
	pthread_t thread;

	bus_engine_publish(engine, bus_engine_messages(engine, "x-", 64, 64), 64);
	host.consumer = bus_engine_consumer(engine, CHANNEL_FIRST, "g");
	pthread_create(&host.thread, NULL, acknowledge_nothing, &host);
	WAIT_UNTIL(host.full_fetches >= 5); /* it holds all that it may hold */
	guest.consumer = bus_engine_consumer(engine, CHANNEL_FIRST, "g");
	pthread_create(&thread, NULL, come_and_go, &guest);
	publish_until_the_guest_has_some(engine, messages, &guest);
	guest.may_go = true;
	pthread_join(thread, NULL);
	assert_true(guest.has_some);
	host.stop = true;
	pthread_join(host.thread, NULL);
}

/* Three fetches find the consumer full. What it had no room for comes later, and once. */
static void what_a_full_consumer_has_no_room_for_comes_later(void **state)
{
	struct bus_engine *engine = *state;
	struct consumer *consumer = bus_engine_consumer(engine, CHANNEL_FIRST, "g");
	struct bus_delivery deliveries[2];

	bus_engine_publish(engine, bus_engine_messages(engine, "m-", 100, 20), 100);
	for (int i = 0; i < 3; i++)
		bus_engine_fetch(consumer, deliveries, 2);
	bus_engine_assert_all(bus_engine_collect(engine, consumer, 100), "m-", 100);
	bus_engine_fetch_nothing(consumer);
}

int bus_group_tests(void)
{
	const struct CMUnitTest tests[] = {
		BUS_TEST(each_group_gets_everything),
		BUS_TEST(channels_are_apart),
		BUS_TEST(a_group_gets_only_the_subjects_it_wants),
		BUS_TEST(what_is_passed_over_never_comes),
		BUS_TEST(a_new_group_begins_at_the_oldest),
		BUS_TEST(members_of_a_group_share_without_overlap),
		BUS_TEST(members_that_come_and_go_lose_nothing),
		BUS_TEST(a_member_that_acknowledges_nothing_keeps_nobody_out),
		BUS_TEST(what_a_full_consumer_has_no_room_for_comes_later),
	};

	return cmocka_run_group_tests_name("bus groups", tests, NULL, NULL);
}
