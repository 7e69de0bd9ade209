/*
 * A stream lives first in its request and, once the head is written, in its connection; it is
 * attached to exactly one of them. It holds at most one value that is not written. Bytes that the
 * kernel has taken cannot be replaced any more, so the socket's send buffer is kept small: what
 * waits should wait here, where a newer value can replace it.
 */
#include "http/stream.h"

#include <assert.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/text.h"
#include "http/stream_internal.h"

#define INPUT_MAX (64 * 1024)
#define HEARTBEAT ": keep-alive\n\n"

/* By default the kernel would buffer megabytes of old values for a client that does not read. */
#define SEND_BUFFER_SIZE (8 * 1024)

/* When a server ends, its clients reconnect spread over this time instead of all at once. */
#define RETRY_LEAST_MS 1000
#define RETRY_SPREAD_MS 2000

struct stream {
	struct stream_owner owner;
	struct http_worker *worker;
	struct request *request;       /* until its head is written, then NULL */
	struct connection *connection; /* from then on */
	struct stream_event *waiting;  /* the newest value, unless it was written */
	int64_t last_id;               /* the highest offered, or known to the client, or -1 */
	struct caller caller;          /* without its name, which is in the request's arena */
	size_t input_bytes;            /* received and thrown away */
	bool is_ending;
};

/* ---- beginning --------------------------------------------------------------------------- */

static struct answer stream_head(void)
{
	return (struct answer){
		.http_status = 200,
		.content_type = SLICE("text/event-stream"),
		.headers = SLICE("Cache-Control: no-store\r\nX-Accel-Buffering: no\r\n"),
	};
}

/* Polyfills of EventSource send the id in the query, because a header costs them a preflight. */
static int64_t known_id(const struct request *request)
{
	struct slice header = request_header(request, "Last-Event-ID");
	int64_t id;

	if (!header.data)
		header = query_value(&request->query, "lastEventId");
	if (!text_to_int(header, &id) || id < 0)
		return -1;
	return id;
}

struct stream *stream_prepare(struct request *request, struct stream_owner owner)
{
	struct connection *connection = request->connection;
	struct stream *stream;

	assert(!request->stream && request->answer.http_status == 0);
	if (request->head_only) {
		request->is_stream = true;
		request_answer(request, stream_head());
		return NULL;
	}
	if (!worker_may_stream(request->worker)) {
		request_answer(request, answer_failure(&request->arena, STATUS_OVERLOADED));
		return NULL;
	}
	assert(connection->last == request && !connection->held);
	request->keep_alive = false;
	connection->last_request_seen = true;
	stream = qp_calloc(1, sizeof(*stream));
	stream->owner = owner;
	stream->worker = request->worker;
	stream->request = request;
	stream->last_id = known_id(request);
	stream->caller = request->caller;
	stream->caller.name = (struct slice){0};
	request->stream = stream;
	tally_add(&stream->worker->stream_count, 1);
	return stream;
}

void stream_start(struct stream *stream)
{
	struct request *request = stream->request;

	assert(request && !request->is_stream);
	request->is_stream = true;
	request->answer = stream_head();
	worker_mark_dirty(request->worker, request->connection);
}

struct stream *stream_open(struct request *request, struct stream_owner owner)
{
	struct stream *stream = stream_prepare(request, owner);

	if (stream)
		stream_start(stream);
	return stream;
}

static void set_up_socket(struct stream *stream)
{
	uv_handle_t *tcp = (uv_handle_t *)&stream->connection->tcp;
	unsigned stall_ms = (unsigned)(stream->worker->limits->stream_stall_ns / NS_PER_MS);
	int size = SEND_BUFFER_SIZE;
	int fd;

	uv_send_buffer_size(tcp, &size);
	/* Otherwise the kernel retransmits to an unplugged client for a quarter of an hour. */
	if (uv_fileno(tcp, &fd) == 0)
		setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &stall_ms, sizeof(stall_ms));
}

static struct stream_event *take_waiting(struct stream *stream)
{
	struct stream_event *event = stream->waiting;

	stream->waiting = NULL;
	if (event)
		tally_add(&stream->worker->events_sent, 1);
	return event;
}

void stream_begin(struct stream *stream)
{
	struct request *request = stream->request;
	struct http_worker *worker = stream->worker;
	struct stream_event *event = take_waiting(stream);
	struct buffer body = buffer_make(&request->arena, event ? event->len + 32 : 32);

	buffer_format(&body, "retry: %d\n\n",
		RETRY_LEAST_MS + (int)dice_below(&worker->dice, RETRY_SPREAD_MS));
	if (event)
		buffer_bytes(&body, event->bytes, event->len);
	stream_event_drop(event);
	request->answer.body = buffer_slice(&body);
	request->stream = NULL;
	stream->request = NULL;
	stream->connection = request->connection;
	stream->connection->stream = stream;
	set_up_socket(stream);
}

/* ---- values ------------------------------------------------------------------------------ */

void stream_offer_event(struct stream *stream, struct stream_event *event)
{
	if (event->id <= stream->last_id || stream->is_ending)
		return;
	stream->last_id = event->id;
	if (stream->waiting)
		tally_add(&stream->worker->events_skipped, 1);
	stream_event_drop(stream->waiting);
	stream->waiting = stream_event_hold(event);
	if (stream->connection)
		worker_mark_dirty(stream->worker, stream->connection);
}

void stream_offer(struct stream *stream, int64_t id, struct slice data)
{
	struct stream_event *event = stream_event_new(id, data);

	stream_offer_event(stream, event);
	stream_event_drop(event);
}

static bool is_over(const struct stream *stream)
{
	/* A client that has shut down its side cannot be told from one that is gone. */
	return stream->is_ending || stream->worker->draining || stream->connection->input_ended;
}

bool stream_write(struct stream *stream)
{
	struct connection *connection = stream->connection;
	struct stream_event *event;

	if (is_over(stream)) {
		stream_end(stream);
		return false;
	}
	if (!stream->waiting || connection->write_backlog > 0)
		return false;
	event = take_waiting(stream);
	connection_write(connection, slice_make(event->bytes, event->len));
	stream_event_drop(event);
	return true;
}

/* ---- watching the client ----------------------------------------------------------------- */

void stream_read(struct stream *stream, size_t len)
{
	stream->input_bytes += len;
	if (stream->input_bytes > INPUT_MAX)
		connection_close(stream->connection);
}

/* Whether the caller might be refused now: the token has expired, or the keys have changed. */
static bool has_lost_caller(const struct stream *stream)
{
	const struct caller *caller = &stream->caller;

	if (caller->kind == CALLER_ANYONE)
		return false;
	return (caller->ends_us != 0 && clock_wall_us(stream->worker->clock) >= caller->ends_us) ||
	       caller->generation != guard_generation(stream->worker->admission->guard);
}

void stream_check(struct stream *stream, int64_t now_ns)
{
	struct connection *connection = stream->connection;
	struct http_worker *worker = stream->worker;
	int64_t quiet_ns = now_ns - connection->active_ns;

	if (has_lost_caller(stream)) {
		stream_close(stream);
	} else if (connection->write_backlog > 0) {
		if (quiet_ns > worker->limits->stream_stall_ns)
			connection_close(connection);
	} else if (quiet_ns >= worker->limits->heartbeat_ns && worker->heartbeats_left > 0) {
		worker->heartbeats_left--;
		connection_write(connection, slice_of(HEARTBEAT));
	}
}

/* ---- ending ------------------------------------------------------------------------------ */

static void call_owner(struct stream *stream)
{
	struct stream_owner owner = stream->owner;

	stream->owner = (struct stream_owner){0};
	if (owner.closed)
		owner.closed(owner.context, stream);
}

void stream_close(struct stream *stream)
{
	stream->is_ending = true;
	stream_event_drop(stream->waiting);
	stream->waiting = NULL;
	if (stream->connection || stream->request->is_stream)
		call_owner(stream);
	if (stream->connection)
		worker_mark_dirty(stream->worker, stream->connection);
}

void stream_end(struct stream *stream)
{
	assert(!stream->request != !stream->connection);
	if (stream->request)
		stream->request->stream = NULL;
	if (stream->connection)
		stream->connection->stream = NULL;
	tally_add(&stream->worker->stream_count, -1);
	call_owner(stream);
	stream_event_drop(stream->waiting);
	free(stream);
}
