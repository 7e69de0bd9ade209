/*
 * The bus that the contract suite runs on: the value of QUIPU_CONTRACT_BUS, "local:" (also the
 * default), a kafka://, nats:// or amqp:// URL, whose server tests/engines/with_server.py starts.
 *
 * Each test has a bus of its own; on servers also channels of its own, told apart by a prefix.
 */
#ifndef QUIPU_CONTRACT_BUS_ENGINE_H
#define QUIPU_CONTRACT_BUS_ENGINE_H

/* cmocka.h wants these before it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/clock.h"
#include "ports/bus.h"

/* How long to wait for what must not come. */
#define QUIET_MS 100

#define CONSUMERS_MAX 8

enum { CHANNEL_FIRST, CHANNEL_SECOND, CHANNEL_COUNT };

/* The groups that each channel is declared with; what a test opens is one of them. */
#define GROUP_COUNT 7

struct bus_engine {
	struct bus *bus; /* started, and up */
	struct producer *producer;
	struct bus_channel channels[CHANNEL_COUNT]; /* of 4 partitions and of 1 */
	char names[CHANNEL_COUNT][40];
	char subjects[CHANNEL_COUNT][96];
	struct bus_group groups[CHANNEL_COUNT][GROUP_COUNT];
	char *path;         /* of the local queue */
	struct arena arena; /* until the test ends */

	struct consumer *consumers[CONSUMERS_MAX]; /* those that are open */
	size_t consumer_count;
};

/* cmocka's setup and teardown: *state is a struct bus_engine. */
int bus_engine_setup(void **state);
int bus_engine_teardown(void **state);

#define BUS_TEST(test) cmocka_unit_test_setup_teardown(test, bus_engine_setup, bus_engine_teardown)

bool bus_engine_is_local(void);
bool bus_engine_is_nats(void);

/* Whether what is given back by again() comes after a delay, and new messages before it. */
bool bus_engine_delays(void);

/* "<name of the channel>.<ending>": a subject that belongs to the channel. */
struct slice bus_engine_subject(struct bus_engine *engine, int channel, const char *ending);

/* What positions in this channel begin with. */
struct slice bus_engine_place(struct bus_engine *engine, int channel);

/* Ends the bus and starts another on the same data. Consumers have to be closed before. */
void bus_engine_restart(struct bus_engine *engine);

/*
 * Groups are the test's and the channel's own: "g", "one", "two", "late" and "idle" want all,
 * "news" the subjects news and alarm, "reads" the subject read. What a test that fails leaves open
 * is closed.
 */
struct consumer *bus_engine_consumer(struct bus_engine *engine, int channel, const char *group);
void bus_engine_close(struct bus_engine *engine, struct consumer *consumer);

/* A message with this id, value and key, to be published. The texts are copied. */
struct bus_message bus_engine_message(
	struct bus_engine *engine, int channel, const char *key, const char *id);

/* `count` messages with the ids "<prefix>0", "<prefix>1", … and `keys` different keys. */
struct bus_message *bus_engine_messages(
	struct bus_engine *engine, const char *prefix, size_t count, size_t keys);

/* Publishes, and every message is confirmed. */
void bus_engine_publish(struct bus_engine *engine, struct bus_message *messages, size_t count);
void bus_engine_publish_one(
	struct bus_engine *engine, int channel, const char *key, const char *id);

/* A fetch that must give something, and one that must give nothing. */
size_t bus_engine_fetch(struct consumer *consumer, struct bus_delivery *deliveries, size_t max);
void bus_engine_fetch_nothing(struct consumer *consumer);

void bus_engine_ack(struct consumer *consumer, size_t count);

/* Fetches and acknowledges until `count` messages have come; their ids, in that order. */
struct slice *bus_engine_collect(
	struct bus_engine *engine, struct consumer *consumer, size_t count);

/* The ids are exactly "<prefix>0" … "<prefix>count-1", each once, in any order. */
void bus_engine_assert_all(const struct slice *ids, const char *prefix, size_t count);

/* A fetch that may give something within a short while, or nothing. */
enum status bus_engine_try_fetch(
	struct consumer *consumer, struct bus_delivery *deliveries, size_t max, size_t *count);

void bus_engine_assert_bytes(struct slice got, const void *data, size_t len);
void bus_engine_assert_text(struct slice got, const char *text);

/* The number that a value ends with: "m-17" is 17. Values do not end with a NUL. */
long bus_engine_number(struct slice value);

#endif
