/*
 * A bus on the private RabbitMQ, with exchanges and queues of its own, and a book of everything
 * that was published through it:
 *
 *   fate            the message comes
 *   CONFIRMED       always
 *   NOT_PERSISTED   never
 *   UNKNOWN         or not
 */
#ifndef QUIPU_CONTRACT_RABBITMQ_FIXTURE_H
#define QUIPU_CONTRACT_RABBITMQ_FIXTURE_H

/* cmocka.h wants these before it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "ports/bus.h"

#define MESSAGES_MAX 20000

/* Channels: "events" with the groups "all" and "reads" (subject read), "picky" with a group that
 * wants the subject read alone, "plain" without any. */
enum { EVENTS, PICKY, PLAIN, CHANNELS };
enum { ALL, READS, PICKS, GROUPS };

struct rabbitmq_fixture {
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

/* cmocka's: a bus that is up, with a producer; *state is a struct rabbitmq_fixture. */
int rabbitmq_fixture_setup(void **state);
int rabbitmq_fixture_teardown(void **state);

#define FIXTURE_TEST(test)                                                                         \
	cmocka_unit_test_setup_teardown(test, rabbitmq_fixture_setup, rabbitmq_fixture_teardown)

/* As rabbitmq_fixture_setup(), without a bus. */
struct rabbitmq_fixture *rabbitmq_fixture_new(void);
void rabbitmq_fixture_free(struct rabbitmq_fixture *fixture);

/* Starts one, also where none can be up; and ends it. */
void rabbitmq_fixture_open(struct rabbitmq_fixture *fixture, const char *url);
void rabbitmq_fixture_close(struct rabbitmq_fixture *fixture);

bool rabbitmq_fixture_is_up(struct rabbitmq_fixture *fixture);
void rabbitmq_fixture_wait(struct rabbitmq_fixture *fixture, bool up);

/* `count` messages to "events", in the book, to be published. */
struct bus_message *rabbitmq_fixture_make(struct rabbitmq_fixture *fixture, size_t count);
enum status rabbitmq_fixture_publish(struct rabbitmq_fixture *fixture, struct bus_message *messages,
	size_t count, int64_t timeout_ms);

/* The same, which must all end so. */
void rabbitmq_fixture_publish_all(
	struct rabbitmq_fixture *fixture, size_t count, enum bus_fate fate);

struct consumer *rabbitmq_fixture_consumer(struct rabbitmq_fixture *fixture);
size_t rabbitmq_fixture_fetch(struct rabbitmq_fixture *fixture, struct bus_delivery *deliveries,
	size_t max, int64_t timeout_ms);
void rabbitmq_fixture_ack(struct rabbitmq_fixture *fixture, size_t count);

/* Publishes one more message, takes everything up to it and what comes soon after it, as "all", and
 * compares that with the book. The bus must be up. */
void rabbitmq_fixture_assert_fates(struct rabbitmq_fixture *fixture);
size_t rabbitmq_fixture_count(const struct rabbitmq_fixture *fixture, enum bus_fate fate);

/* While no bus is open: from here on everything is logged, and kept for captured_log_count(); until
 * the second. */
void rabbitmq_fixture_log_begin(void);
void rabbitmq_fixture_log_end(void);

/* Waits until a bus has failed to use the broker that many times; the log has a line for each. */
void rabbitmq_fixture_wait_for_failures(int count);

#endif
