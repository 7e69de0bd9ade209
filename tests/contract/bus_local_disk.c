/* The local bus on a disk that fails. Part of bus_local_faults. */
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "faulty_disk.h"
#include "local_place.h"

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
	size_t count = local_place_fetch(consumer, deliveries, 3);

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
		if (local_place_publish(bus, messages, EACH) != STATUS_OK)
			assert_int_equal(messages[0].fate, BUS_NOT_PERSISTED);
		if (round % 2)
			consume_some(run, consumer, round);
	}
	consumer->ops->close(consumer);
}

static void check(struct run *run, const char *plan, int nth)
{
	struct bus *bus = local_place_open_bus();
	struct consumer *consumer = bus->ops->open_consumer(bus, "events", "g");
	unsigned late[PUBLISHES * EACH] = {0};
	struct bus_delivery deliveries[10];
	size_t count;

	while ((count = local_place_fetch(consumer, deliveries, 10)) > 0) {
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

	local_place_remove_files();
	disk_watch(local_place_path);
	bus = local_place_open_bus();
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

int bus_local_disk_tests(void)
{
	const struct CMUnitTest tests[] = {
		LOCAL_TEST(a_disk_that_fails_makes_no_liar_of_it),
	};

	return cmocka_run_group_tests_name("local bus on a failing disk", tests, NULL, NULL);
}
