/* A folder with the file of a local bus, and what tests of such files do often. */
#ifndef QUIPU_CONTRACT_LOCAL_PLACE_H
#define QUIPU_CONTRACT_LOCAL_PLACE_H

/* cmocka.h wants these before it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ports/bus.h"

extern const struct bus_channel local_place_channels[2]; /* "events" and "dead" */
extern char local_place_folder[64];
extern char local_place_path[80];

/* cmocka's setup and teardown. */
int local_place_make_folder(void **state);
int local_place_remove_folder(void **state);

#define LOCAL_TEST(test)                                                                           \
	cmocka_unit_test_setup_teardown(test, local_place_make_folder, local_place_remove_folder)

void local_place_remove_files(void);

/* A number from the file, which no bus has open. */
int64_t local_place_ask(const char *sql);
struct bus *local_place_open_bus(void);
enum status local_place_publish(struct bus *bus, struct bus_message *messages, size_t count);
void local_place_publish_number(struct bus *bus, const char *channel, const char *key, long number);

/* The numbers below 3000, a thousand at a time: each call writes to the disk. */
void local_place_publish_many(struct bus *bus);
size_t local_place_fetch(struct consumer *consumer, struct bus_delivery *deliveries, size_t max);
void local_place_assert_numbers(
	const struct bus_delivery *deliveries, size_t count, long first, size_t wanted);

/* The tests of bus_local_disk.c. Returns how many have failed. */
int bus_local_disk_tests(void);

#endif
