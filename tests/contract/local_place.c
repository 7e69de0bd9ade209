#include "local_place.h"

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "adapters/bus/local/local_bus.h"
#include "waiting.h"

static const struct bus_group groups[] = {{.name = "reads", .subjects = "read"}};
const struct bus_channel local_place_channels[2] = {
	{.name = "events", .partitions = 4, .groups = groups, .group_count = 1},
	{.name = "dead", .partitions = 1}};

char local_place_folder[64];
char local_place_path[80];

/* ---- files ------------------------------------------------------------------------------- */

int local_place_make_folder(void **state)
{
	(void)state;
	snprintf(local_place_folder, sizeof(local_place_folder), "/tmp/quipu-local-XXXXXX");
	assert_non_null(mkdtemp(local_place_folder));
	snprintf(local_place_path, sizeof(local_place_path), "%s/bus.db", local_place_folder);
	return 0;
}

void local_place_remove_files(void)
{
	static const char *const endings[] = {"", "-wal", "-shm", "-journal"};

	for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++) {
		char name[96];

		snprintf(name, sizeof(name), "%s%s", local_place_path, endings[i]);
		unlink(name);
	}
}

int local_place_remove_folder(void **state)
{
	(void)state;
	local_place_remove_files();
	rmdir(local_place_folder);
	return 0;
}

int64_t local_place_ask(const char *sql)
{
	sqlite3 *db;
	sqlite3_stmt *stmt;
	int64_t number;

	assert_int_equal(sqlite3_open(local_place_path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &stmt, NULL), SQLITE_OK);
	number = sqlite3_step(stmt) == SQLITE_ROW ? sqlite3_column_int64(stmt, 0) : 0;
	sqlite3_finalize(stmt);
	sqlite3_close(db);
	return number;
}

/* ---- buses ------------------------------------------------------------------------------- */

struct bus *local_place_open_bus(void)
{
	struct bus *bus = local_bus_new("local", local_place_path, local_place_channels, 2);
	char why[256] = "";

	if (!bus->ops->start(bus, why, sizeof(why)))
		fail_msg("%s", why);
	return bus;
}

enum status local_place_publish(struct bus *bus, struct bus_message *messages, size_t count)
{
	struct producer *producer = bus->ops->open_producer(bus);
	enum status status = producer->ops->publish(producer, messages, count, in_ms(HANG_MS));

	producer->ops->close(producer);
	return status;
}

void local_place_publish_number(struct bus *bus, const char *channel, const char *key, long number)
{
	char text[24];
	struct bus_message message = {.channel = slice_of(channel), .key = slice_of(key)};

	snprintf(text, sizeof(text), "%ld", number);
	message.id = message.value = slice_of(text);
	assert_int_equal(local_place_publish(bus, &message, 1), STATUS_OK);
	assert_int_equal(message.fate, BUS_CONFIRMED);
}

#define MANY 3000

void local_place_publish_many(struct bus *bus)
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
		assert_int_equal(local_place_publish(bus, messages, 1000), STATUS_OK);
	}
}

size_t local_place_fetch(struct consumer *consumer, struct bus_delivery *deliveries, size_t max)
{
	size_t count = 0;

	assert_int_equal(
		consumer->ops->fetch(consumer, deliveries, max, &count, in_ms(0)), STATUS_OK);
	return count;
}

void local_place_assert_numbers(
	const struct bus_delivery *deliveries, size_t count, long first, size_t wanted)
{
	assert_int_equal(count, wanted);
	for (size_t i = 0; i < count; i++)
		assert_int_equal(atol(deliveries[i].value.data), first + (long)i);
}
