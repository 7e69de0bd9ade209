/*
 * A stream is attached to its request until the head is written, and then to its connection. A
 * value that is not written yet waits in the stream and not in the socket, so that a newer value
 * can replace it; a stream holds at most one such value. The connection's protocol decides how
 * values are written.
 */
#include "http/stream.h"

#include <assert.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/text.h"
#include "http/stream_internal.h"

/* A stream sends its client the time to wait before reconnecting: RETRY_LEAST_MS plus a random part
 * of RETRY_SPREAD_MS. So the clients of a server that stops do not all reconnect at once. */
#define RETRY_LEAST_MS 1000
#define RETRY_SPREAD_MS 2000

/* ---- beginning --------------------------------------------------------------------------- */

static struct answer stream_head(void)
{
	return (struct answer){
		.http_status = 200,
		.content_type = SLICE("text/event-stream"),
		.headers = SLICE("Cache-Control: no-store\r\nX-Accel-Buffering: no\r\n"),
	};
}

/* Returns Last-Event-ID from the header or the query, or -1 if it is missing or not valid.
 * Polyfills of EventSource use the query, because the header would require a preflight. */
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
	if (!worker_take_stream(request->worker)) {
		request_answer(request, answer_failure(&request->arena, STATUS_OVERLOADED));
		return NULL;
	}
	connection->protocol->stream_prepared(connection, request);
	stream = qp_calloc(1, sizeof(*stream));
	stream->owner = owner;
	stream->worker = request->worker;
	stream->request = request;
	stream->last_id = known_id(request);
	stream->caller = request->caller;
	stream->caller.name = (struct slice){0};
	request->stream = stream;
	return stream;
}

void stream_start(struct stream *stream)
{
	struct request *request = stream->request;

	assert(request && !request->is_stream);
	request->is_stream = true;
	request->answer = stream_head();
	request->connection->protocol->answered(request->connection, request);
}

struct stream *stream_open(struct request *request, struct stream_owner owner)
{
	struct stream *stream = stream_prepare(request, owner);

	if (stream)
		stream_start(stream);
	return stream;
}

struct stream_event *stream_take(struct stream *stream)
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
	struct stream_event *event = stream_take(stream);
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
	stream->connection->protocol->stream_began(stream->connection, request, stream);
}

static void note_change(struct stream *stream)
{
	if (stream->connection)
		stream->connection->protocol->stream_changed(stream->connection, stream);
}

/* ---- values ------------------------------------------------------------------------------ */

static void take_event(struct stream *stream, struct stream_event *event)
{
	if (stream->is_ending)
		return;
	stream->last_id = event->id;
	if (stream->waiting)
		tally_add(&stream->worker->events_skipped, 1);
	stream_event_drop(stream->waiting);
	stream->waiting = stream_event_hold(event);
	note_change(stream);
}

void stream_offer_event(struct stream *stream, struct stream_event *event)
{
	bool is_retraction = event->id == 0 && stream->last_id > 0;

	if (event->id > stream->last_id || is_retraction)
		take_event(stream, event);
}

void stream_offer(struct stream *stream, int64_t id, struct slice data)
{
	struct stream_event *event;

	if (id <= stream->last_id)
		return;
	event = stream_event_new(id, data);
	take_event(stream, event);
	stream_event_drop(event);
}

bool stream_is_over(const struct stream *stream)
{
	/* If the client has shut down its side, the server cannot find out whether the client is
	 * still connected. */
	return stream->is_ending || stream->worker->draining || stream->connection->input_ended;
}

bool stream_has_lost_caller(const struct stream *stream)
{
	const struct caller *caller = &stream->caller;

	if (caller->kind == CALLER_ANYONE)
		return false;
	return (caller->ends_us != 0 && clock_wall_us(stream->worker->clock) >= caller->ends_us) ||
	       caller->generation != guard_generation(stream->worker->admission->guard);
}

/* ---- ending ------------------------------------------------------------------------------ */

static void call_owner(struct stream *stream)
{
	struct stream_owner owner = stream->owner;

	stream->owner = (struct stream_owner){0};
	if (owner.closed)
		owner.closed(owner.context, stream);
}

/* An ending stream no longer counts as open, although its client may still have to read the rest of
 * a value. Otherwise one user could prevent all others from opening streams, with a client that
 * does not read. */
static void begin_ending(struct stream *stream)
{
	if (!stream->is_ending)
		worker_return_stream(stream->worker);
	stream->is_ending = true;
}

void stream_close(struct stream *stream)
{
	begin_ending(stream);
	stream_event_drop(stream->waiting);
	stream->waiting = NULL;
	if (stream->connection || stream->request->is_stream)
		call_owner(stream);
	note_change(stream);
}

void stream_end(struct stream *stream)
{
	assert(!stream->request != !stream->connection);
	if (stream->request)
		stream->request->stream = NULL;
	if (stream->connection)
		stream->connection->protocol->stream_ended(stream->connection, stream);
	begin_ending(stream);
	call_owner(stream);
	stream_event_drop(stream->waiting);
	free(stream);
}
