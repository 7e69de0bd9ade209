/*
 * Implements HTTP/1.1 on one connection. A pump (connection.c) calls advance() repeatedly. Each
 * call first writes the answers that are ready, then starts the request that waits, then parses the
 * next request. So the order of requests and answers is decided in one place.
 *
 * Every call that writes or starts a request may close the connection, so `is_closed` is checked
 * after each such call.
 */
#include "http/http1.h"

#include <assert.h>

#include "http/connection.h"
#include "http/stream_internal.h"

#define PIPELINE_MAX 64

/* ---- reading and starting ---------------------------------------------------------------- */

static void enqueue(struct connection *connection, struct request *request)
{
	struct http1 *http1 = &connection->http1;

	request->next = NULL;
	if (http1->last)
		http1->last->next = request;
	else
		http1->first = request;
	http1->last = request;
	http1->queued++;
	request_charge(request);
}

static bool may_start(const struct connection *connection, const struct request *request)
{
	const struct http1 *http1 = &connection->http1;

	if (connection_is_backed_up(connection))
		return false;
	if (!http1->first)
		return true;
	/* Checking the last request is enough, because no request starts behind an unanswered
	 * change or large read. A read may also turn out to be large after later requests have
	 * started. This does no harm, because defers() makes every large read wait for all earlier
	 * answers. */
	return request->safe && http1->last->safe && !http1->last->is_large &&
	       http1->queued < PIPELINE_MAX && !worker_is_full(connection->worker);
}

/* If the command of the first request was deferred, submits that command; see defers(). */
static bool start_deferred(struct connection *connection)
{
	struct request *first = connection->http1.first;

	if (!first || !first->lane || connection_is_backed_up(connection))
		return false;
	request_submit_now(first);
	return true;
}

static bool start_held(struct connection *connection)
{
	struct request *request = connection->http1.held;

	if (!request || !may_start(connection, request))
		return false;
	connection->http1.held = NULL;
	enqueue(connection, request);
	request_start(request);
	return true;
}

static void hold(struct connection *connection, struct request *request)
{
	assert(!connection->http1.held);
	connection->http1.held = request;
	if (!request->keep_alive)
		connection->last_request_seen = true;
}

/* Parses input, but not beyond the end of one request. Returns whether it parsed anything. */
static bool read_on(struct connection *connection)
{
	struct http1 *http1 = &connection->http1;

	if (http1->held || connection->input.len == 0)
		return false;
	if (connection->last_request_seen || connection_is_backed_up(connection)) {
		if (connection->last_request_seen)
			connection->input.len = 0;
		return false;
	}
	switch (parser_feed(&http1->parser, &connection->input)) {
	case PARSE_MORE:
		break;
	case PARSE_CONTINUE:
		http1_write_continue(connection);
		break;
	case PARSE_REQUEST:
	case PARSE_BROKEN:
		hold(connection, parser_take(&http1->parser));
		break;
	}
	return true;
}

static bool advance(struct connection *connection)
{
	bool moved = http1_write_answers(connection);

	if (!connection->is_closed)
		moved |= start_deferred(connection);
	if (!connection->is_closed)
		moved |= start_held(connection);
	if (!connection->is_closed)
		moved |= read_on(connection);
	if (connection->http1.stream)
		moved |= http1_write_event(connection);
	return moved;
}

/* ---- input ------------------------------------------------------------------------------- */

static bool wants_input(const struct connection *connection)
{
	const struct http1 *http1 = &connection->http1;

	if (http1->stream)
		return true; /* read, to notice when the client closes */
	return !http1->held && connection->input.len == 0 && !connection->last_request_seen &&
	       !connection_is_backed_up(connection);
}

static bool discards_input(const struct connection *connection)
{
	return connection->http1.stream != NULL;
}

/* If the client shuts down its side during a stream, the server cannot find out whether the client
 * is still connected, so the stream ends. */
static void input_ended(struct connection *connection)
{
	if (connection->http1.stream)
		connection_close(connection);
	else
		connection_pump(connection);
}

static bool is_idle(const struct connection *connection)
{
	const struct http1 *http1 = &connection->http1;

	return !http1->first && !http1->held && !http1->stream;
}

static bool is_between_requests(const struct connection *connection)
{
	return connection->http1.parser.stage == STAGE_IDLE;
}

/* ---- who has to act next ----------------------------------------------------------------- */

static enum client_state state_of(const struct connection *connection)
{
	const struct http1 *http1 = &connection->http1;

	if (http1->first && !http1->first->lane)
		return CLIENT_SERVED;
	if (connection_is_backed_up(connection))
		/* the next request starts after the client has read some of the answers */
		return CLIENT_READS;
	if (http1->first || http1->held)
		return CLIENT_SERVED;
	if (connection->write_backlog > 0)
		return CLIENT_READS;
	if (http1->stream)
		return CLIENT_SERVED;
	return http1->parser.request ? CLIENT_SENDS : CLIENT_IDLE;
}

static struct client_standing standing_of(const struct connection *connection)
{
	const struct http1 *http1 = &connection->http1;
	const struct request *reading = http1->parser.request;
	struct client_standing standing = {.state = state_of(connection)};

	standing.since_ns =
		standing.state == CLIENT_SENDS ? reading->started_ns : connection->active_ns;
	if (http1->held)
		standing.bytes += request_bytes(http1->held);
	if (reading)
		standing.bytes += request_bytes(reading);
	return standing;
}

/* ---- deadlines --------------------------------------------------------------------------- */

static void time_out_request(struct connection *connection)
{
	hold(connection, parser_time_out(&connection->http1.parser));
	connection->input.len = 0;
	connection_pump(connection);
}

static void check(struct connection *connection, int64_t now)
{
	const struct server_limits *limits = connection->worker->limits;
	const struct http1 *http1 = &connection->http1;
	const struct parser *parser = &http1->parser;
	int64_t quiet_ns = now - connection->active_ns;

	if (http1->stream) {
		http1_check_stream(connection, now);
	} else if (connection->write_backlog > 0) {
		connection_note_reading(connection);
		if (now - connection->active_ns > limits->idle_timeout_ns)
			connection_close(connection);
	} else if (http1->held || connection->input.len > 0) {
		return; /* the client waits for the server */
	} else if (parser->stage == STAGE_HEAD) {
		if (now - parser->request->started_ns > limits->head_timeout_ns)
			time_out_request(connection);
	} else if (parser->stage == STAGE_BODY) {
		if (now - parser->head_done_ns > limits->body_timeout_ns)
			time_out_request(connection);
	} else if (is_idle(connection) && quiet_ns > limits->idle_timeout_ns) {
		connection_close(connection);
	}
}

/* ---- ending ------------------------------------------------------------------------------ */

static void drop(struct connection *connection)
{
	struct http1 *http1 = &connection->http1;

	while (http1->first) {
		struct request *request = http1->first;

		http1->first = request->next;
		request_drop(request);
	}
	http1->last = NULL;
	if (http1->held)
		request_drop(http1->held);
	http1->held = NULL;
	if (http1->parser.request)
		request_drop(parser_take(&http1->parser));
	if (http1->stream)
		stream_end(http1->stream);
}

static void drain(struct connection *connection)
{
	if (connection->http1.stream)
		connection_pump(connection); /* writes the newest value */
	if (connection->http1.stream)
		connection_close(connection);
}

/* ---- answers and streams ----------------------------------------------------------------- */

static void answered(struct connection *connection, struct request *request)
{
	(void)request; /* not needed: the next pump writes answers in the order of requests */
	worker_mark_dirty(connection->worker, connection);
}

/* Returns true if `request` has to wait: a large answer is looked up only after all earlier answers
 * have been written. Otherwise many pipelined requests could each hold a large answer in memory
 * until all earlier answers are written. */
static bool defers(struct connection *connection, struct request *request)
{
	return connection->http1.first != request || connection_is_backed_up(connection);
}

static void stream_prepared(struct connection *connection, struct request *request)
{
	assert(connection->http1.last == request && !connection->http1.held);
	request->keep_alive = false;
	connection->last_request_seen = true;
}

static void stream_began(
	struct connection *connection, struct request *request, struct stream *stream)
{
	(void)request;
	connection->http1.stream = stream;
	connection_favour_new_values(connection);
}

static void stream_changed(struct connection *connection, struct stream *stream)
{
	(void)stream;
	worker_mark_dirty(connection->worker, connection);
}

static void stream_ended(struct connection *connection, struct stream *stream)
{
	assert(connection->http1.stream == stream);
	connection->http1.stream = NULL;
}

const struct protocol protocol_http1 = {
	.name = "HTTP/1.1",
	.advance = advance,
	.wants_input = wants_input,
	.discards_input = discards_input,
	.input_ended = input_ended,
	.is_idle = is_idle,
	.is_between_requests = is_between_requests,
	.standing = standing_of,
	.check = check,
	.answered = answered,
	.defers = defers,
	.drain = drain,
	.drop = drop,
	.stream_prepared = stream_prepared,
	.stream_began = stream_began,
	.stream_changed = stream_changed,
	.stream_ended = stream_ended,
};

void http1_init(struct connection *connection)
{
	struct http_worker *worker = connection->worker;

	connection->protocol = &protocol_http1;
	parser_init(&connection->http1.parser, worker->clock, worker->admission, request_new,
		connection);
}
