/*
 * Runs an HTTP/2 connection: reads input, lets other connections go first, stops floods, and ends
 * the connection. A pump (connection.c) calls advance() repeatedly. Each call feeds some of
 * the input to nghttp2, whose callbacks (http2_input.c) start requests, and then writes frames that
 * are ready (http2_output.c). The input is fed in small pieces, because nghttp2 always consumes a
 * whole piece and one connection should not occupy the loop for long.
 */
#include "http/http2.h"

#include <assert.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "http/stream_internal.h"

#define FEED_MAX 2048

#define BUDGET_MAX 1000

/* The cost (see http2_spend()) of a piece of input about which nghttp2 reports nothing, such as
 * data for exchanges that are over. */
#define COST_UNSEEN 8

/* While the server works on some requests of a connection, other requests of the same connection
 * may wait for the client. The connection then counts as served (CLIENT_SERVED), unless all its
 * requests together hold more than WAITING_LITTLE bytes. */
#define WAITING_LITTLE (64 * 1024)

static int64_t now_ns(const struct http2 *http2)
{
	return clock_steady_ns(http2->connection->worker->clock);
}

/* ---- lists of exchanges ------------------------------------------------------------------ */

static void leave(struct http2 *http2, struct exchange *exchange)
{
	struct exchange_list *list = &http2->of[exchange->state];

	if (exchange->before)
		exchange->before->next = exchange->next;
	else
		list->first = exchange->next;
	if (exchange->next)
		exchange->next->before = exchange->before;
	else
		list->last = exchange->before;
	list->count--;
	exchange->state = EXCHANGE_STATES;
}

static bool is_listed(const struct http2 *http2, const struct exchange *exchange)
{
	return exchange->state != EXCHANGE_STATES &&
	       (exchange->before || http2->of[exchange->state].first == exchange);
}

void http2_move(struct http2 *http2, struct exchange *exchange, enum exchange_state state)
{
	struct exchange_list *list = &http2->of[state];

	if (is_listed(http2, exchange))
		leave(http2, exchange);
	exchange->state = state;
	exchange->since_ns = now_ns(http2);
	exchange->before = list->last;
	exchange->next = NULL;
	if (list->last)
		list->last->next = exchange;
	else
		list->first = exchange;
	list->last = exchange;
	list->count++;
}

/* Starts the next request that waits because its answer may be large. */
static void start_waiting(struct http2 *http2)
{
	struct exchange *exchange = http2->of[EXCHANGE_WAITING].first;

	http2->large = exchange;
	if (!exchange)
		return;
	http2_move(http2, exchange, EXCHANGE_SERVING);
	request_submit_now(exchange->request);
}

void http2_drop(struct http2 *http2, struct exchange *exchange)
{
	struct request *request = exchange->request;
	bool was_large = http2->large == exchange;

	leave(http2, exchange);
	if (nghttp2_session_get_stream_user_data(http2->session, exchange->id) == exchange)
		nghttp2_session_set_stream_user_data(http2->session, exchange->id, NULL);
	if (!request) {
		stream_end(exchange->stream);
		return;
	}
	request->connection->queued_bytes -= request->queued_bytes;
	request_drop(request);
	if (was_large)
		start_waiting(http2);
}

size_t http2_requests(const struct http2 *http2)
{
	size_t count = 0;

	for (int state = 0; state < EXCHANGE_STATES; state++)
		count += http2->of[state].count;
	return count;
}

/* ---- floods ------------------------------------------------------------------------------ */

void http2_earn(struct http2 *http2, int64_t credit)
{
	http2->budget += credit;
	if (http2->budget > BUDGET_MAX)
		http2->budget = BUDGET_MAX;
}

void http2_spend(struct http2 *http2, int64_t cost)
{
	http2->budget -= cost;
	if (http2->budget >= 0 || http2->is_flooded)
		return;
	http2->is_flooded = true;
	log_line(LOG_DEBUG, "http", "a client is flooding its HTTP/2 connection; closing it");
	tally_add(&http2->connection->worker->ended_for_flood, 1);
	nghttp2_session_terminate_session(http2->session, NGHTTP2_ENHANCE_YOUR_CALM);
}

/* ---- ending ------------------------------------------------------------------------------ */

void http2_end_gently(struct http2 *http2)
{
	if (http2->is_ending)
		return;
	http2->is_ending = true;
	nghttp2_submit_goaway(http2->session, NGHTTP2_FLAG_NONE,
		nghttp2_session_get_last_proc_stream_id(http2->session), NGHTTP2_NO_ERROR, NULL, 0);
}

void http2_resume_streams(struct http2 *http2)
{
	for (struct exchange *e = http2->of[EXCHANGE_STREAMING].first; e; e = e->next)
		http2_resume(http2, e->stream);
}

/*
 * Announces to the client that the server is going away. Requests that the client has already sent
 * are still served, because only a later sweep sends the final GOAWAY, which names the last request
 * that is served.
 */
static void drain(struct connection *connection)
{
	nghttp2_submit_shutdown_notice(connection->http2->session);
	connection->http2->sweeps_draining = 1;
	worker_mark_dirty(connection->worker, connection);
}

static void drop_all(struct connection *connection)
{
	struct http2 *http2 = connection->http2;

	http2->large = NULL; /* so that http2_drop() does not start the next waiting request */
	for (int state = EXCHANGE_STATES - 1; state >= 0; state--) {
		while (http2->of[state].first)
			http2_drop(http2, http2->of[state].first);
	}
}

void http2_free(struct http2 *http2)
{
	nghttp2_session_del(http2->session);
	assert(http2->memory.bytes == 0);
	free(http2);
}

/* ---- input ------------------------------------------------------------------------------- */

/* Feeds the next piece of the input to nghttp2. Returns false if the connection is broken. */
static bool feed(struct http2 *http2, struct slice *input)
{
	size_t len = input->len < FEED_MAX ? input->len : FEED_MAX;
	ssize_t used = nghttp2_session_mem_recv(http2->session, (const uint8_t *)input->data, len);

	*input = slice_make(input->data + len, input->len - len);
	if (used < 0) {
		log_line(LOG_DEBUG, "http", "an HTTP/2 connection is broken: %s",
			nghttp2_strerror((int)used));
		return false;
	}
	return true;
}

/* Feeds input to nghttp2. Returns whether it fed anything. May close the connection. */
static bool read_on(struct connection *connection)
{
	struct http2 *http2 = connection->http2;
	bool moved = false;

	while (connection->input.len > 0 && !connection_is_backed_up(connection) &&
		connection->pump_work < PUMP_WORK_MAX) {
		if (http2->is_flooded || !nghttp2_session_want_read(http2->session)) {
			connection->input.len = 0;
			break;
		}
		moved = true;
		http2->has_seen = false;
		if (!feed(http2, &connection->input)) {
			connection_close(connection);
			break;
		}
		if (!http2->has_seen)
			http2_spend(http2, COST_UNSEEN);
	}
	return moved;
}

/* Returns whether nothing more can be received or sent. */
static bool is_over(const struct http2 *http2)
{
	const struct connection *connection = http2->connection;
	/* Once the input has ended, the client can no longer open a flow-control window, and data
	 * that needs a window would wait for ever. */
	bool is_stuck = connection->input_ended && connection->input.len == 0 &&
			connection->write_backlog == 0 && http2->of[EXCHANGE_SERVING].count == 0 &&
			http2->of[EXCHANGE_WAITING].count == 0 &&
			http2->of[EXCHANGE_ANSWERED].count == 0;

	return !nghttp2_session_want_write(http2->session) &&
	       (is_stuck || !nghttp2_session_want_read(http2->session));
}

static bool advance(struct connection *connection)
{
	struct http2 *http2 = connection->http2;
	bool moved;

	if (connection->last_request_seen) {
		connection->input.len = 0;
		return false;
	}
	moved = read_on(connection);
	if (!connection->is_closed)
		moved |= http2_write(http2);
	/* If a client floods the server and does not read, the connection is closed at once,
	 * because such a client would not read a GOAWAY either. */
	if (!connection->is_closed && http2->is_flooded && connection->write_backlog > 0)
		connection_close(connection);
	if (connection->is_closed)
		return false;
	if (is_over(http2)) {
		drop_all(connection);
		connection->last_request_seen = true;
	}
	return moved;
}

static bool wants_input(const struct connection *connection)
{
	return connection->input.len == 0 && !connection->last_request_seen &&
	       !connection_is_backed_up(connection);
}

static bool discards_input(const struct connection *connection)
{
	(void)connection;
	return false;
}

static void input_ended(struct connection *connection)
{
	http2_resume_streams(connection->http2);
	connection_pump(connection);
}

/* ---- who has to act next ----------------------------------------------------------------- */

static bool is_served(const struct http2 *http2)
{
	return http2->of[EXCHANGE_SERVING].count > 0 || http2->of[EXCHANGE_WAITING].count > 0 ||
	       http2->of[EXCHANGE_ANSWERED].count > 0 || http2->of[EXCHANGE_STREAMING].count > 0;
}

static bool is_idle(const struct connection *connection)
{
	const struct http2 *http2 = connection->http2;

	return !is_served(http2) && http2->of[EXCHANGE_SENDING].count == 0 &&
	       http2->of[EXCHANGE_ENDING].count == 0;
}

static bool is_between_requests(const struct connection *connection)
{
	const struct http2 *http2 = connection->http2;

	return http2->is_ending && http2->of[EXCHANGE_RECEIVING].count == 0;
}

static const struct exchange *longer(const struct exchange *a, const struct exchange *b)
{
	if (!a || !b)
		return a ? a : b;
	return a->since_ns <= b->since_ns ? a : b;
}

/* Returns the exchange that has waited longest for the client, which has to send the rest of a
 * request, or to read an answer or the end of an event stream. Returns NULL if no exchange waits
 * for the client. */
static const struct exchange *longest_waiting(const struct http2 *http2)
{
	return longer(http2->of[EXCHANGE_RECEIVING].first,
		longer(http2->of[EXCHANGE_SENDING].first, http2->of[EXCHANGE_ENDING].first));
}

static struct client_standing standing_of(const struct connection *connection)
{
	const struct http2 *http2 = connection->http2;
	const struct exchange *longest = longest_waiting(http2);
	size_t ending_bytes = http2->of[EXCHANGE_ENDING].count * sizeof(struct stream);
	size_t waiting_bytes = connection->queued_bytes + ending_bytes;
	struct client_standing standing = {
		.state = CLIENT_HOLDS,
		.since_ns = connection->active_ns,
		.bytes = http2->memory.bytes + sizeof(*http2) + ending_bytes,
	};

	if (connection->write_backlog > 0) {
		standing.state = CLIENT_READS;
	} else if (is_served(http2) && (!longest || waiting_bytes <= WAITING_LITTLE)) {
		standing.state = CLIENT_SERVED;
	} else if (longest) {
		standing.state = longest->state == EXCHANGE_RECEIVING ? CLIENT_SENDS : CLIENT_READS;
		standing.since_ns = longest->since_ns;
	}
	return standing;
}

/* ---- answers and streams ----------------------------------------------------------------- */

static void answered(struct connection *connection, struct request *request)
{
	struct http2 *http2 = connection->http2;

	if (request->is_abandoned)
		http2_drop(http2, request->exchange);
	else
		http2_move(http2, request->exchange, EXCHANGE_ANSWERED);
	worker_mark_dirty(connection->worker, connection);
}

/* Returns true if `request` has to wait. Only one large answer of a connection is looked up at a
 * time. Otherwise one client could occupy the memory of --h2-streams large answers. */
static bool defers(struct connection *connection, struct request *request)
{
	struct http2 *http2 = connection->http2;

	/* A request that looks up several large answers in turn does not wait for itself. */
	if (!http2->large || http2->large == request->exchange) {
		http2->large = request->exchange;
		return false;
	}
	http2_move(http2, request->exchange, EXCHANGE_WAITING);
	return true;
}

static void stream_prepared(struct connection *connection, struct request *request)
{
	(void)connection;
	(void)request; /* nothing to do: in HTTP/2, other requests do not wait for a stream */
}

static void stream_began(
	struct connection *connection, struct request *request, struct stream *stream)
{
	http2_begin_stream(connection->http2, request->exchange, stream);
}

static void stream_changed(struct connection *connection, struct stream *stream)
{
	if (stream->is_ending && stream->exchange.state == EXCHANGE_STREAMING)
		http2_move(connection->http2, &stream->exchange, EXCHANGE_ENDING);
	http2_resume(connection->http2, stream);
}

static void stream_ended(struct connection *connection, struct stream *stream)
{
	(void)connection;
	stream_event_drop(stream->exchange.event);
}

const struct protocol protocol_http2 = {
	.name = "HTTP/2",
	.advance = advance,
	.wants_input = wants_input,
	.discards_input = discards_input,
	.input_ended = input_ended,
	.is_idle = is_idle,
	.is_between_requests = is_between_requests,
	.standing = standing_of,
	.check = http2_check,
	.answered = answered,
	.defers = defers,
	.drain = drain,
	.drop = drop_all,
	.stream_prepared = stream_prepared,
	.stream_began = stream_began,
	.stream_changed = stream_changed,
	.stream_ended = stream_ended,
};

/* ---- beginning --------------------------------------------------------------------------- */

/* Queues our settings for the client. They switch off the priorities of RFC 7540, because a client
 * could make the priority tree large, and the server does not use priorities. */
static void submit_settings(struct http2 *http2)
{
	const nghttp2_settings_entry settings[] = {
		{NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS,
			(uint32_t)http2->connection->worker->limits->exchanges_max},
		{NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, TARGET_MAX + HEADER_BYTES_MAX},
		{NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES, 1},
	};

	nghttp2_submit_settings(http2->session, NGHTTP2_FLAG_NONE, settings,
		sizeof(settings) / sizeof(settings[0]));
}

void http2_begin(struct connection *connection)
{
	struct http2_shared *shared = connection->worker->http2;
	struct http2 *http2 = qp_calloc(1, sizeof(*http2));
	nghttp2_mem functions = http2_memory_functions(&http2->memory);

	http2->connection = connection;
	http2->memory.pool = &shared->pool;
	http2->budget = BUDGET_MAX;
	if (nghttp2_session_server_new3(
		    &http2->session, shared->callbacks, http2, shared->option, &functions) != 0)
		/* fails only if memory ran out, and then the allocator has already aborted */
		abort();
	submit_settings(http2);
	connection->http2 = http2;
	tally_add(&connection->worker->http2_connections, 1);
	connection->protocol = &protocol_http2;
}

struct http2_shared *http2_shared_new(void)
{
	struct http2_shared *shared = qp_calloc(1, sizeof(*shared));

	if (nghttp2_session_callbacks_new(&shared->callbacks) != 0 ||
		nghttp2_option_new(&shared->option) != 0)
		abort(); /* fails only if memory runs out */
	http2_set_input_callbacks(shared->callbacks);
	http2_set_output_callbacks(shared->callbacks);
	nghttp2_option_set_no_closed_streams(shared->option, 1);
	/* connection.c has already read the preface */
	nghttp2_option_set_no_recv_client_magic(shared->option, 1);
	return shared;
}

void http2_shared_free(struct http2_shared *shared)
{
	nghttp2_session_callbacks_del(shared->callbacks);
	nghttp2_option_del(shared->option);
	http2_pool_release(&shared->pool);
	free(shared);
}
