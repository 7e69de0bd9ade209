/*
 * A small service with streams on a real server: what test_stream.c, test_hub.c and the program of
 * tests/e2e/test_streams.py stand on. It keeps a version for each key, in memory, and does what a
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

/* Of a server whose clock the test moves. Others are shorter than a heartbeat. */
#define FIXTURE_HEARTBEAT_NS (3600 * NS_PER_S)
#define FIXTURE_STALL_NS (2 * FIXTURE_HEARTBEAT_NS)

struct fixture_value {
	char key[24]; /* "": a free place */
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
	_Atomic int64_t owners_told; /* of /owned */

	pthread_mutex_t lock; /* guards what follows */
	pthread_cond_t changed;
	struct fixture_value values[FIXTURE_KEYS]; /* placed by the hash of their keys */
	bool reads_fail;
	bool reads_held; /* after the look-up, before the answer */
	size_t reads_waiting;
};

/* A server with `loops` loops on a free port of loopback, serving by the machine's clock. */
void stream_fixture_start(
	struct stream_fixture *fixture, size_t loops, int64_t heartbeat_ms, int64_t stall_ms);

/*
 * The same, by fixture->clock: no connection is idle, no stream is quiet and no reader stalls for
 * any time but that which the test lets pass. See the periods above.
 */
void stream_fixture_start_by_hand(struct stream_fixture *fixture, size_t loops);

/* Streams end, requests finish. false: not within `timeout_ms` of the machine's clock. */
bool stream_fixture_drain(struct stream_fixture *fixture, int64_t timeout_ms);

/* Frees the server, with or without a drain before. Others may go on publishing. */
void stream_fixture_end(struct stream_fixture *fixture);

/* Frees everything. */
void stream_fixture_stop(struct stream_fixture *fixture);

int stream_fixture_port(const struct stream_fixture *fixture);

/* The next version of `key`, published; any thread. */
int64_t stream_fixture_change(struct stream_fixture *fixture, const char *key, size_t pad);

/* Reads look up but do not answer until they are let go. */
void stream_fixture_hold_reads(struct stream_fixture *fixture);
/* Waits until `count` of them have looked up. */
void stream_fixture_wait_read(struct stream_fixture *fixture, size_t count);
void stream_fixture_release_reads(struct stream_fixture *fixture);

/* Reads are answered with STORE_UNAVAILABLE from now on. */
void stream_fixture_fail_reads(struct stream_fixture *fixture);

/* A sample of the server's metrics, and a wait until it has this value. */
int64_t stream_fixture_metric(const struct stream_fixture *fixture, const char *name);
void stream_fixture_wait_metric(
	const struct stream_fixture *fixture, const char *name, int64_t value);

/* Connects, and begins a stream. */
void stream_fixture_follow(
	const struct stream_fixture *fixture, struct stream_client *client, const char *target);

#endif
