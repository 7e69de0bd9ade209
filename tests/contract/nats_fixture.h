/*
 * A bus on a NATS that a test may do anything to (nats_server.h), and a look at its stream that
 * does not go through the adapter. Whoever publishes and consumes does so with bus_fixture.h.
 */
#ifndef QUIPU_CONTRACT_NATS_FIXTURE_H
#define QUIPU_CONTRACT_NATS_FIXTURE_H

#include "bus_fixture.h"

#include <nats/nats.h>

#include "nats_server.h"

/* The program's own names, and a stream of a made name. */
#define EVENTS "entitlements.events"
#define GRANTED "entitlements.events.granted"
#define REVOKED "entitlements.events.revoked"
#define OTHER "other-events"

/* A group of EVENTS that the bus knows in advance, and that nobody has created. */
#define DECLARED "declared"

/* cmocka's setup and teardown: *state is a struct bus_fixture, on a server of its own, up. Its
 * messages go to EVENTS. */
int nats_fixture_setup(void **state);
int nats_fixture_teardown(void **state);

#define NATS_TEST(test)                                                                            \
	cmocka_unit_test_setup_teardown(test, nats_fixture_setup, nats_fixture_teardown)

/* Opens a bus with these options ("ack-wait=1s&max-deliver=3"), or none. */
void nats_fixture_open(struct bus_fixture *fixture, const char *options);

/* Ends the bus first, and waits until the new one is up. */
void nats_fixture_reopen(struct bus_fixture *fixture, const char *options);

/* Reads the stream of EVENTS and fails if a fate is not true, or a message is there twice. */
void nats_fixture_assert_fates(struct bus_fixture *fixture);

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
