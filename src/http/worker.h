/*
 * What the connections of one loop share. Private to http/: connection.c, server.c, stream.c
 * and hub.c. Everything here belongs to the loop's thread, except the counters.
 */
#ifndef QUIPU_HTTP_WORKER_H
#define QUIPU_HTTP_WORKER_H

#include "base/clock.h"
#include "base/random.h"
#include "http/client_queues.h"
#include "http/parser.h"
#include "http/server.h"
#include "http/tls.h"

#define READ_BUFFER_SIZE (16 * 1024)

struct http_worker {
	struct server *server;
	const struct clock *clock;
	const struct server_limits *limits;
	struct router *router;
	const struct admission *admission;
	struct tls_context *tls; /* NULL: clients speak plain HTTP */
	struct loop *loop;
	uv_timer_t sweep;
	uv_prepare_t before_sleep; /* writes what was answered outside a round of tasks */

	struct connection *connections; /* all of this loop */
	struct connection *dirty;       /* with answers that are not written yet */
	struct connection *resting;     /* to go on after others had their turn */
	struct loop_task resume;        /* of those */
	struct request *pool;           /* requests to use again */
	size_t pool_count;
	struct client_queues client_queues;
	struct dice dice;
	char read_buffer[READ_BUFFER_SIZE];
	char plain_buffer[READ_BUFFER_SIZE + TLS_RECORD_MAX]; /* what was read, deciphered */
	char date[32];
	int64_t date_s;
	bool draining;
	size_t heartbeats_left; /* in this sweep */

	struct tally connection_count; /* any thread may read these */
	struct tally in_flight;
	struct tally stream_count;
	struct tally events_sent;
	struct tally events_skipped;
	struct tally ended_for_room;
	struct tally ended_for_memory;
};

void worker_init(struct http_worker *worker, struct server *server);
void worker_release(struct http_worker *worker);

/*
 * On the loop: serves the connected socket `fd`, which it owns from now on, and which is already
 * counted in connection_count.
 */
void worker_serve(struct http_worker *worker, int fd);

/*
 * On the loop: connections close after their next answer, streams now. Idle ones close with the
 * next sweep, so that a request which is already on its way is still answered.
 */
void worker_drain(struct http_worker *worker);

/* On the loop: ends the connection that waits longest for its client. false: none does. */
bool worker_make_room(struct http_worker *worker);

/* On the loop: whether clients make it hold more than its share of --client-bytes. */
bool worker_is_full(const struct http_worker *worker);

/* On the loop: whether one more stream may begin. The last eighth of --max-connections is kept from
 * streams, which stay for as long as they like. */
bool worker_may_stream(const struct http_worker *worker);

/* On the loop: closes every connection, whatever it is doing. */
void worker_close_all(struct http_worker *worker);

/* After a round of tasks on the loop: writes what was answered. */
void worker_write_answers(void *worker);

#endif
