/*
 * Writes the output of an HTTP/2 connection. nghttp2 decides which frame is next; http2_write()
 * collects frames in the worker's output buffer and writes them together. Bodies do not pass
 * through nghttp2's own buffer: short bodies are copied from their request into the output buffer;
 * long bodies are written from where they are.
 *
 * Nothing is collected until the kernel has accepted all earlier output. Meanwhile answers wait in
 * their requests, and values in their event streams, where newer values can replace them.
 */
#include <assert.h>

#include "base/clock.h"
#include "http/http2.h"
#include "http/response.h"
#include "http/stream_internal.h"

#define FRAME_HEAD_SIZE 9
#define FRAME_MAX (FRAME_HEAD_SIZE + 16384)

/* If a DATA frame carries more than COPIED_MAX bytes of a body, the frame's part of the body is
 * written from where it is instead of being copied. */
#define COPIED_MAX 4096

#define FIELDS_MAX 32

/* A DATA frame adds CREDIT_DATA to the client's budget (see http2_spend()) if the frame has at
 * least DATA_FULL bytes or ends a body or value. */
#define DATA_FULL 256
#define CREDIT_DATA 2

static int64_t now_ns(const struct http2 *http2)
{
	return clock_steady_ns(http2->connection->worker->clock);
}

/* ---- collecting -------------------------------------------------------------------------- */

static bool has_room(const struct http2_parts *parts)
{
	/* There must be room for a whole frame, and for two parts: the frame's head and its
	 * body. */
	return HTTP2_OUTPUT_SIZE - parts->used >= FRAME_MAX && parts->count + 2 <= HTTP2_PARTS_MAX;
}

static void collect_reference(struct http2_parts *parts, const char *bytes, size_t len)
{
	parts->of[parts->count++] = uv_buf_init((char *)(uintptr_t)bytes, (unsigned)len);
}

/* Copies `bytes` to the output buffer. The copy extends the last part if that part ends where the
 * copy begins; otherwise the copy becomes a new part. */
static void collect(struct http2 *http2, const void *bytes, size_t len)
{
	struct http2_parts *parts = http2->parts;
	char *at = http2->connection->worker->http2->output + parts->used;
	uv_buf_t *last = parts->count > 0 ? &parts->of[parts->count - 1] : NULL;

	assert(parts->used + len <= HTTP2_OUTPUT_SIZE);
	if (len > 0)
		memcpy(at, bytes, len);
	parts->used += len;
	if (last && last->base + last->len == at)
		last->len += len;
	else
		collect_reference(parts, at, len);
}

/* ---- bodies and values ------------------------------------------------------------------- */

/* Drops the value that was sent. If a newer value waits in the event stream, makes that value the
 * next to be sent. */
static void take_value(struct exchange *exchange)
{
	stream_event_drop(exchange->event);
	exchange->event = stream_take(exchange->stream);
	if (exchange->event)
		exchange->rest = slice_make(exchange->event->bytes, exchange->event->len);
}

/* nghttp2 calls this before it sends a DATA frame. Returns how many bytes of the body or value go
 * into the frame. */
static ssize_t on_wanted(nghttp2_session *session, int32_t id, uint8_t *buffer, size_t most,
	uint32_t *flags, nghttp2_data_source *source, void *context)
{
	struct exchange *exchange = source->ptr;
	bool goes_on = false;

	(void)session;
	(void)id;
	(void)buffer;
	(void)context;
	if (exchange->stream) {
		if (exchange->rest.len == 0)
			take_value(exchange);
		goes_on = exchange->stream->waiting || !stream_is_over(exchange->stream);
		if (exchange->rest.len == 0 && goes_on)
			return NGHTTP2_ERR_DEFERRED;
	}
	*flags |= NGHTTP2_DATA_FLAG_NO_COPY;
	if (exchange->rest.len <= most && !goes_on)
		*flags |= NGHTTP2_DATA_FLAG_EOF;
	return (ssize_t)(exchange->rest.len < most ? exchange->rest.len : most);
}

/* nghttp2 calls this to send a DATA frame. Adds the frame to the parts. */
static int on_data_frame(nghttp2_session *session, nghttp2_frame *frame, const uint8_t *head,
	size_t len, nghttp2_data_source *source, void *context)
{
	struct http2 *http2 = context;
	struct exchange *exchange = source->ptr;

	(void)session;
	(void)frame;
	if (!has_room(http2->parts))
		return NGHTTP2_ERR_WOULDBLOCK;
	collect(http2, head, FRAME_HEAD_SIZE);
	if (len > COPIED_MAX && !exchange->stream)
		collect_reference(http2->parts, exchange->rest.data, len);
	else
		collect(http2, exchange->rest.data, len);
	exchange->rest = slice_make(exchange->rest.data + len, exchange->rest.len - len);
	if (exchange->rest.len == 0 || len >= DATA_FULL)
		http2_earn(http2, CREDIT_DATA);
	if (exchange->state == EXCHANGE_STREAMING)
		exchange->since_ns = now_ns(http2);
	else if (exchange->state == EXCHANGE_SENDING)
		/* moves the exchange to the end of the list, behind exchanges that have waited
		 * longer */
		http2_move(http2, exchange, EXCHANGE_SENDING);
	return 0;
}

/* nghttp2 calls this after each frame that it has sent. If the frame ends the answer to a request
 * that has not arrived in full, the exchange is reset, so that the client need not send the rest of
 * the request. */
static int on_sent(nghttp2_session *session, const nghttp2_frame *frame, void *context)
{
	struct http2 *http2 = context;
	const struct exchange *exchange;

	if (frame->hd.type == NGHTTP2_RST_STREAM)
		http2->has_reset = true;
	if (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA)
		return 0;
	http2->parts->has_answers = true; /* an answer without a body has only HEADERS */
	if (!(frame->hd.flags & NGHTTP2_FLAG_END_STREAM))
		return 0;
	exchange = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
	if (exchange && !exchange->has_all)
		nghttp2_submit_rst_stream(
			session, NGHTTP2_FLAG_NONE, frame->hd.stream_id, NGHTTP2_NO_ERROR);
	return 0;
}

void http2_set_output_callbacks(nghttp2_session_callbacks *callbacks)
{
	nghttp2_session_callbacks_set_send_data_callback(callbacks, on_data_frame);
	nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, on_sent);
}

/* ---- heads ------------------------------------------------------------------------------- */

static nghttp2_nv field(struct slice name, struct slice value)
{
	return (nghttp2_nv){
		.name = (uint8_t *)(uintptr_t)name.data,
		.namelen = name.len,
		.value = (uint8_t *)(uintptr_t)value.data,
		.valuelen = value.len,
	};
}

/* Returns the name and value of the first line of `lines`, and moves `lines` past that line. */
static struct header cut_line(struct slice *lines)
{
	struct slice line = slice_cut(lines, '\r');
	struct header header;

	if (lines->len > 0)
		*lines = slice_make(lines->data + 1, lines->len - 1); /* the line feed */
	header.name = slice_cut(&line, ':');
	header.value = slice_trim(line);
	return header;
}

/* Fills `fields` with the header fields of an answer, and returns their number. nghttp2 will copy
 * the fields and convert their names to lower case. */
static size_t list_fields(struct http2 *http2, const struct request *request,
	struct response_fields *common, nghttp2_nv *fields, char status[4])
{
	struct slice lines = request->answer.headers;
	size_t count = 0;

	status[0] = (char)('0' + request->answer.http_status / 100);
	status[1] = (char)('0' + request->answer.http_status / 10 % 10);
	status[2] = (char)('0' + request->answer.http_status % 10);
	fields[count++] = field(slice_of(":status"), slice_make(status, 3));
	response_fields(request, worker_date(http2->connection->worker), common);
	for (size_t i = 0; i < common->count; i++) {
		fields[count] = field(common->of[i].name, common->of[i].value);
		/* Every request id is new, so indexing the ids would only push useful fields out of
		 * HPACK's table. */
		if (slice_is(common->of[i].name, "X-Request-Id"))
			fields[count].flags = NGHTTP2_NV_FLAG_NO_INDEX;
		count++;
	}
	while (lines.len > 0 && count < FIELDS_MAX) {
		struct header header = cut_line(&lines);

		if (header.name.len > 0)
			fields[count++] = field(header.name, header.value);
	}
	return count;
}

static void submit(struct http2 *http2, struct exchange *exchange)
{
	struct request *request = exchange->request;
	const nghttp2_data_provider *provider = NULL;
	nghttp2_data_provider body = {.read_callback = on_wanted};
	struct response_fields common;
	nghttp2_nv fields[FIELDS_MAX];
	char status[4];
	size_t count;
	int32_t id = exchange->id;

	/* if the answer begins an event stream, request_finish() moves the stream of HTTP/2 to the
	 * exchange inside that event stream */
	request_finish(request);
	body.source.ptr = nghttp2_session_get_stream_user_data(http2->session, id);
	count = list_fields(http2, request, &common, fields, status);
	request_count_bytes(request); /* e.g. the compressed body, which waits for the client */
	if (!exchange->stream) {
		exchange->rest = request->answer.body;
		http2_move(http2, exchange, EXCHANGE_SENDING);
	}
	if (!request->head_only && (exchange->stream || request->answer.body.len > 0))
		provider = &body;
	if (nghttp2_submit_response(http2->session, id, fields, count, provider) != 0)
		nghttp2_submit_rst_stream(
			http2->session, NGHTTP2_FLAG_NONE, id, NGHTTP2_INTERNAL_ERROR);
	if (exchange->stream)
		http2_drop(http2, exchange);
}

/* ---- event streams ----------------------------------------------------------------------- */

void http2_begin_stream(struct http2 *http2, struct exchange *exchange, struct stream *stream)
{
	struct exchange *carried = &stream->exchange;

	exchange->stream = stream;
	*carried = (struct exchange){
		.id = exchange->id,
		.state = EXCHANGE_STATES,
		.stream = stream,
		.has_head = true,
		.has_all = exchange->has_all,
		.event = stream_event_of(exchange->request->answer.body),
	};
	carried->rest = slice_make(carried->event->bytes, carried->event->len);
	http2_move(http2, carried, stream->is_ending ? EXCHANGE_ENDING : EXCHANGE_STREAMING);
	nghttp2_session_set_stream_user_data(http2->session, carried->id, carried);
}

void http2_resume(struct http2 *http2, struct stream *stream)
{
	nghttp2_session_resume_data(http2->session, stream->exchange.id);
	worker_mark_dirty(http2->connection->worker, http2->connection);
}

void http2_send_heartbeat(struct http2 *http2, struct stream *stream)
{
	struct exchange *exchange = &stream->exchange;

	assert(exchange->rest.len == 0);
	stream_event_drop(exchange->event);
	exchange->event = NULL;
	exchange->rest = slice_of(STREAM_HEARTBEAT);
	http2_resume(http2, stream);
}

/* ---- writing ----------------------------------------------------------------------------- */

/* Collects frames that nghttp2 has to send, until no frame is left or the output buffer is full.
 * Returns false if nghttp2 cannot continue. */
static bool collect_frames(struct http2 *http2)
{
	const uint8_t *frame;
	ssize_t len = 1;

	while (has_room(http2->parts) && len > 0) {
		len = nghttp2_session_mem_send(http2->session, &frame);
		if (len > 0)
			collect(http2, frame, (size_t)len);
	}
	return len >= 0;
}

static void free_sent(struct http2 *http2)
{
	while (http2->of[EXCHANGE_SENT].first)
		http2_drop(http2, http2->of[EXCHANGE_SENT].first);
}

bool http2_write(struct http2 *http2)
{
	struct connection *connection = http2->connection;
	struct http2_parts parts;
	bool is_well;

	while (http2->of[EXCHANGE_ANSWERED].first)
		submit(http2, http2->of[EXCHANGE_ANSWERED].first);
	if (connection->write_backlog > 0 || !nghttp2_session_want_write(http2->session)) {
		free_sent(http2);
		return false;
	}
	parts.count = parts.used = 0;
	parts.has_answers = false;
	http2->parts = &parts;
	is_well = collect_frames(http2);
	http2->parts = NULL;
	if (parts.has_answers)
		connection->active_ns = now_ns(http2);
	if (parts.count > 0)
		connection_write_parts(connection, parts.of, parts.count);
	if (!connection->is_closed)
		free_sent(http2);
	if (!is_well)
		connection_close(connection);
	return parts.count > 0;
}
