/*
 * A bus on librdkafka's mock cluster, and a record of every message that a test publishes through
 * it. cluster_assert_fates() compares the record with the topic:
 *
 *   fate            the message is on the topic
 *   CONFIRMED       always
 *   NOT_PERSISTED   never
 *   UNKNOWN         or not
 */
#ifndef QUIPU_CONTRACT_KAFKA_FIXTURE_H
#define QUIPU_CONTRACT_KAFKA_FIXTURE_H

/* cmocka.h wants these before it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <librdkafka/rdkafka.h>
#include <librdkafka/rdkafka_mock.h>

#include "ports/bus.h"

#define MESSAGES_MAX 20000

struct cluster {
	rd_kafka_t *rk;
	rd_kafka_mock_cluster_t *mock;
	char url[128];
	struct bus *bus;
	struct producer *producer;
	struct consumer *consumer; /* NULL: none is open */
	struct consumer *other;    /* of another group; NULL: none is open */

	/* Everything that was published, by number. */
	struct bus_message sent[MESSAGES_MAX];
	char ids[MESSAGES_MAX][12];
	size_t sent_count;
	unsigned on_topic[MESSAGES_MAX];
};

/* cmocka's setup and teardown: *state is a struct cluster with one broker, whose bus is up. */
int cluster_setup(void **state);
int cluster_teardown(void **state);

#define FAULT_TEST(test) cmocka_unit_test_setup_teardown(test, cluster_setup, cluster_teardown)

/* ---- the cluster ------------------------------------------------------------------------- */

/* The broker closes its connections and refuses new ones, or accepts them again. */
void cluster_set_down(struct cluster *cluster);
void cluster_set_up(struct cluster *cluster);

/* Every answer of the broker takes this long; 0: no delay. */
void cluster_set_slow(struct cluster *cluster, int rtt_ms);

/* No answer comes before the test ends. */
void cluster_set_silent(struct cluster *cluster);

/* Starts a bus and opens its producer; does not wait until the bus is up. A test that calls this
 * again first closes the old producer and frees the old bus. */
void cluster_start_bus(struct cluster *cluster);
bool cluster_is_up(struct cluster *cluster);

/* The consumer of group "g". Closing it does nothing if it is not open. */
struct consumer *cluster_open_consumer(struct cluster *cluster);
void cluster_close_consumer(struct cluster *cluster);

/* ---- publishing, and what is on the topic after ------------------------------------------- */

/* Messages with the next numbers of the record as keys, ids and values. */
struct bus_message *cluster_make(struct cluster *cluster, size_t count);
enum status cluster_publish(
	struct cluster *cluster, struct bus_message *messages, size_t count, int64_t timeout_ms);

/* Publishes that many messages, which must all have this fate. */
void cluster_publish_all(struct cluster *cluster, size_t count, enum bus_fate fate);

/* Publishes one new message after another until one is confirmed: the library may remember an
 * error for a while. */
void cluster_publish_until_confirmed(struct cluster *cluster);

/* Waits for what may still be on its way, reads the topic, and fails if a fate is not true. */
void cluster_assert_fates(struct cluster *cluster);

/* How many messages of the record have this fate. */
size_t cluster_count_fate(const struct cluster *cluster, enum bus_fate fate);

#endif
