/*
 * The local bus where things go wrong: kill -9, files that are not its own, and
 * what it keeps and deletes. The contract of the port is in bus_contract.c.
 */
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "adapters/bus/local/local_bus.h"
#include "base/arena.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "local_place.h"
#include "waiting.h"

/* ---- kill -9 ----------------------------------------------------------------------------- */

#define NUMBERS_MAX 200000

/* What the child has told about a message. */
enum { CONFIRMED = 1, ACKING = 2, ACKED = 4 };

static void tell(int pipe, char what, struct slice number)
{
	char line[32];
	int len = snprintf(line, sizeof(line), "%c%.*s\n", what, (int)number.len, number.data);

	if (write(pipe, line, (size_t)len) != len)
		_exit(1);
}

static void child_publishes(struct producer *producer, int pipe, long *next)
{
	struct bus_message messages[3];
	char ids[3][24];

	for (size_t i = 0; i < 3; i++) {
		snprintf(ids[i], sizeof(ids[i]), "%ld", (*next)++);
		messages[i] = (struct bus_message){
			.channel = slice_of("events"),
			.id = slice_of(ids[i]),
			.value = slice_of(ids[i]),
		};
	}
	if (producer->ops->publish(producer, messages, 3, in_ms(HANG_MS)) != STATUS_OK)
		_exit(1);
	for (size_t i = 0; i < 3; i++)
		if (messages[i].fate == BUS_CONFIRMED)
			tell(pipe, 'c', messages[i].value);
}

static void child_consumes(struct consumer *consumer, int pipe)
{
	struct bus_delivery deliveries[5];
	size_t count = 0;

	if (consumer->ops->fetch(consumer, deliveries, 5, &count, 0) != STATUS_OK)
		_exit(1);
	for (size_t i = 0; i < count; i++)
		tell(pipe, 'w', deliveries[i].value);
	if (consumer->ops->ack(consumer, count) != STATUS_OK)
		_exit(1);
	for (size_t i = 0; i < count; i++)
		tell(pipe, 'a', deliveries[i].value);
}

static void be_the_child(int pipe, long next)
{
	struct bus *bus = local_bus_new("local", local_place_path, local_place_channels, 2);
	struct producer *producer;
	struct consumer *consumer;
	char why[256];

	if (!bus->ops->start(bus, why, sizeof(why)))
		_exit(1);
	producer = bus->ops->open_producer(bus);
	consumer = bus->ops->open_consumer(bus, "events", "g");
	for (int round = 0; next < NUMBERS_MAX - 3; round++) {
		child_publishes(producer, pipe, &next);
		if (round % 2)
			child_consumes(consumer, pipe);
	}
	_exit(0);
}

/* Notes that many lines of what the child says, or all of them if it ends first. */
static void hear(unsigned char *told, FILE *from, long *highest, long lines)
{
	char line[32];

	while (lines-- > 0 && fgets(line, sizeof(line), from)) {
		long number = atol(line + 1);

		assert_true(number >= 0 && number < NUMBERS_MAX);
		told[number] |= line[0] == 'c' ? CONFIRMED : line[0] == 'w' ? ACKING : ACKED;
		if (number > *highest)
			*highest = number;
	}
}

/* Kills it when it has told so much, in the midst of telling more. */
static void run_child_and_kill_it(unsigned char *told, long *highest, long lines)
{
	int ends[2];
	int result;
	pid_t child;
	FILE *from;

	assert_int_equal(pipe(ends), 0);
	child = fork();
	if (child == 0) {
		close(ends[0]);
		be_the_child(ends[1], *highest + 100);
	}
	close(ends[1]);
	fcntl(ends[0], F_SETPIPE_SZ, 1024 * 1024); /* so that it need not wait for us to read */
	from = fdopen(ends[0], "r");
	hear(told, from, highest, lines);
	kill(child, SIGKILL);
	hear(told, from, highest, LONG_MAX);
	fclose(from);
	waitpid(child, &result, 0);
	assert_true(WIFSIGNALED(result));
}

static void look_at_what_is_left(unsigned char *told)
{
	unsigned char *came = qp_calloc(NUMBERS_MAX, 1);
	struct bus_delivery deliveries[100];
	struct bus *bus = local_place_open_bus();
	struct consumer *consumer = bus->ops->open_consumer(bus, "events", "g");
	size_t count;

	while ((count = local_place_fetch(consumer, deliveries, 100)) > 0) {
		for (size_t i = 0; i < count; i++)
			came[atol(deliveries[i].value.data)]++;
		assert_int_equal(consumer->ops->ack(consumer, count), STATUS_OK);
	}
	for (long i = 0; i < NUMBERS_MAX; i++) {
		if ((told[i] & CONFIRMED) && !(told[i] & ACKING) && came[i] != 1)
			fail_msg("%ld was confirmed and came %d times", i, came[i]);
		if ((told[i] & ACKED) && came[i])
			fail_msg("%ld was acknowledged and came again", i);
		told[i] |= came[i] ? ACKING | ACKED : 0;
	}
	consumer->ops->close(consumer);
	bus->ops->free(bus);
	free(came);
}

static void kill_9_loses_nothing_that_was_confirmed(void **state)
{
	unsigned char *told = qp_calloc(NUMBERS_MAX, 1);
	long highest = 0;
	long confirmed = 0;

	(void)state;
	for (int i = 0; i < 8; i++) {
		run_child_and_kill_it(told, &highest, 1 + 37 * i);
		look_at_what_is_left(told);
	}
	for (long i = 0; i < NUMBERS_MAX; i++)
		confirmed += told[i] & CONFIRMED;
	assert_true(confirmed > 100);
	print_message("%ld confirmed\n", confirmed);
	free(told);
}

/* ---- what it keeps ----------------------------------------------------------------------- */

static void what_every_group_has_acknowledged_is_deleted(void **state)
{
	static struct bus_delivery deliveries[500];
	struct bus *bus = local_place_open_bus();
	struct consumer *first = bus->ops->open_consumer(bus, "events", "one");
	struct consumer *second = bus->ops->open_consumer(bus, "events", "two");

	(void)state;
	local_place_publish_many(bus);
	for (int i = 0; i < 6; i++)
		assert_int_equal(first->ops->ack(first, local_place_fetch(first, deliveries, 500)),
			STATUS_OK);
	assert_int_equal(
		second->ops->ack(second, local_place_fetch(second, deliveries, 100)), STATUS_OK);
	first->ops->close(first);
	second->ops->close(second);
	bus->ops->free(bus);
	assert_int_equal(local_place_ask("SELECT count(*) FROM messages"), 2900);

	bus = local_place_open_bus();
	second = bus->ops->open_consumer(bus, "events", "two");
	for (int i = 0; i < 6; i++)
		assert_int_equal(
			second->ops->ack(second, local_place_fetch(second, deliveries, 500)),
			STATUS_OK);
	second->ops->close(second);
	bus->ops->free(bus);
	assert_int_equal(local_place_ask("SELECT count(*) FROM messages"), 0);
	assert_int_equal(local_place_ask("SELECT count(*) FROM acknowledged"), 0);
}

/* Acknowledges one message, waits in vain for another, and ends without freeing the bus. */
static void wait_in_vain(void)
{
	struct bus *bus = local_place_open_bus();
	struct consumer *consumer = bus->ops->open_consumer(bus, "events", "g");
	struct bus_delivery delivery;
	size_t count = 7;
	bool good;

	local_place_publish_number(bus, "events", "", 1);
	good = local_place_fetch(consumer, &delivery, 1) == 1 &&
	       consumer->ops->ack(consumer, 1) == STATUS_OK &&
	       consumer->ops->fetch(consumer, &delivery, 1, &count, in_ms(1)) == STATUS_OK;
	_exit(good && count == 0 ? EXIT_SUCCESS : EXIT_FAILURE);
}

static void what_was_acknowledged_is_deleted_when_nothing_else_comes(void **state)
{
	pid_t child = fork();
	int status;

	(void)state;
	if (child == 0)
		wait_in_vain();
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_int_equal(local_place_ask("SELECT position FROM groups"), 1);
	assert_int_equal(local_place_ask("SELECT count(*) FROM messages"), 0);
}

/* A group that wants none of what comes keeps none of it, though it has nothing to acknowledge. */
static void what_a_group_passes_over_is_deleted(void **state)
{
	struct bus *bus = local_place_open_bus();
	struct consumer *consumer = bus->ops->open_consumer(bus, "events", "reads");
	struct bus_delivery delivery;
	size_t count = 7;

	(void)state;
	local_place_publish_many(bus);
	local_place_publish_number(bus, "events", "", 3000);
	assert_int_equal(
		consumer->ops->fetch(consumer, &delivery, 1, &count, in_ms(300)), STATUS_OK);
	assert_int_equal(count, 0);
	consumer->ops->close(consumer);
	bus->ops->free(bus);
	assert_int_equal(local_place_ask("SELECT position FROM groups"), 3001);
	assert_int_equal(local_place_ask("SELECT count(*) FROM messages"), 0);
}

static void a_channel_without_a_group_keeps_seven_days(void **state)
{
	struct bus *bus = local_place_open_bus();
	struct consumer *consumer = bus->ops->open_consumer(bus, "events", "g");

	(void)state;
	consumer->ops->close(consumer);
	local_place_publish_number(bus, "events", "", 1);
	local_place_publish_number(bus, "dead", "", 2);
	bus->ops->free(bus);
	setenv("QUIPU_TEST_CLOCK_OFFSET", "6d", 1);
	bus = local_place_open_bus();
	bus->ops->free(bus);
	assert_int_equal(local_place_ask("SELECT count(*) FROM messages"), 2);
	setenv("QUIPU_TEST_CLOCK_OFFSET", "8d", 1);
	bus = local_place_open_bus();
	bus->ops->free(bus);
	unsetenv("QUIPU_TEST_CLOCK_OFFSET");
	assert_int_equal(local_place_ask("SELECT count(*) FROM messages"), 1);
	assert_int_equal(local_place_ask("SELECT channel FROM messages"),
		local_place_ask("SELECT id FROM channels WHERE name = 'events'"));
}

static void offsets_are_never_given_twice(void **state)
{
	struct bus_delivery delivery;
	struct bus *bus = local_place_open_bus();
	struct consumer *consumer = bus->ops->open_consumer(bus, "events", "g");
	struct slice position;
	struct arena arena;

	(void)state;
	arena_init(&arena, 1024);
	local_place_publish_number(bus, "events", "", 1);
	assert_int_equal(local_place_fetch(consumer, &delivery, 1), 1);
	position = arena_copy(&arena, delivery.position);
	assert_int_equal(consumer->ops->ack(consumer, 1), STATUS_OK);
	consumer->ops->close(consumer);
	bus->ops->free(bus);
	bus = local_place_open_bus();
	bus->ops->free(bus); /* the file is empty now */
	bus = local_place_open_bus();
	consumer = bus->ops->open_consumer(bus, "events", "g");
	local_place_publish_number(bus, "events", "", 2);
	assert_int_equal(local_place_fetch(consumer, &delivery, 1), 1);
	assert_false(slice_equal(position, delivery.position));
	consumer->ops->close(consumer);
	bus->ops->free(bus);
	arena_release(&arena);
}

/* ---- members of a group ------------------------------------------------------------------ */

static void what_the_faster_member_acknowledged_stays_so(void **state)
{
	struct bus_delivery deliveries[10];
	struct bus *bus = local_place_open_bus();
	struct consumer *slow = bus->ops->open_consumer(bus, "events", "g");
	struct consumer *fast = bus->ops->open_consumer(bus, "events", "g");

	(void)state;
	for (long i = 0; i < 10; i++)
		local_place_publish_number(bus, "events", "", i);
	local_place_assert_numbers(deliveries, local_place_fetch(slow, deliveries, 5), 0, 5);
	local_place_assert_numbers(deliveries, local_place_fetch(fast, deliveries, 5), 5, 5);
	assert_int_equal(fast->ops->ack(fast, 4), STATUS_OK);
	assert_int_equal(slow->ops->ack(slow, 2), STATUS_OK);
	slow->ops->close(slow);
	fast->ops->close(fast);
	bus->ops->free(bus);

	bus = local_place_open_bus();
	slow = bus->ops->open_consumer(bus, "events", "g");
	assert_int_equal(local_place_fetch(slow, deliveries, 10), 4);
	local_place_assert_numbers(deliveries, 3, 2, 3);
	assert_int_equal(atol(deliveries[3].value.data), 9);
	assert_int_equal(slow->ops->ack(slow, 4), STATUS_OK);
	slow->ops->close(slow);
	bus->ops->free(bus);
	assert_int_equal(local_place_ask("SELECT count(*) FROM acknowledged"), 0);
}

static void a_key_in_hand_is_held_back_from_others(void **state)
{
	struct bus_delivery deliveries[10];
	struct bus *bus = local_place_open_bus();
	struct consumer *first = bus->ops->open_consumer(bus, "events", "g");
	struct consumer *second = bus->ops->open_consumer(bus, "events", "g");

	(void)state;
	for (long i = 0; i < 4; i++)
		local_place_publish_number(bus, "events", "k", i);
	local_place_publish_number(bus, "events", "", 4);
	local_place_assert_numbers(deliveries, local_place_fetch(first, deliveries, 2), 0, 2);
	local_place_assert_numbers(deliveries, local_place_fetch(second, deliveries, 10), 4, 1);
	assert_int_equal(first->ops->ack(first, 1), STATUS_OK);
	assert_int_equal(second->ops->ack(second, 1), STATUS_OK);
	assert_int_equal(local_place_fetch(second, deliveries, 10), 0);
	assert_int_equal(first->ops->ack(first, 2), STATUS_OK);
	local_place_assert_numbers(deliveries, local_place_fetch(second, deliveries, 10), 2, 2);
	first->ops->close(first);
	second->ops->close(second);
	bus->ops->free(bus);
}

/* ---- files that are not its own ---------------------------------------------------------- */

static void assert_refused(const char *part)
{
	struct bus *bus = local_bus_new("local", local_place_path, local_place_channels, 2);
	char why[256] = "";

	assert_false(bus->ops->start(bus, why, sizeof(why)));
	assert_false(bus->ops->is_up(bus));
	if (!strstr(why, part))
		fail_msg("%s", why);
	bus->ops->free(bus);
}

static void a_file_that_is_in_use_is_refused(void **state)
{
	struct bus *bus = local_place_open_bus();

	(void)state;
	local_place_publish_number(bus, "events", "", 1);
	assert_refused("in use by another program");
	local_place_publish_number(bus, "events", "", 2);
	bus->ops->free(bus);
	bus = local_place_open_bus();
	bus->ops->free(bus);
}

static void a_file_that_is_something_else_is_refused(void **state)
{
	FILE *file = fopen(local_place_path, "w");

	(void)state;
	for (int i = 0; i < 1000; i++)
		fputs("this is not a database\n", file);
	fclose(file);
	assert_refused("not an SQLite database");
	local_place_remove_files();
	local_place_ask("CREATE TABLE t (x)");
	local_place_ask("PRAGMA user_version = 99");
	assert_refused("newer quipu");
	local_place_remove_files();
	snprintf(local_place_path, sizeof(local_place_path), "%s/no/bus.db", local_place_folder);
	assert_refused("cannot be used");
	snprintf(local_place_path, sizeof(local_place_path), "%s/bus.db", local_place_folder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		LOCAL_TEST(kill_9_loses_nothing_that_was_confirmed), /* forks: before any thread */
		LOCAL_TEST(what_every_group_has_acknowledged_is_deleted),
		LOCAL_TEST(what_was_acknowledged_is_deleted_when_nothing_else_comes),
		LOCAL_TEST(what_a_group_passes_over_is_deleted),
		LOCAL_TEST(a_channel_without_a_group_keeps_seven_days),
		LOCAL_TEST(offsets_are_never_given_twice),
		LOCAL_TEST(what_the_faster_member_acknowledged_stays_so),
		LOCAL_TEST(a_key_in_hand_is_held_back_from_others),
		LOCAL_TEST(a_file_that_is_in_use_is_refused),
		LOCAL_TEST(a_file_that_is_something_else_is_refused),
	};

	log_configure(LOG_ERROR, LOG_TEXT);
	hash_seed();
	return cmocka_run_group_tests_name("local bus faults", tests, NULL, NULL) +
	       bus_local_disk_tests();
}
