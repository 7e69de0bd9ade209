/*
 * What a connection writes: answers in the order of their requests, encrypted if the client speaks
 * TLS. Most answers fit into the socket's buffer, so writing first tries the socket directly and
 * leaves only the rest to libuv, as one copy. That rest is the connection's `write_backlog`, by
 * which slow readers are noticed and reading from them stops.
 */
#include <stdlib.h>

#include "base/clock.h"
#include "base/container.h"
#include "base/log.h"
#include "http/connection.h"
#include "http/cors.h"
#include "http/response.h"
#include "http/stream_internal.h"

#define WRITE_ROUND_MAX 16

static int64_t now_ns(const struct connection *connection)
{
	return clock_steady_ns(connection->worker->clock);
}

/* ---- bytes ------------------------------------------------------------------------------- */

struct pending_write {
	uv_write_t uv;
	struct connection *connection;
	size_t len;
	char bytes[];
};

static void on_written(uv_write_t *uv, int failed)
{
	struct pending_write *write = CONTAINER_OF(uv, struct pending_write, uv);
	struct connection *connection = write->connection;

	connection->write_backlog -= write->len;
	connection->active_ns = now_ns(connection);
	free(write);
	if (failed)
		connection_close(connection);
	else
		connection_pump(connection);
}

/* Copies what follows the first `done` bytes, which the kernel took, and lets libuv write it. */
static void write_rest(
	struct connection *connection, const uv_buf_t *parts, size_t count, size_t done)
{
	struct pending_write *write;
	size_t total = 0, filled = 0;
	uv_buf_t rest;

	for (size_t i = 0; i < count; i++)
		total += parts[i].len;
	write = qp_malloc(sizeof(*write) + total - done);
	for (size_t i = 0; i < count; i++) {
		size_t skip = done < parts[i].len ? done : parts[i].len;

		memcpy(write->bytes + filled, parts[i].base + skip, parts[i].len - skip);
		filled += parts[i].len - skip;
		done -= skip;
	}
	write->connection = connection;
	write->len = filled;
	connection->write_backlog += filled;
	rest = uv_buf_init(write->bytes, (unsigned)filled);
	if (uv_write(&write->uv, (uv_stream_t *)&connection->tcp, &rest, 1, on_written) != 0) {
		connection->write_backlog -= filled;
		free(write);
		connection_close(connection);
	}
}

static void send_parts(struct connection *connection, const uv_buf_t *parts, size_t count)
{
	size_t total = 0;
	int done = uv_try_write((uv_stream_t *)&connection->tcp, parts, (unsigned)count);

	if (done < 0 && done != UV_EAGAIN) {
		connection_close(connection);
		return;
	}
	for (size_t i = 0; i < count; i++)
		total += parts[i].len;
	connection->pump_bytes += total;
	if (done < 0)
		done = 0;
	if ((size_t)done < total)
		write_rest(connection, parts, count, (size_t)done);
}

void connection_send_output(struct connection *connection)
{
	size_t len;
	char *bytes = tls_session_take_output(connection->tls, &len);
	uv_buf_t part = uv_buf_init(bytes, (unsigned)len);

	if (bytes)
		send_parts(connection, &part, 1);
	free(bytes);
}

void connection_write_parts(struct connection *connection, const uv_buf_t *parts, size_t count)
{
	if (!connection->tls) {
		send_parts(connection, parts, count);
		return;
	}
	for (size_t i = 0; i < count; i++) {
		if (!tls_session_write(connection->tls, slice_make(parts[i].base, parts[i].len))) {
			connection_close(connection);
			return;
		}
	}
	connection_send_output(connection);
}

void connection_write(struct connection *connection, struct slice bytes)
{
	uv_buf_t part = uv_buf_init((char *)(uintptr_t)bytes.data, (unsigned)bytes.len);

	connection->active_ns = now_ns(connection);
	connection_write_parts(connection, &part, 1);
}

/* ---- answers ----------------------------------------------------------------------------- */

static struct slice current_date(struct http_worker *worker)
{
	int64_t now_s = clock_wall_us(worker->clock) / 1000000;

	if (now_s != worker->date_s) {
		worker->date_s = now_s;
		response_date(worker->date, now_s);
	}
	return slice_of(worker->date);
}

static void log_request(const struct request *request, int64_t duration_ns)
{
	enum log_level level = request->answer.http_status == 500 ? LOG_ERROR : LOG_DEBUG;
	struct log_field fields[] = {
		{"request_id", request->id},
		{"traceparent", request->traceparent},
	};

	if (!log_enabled(level))
		return;
	log_line_with(level, "http", fields, 2, "%.*s %.*s %d in %lld us", (int)request->method.len,
		request->method.data,
		request->path.raw.len < 200 ? (int)request->path.raw.len : 200,
		request->path.raw.data ? request->path.raw.data : "", request->answer.http_status,
		(long long)(duration_ns / 1000));
}

static bool ends_connection(const struct connection *connection, const struct request *request)
{
	return !request->keep_alive || connection->worker->draining;
}

static uv_buf_t part_of(struct slice bytes)
{
	return uv_buf_init((char *)(uintptr_t)bytes.data, (unsigned)bytes.len);
}

/* Sets the two parts of the answer's bytes; the second may be empty. */
static void finish_request(
	struct connection *connection, struct request *request, uv_buf_t parts[2])
{
	struct http_worker *worker = connection->worker;
	int64_t duration_ns = now_ns(connection) - request->started_ns;
	bool close_after = ends_connection(connection, request);
	struct slice body;

	if (request->id.len == 0) {
		char *id = arena_alloc(&request->arena, 33);

		dice_hex_id(&worker->dice, id);
		request->id = slice_make(id, 32);
	}
	if (close_after)
		connection->last_request_seen = true;
	router_apply_style(worker->router, request);
	if (request->stream)
		stream_begin(request->stream);
	cors_sign(worker->admission->cors_origins, request);
	parts[0] = part_of(response_render(request, current_date(worker), close_after, &body));
	parts[1] = part_of(body);
	router_count_answer(
		worker->router, request->route, request->answer.http_status, duration_ns);
	log_request(request, duration_ns);
}

bool connection_write_answers(struct connection *connection)
{
	struct request *done[WRITE_ROUND_MAX];
	uv_buf_t parts[2 * WRITE_ROUND_MAX];
	size_t count = 0, part_count = 0;

	while (count < WRITE_ROUND_MAX && connection->first &&
		connection->first->answer.http_status != 0) {
		struct request *request = connection->first;

		connection->first = request->next;
		if (!connection->first)
			connection->last = NULL;
		connection->queued--;
		connection->queued_bytes -= request->queued_bytes;
		finish_request(connection, request, &parts[part_count]);
		part_count += parts[part_count + 1].len > 0 ? 2 : 1;
		done[count++] = request;
	}
	if (count == 0)
		return false;
	if (connection->write_backlog == 0)
		connection->active_ns = now_ns(connection);
	connection_write_parts(connection, parts, part_count);
	for (size_t i = 0; i < count; i++)
		request_free(done[i]);
	return true;
}

void connection_write_continue(struct connection *connection)
{
	static const char text[] = "HTTP/1.1 100 Continue\r\n\r\n";
	uv_buf_t part = uv_buf_init((char *)(uintptr_t)text, sizeof(text) - 1);

	/* Before the answers of earlier requests it would be in the wrong place. Without it the
	 * client sends the body after a while, as RFC 9110 allows. */
	if (!connection->first)
		connection_write_parts(connection, &part, 1);
}
