/*
 * A bus on the private RabbitMQ, with exchanges and queues of its own, and a book of everything
 * that was published through it:
 *
 *   fate            the message comes
 *   CONFIRMED       always
 *   NOT_PERSISTED   never
 *   UNKNOWN         or not
 */
#ifndef QUIPU_CONTRACT_RABBITMQ_BENCH_H
#define QUIPU_CONTRACT_RABBITMQ_BENCH_H

/* cmocka.h wants these before it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "ports/bus.h"

#define PATIENCE_MS 30000
#define MESSAGES_MAX 20000

/* Channels: "events" with the groups "all" and "reads" (subject read), "picky" with a group that
 * wants the subject read alone, "plain" without any. */
enum { EVENTS, PICKY, PLAIN, CHANNELS };
enum { ALL, READS, PICKS, GROUPS };

struct bench {
	struct bus *bus;
	struct producer *producer;
	struct consumer *consumer; /* of the group "all"; NULL: none is open */
	struct bus_group groups[GROUPS];
	struct bus_channel channels[CHANNELS];
	char names[CHANNELS + GROUPS][40];

	/* Everything that was published, by number. */
	struct bus_message sent[MESSAGES_MAX];
	char ids[MESSAGES_MAX][12];
	size_t sent_count;
	unsigned came[MESSAGES_MAX];
};

/* cmocka's: a bus that is up, with a producer; *state is a struct bench. */
int bench_setup(void **state);
int bench_teardown(void **state);

#define BENCH_TEST(test) cmocka_unit_test_setup_teardown(test, bench_setup, bench_teardown)

/* As bench_setup(), without a bus. */
struct bench *bench_new(void);
void bench_free(struct bench *bench);

/* Starts one, also where none can be up; and ends it. */
void bench_open(struct bench *bench, const char *url);
void bench_close(struct bench *bench);

int64_t in_ms(int64_t ms);
int64_t ms_since(int64_t from_ns);
void nap_ms(long ms);

bool bench_is_up(struct bench *bench);
void bench_wait(struct bench *bench, bool up);

/* `count` messages to "events", in the book, to be published. */
struct bus_message *bench_make(struct bench *bench, size_t count);
enum status bench_publish(
	struct bench *bench, struct bus_message *messages, size_t count, int64_t timeout_ms);

/* The same, which must all end so. */
void bench_publish_all(struct bench *bench, size_t count, enum bus_fate fate);

struct consumer *bench_consumer(struct bench *bench);
size_t bench_fetch(
	struct bench *bench, struct bus_delivery *deliveries, size_t max, int64_t timeout_ms);
void bench_ack(struct bench *bench, size_t count);

/* Takes everything there is, as "all", and compares it with the book. */
void bench_assert_fates(struct bench *bench);
size_t bench_count(const struct bench *bench, enum bus_fate fate);

/* While no bus is open: what is logged from here on; the text of it, until the next time. */
void bench_log_begin(void);
const char *bench_log_end(void);

#endif
