/*
 * A bus on a server that a test may do anything to, and a book of everything that was published
 * through it:
 *
 *   fate            the message is there
 *   CONFIRMED       always
 *   NOT_PERSISTED   never
 *   UNKNOWN         or not
 *
 * What each engine adds is in nats_fixture.h and rabbitmq_fixture.h.
 */
#ifndef QUIPU_CONTRACT_BUS_FIXTURE_H
#define QUIPU_CONTRACT_BUS_FIXTURE_H

/* cmocka.h wants these before it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "ports/bus.h"

#define MESSAGES_MAX 40000
#define CONSUMERS_MAX 4

struct bus_fixture {
	struct bus *bus; /* NULL: none is open */
	struct producer *producer;
	struct consumer *consumers[CONSUMERS_MAX]; /* those that are open */
	size_t consumer_count;
	const char *channel; /* of the messages in the book */

	/* Gives a message the subject and key of its engine's tests; NULL: it has none. */
	void (*shape)(struct bus_message *message, size_t number);

	/* Everything that was published, by number. */
	struct bus_message sent[MESSAGES_MAX];
	char ids[MESSAGES_MAX][12];
	size_t sent_count;
	unsigned seen[MESSAGES_MAX]; /* how often each was found at the server */
};

/* Before the first bus of a test: the log, quiet unless QUIPU_CONTRACT_DEBUG is set, and
 * hashing. */
void bus_fixture_prepare(void);

/* Starts `bus`, also where it cannot be up yet, and opens its producer. */
void bus_fixture_open(struct bus_fixture *fixture, struct bus *bus);

/* Closes what is open, the bus included. Does nothing if there is no bus. */
void bus_fixture_close(struct bus_fixture *fixture);

bool bus_fixture_is_up(struct bus_fixture *fixture);
void bus_fixture_wait_until(struct bus_fixture *fixture, bool up);

/* While no bus is open: from the first on everything is logged, and kept for captured_log_count();
 * until the second. */
void bus_fixture_log_begin(void);
void bus_fixture_log_end(void);

/* ---- publishing -------------------------------------------------------------------------- */

/* Messages to the fixture's channel, with the next numbers of the book as ids and values. */
struct bus_message *bus_fixture_make(struct bus_fixture *fixture, size_t count);
enum status bus_fixture_publish(struct bus_fixture *fixture, struct bus_message *messages,
	size_t count, int64_t timeout_ms);

/* Publishes that many, and all have the same fate. */
void bus_fixture_publish_all(struct bus_fixture *fixture, size_t count, enum bus_fate fate);

/* One message, again and again with other ids, as long as it is refused. Returns its number. */
size_t bus_fixture_publish_until_confirmed(struct bus_fixture *fixture, int64_t timeout_ms);

/* How many messages of the book have this fate. */
size_t bus_fixture_count(const struct bus_fixture *fixture, enum bus_fate fate);

/* A message with this id was found at the server. Those that are not in the book have none. */
void bus_fixture_note(struct bus_fixture *fixture, struct slice id);

/* Fails if a fate is not true of what was noted. */
void bus_fixture_check_fates(const struct bus_fixture *fixture);

/* A thread that publishes without end while a test disturbs the server. */
struct bus_load {
	struct bus_fixture *fixture; /* nobody else publishes through it meanwhile */
	size_t batch;                /* messages at once */
	size_t max;                  /* it ends by itself when the book has that many */
	int64_t timeout_ms;
	int64_t pause_ms;         /* after a publish */
	int64_t refused_pause_ms; /* after one that was refused as a whole */

	_Atomic bool stop;
	pthread_t thread;
};
void bus_load_start(struct bus_load *load);
void bus_load_stop(struct bus_load *load);

/* ---- consuming --------------------------------------------------------------------------- */

/* A member of a group of the fixture's channel. What a test that fails leaves open is closed with
 * the bus. */
struct consumer *bus_fixture_consumer(struct bus_fixture *fixture, const char *group);
void bus_fixture_close_consumer(struct bus_fixture *fixture, struct consumer *consumer);

/* Fetches once: what comes within the time. */
size_t bus_fixture_fetch(
	struct consumer *consumer, struct bus_delivery *deliveries, size_t max, int64_t timeout_ms);

/* Fetches one that must come, and nothing though there is time for it. */
void bus_fixture_fetch_one(struct consumer *consumer, struct bus_delivery *delivery);
void bus_fixture_fetch_nothing(struct consumer *consumer, int64_t during_ms);

/* Fetches exactly that many messages, which must come. A fetch that waits may be given the first
 * alone; what is not acknowledged comes again with the rest. */
void bus_fixture_fetch_all(
	struct consumer *consumer, struct bus_delivery *deliveries, size_t wanted);

/* Fetches and acknowledges until that many have come. */
void bus_fixture_consume(struct consumer *consumer, size_t wanted);
void bus_fixture_ack(struct consumer *consumer, size_t count);

#endif
