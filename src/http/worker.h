/*
 * A worker is one loop's share of the server: its connections, the lists that decide which of them
 * is served next, its share of the limits, and its tallies. Private to http/. A worker and its
 * connections belong to the thread of their loop; other threads may only use the tallies and post
 * tasks to `loop`.
 */
#ifndef QUIPU_HTTP_WORKER_H
#define QUIPU_HTTP_WORKER_H

#include "base/clock.h"
#include "base/random.h"
#include "http/client_queues.h"
#include "http/server.h"
#include "http/tls.h"

#define READ_BUFFER_SIZE (16 * 1024)

struct compressor;

struct http_worker {
	struct server *server;
	const struct clock *clock;
	const struct server_limits *limits;
	struct router *router;
	const struct admission *admission;
	struct tls_context *tls; /* NULL if clients speak plain HTTP */
	struct loop *loop;
	uv_timer_t sweep;          /* every SWEEP_MS; checks the deadlines of all connections */
	uv_prepare_t before_sleep; /* pumps dirty connections before the loop sleeps */
	size_t client_bytes_max;   /* this worker's share of --client-bytes */

	struct connection *connections; /* all connections of this loop */
	struct connection *dirty;       /* to be pumped before the loop sleeps */
	/* connections that wait until the loop has polled the other connections */
	struct connection *resting;
	/* wakes the resting connections; `run` is NULL unless the task is posted */
	struct loop_task resume;
	struct request *pool; /* requests for reuse */
	size_t pool_count;
	struct client_queues client_queues;
	struct http2_shared *http2;
	struct dice dice;
	char read_buffer[READ_BUFFER_SIZE];
	char plain_buffer[READ_BUFFER_SIZE + TLS_RECORD_MAX]; /* the decrypted input */
	char date[32];                                        /* the Date header for `date_s` */
	int64_t date_s;
	bool draining;
	bool logs_access;
	size_t heartbeats_left; /* how many heartbeats may still be sent until the next sweep */
	/* how many bytes may still be compressed until the next sweep */
	size_t compress_left;
	struct compressor *compressor; /* NULL until something is compressed */

	struct tally connection_count; /* any thread may use this tally and those below */
	struct tally socket_count;     /* connections, and sockets that wait for room */
	struct tally in_flight;
	struct tally events_sent;
	struct tally events_skipped;
	struct tally ended_for_room;
	struct tally ended_for_memory;
	struct tally ended_for_flood;
	struct tally http2_connections;
	struct tally http1_answers;
	struct tally http2_answers;
};

struct worker_config {
	struct server *server;
	/* the limits of the whole server; must outlive the worker */
	const struct server_limits *limits;
	struct router *router;
	const struct admission *admission;
	size_t client_bytes_max; /* the worker's share of --client-bytes */
};

/* Creates the loop, which the caller starts. The worker must be zeroed. Main thread only. */
void worker_init(struct http_worker *worker, const struct worker_config *config);

/* Frees the loop and the pool, once the loop has ended. Main thread only. */
void worker_release(struct http_worker *worker);

/* ---- on the loop ---- */

/*
 * Ends all streams, and closes each connection once its requests are answered. An idle connection
 * is not closed before the next sweep, so that a request that is already on its way is still
 * answered.
 */
void worker_drain(struct http_worker *worker);

/* Closes all connections and the worker's handles, so that its loop can end. */
void worker_end(struct http_worker *worker);

/*
 * Closes the connection whose client has kept the server waiting longest, and returns true. Closes
 * nothing and returns false in two cases: no connection waits for its client, or the client that
 * has kept the server waiting longest has just sent a request, which the loop has not read yet.
 */
bool worker_make_room(struct http_worker *worker);

/*
 * Returns whether clients' requests and answers occupy more than this worker's share of
 * --client-bytes.
 */
bool worker_is_full(const struct http_worker *worker);

/* While the worker is full (see worker_is_full()), closes the connections that
 * client_queues_longest_holding() returns, one after another. Gives up when that function returns
 * NULL. */
void worker_free_memory(struct http_worker *worker);

/*
 * Counts one more open stream of the whole server and returns true. If too many streams are open,
 * returns false instead. An eighth of --max-connections is reserved for requests, because streams
 * may stay open for ever. Call worker_return_stream() when the stream is closed or ends.
 */
bool worker_take_stream(struct http_worker *worker);
void worker_return_stream(struct http_worker *worker);

/* Returns the Date header for the current time. */
struct slice worker_date(struct http_worker *worker);

/* worker_add() adds a connection to the worker; worker_remove() removes the connection from all
 * lists of the worker. */
void worker_add(struct http_worker *worker, struct connection *connection);
void worker_remove(struct http_worker *worker, struct connection *connection);

/* Makes the loop pump the connection before the loop sleeps. Has no effect on a connection that is
 * being pumped or that rests. */
void worker_mark_dirty(struct http_worker *worker, struct connection *connection);

/*
 * Makes a connection wait, although it could go on, until the loop has polled the other
 * connections. So one client cannot keep the loop to itself.
 */
void worker_rest(struct http_worker *worker, struct connection *connection);

#endif
