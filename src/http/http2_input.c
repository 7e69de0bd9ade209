/*
 * Implements nghttp2's callbacks for frames from the client. nghttp2 has already checked the
 * frames, HPACK and the rules for header fields (lower case, pseudo fields first, no Connection).
 * This file applies the same limits as parser.c, runs admission when the head is complete, and
 * starts the request when the body is complete.
 *
 * A callback never writes to the socket. A refusal becomes an answer or a reset, which the next
 * http2_write() sends.
 */
#include <assert.h>

#include "base/clock.h"
#include "base/text.h"
#include "http/http2.h"
#include "http/stream_internal.h"

/* A DATA frame that is shorter than DATA_LEAST bytes and does not end the body counts as a frame
 * that carries nothing. */
#define DATA_LEAST 16

/* A reset takes COST_RESET from the client's budget, and a complete answer adds CREDIT_ANSWER to
 * the budget; see http2_spend(). */
#define COST_RESET 2
#define CREDIT_ANSWER 8

/* Header fields beyond the limits are dropped, but their bytes are still counted. Once an exchange
 * has more than HEADER_BYTES_END counted bytes, it is reset and its further fields are ignored. */
#define HEADER_BYTES_END (TARGET_MAX + 2 * HEADER_BYTES_MAX)

static struct exchange *find(nghttp2_session *session, int32_t id)
{
	return nghttp2_session_get_stream_user_data(session, id);
}

static int64_t now_ns(const struct http2 *http2)
{
	return clock_steady_ns(http2->connection->worker->clock);
}

/* ---- frames ------------------------------------------------------------------------------ */

static bool carries_nothing(const nghttp2_frame_hd *head)
{
	if (head->type == NGHTTP2_HEADERS)
		return false;
	return head->type != NGHTTP2_DATA ||
	       (head->length < DATA_LEAST && !(head->flags & NGHTTP2_FLAG_END_STREAM));
}

/*
 * nghttp2 ignores frames for streams of HTTP/2 that are over, because the client may not know yet
 * that the server has reset such a stream. But if the server has not reset any stream, a frame for
 * a stream that is over breaks the rules, and the connection ends. The connection also ends after a
 * PRIORITY frame for stream 0, which is an error that nghttp2 ignores.
 */
static void check_stream_id(struct http2 *http2, const nghttp2_frame_hd *head)
{
	bool is_used = head->stream_id % 2 == 1 && head->stream_id <= http2->last_id;
	bool was_skipped = head->type == NGHTTP2_HEADERS && head->stream_id > http2->before_id;

	if (head->type == NGHTTP2_PRIORITY && head->stream_id == 0)
		nghttp2_session_terminate_session(http2->session, NGHTTP2_PROTOCOL_ERROR);
	if (head->type != NGHTTP2_HEADERS && head->type != NGHTTP2_DATA)
		return;
	if (is_used && !http2->has_reset &&
		!nghttp2_session_find_stream(http2->session, head->stream_id))
		nghttp2_session_terminate_session(http2->session,
			was_skipped ? NGHTTP2_PROTOCOL_ERROR : NGHTTP2_STREAM_CLOSED);
}

static int on_begin_frame(nghttp2_session *session, const nghttp2_frame_hd *head, void *context)
{
	struct http2 *http2 = context;

	(void)session;
	http2->has_seen = true;
	http2->connection->pump_work++;
	check_stream_id(http2, head);
	if (carries_nothing(head))
		http2_spend(http2, 1);
	return 0;
}

/* ---- the head ---------------------------------------------------------------------------- */

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *context)
{
	struct http2 *http2 = context;
	struct exchange *exchange;
	struct request *request;

	if (frame->headers.cat != NGHTTP2_HCAT_REQUEST)
		return 0;
	http2->before_id = http2->last_id;
	http2->last_id = frame->hd.stream_id;
	if (http2->is_ending || http2->is_flooded ||
		http2_requests(http2) >= http2->connection->worker->limits->exchanges_max) {
		http2_spend(http2, 1);
		nghttp2_submit_rst_stream(
			session, NGHTTP2_FLAG_NONE, frame->hd.stream_id, NGHTTP2_REFUSED_STREAM);
		return 0;
	}
	request = request_new(http2->connection);
	exchange = arena_new(&request->arena, struct exchange);
	exchange->id = frame->hd.stream_id;
	exchange->request = request;
	exchange->body.arena = &request->arena;
	request->exchange = exchange;
	request->keep_alive = true;
	exchange->state = EXCHANGE_STATES;
	request_charge(request);
	http2_move(http2, exchange, EXCHANGE_RECEIVING);
	nghttp2_session_set_stream_user_data(session, exchange->id, exchange);
	return 0;
}

static void refuse_head(struct exchange *exchange, enum status status, const char *why)
{
	struct request *request = exchange->request;

	if (request->answer.http_status == 0)
		request->answer = answer_problem(&request->arena, status, "%s", why);
}

static void add_header(struct exchange *exchange, struct slice name, struct slice value)
{
	struct request *request = exchange->request;
	struct header *header = &request->headers[request->header_count];

	if (exchange->header_bytes > HEADER_BYTES_MAX) {
		refuse_head(
			exchange, STATUS_HEADERS_TOO_LARGE, "the headers are longer than 16 KiB");
		return;
	}
	if (request->header_count == REQUEST_HEADERS_MAX) {
		refuse_head(exchange, STATUS_HEADERS_TOO_LARGE, "there are more than 64 headers");
		return;
	}
	header->name = arena_copy(&request->arena, name);
	header->value = arena_copy(&request->arena, slice_trim(value));
	request->header_count++;
}

/* Clients that follow the rules send :authority, or Host, or both with the same value. If the
 * values differ, both are kept, and admission refuses the request. */
static void add_host(struct exchange *exchange, struct slice value)
{
	struct slice host = request_header(exchange->request, "host");

	if (!host.data || !slice_equal(host, value))
		add_header(exchange, slice_of("host"), value);
}

static void add_field(struct exchange *exchange, struct slice name, struct slice value)
{
	struct request *request = exchange->request;

	if (slice_is(name, ":path")) {
		if (value.len > TARGET_MAX)
			refuse_head(exchange, STATUS_URI_TOO_LONG,
				"the request target is longer than 64 KiB");
		else
			request->target = arena_copy(&request->arena, value);
		return;
	}
	exchange->header_bytes += name.len + value.len;
	if (slice_is(name, ":method") && value.len <= HEADER_BYTES_MAX)
		request->method = arena_copy(&request->arena, value);
	else if (slice_is(name, ":authority") || slice_is(name, "host"))
		add_host(exchange, value);
	else if (name.data[0] != ':')
		add_header(exchange, name, value);
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
	size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags, void *context)
{
	struct http2 *http2 = context;
	struct exchange *exchange = find(session, frame->hd.stream_id);

	(void)flags;
	http2->has_seen = true;
	if (!exchange || exchange->state != EXCHANGE_RECEIVING)
		return 0;
	if (exchange->has_head)
		exchange->header_bytes += name_len + value_len; /* trailers are only counted */
	else
		add_field(exchange, slice_make((const char *)name, name_len),
			slice_make((const char *)value, value_len));
	if (exchange->header_bytes <= HEADER_BYTES_END)
		return 0;
	/* nghttp2 resets this stream and no longer calls on_header() for the rest of its head. */
	http2_spend(http2, COST_RESET);
	return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
}

/* nghttp2 would drop a field with forbidden characters. Other servers might keep the field, so the
 * request is refused. */
static int on_invalid_header(nghttp2_session *session, const nghttp2_frame *frame,
	const uint8_t *name, size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
	void *context)
{
	struct exchange *exchange = find(session, frame->hd.stream_id);

	(void)name;
	(void)name_len;
	(void)value;
	(void)value_len;
	(void)flags;
	(void)context;
	if (exchange && exchange->state == EXCHANGE_RECEIVING && !exchange->has_head)
		refuse_head(exchange, STATUS_BAD_REQUEST,
			"a header has characters that are not allowed");
	return 0;
}

static void send_continue(struct http2 *http2, const struct exchange *exchange)
{
	const nghttp2_nv status = {
		.name = (uint8_t *)(uintptr_t) ":status",
		.namelen = 7,
		.value = (uint8_t *)(uintptr_t) "100",
		.valuelen = 3,
	};

	nghttp2_submit_headers(
		http2->session, NGHTTP2_FLAG_NONE, exchange->id, NULL, &status, 1, NULL);
}

static bool announces_too_much(const struct exchange *exchange)
{
	int64_t len;

	return text_to_int(request_header(exchange->request, "content-length"), &len) &&
	       (uint64_t)len > exchange->body_max;
}

/* Called when the head is complete and a body follows. Refuses the request if the announced length
 * of the body is too large. A client that waits for 100 Continue is answered at once: with 100
 * Continue or, if admission has refused the request, with the refusal. */
static void answer_head(struct http2 *http2, struct exchange *exchange)
{
	struct request *request = exchange->request;

	if (announces_too_much(exchange))
		http2_refuse(http2, exchange, STATUS_BODY_TOO_LARGE,
			"the body is too large for this route");
	else if (!admission_wants_continue(request))
		return;
	else if (request->answer.http_status == 0)
		send_continue(http2, exchange);
	else
		/* do not wait for a body that may never come */
		http2_move(http2, exchange, EXCHANGE_ANSWERED);
}

static void end_head(struct http2 *http2, struct exchange *exchange, bool has_body)
{
	struct request *request = exchange->request;

	exchange->has_head = true;
	exchange->since_ns = now_ns(http2);
	request->safe = slice_is(request->method, "GET") || slice_is(request->method, "HEAD");
	request->head_only = slice_is(request->method, "HEAD");
	if (request->answer.http_status == 0)
		admission_decide(http2->connection->worker->admission, request, 2, 0);
	if (request->is_guess)
		http2_end_gently(http2); /* so that each guess of a token needs a new connection */
	exchange->body_max = request->route ? request->route->body_max : BODY_MAX_DEFAULT;
	request_count_bytes(request);
	if (has_body)
		answer_head(http2, exchange);
}

/* ---- the body and the end ---------------------------------------------------------------- */

void http2_refuse(
	struct http2 *http2, struct exchange *exchange, enum status status, const char *why)
{
	struct request *request = exchange->request;

	request->answer = answer_problem(&request->arena, status, "%s", why);
	http2_move(http2, exchange, EXCHANGE_ANSWERED);
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *data,
	size_t len, void *context)
{
	struct http2 *http2 = context;
	struct exchange *exchange = find(session, id);

	(void)flags;
	http2->has_seen = true;
	if (!exchange || exchange->state != EXCHANGE_RECEIVING)
		return 0;
	exchange->body_bytes += len;
	if (exchange->body_bytes > exchange->body_max) {
		http2_refuse(http2, exchange, STATUS_BODY_TOO_LARGE,
			"the body is too large for this route");
		return 0;
	}
	if (exchange->request->answer.http_status == 0) /* a refused request needs no body */
		buffer_bytes(&exchange->body, data, len);
	request_count_bytes(exchange->request);
	return 0;
}

static void complete(struct http2 *http2, struct exchange *exchange)
{
	struct request *request = exchange->request;

	exchange->has_all = true;
	if (exchange->state != EXCHANGE_RECEIVING)
		return; /* the request has already been answered */
	request->body = buffer_slice(&exchange->body);
	http2->connection->pump_work++;
	if (request->answer.http_status != 0) {
		http2_move(http2, exchange, EXCHANGE_ANSWERED);
		return;
	}
	http2_move(http2, exchange, EXCHANGE_SERVING);
	request_start(request);
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *context)
{
	struct http2 *http2 = context;
	struct exchange *exchange;
	bool is_end = frame->hd.flags & NGHTTP2_FLAG_END_STREAM;

	if (frame->hd.type == NGHTTP2_RST_STREAM)
		http2_spend(http2, COST_RESET - 1);
	if (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA)
		return 0;
	exchange = find(session, frame->hd.stream_id);
	if (!exchange || !exchange->request)
		return 0;
	if (frame->hd.type == NGHTTP2_HEADERS && !exchange->has_head)
		end_head(http2, exchange, !is_end);
	if (is_end)
		complete(http2, exchange);
	return 0;
}

/* Drops an exchange whose stream of HTTP/2 is over. If the command of its request is in a lane, the
 * exchange stays until the command is back, and still counts against --h2-streams. */
static void abandon(struct http2 *http2, struct exchange *exchange)
{
	struct request *request = exchange->request;

	if (exchange->state != EXCHANGE_SERVING || !request->command) {
		http2_drop(http2, exchange);
		return;
	}
	exchange->is_reset = true;
	request->is_abandoned = true;
	if (request->stream)
		stream_end(request->stream);
	atomic_store_explicit(&request->command->client_gone, true, memory_order_relaxed);
}

/* nghttp2 calls this when a stream of HTTP/2 is over: completed, or reset by either side. */
static int on_close(nghttp2_session *session, int32_t id, uint32_t code, void *context)
{
	struct http2 *http2 = context;
	struct exchange *exchange = find(session, id);

	if (!exchange)
		return 0;
	if (exchange->state == EXCHANGE_SENDING && code == NGHTTP2_NO_ERROR)
		http2_earn(http2, CREDIT_ANSWER);
	if (exchange->state == EXCHANGE_SENDING)
		/* the output may refer to the body, so keep the exchange until the output is
		 * written */
		http2_move(http2, exchange, EXCHANGE_SENT);
	else
		abandon(http2, exchange);
	return 0;
}

void http2_set_input_callbacks(nghttp2_session_callbacks *callbacks)
{
	nghttp2_session_callbacks_set_on_begin_frame_callback(callbacks, on_begin_frame);
	nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin_headers);
	nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
	nghttp2_session_callbacks_set_on_invalid_header_callback(callbacks, on_invalid_header);
	nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
	nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
	nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_close);
}
