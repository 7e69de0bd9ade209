/*
 * Checks an HTTP/2 connection with each sweep. Finds requests that do not arrive in time, answers
 * and streams that the client does not read, and idle connections. Also drains the connection when
 * the server stops.
 *
 * A missed deadline ends only the exchange that missed it. There are two exceptions, which end the
 * connection: a client that reads none of the output, and a head that is not complete in time,
 * because no frame behind an incomplete head can be read.
 */
#include "http/http2.h"
#include "http/stream_internal.h"

#define BUDGET_PER_SWEEP 10

static void check_drain(struct http2 *http2)
{
	if (!http2->connection->worker->draining)
		return;
	http2_resume_streams(http2); /* the streams end after their newest value */
	if (http2->sweeps_draining == 0)
		protocol_http2.drain(http2->connection);
	else if (http2->sweeps_draining++ > 1)
		http2_end_gently(http2);
}

static void check_receiving(struct http2 *http2, int64_t now)
{
	const struct server_limits *limits = http2->connection->worker->limits;
	struct exchange *next;

	for (struct exchange *e = http2->of[EXCHANGE_RECEIVING].first; e; e = next) {
		next = e->next;
		if (!e->has_head && now - e->since_ns > limits->head_timeout_ns)
			/* No frame behind an incomplete head can be read, so the connection
			 * ends. */
			nghttp2_session_terminate_session(
				http2->session, NGHTTP2_ENHANCE_YOUR_CALM);
		if (e->has_head && now - e->since_ns > limits->body_timeout_ns)
			http2_refuse(http2, e, STATUS_REQUEST_TIMEOUT,
				"the body of the request did not arrive in time");
	}
}

static void reset(struct http2 *http2, const struct exchange *exchange)
{
	nghttp2_submit_rst_stream(http2->session, NGHTTP2_FLAG_NONE, exchange->id, NGHTTP2_CANCEL);
}

/* Resets the exchanges in `list` that have waited for their client for more than `most_ns`. */
static void check_waiting(
	struct http2 *http2, const struct exchange_list *list, int64_t now, int64_t most_ns)
{
	for (const struct exchange *e = list->first; e; e = e->next) {
		if (now - e->since_ns <= most_ns)
			return; /* the exchanges behind this one have waited less */
		reset(http2, e);
	}
}

/* Closes the streams whose callers may be refused now, whether or not their clients read. */
static void close_lost_streams(struct http2 *http2)
{
	struct exchange *next;

	for (struct exchange *e = http2->of[EXCHANGE_STREAMING].first; e; e = next) {
		next = e->next; /* stream_close() moves the exchange to another list */
		if (stream_has_lost_caller(e->stream))
			stream_close(e->stream);
	}
}

static void check_stream(struct http2 *http2, struct exchange *exchange, int64_t now)
{
	struct http_worker *worker = http2->connection->worker;
	struct stream *stream = exchange->stream;
	bool waits = exchange->rest.len > 0 || stream->waiting;
	int64_t quiet_ns = now - exchange->since_ns;

	if (waits) {
		if (quiet_ns > worker->limits->stream_stall_ns)
			reset(http2, exchange);
	} else if (quiet_ns >= worker->limits->heartbeat_ns && worker->heartbeats_left > 0) {
		worker->heartbeats_left--;
		http2_send_heartbeat(http2, stream);
	}
}

/* Closes the connection if its client has not read for too long what was written. */
static void check_backlog(struct connection *connection, int64_t now)
{
	const struct http2 *http2 = connection->http2;
	const struct server_limits *limits = connection->worker->limits;
	int64_t most_ns = limits->stream_stall_ns;

	if (http2->of[EXCHANGE_STREAMING].count + http2->of[EXCHANGE_ENDING].count == 0) {
		connection_note_reading(connection);
		most_ns = limits->idle_timeout_ns;
	}
	if (now - connection->active_ns > most_ns)
		connection_close(connection);
}

void http2_check(struct connection *connection, int64_t now)
{
	struct http2 *http2 = connection->http2;
	const struct server_limits *limits = connection->worker->limits;
	int64_t quiet_ns = now - connection->active_ns;
	bool waits_for_us = connection->input.len > 0;

	http2_earn(http2, BUDGET_PER_SWEEP);
	close_lost_streams(http2);
	if (connection->write_backlog > 0) {
		check_backlog(connection, now);
		return;
	}
	if (!waits_for_us)
		check_receiving(http2, now);
	check_waiting(http2, &http2->of[EXCHANGE_SENDING], now, limits->idle_timeout_ns);
	check_waiting(http2, &http2->of[EXCHANGE_ENDING], now, limits->stream_stall_ns);
	for (struct exchange *e = http2->of[EXCHANGE_STREAMING].first; e; e = e->next)
		check_stream(http2, e, now);
	check_drain(http2);
	if (!waits_for_us && http2_requests(http2) == 0 && quiet_ns > limits->idle_timeout_ns)
		http2_end_gently(http2);
	if (nghttp2_session_want_write(http2->session) || http2->of[EXCHANGE_ANSWERED].count > 0)
		worker_mark_dirty(connection->worker, connection);
}
