/*
 * A bus on the private RabbitMQ, with exchanges and queues of its own. Whoever publishes and
 * consumes does so with bus_fixture.h.
 */
#ifndef QUIPU_CONTRACT_RABBITMQ_FIXTURE_H
#define QUIPU_CONTRACT_RABBITMQ_FIXTURE_H

#include "bus_fixture.h"

/* Channels: "events" with the groups "all" and "reads" (subject read), "picky" with a group that
 * wants the subject read alone, "plain" without any. */
enum { EVENTS, PICKY, PLAIN, CHANNELS };
enum { ALL, READS, PICKS, GROUPS };

struct rabbitmq_fixture {
	struct bus_fixture base; /* its messages go to "events" */
	struct bus_group groups[GROUPS];
	struct bus_channel channels[CHANNELS];
	char names[CHANNELS + GROUPS][40];
};

/* cmocka's: a bus that is up, with a producer; *state is a struct rabbitmq_fixture. */
int rabbitmq_fixture_setup(void **state);
int rabbitmq_fixture_teardown(void **state);

#define FIXTURE_TEST(test)                                                                         \
	cmocka_unit_test_setup_teardown(test, rabbitmq_fixture_setup, rabbitmq_fixture_teardown)

/* As rabbitmq_fixture_setup(), without a bus. */
struct rabbitmq_fixture *rabbitmq_fixture_new(void);
void rabbitmq_fixture_free(struct rabbitmq_fixture *fixture);

/* Opens a bus, also where none can be up. bus_fixture_close() ends it. */
void rabbitmq_fixture_open(struct rabbitmq_fixture *fixture, const char *url);

/* The first consumer that is open; if there is none, opens one of the group "all". */
struct consumer *rabbitmq_fixture_consumer(struct rabbitmq_fixture *fixture);

/* Publishes one more message, takes everything up to it and what comes soon after it, and compares
 * that with the book. The bus must be up. */
void rabbitmq_fixture_assert_fates(struct rabbitmq_fixture *fixture);

/* Waits until a bus has failed to use the broker that many times; the log has a line for each. */
void rabbitmq_fixture_wait_for_failures(int count);

#endif
