/*
 * Writes the output of an HTTP/1.1 connection: answers in the order of their requests (several
 * answers in one system call), and the values of a stream (one at a time).
 */
#include "base/clock.h"
#include "http/connection.h"
#include "http/response.h"
#include "http/stream_internal.h"

#define WRITE_ROUND_MAX 16

static uv_buf_t part_of(struct slice bytes)
{
	return uv_buf_init((char *)(uintptr_t)bytes.data, (unsigned)bytes.len);
}

/* ---- answers ----------------------------------------------------------------------------- */

static bool ends_connection(const struct connection *connection, const struct request *request)
{
	return !request->keep_alive || connection->worker->draining;
}

/* Sets parts[0] to the head of the answer, followed by the body if the body is short. Sets parts[1]
 * to a long body, without copying it; parts[1] is empty if the body is short. */
static void render(struct connection *connection, struct request *request, uv_buf_t parts[2])
{
	bool close_after = ends_connection(connection, request);
	struct slice body;

	if (close_after)
		connection->last_request_seen = true;
	request_finish(request);
	parts[0] = part_of(
		response_render(request, worker_date(connection->worker), close_after, &body));
	parts[1] = part_of(body);
}

static struct request *take_answered(struct connection *connection)
{
	struct http1 *http1 = &connection->http1;
	struct request *request = http1->first;

	if (!request || request->answer.http_status == 0)
		return NULL;
	http1->first = request->next;
	if (!http1->first)
		http1->last = NULL;
	http1->queued--;
	connection->queued_bytes -= request->queued_bytes;
	return request;
}

bool http1_write_answers(struct connection *connection)
{
	struct request *done[WRITE_ROUND_MAX];
	uv_buf_t parts[2 * WRITE_ROUND_MAX];
	size_t count = 0, part_count = 0;

	while (count < WRITE_ROUND_MAX && (done[count] = take_answered(connection))) {
		render(connection, done[count++], &parts[part_count]);
		part_count += parts[part_count + 1].len > 0 ? 2 : 1;
	}
	if (count == 0)
		return false;
	if (connection->write_backlog == 0)
		connection->active_ns = clock_steady_ns(connection->worker->clock);
	connection_write_parts(connection, parts, part_count);
	for (size_t i = 0; i < count; i++)
		request_free(done[i]);
	return true;
}

void http1_write_continue(struct connection *connection)
{
	static const char text[] = "HTTP/1.1 100 Continue\r\n\r\n";
	uv_buf_t part = uv_buf_init((char *)(uintptr_t)text, sizeof(text) - 1);

	/* If earlier requests are not answered yet, nothing is written, because the client would
	 * take 100 Continue for one of their answers. The client then sends the body after a while,
	 * as RFC 9110 allows. */
	if (!connection->http1.first)
		connection_write_parts(connection, &part, 1);
}

/* ---- streams ----------------------------------------------------------------------------- */

bool http1_write_event(struct connection *connection)
{
	struct stream *stream = connection->http1.stream;
	struct stream_event *event;

	if (stream_is_over(stream)) {
		stream_end(stream);
		return false;
	}
	if (!stream->waiting || connection->write_backlog > 0)
		return false;
	event = stream_take(stream);
	connection_write(connection, slice_make(event->bytes, event->len));
	stream_event_drop(event);
	return true;
}

void http1_check_stream(struct connection *connection, int64_t now_ns)
{
	struct stream *stream = connection->http1.stream;
	struct http_worker *worker = connection->worker;
	int64_t quiet_ns = now_ns - connection->active_ns;

	if (stream_has_lost_caller(stream)) {
		stream_close(stream);
	} else if (connection->write_backlog > 0) {
		if (quiet_ns > worker->limits->stream_stall_ns)
			connection_close(connection);
	} else if (quiet_ns >= worker->limits->heartbeat_ns && worker->heartbeats_left > 0) {
		worker->heartbeats_left--;
		connection_write(connection, slice_of(STREAM_HEARTBEAT));
	}
}
