/*
 * The local bus where things go wrong: kill -9, a disk that fails, files that are not its own, and
 * what it keeps and deletes. The contract of the port is in bus_contract.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "adapters/local/local_bus.h"
#include "base/arena.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "faulty_disk.h"
#include "waiting.h"

static const struct bus_group groups[] = {{.name = "reads", .subjects = "read"}};
static const struct bus_channel channels[] = {
	{.name = "events", .partitions = 4, .groups = groups, .group_count = 1},
	{.name = "dead", .partitions = 1}};

static char folder[64];
static char path[80];

/* ---- files ------------------------------------------------------------------------------- */

static int make_folder(void **state)
{
	(void)state;
	snprintf(folder, sizeof(folder), "/tmp/quipu-local-XXXXXX");
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/bus.db", folder);
	return 0;
}

static void remove_files(void)
{
	static const char *const endings[] = {"", "-wal", "-shm", "-journal"};

	for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++) {
		char name[96];

		snprintf(name, sizeof(name), "%s%s", path, endings[i]);
		unlink(name);
	}
}

static int remove_folder(void **state)
{
	(void)state;
	remove_files();
	rmdir(folder);
	return 0;
}

/* A number from the file, which no bus has open. */
static int64_t ask(const char *sql)
{
	sqlite3 *db;
	sqlite3_stmt *stmt;
	int64_t number;

	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &stmt, NULL), SQLITE_OK);
	number = sqlite3_step(stmt) == SQLITE_ROW ? sqlite3_column_int64(stmt, 0) : 0;
	sqlite3_finalize(stmt);
	sqlite3_close(db);
	return number;
}

/* ---- buses ------------------------------------------------------------------------------- */

static struct bus *open_bus(void)
{
	struct bus *bus = local_bus_new("local", path, channels, 2);
	char why[256] = "";

	if (!bus->ops->start(bus, why, sizeof(why)))
		fail_msg("%s", why);
	return bus;
}

static enum status publish(struct bus *bus, struct bus_message *messages, size_t count)
{
	struct producer *producer = bus->ops->open_producer(bus);
	enum status status = producer->ops->publish(producer, messages, count, in_ms(HANG_MS));

	producer->ops->close(producer);
	return status;
}

static void publish_number(struct bus *bus, const char *channel, const char *key, long number)
{
	char text[24];
	struct bus_message message = {.channel = slice_of(channel), .key = slice_of(key)};

	snprintf(text, sizeof(text), "%ld", number);
	message.id = message.value = slice_of(text);
	assert_int_equal(publish(bus, &message, 1), STATUS_OK);
	assert_int_equal(message.fate, BUS_CONFIRMED);
}

#define MANY 3000

/* The numbers below MANY, a thousand at a time: each call writes to the disk. */
static void publish_many(struct bus *bus)
{
	static struct bus_message messages[1000];
	static char texts[1000][8];

	for (int first = 0; first < MANY; first += 1000) {
		for (int i = 0; i < 1000; i++) {
			snprintf(texts[i], sizeof(texts[i]), "%d", first + i);
			messages[i] = (struct bus_message){.channel = slice_of("events"),
				.id = slice_of(texts[i]),
				.value = slice_of(texts[i])};
		}
		assert_int_equal(publish(bus, messages, 1000), STATUS_OK);
	}
}

static size_t fetch(struct consumer *consumer, struct bus_delivery *deliveries, size_t max)
{
	size_t count = 0;

	assert_int_equal(
		consumer->ops->fetch(consumer, deliveries, max, &count, in_ms(0)), STATUS_OK);
	return count;
}

static void assert_numbers(
	const struct bus_delivery *deliveries, size_t count, long first, size_t wanted)
{
	assert_int_equal(count, wanted);
	for (size_t i = 0; i < count; i++)
		assert_int_equal(atol(deliveries[i].value.data), first + (long)i);
}

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
	struct bus *bus = local_bus_new("local", path, channels, 2);
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

static void hear(unsigned char *told, FILE *from, long *highest)
{
	char line[32];

	while (fgets(line, sizeof(line), from)) {
		long number = atol(line + 1);

		assert_true(number >= 0 && number < NUMBERS_MAX);
		told[number] |= line[0] == 'c' ? CONFIRMED : line[0] == 'w' ? ACKING : ACKED;
		if (number > *highest)
			*highest = number;
	}
}

static void run_child_and_kill_it(unsigned char *told, long *highest, long ms)
{
	const struct timespec pause = {.tv_nsec = ms * NS_PER_MS};
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
	nanosleep(&pause, NULL);
	kill(child, SIGKILL);
	from = fdopen(ends[0], "r");
	hear(told, from, highest);
	fclose(from);
	waitpid(child, &result, 0);
	assert_true(WIFSIGNALED(result));
}

static void look_at_what_is_left(unsigned char *told)
{
	unsigned char *came = qp_calloc(NUMBERS_MAX, 1);
	struct bus_delivery deliveries[100];
	struct bus *bus = open_bus();
	struct consumer *consumer = bus->ops->open_consumer(bus, "events", "g");
	size_t count;

	while ((count = fetch(consumer, deliveries, 100)) > 0) {
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
		run_child_and_kill_it(told, &highest, 60 + 37 * i);
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
	struct bus *bus = open_bus();
	struct consumer *first = bus->ops->open_consumer(bus, "events", "one");
	struct consumer *second = bus->ops->open_consumer(bus, "events", "two");

	(void)state;
	publish_many(bus);
	for (int i = 0; i < 6; i++)
		assert_int_equal(first->ops->ack(first, fetch(first, deliveries, 500)), STATUS_OK);
	assert_int_equal(second->ops->ack(second, fetch(second, deliveries, 100)), STATUS_OK);
	first->ops->close(first);
	second->ops->close(second);
	bus->ops->free(bus);
	assert_in_range(ask("SELECT count(*) FROM messages"), 2900, 3000);

	bus = open_bus();
	second = bus->ops->open_consumer(bus, "events", "two");
	for (int i = 0; i < 6; i++)
		assert_int_equal(
			second->ops->ack(second, fetch(second, deliveries, 500)), STATUS_OK);
	second->ops->close(second);
	bus->ops->free(bus);
	assert_in_range(ask("SELECT count(*) FROM messages"), 0, 1000);
	bus = open_bus();
	bus->ops->free(bus);
	assert_int_equal(ask("SELECT count(*) FROM messages"), 0);
	assert_int_equal(ask("SELECT count(*) FROM acknowledged"), 0);
}

/* A group that wants none of what comes keeps none of it, though it has nothing to acknowledge. */
static void what_a_group_passes_over_is_deleted(void **state)
{
	struct bus *bus = open_bus();
	struct consumer *consumer = bus->ops->open_consumer(bus, "events", "reads");
	struct bus_delivery delivery;
	size_t count = 7;

	(void)state;
	publish_many(bus);
	assert_int_equal(
		consumer->ops->fetch(consumer, &delivery, 1, &count, in_ms(300)), STATUS_OK);
	assert_int_equal(count, 0);
	consumer->ops->close(consumer);
	bus->ops->free(bus);
	assert_int_equal(ask("SELECT position FROM groups"), 3000);
	bus = open_bus();
	bus->ops->free(bus);
	assert_int_equal(ask("SELECT count(*) FROM messages"), 0);
}

static void a_channel_without_a_group_keeps_seven_days(void **state)
{
	struct bus *bus = open_bus();
	struct consumer *consumer = bus->ops->open_consumer(bus, "events", "g");

	(void)state;
	consumer->ops->close(consumer);
	publish_number(bus, "events", "", 1);
	publish_number(bus, "dead", "", 2);
	bus->ops->free(bus);
	setenv("QUIPU_TEST_CLOCK_OFFSET", "6d", 1);
	bus = open_bus();
	bus->ops->free(bus);
	assert_int_equal(ask("SELECT count(*) FROM messages"), 2);
	setenv("QUIPU_TEST_CLOCK_OFFSET", "8d", 1);
	bus = open_bus();
	bus->ops->free(bus);
	unsetenv("QUIPU_TEST_CLOCK_OFFSET");
	assert_int_equal(ask("SELECT count(*) FROM messages"), 1);
	assert_int_equal(ask("SELECT channel FROM messages"),
		ask("SELECT id FROM channels WHERE name = 'events'"));
}

static void offsets_are_never_given_twice(void **state)
{
	struct bus_delivery delivery;
	struct bus *bus = open_bus();
	struct consumer *consumer = bus->ops->open_consumer(bus, "events", "g");
	struct slice position;
	struct arena arena;

	(void)state;
	arena_init(&arena, 1024);
	publish_number(bus, "events", "", 1);
	assert_int_equal(fetch(consumer, &delivery, 1), 1);
	position = arena_copy(&arena, delivery.position);
	assert_int_equal(consumer->ops->ack(consumer, 1), STATUS_OK);
	consumer->ops->close(consumer);
	bus->ops->free(bus);
	bus = open_bus();
	bus->ops->free(bus); /* the file is empty now */
	bus = open_bus();
	consumer = bus->ops->open_consumer(bus, "events", "g");
	publish_number(bus, "events", "", 2);
	assert_int_equal(fetch(consumer, &delivery, 1), 1);
	assert_false(slice_equal(position, delivery.position));
	consumer->ops->close(consumer);
	bus->ops->free(bus);
	arena_release(&arena);
}

/* ---- members of a group ------------------------------------------------------------------ */

static void what_the_faster_member_acknowledged_stays_so(void **state)
{
	struct bus_delivery deliveries[10];
	struct bus *bus = open_bus();
	struct consumer *slow = bus->ops->open_consumer(bus, "events", "g");
	struct consumer *fast = bus->ops->open_consumer(bus, "events", "g");

	(void)state;
	for (long i = 0; i < 10; i++)
		publish_number(bus, "events", "", i);
	assert_numbers(deliveries, fetch(slow, deliveries, 5), 0, 5);
	assert_numbers(deliveries, fetch(fast, deliveries, 5), 5, 5);
	assert_int_equal(fast->ops->ack(fast, 4), STATUS_OK);
	assert_int_equal(slow->ops->ack(slow, 2), STATUS_OK);
	slow->ops->close(slow);
	fast->ops->close(fast);
	bus->ops->free(bus);

	bus = open_bus();
	slow = bus->ops->open_consumer(bus, "events", "g");
	assert_int_equal(fetch(slow, deliveries, 10), 4);
	assert_numbers(deliveries, 3, 2, 3);
	assert_int_equal(atol(deliveries[3].value.data), 9);
	assert_int_equal(slow->ops->ack(slow, 4), STATUS_OK);
	slow->ops->close(slow);
	bus->ops->free(bus);
	assert_int_equal(ask("SELECT count(*) FROM acknowledged"), 0);
}

static void a_key_in_hand_is_held_back_from_others(void **state)
{
	struct bus_delivery deliveries[10];
	struct bus *bus = open_bus();
	struct consumer *first = bus->ops->open_consumer(bus, "events", "g");
	struct consumer *second = bus->ops->open_consumer(bus, "events", "g");

	(void)state;
	for (long i = 0; i < 4; i++)
		publish_number(bus, "events", "k", i);
	publish_number(bus, "events", "", 4);
	assert_numbers(deliveries, fetch(first, deliveries, 2), 0, 2);
	assert_numbers(deliveries, fetch(second, deliveries, 10), 4, 1);
	assert_int_equal(first->ops->ack(first, 1), STATUS_OK);
	assert_int_equal(second->ops->ack(second, 1), STATUS_OK);
	assert_int_equal(fetch(second, deliveries, 10), 0);
	assert_int_equal(first->ops->ack(first, 2), STATUS_OK);
	assert_numbers(deliveries, fetch(second, deliveries, 10), 2, 2);
	first->ops->close(first);
	second->ops->close(second);
	bus->ops->free(bus);
}

/* ---- files that are not its own ---------------------------------------------------------- */

static void assert_refused(const char *part)
{
	struct bus *bus = local_bus_new("local", path, channels, 2);
	char why[256] = "";

	assert_false(bus->ops->start(bus, why, sizeof(why)));
	assert_false(bus->ops->is_up(bus));
	if (!strstr(why, part))
		fail_msg("%s", why);
	bus->ops->free(bus);
}

static void a_file_that_is_in_use_is_refused(void **state)
{
	struct bus *bus = open_bus();

	(void)state;
	publish_number(bus, "events", "", 1);
	assert_refused("in use by another program");
	publish_number(bus, "events", "", 2);
	bus->ops->free(bus);
	bus = open_bus();
	bus->ops->free(bus);
}

static void a_file_that_is_something_else_is_refused(void **state)
{
	FILE *file = fopen(path, "w");

	(void)state;
	for (int i = 0; i < 1000; i++)
		fputs("this is not a database\n", file);
	fclose(file);
	assert_refused("not an SQLite database");
	remove_files();
	ask("CREATE TABLE t (x)");
	ask("PRAGMA user_version = 99");
	assert_refused("newer quipu");
	remove_files();
	snprintf(path, sizeof(path), "%s/no/bus.db", folder);
	assert_refused("cannot be used");
	snprintf(path, sizeof(path), "%s/bus.db", folder);
}

/* ---- a disk that fails ------------------------------------------------------------------- */

#define PUBLISHES 8
#define EACH 2

static const struct disk_plan plans[] = {
	{"an I/O error", DISK_WRITE | DISK_SYNC | DISK_TRUNCATE, .failures = 1},
	{"an I/O error of what was done", DISK_WRITE | DISK_SYNC | DISK_TRUNCATE, .failures = 1,
		.done_anyhow = true},
	{"a full disk", DISK_WRITE, .failures = 1, .full = true},
	{"a disk that stays full", DISK_WRITE, .failures = 9, .full = true},
	{"a sync that keeps failing", DISK_SYNC, .failures = 4},
	{"a read that fails", DISK_READ, .failures = 1},
};

struct run {
	struct bus_message sent[PUBLISHES * EACH];
	char ids[PUBLISHES * EACH][12];
	unsigned came[PUBLISHES * EACH];
	bool acked[PUBLISHES * EACH];
	enum status acks[PUBLISHES];
};

static void consume_some(struct run *run, struct consumer *consumer, int round)
{
	struct bus_delivery deliveries[3];
	size_t count = fetch(consumer, deliveries, 3);

	for (size_t i = 0; i < count; i++)
		run->came[atol(deliveries[i].value.data)]++;
	run->acks[round] = consumer->ops->ack(consumer, count);
	for (size_t i = 0; i < count && run->acks[round] == STATUS_OK; i++)
		run->acked[atol(deliveries[i].value.data)] = true;
}

static void publish_and_consume(struct run *run, struct bus *bus)
{
	struct consumer *consumer = bus->ops->open_consumer(bus, "events", "g");

	for (int round = 0; round < PUBLISHES; round++) {
		struct bus_message *messages = &run->sent[round * EACH];

		for (int i = 0; i < EACH; i++) {
			char *id = run->ids[round * EACH + i];

			snprintf(id, sizeof(run->ids[0]), "%d", round * EACH + i);
			messages[i] = (struct bus_message){.channel = slice_of("events"),
				.id = slice_of(id),
				.value = slice_of(id)};
		}
		if (publish(bus, messages, EACH) != STATUS_OK)
			assert_int_equal(messages[0].fate, BUS_NOT_PERSISTED);
		if (round % 2)
			consume_some(run, consumer, round);
	}
	consumer->ops->close(consumer);
}

static void check(struct run *run, const char *plan, int nth)
{
	struct bus *bus = open_bus();
	struct consumer *consumer = bus->ops->open_consumer(bus, "events", "g");
	unsigned late[PUBLISHES * EACH] = {0};
	struct bus_delivery deliveries[10];
	size_t count;

	while ((count = fetch(consumer, deliveries, 10)) > 0) {
		for (size_t i = 0; i < count; i++)
			late[atol(deliveries[i].value.data)]++;
		assert_int_equal(consumer->ops->ack(consumer, count), STATUS_OK);
	}
	for (size_t i = 0; i < PUBLISHES * EACH; i++) {
		unsigned came = run->came[i] + late[i];

		if (run->sent[i].fate == BUS_CONFIRMED && came == 0)
			fail_msg("%s, call %d: %zu was confirmed and is lost", plan, nth, i);
		if (run->sent[i].fate == BUS_NOT_PERSISTED && came > 0)
			fail_msg("%s, call %d: %zu was not persisted and came", plan, nth, i);
		if (run->acked[i] && late[i] > 0)
			fail_msg("%s, call %d: %zu came after its ack", plan, nth, i);
	}
	consumer->ops->close(consumer);
	bus->ops->free(bus);
}

/* true: something has failed. */
static bool try_plan(const struct disk_plan *plan, int nth)
{
	struct run run = {0};
	struct bus *bus;
	bool failed;

	remove_files();
	disk_watch(path);
	bus = open_bus();
	disk_arm(plan, nth);
	publish_and_consume(&run, bus);
	failed = disk_disarm();
	bus->ops->free(bus);
	check(&run, plan->name, nth);
	disk_unwatch();
	return failed;
}

/* Every call of every kind, one after the other, until a run without a failure. */
static void a_disk_that_fails_makes_no_liar_of_it(void **state)
{
	int tried = 0;

	(void)state;
	log_configure((enum log_level)(LOG_ERROR + 1), LOG_TEXT); /* it is meant to fail */
	disk_install();
	for (size_t i = 0; i < sizeof(plans) / sizeof(plans[0]); i++) {
		int nth = 1;

		while (try_plan(&plans[i], nth) && nth < 500)
			nth++;
		assert_true(nth > 1 || plans[i].calls == DISK_READ);
		tried += nth;
	}
	print_message("%d runs\n", tried);
}

#define LOCAL_TEST(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)

int main(void)
{
	const struct CMUnitTest tests[] = {
		LOCAL_TEST(kill_9_loses_nothing_that_was_confirmed), /* forks: before any thread */
		LOCAL_TEST(what_every_group_has_acknowledged_is_deleted),
		LOCAL_TEST(what_a_group_passes_over_is_deleted),
		LOCAL_TEST(a_channel_without_a_group_keeps_seven_days),
		LOCAL_TEST(offsets_are_never_given_twice),
		LOCAL_TEST(what_the_faster_member_acknowledged_stays_so),
		LOCAL_TEST(a_key_in_hand_is_held_back_from_others),
		LOCAL_TEST(a_file_that_is_in_use_is_refused),
		LOCAL_TEST(a_file_that_is_something_else_is_refused),
		LOCAL_TEST(a_disk_that_fails_makes_no_liar_of_it),
	};

	log_configure(LOG_ERROR, LOG_TEXT);
	hash_seed();
	return cmocka_run_group_tests_name("local bus faults", tests, NULL, NULL);
}
