/*
 * A worker runs the connections of one loop. An event on a socket pumps the socket's connection
 * directly. An answer or a new value of a stream only marks the connection dirty; all dirty
 * connections are pumped when the loop has run its tasks, and before the loop sleeps. So the
 * answers of a batch are sent together, usually with one system call per connection.
 *
 * A connection is in at most one of the lists `dirty` and `resting`.
 */
#include "http/worker.h"

#include <assert.h>
#include <stdlib.h>

#include "base/container.h"
#include "http/compressor.h"
#include "http/http2.h"
#include "http/negotiation.h"
#include "http/response.h"
#include "http/server_internal.h"
#include "http/stream_internal.h"

#define SWEEP_MS 200

/* ---- the lists --------------------------------------------------------------------------- */

void worker_add(struct http_worker *worker, struct connection *connection)
{
	connection->next = worker->connections;
	if (connection->next)
		connection->next->before = connection;
	worker->connections = connection;
}

static void join(struct connection *connection, struct connection **list)
{
	connection->before_dirty = NULL;
	connection->next_dirty = *list;
	if (connection->next_dirty)
		connection->next_dirty->before_dirty = connection;
	*list = connection;
}

static void leave(struct connection *connection, struct connection **list)
{
	if (connection->before_dirty)
		connection->before_dirty->next_dirty = connection->next_dirty;
	else
		*list = connection->next_dirty;
	if (connection->next_dirty)
		connection->next_dirty->before_dirty = connection->before_dirty;
}

static void forget_dirty(struct http_worker *worker, struct connection *connection)
{
	if (connection->is_dirty)
		leave(connection, &worker->dirty);
	connection->is_dirty = false;
}

static void forget_resting(struct http_worker *worker, struct connection *connection)
{
	if (connection->is_resting)
		leave(connection, &worker->resting);
	connection->is_resting = false;
}

void worker_remove(struct http_worker *worker, struct connection *connection)
{
	forget_dirty(worker, connection);
	forget_resting(worker, connection);
	if (connection->before)
		connection->before->next = connection->next;
	else
		worker->connections = connection->next;
	if (connection->next)
		connection->next->before = connection->before;
}

void worker_mark_dirty(struct http_worker *worker, struct connection *connection)
{
	if (connection->is_dirty || connection->is_resting || connection->is_pumping)
		return;
	connection->is_dirty = true;
	join(connection, &worker->dirty);
}

static void resume(struct loop_task *task)
{
	struct http_worker *worker = CONTAINER_OF(task, struct http_worker, resume);

	task->run = NULL;
	while (worker->resting) {
		struct connection *connection = worker->resting;

		forget_resting(worker, connection);
		worker_mark_dirty(worker, connection);
	}
}

void worker_rest(struct http_worker *worker, struct connection *connection)
{
	assert(!connection->is_resting);
	forget_dirty(worker, connection);
	connection->is_resting = true;
	join(connection, &worker->resting);
	if (worker->resume.run)
		return;
	worker->resume.run = resume;
	loop_post(worker->loop, &worker->resume);
}

/* Pumps the dirty connections. Runs when the loop has run its tasks, and before the loop sleeps. */
static void pump_dirty(void *context)
{
	struct http_worker *worker = context;

	while (worker->dirty) {
		struct connection *connection = worker->dirty;

		forget_dirty(worker, connection);
		connection_pump(connection);
	}
}

/* ---- limits ------------------------------------------------------------------------------ */

bool worker_is_full(const struct http_worker *worker)
{
	return worker->client_queues.bytes > worker->client_bytes_max;
}

bool worker_take_stream(struct http_worker *worker)
{
	size_t most = worker->limits->connections_max;

	return server_take_stream(worker->server, most - most / 8);
}

void worker_return_stream(struct http_worker *worker)
{
	server_return_stream(worker->server);
}

void worker_free_memory(struct http_worker *worker)
{
	struct connection *longest;

	while (worker_is_full(worker) &&
		(longest = client_queues_longest_holding(
			 &worker->client_queues, (size_t)tally_read(&worker->connection_count)))) {
		connection_close(longest);
		tally_add(&worker->ended_for_memory, 1);
	}
}

bool worker_make_room(struct http_worker *worker)
{
	struct connection *longest = client_queues_longest(&worker->client_queues);

	/* A connection whose client has sent a request is not closed, even if the loop has not read
	 * that request yet. If such a connection has waited longest, nothing is closed, and the
	 * caller tries again later: once the loop has read the request, the longest wait is that of
	 * another connection. */
	if (!longest ||
		((longest->place.state == CLIENT_IDLE || longest->place.state == CLIENT_HOLDS) &&
			connection_has_unread_input(longest)))
		return false;
	connection_close(longest);
	tally_add(&worker->ended_for_room, 1);
	return true;
}

struct slice worker_date(struct http_worker *worker)
{
	int64_t now_s = clock_wall_us(worker->clock) / 1000000;

	if (now_s != worker->date_s) {
		worker->date_s = now_s;
		response_date(worker->date, now_s);
	}
	return slice_of(worker->date);
}

/* ---- life -------------------------------------------------------------------------------- */

static void sweep(uv_timer_t *timer)
{
	struct http_worker *worker = timer->data;
	int64_t now = clock_steady_ns(worker->clock);
	struct connection *next;

	worker->heartbeats_left = HEARTBEATS_PER_SWEEP;
	worker->compress_left = COMPRESS_PER_SWEEP;
	for (struct connection *c = worker->connections; c; c = next) {
		next = c->next;
		connection_check_deadlines(c, now);
	}
	if (worker->draining) {
		for (struct connection *c = worker->connections; c; c = next) {
			next = c->next;
			connection_pump(c);
		}
	}
	server_resume_accepting(worker->server, worker);
}

static void on_sleep(uv_prepare_t *before_sleep)
{
	pump_dirty(before_sleep->data);
}

void worker_init(struct http_worker *worker, const struct worker_config *config)
{
	worker->server = config->server;
	worker->clock = &clock_system;
	worker->limits = config->limits;
	worker->router = config->router;
	worker->admission = config->admission;
	worker->client_bytes_max = config->client_bytes_max;
	worker->compress_left = COMPRESS_PER_SWEEP;
	worker->http2 = http2_shared_new();
	dice_init(&worker->dice);
	worker->loop = loop_new(pump_dirty, worker);
	uv_timer_init(loop_uv(worker->loop), &worker->sweep);
	worker->sweep.data = worker;
	uv_timer_start(&worker->sweep, sweep, SWEEP_MS, SWEEP_MS);
	uv_prepare_init(loop_uv(worker->loop), &worker->before_sleep);
	worker->before_sleep.data = worker;
	uv_prepare_start(&worker->before_sleep, on_sleep);
}

void worker_drain(struct http_worker *worker)
{
	struct connection *next;

	for (struct connection *c = worker->connections; c; c = next) {
		next = c->next;
		c->protocol->drain(c);
	}
	worker->draining = true;
}

void worker_end(struct http_worker *worker)
{
	while (worker->connections)
		connection_close(worker->connections);
	uv_close((uv_handle_t *)&worker->sweep, NULL);
	uv_close((uv_handle_t *)&worker->before_sleep, NULL);
}

void worker_release(struct http_worker *worker)
{
	assert(!worker->connections);
	loop_free(worker->loop);
	if (worker->compressor)
		compressor_free(worker->compressor);
	http2_shared_free(worker->http2);
	while (worker->pool) {
		struct request *request = worker->pool;

		worker->pool = request->next;
		arena_release(&request->arena);
		free(request);
	}
}
