/*
 * A small service with streams on a real server, which test_stream.c, test_hub.c and the program of
 * tests/e2e/test_streams.py use. It keeps a version for each key, in memory, and does what a
 * service with a store does: subscribe, look up on another thread, start.
 *
 *   GET  /streams/{key}   the stream of a key
 *   GET  /owned           a stream of its own, without the hub: one value, "two\nlines"
 *   GET  /owned?close     the same, closed by the service right away
 *   GET  /values/{key}    the value now
 *   POST /values/{key}    the next version; ?times=N for many, ?pad=N for a longer value
 *   GET  /keys            how many keys have streams
 *   GET  /metrics
 */
#ifndef QUIPU_TESTS_STREAM_FIXTURE_H
#define QUIPU_TESTS_STREAM_FIXTURE_H

#include <pthread.h>

#include "http/hub.h"
#include "http/server.h"
#include "manual_clock.h"
#include "runtime/lane.h"
#include "stream_client.h"

#define FIXTURE_KEYS 8192

/* The periods of a server whose clock the test moves. All its other timeouts are shorter than a
 * heartbeat. */
#define FIXTURE_HEARTBEAT_NS (3600 * NS_PER_S)
#define FIXTURE_STALL_NS (2 * FIXTURE_HEARTBEAT_NS)

struct fixture_value {
	char key[24]; /* "" for a free place */
	int64_t version;
	size_t pad;
};

struct stream_fixture {
	struct router *router;
	struct admission admission;
	struct server *server;
	struct manual_clock clock;
	struct hub *hub;
	struct lane *lane;
	pthread_t reader;
	_Atomic int64_t owners_told; /* how often owners of /owned were called */

	pthread_mutex_t lock; /* guards what follows */
	pthread_cond_t changed;
	struct fixture_value values[FIXTURE_KEYS]; /* at the index given by the hash of the key */
	bool reads_fail;
	bool reads_held; /* reads wait after the look-up and before the answer */
	size_t reads_waiting;
};

/* Starts a server with `loops` loops on a free port of loopback, with the machine's clock. */
void stream_fixture_start(
	struct stream_fixture *fixture, size_t loops, int64_t heartbeat_ms, int64_t stall_ms);

/*
 * The same with fixture->clock. Only the time that the test lets pass makes connections idle,
 * streams quiet or readers stall. See the periods above.
 */
void stream_fixture_start_by_hand(struct stream_fixture *fixture, size_t loops);

/* Ends streams and lets requests finish. Returns false if that takes longer than `timeout_ms` of
 * the machine's clock. */
bool stream_fixture_drain(struct stream_fixture *fixture, int64_t timeout_ms);

/* Frees the server, with or without a drain before. Other threads may go on publishing. */
void stream_fixture_end(struct stream_fixture *fixture);

/* Frees everything. */
void stream_fixture_stop(struct stream_fixture *fixture);

int stream_fixture_port(const struct stream_fixture *fixture);

/* Publishes the next version of `key` and returns it. Any thread. */
int64_t stream_fixture_change(struct stream_fixture *fixture, const char *key, size_t pad);

/* From now on reads look up but do not answer, until they are released. */
void stream_fixture_hold_reads(struct stream_fixture *fixture);
/* Waits until `count` reads have looked up. */
void stream_fixture_wait_read(struct stream_fixture *fixture, size_t count);
void stream_fixture_release_reads(struct stream_fixture *fixture);

/* From now on reads are answered with STORE_UNAVAILABLE. */
void stream_fixture_fail_reads(struct stream_fixture *fixture);

/* Return a sample of the server's metrics, and wait until it has this value. */
int64_t stream_fixture_metric(const struct stream_fixture *fixture, const char *name);
void stream_fixture_wait_metric(
	const struct stream_fixture *fixture, const char *name, int64_t value);

/* Connects and starts a stream. */
void stream_fixture_follow(
	const struct stream_fixture *fixture, struct stream_client *client, const char *target);

#endif
