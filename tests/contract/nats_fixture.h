/*
 * A bus on a server that a test may do anything to (nats_server.h), what was published, and a look
 * at the stream that does not go through the adapter.
 *
 *   fate            the message is in the stream
 *   CONFIRMED       always
 *   NOT_PERSISTED   never
 *   UNKNOWN         or not
 */
#ifndef QUIPU_CONTRACT_NATS_FIXTURE_H
#define QUIPU_CONTRACT_NATS_FIXTURE_H

/* cmocka.h wants these before it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <nats/nats.h>

#include "base/clock.h"
#include "nats_server.h"
#include "ports/bus.h"

#define MESSAGES_MAX 40000
#define CONSUMERS_MAX 4

/* The program's own names, and a stream of a made name. */
#define EVENTS "entitlements.events"
#define GRANTED "entitlements.events.granted"
#define REVOKED "entitlements.events.revoked"
#define OTHER "other-events"

struct nats_fixture {
	char url[256];
	struct bus *bus;
	struct producer *producer;
	struct consumer *consumers[CONSUMERS_MAX]; /* those that are open */
	size_t consumer_count;

	/* Everything that was published, by number. */
	struct bus_message sent[MESSAGES_MAX];
	char ids[MESSAGES_MAX][12];
	size_t sent_count;
	unsigned in_stream[MESSAGES_MAX];
};

/* cmocka's setup and teardown: *state is a struct nats_fixture, on a server of its own, up. */
int nats_fixture_setup(void **state);
int nats_fixture_teardown(void **state);

#define NATS_TEST(test)                                                                            \
	cmocka_unit_test_setup_teardown(test, nats_fixture_setup, nats_fixture_teardown)

/* Ends the bus, and starts another with these options ("ack-wait=1s&max-deliver=3"), or none. */
void nats_fixture_reopen(struct nats_fixture *fixture, const char *options);
void nats_fixture_close(struct nats_fixture *fixture);
void nats_fixture_open(struct nats_fixture *fixture, const char *options);

void nats_fixture_wait_until(struct nats_fixture *fixture, bool up);

/* While no bus is open: from here on everything is logged, for captured_log_count(). */
void nats_fixture_capture_log(void);

/* Messages with the next numbers as ids and values, to EVENTS. */
struct bus_message *nats_fixture_make(struct nats_fixture *fixture, size_t count);
enum status nats_fixture_publish(struct nats_fixture *fixture, struct bus_message *messages,
	size_t count, int64_t timeout_ms);
void nats_fixture_publish_all(struct nats_fixture *fixture, size_t count, enum bus_fate fate);

/* One message, again and again with other ids, as long as it is refused. */
void nats_fixture_publish_until_confirmed(struct nats_fixture *fixture);
size_t nats_fixture_count(const struct nats_fixture *fixture, enum bus_fate fate);

/* Reads the stream of EVENTS and fails if a fate is not true. */
void nats_fixture_assert_fates(struct nats_fixture *fixture);

/* Fetches once: what comes within the time. */
size_t nats_fixture_fetch(
	struct consumer *consumer, struct bus_delivery *deliveries, size_t max, int64_t timeout_ms);

/* Fetches one that must come, and nothing though there is time for it. */
void nats_fixture_fetch_one(struct consumer *consumer, struct bus_delivery *delivery);
void nats_fixture_fetch_nothing(struct consumer *consumer, int64_t during_ms);

/* Fetches exactly that many messages, which must come. A fetch that waits may be given the first
 * alone; what is not acknowledged comes again with the rest. */
void nats_fixture_fetch_all(
	struct consumer *consumer, struct bus_delivery *deliveries, size_t wanted);

/* Fetches and acknowledges until that many have come. */
void nats_fixture_consume(struct consumer *consumer, size_t wanted);

/* What a test that fails leaves open is closed with the bus. */
struct consumer *nats_fixture_consumer(struct nats_fixture *fixture, const char *group);
void nats_fixture_close_consumer(struct nats_fixture *fixture, struct consumer *consumer);
void nats_fixture_ack(struct consumer *consumer, size_t count);

/* A connection to the server, for what the test does there itself. */
struct nats_admin {
	natsConnection *connection;
	jsCtx *js;
};
void nats_admin_open(struct nats_admin *admin);
void nats_admin_close(struct nats_admin *admin);

/* Ends it and then destroys it: cnats may use one that it is reading for, see nats_link.c. */
void nats_admin_end(struct nats_admin *admin, natsSubscription *subscription);

#endif
