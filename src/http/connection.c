/*
 * All work on a connection is done by one function, connection_pump(). It calls the protocol's
 * advance() until there is nothing left to do; advance() writes finished answers, starts requests
 * and parses input. Every event (input, an answer, room in the socket) leads to a call of
 * connection_pump(), "a pump".
 *
 * A pump is limited to an amount of work (PUMP_WORK_MAX) and of bytes (PUMP_BYTES_MAX). A
 * connection that reaches a limit, but could go on, rests until the loop has polled the other
 * connections. Every call that writes or starts a request may close the connection, so `is_closed`
 * is checked after each such call.
 */
#include "http/connection.h"

#include <assert.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "http/http2.h"

#define PUMP_ROUND_WORK 2
#define PUMP_BYTES_MAX (32 * 1024)
#define WRITE_BACKLOG_MAX (256 * 1024)
#define UNSENT_MAX (128 * 1024)
#define DISCARDED_MAX (64 * 1024)
#define LINGER_NS (2 * NS_PER_S)

static int64_t now_ns(const struct http_worker *worker)
{
	return clock_steady_ns(worker->clock);
}

/* ---- reading ----------------------------------------------------------------------------- */

/* Copies the input that is not parsed yet, because the worker's buffer is about to be used for
 * another connection. */
static void keep_input(struct connection *connection)
{
	assert(!connection->kept);
	if (connection->input.len == 0)
		return;
	connection->kept = qp_malloc(connection->input.len);
	memcpy(connection->kept, connection->input.data, connection->input.len);
	connection->input.data = connection->kept;
}

/* Frees the copy of the input as soon as it is parsed, because the connection may then be idle, or
 * carry a stream, for a long time. */
static void drop_used_input(struct connection *connection)
{
	if (connection->input.len > 0)
		return;
	free(connection->kept);
	connection->kept = NULL;
}

static void on_read(uv_stream_t *stream, ssize_t len, const uv_buf_t *buffer);

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer)
{
	struct connection *connection = handle->data;

	(void)suggested;
	*buffer = uv_buf_init(connection->worker->read_buffer, READ_BUFFER_SIZE);
}

static bool wants_input(const struct connection *connection)
{
	if (connection->input_ended || connection->is_resting)
		return false;
	if (connection->is_lingering)
		return true; /* read, to notice when the client closes */
	return connection->protocol->wants_input(connection);
}

static void set_reading(struct connection *connection)
{
	bool wanted = wants_input(connection);
	uv_stream_t *stream = (uv_stream_t *)&connection->tcp;

	if (wanted == connection->is_reading)
		return;
	connection->is_reading = wanted;
	if (wanted)
		uv_read_start(stream, on_alloc, on_read);
	else
		uv_read_stop(stream);
}

bool connection_is_backed_up(const struct connection *connection)
{
	return connection->write_backlog > WRITE_BACKLOG_MAX;
}

static void on_shut(uv_shutdown_t *shutdown, int failed)
{
	struct connection *connection = shutdown->data;

	free(shutdown);
	if (failed && failed != UV_ECANCELED)
		connection_close(connection);
}

/* Ends a connection on which every request is answered and no further request is expected. Closes
 * the connection if the client has shut down its side, or if the connection was idle during a
 * drain. Otherwise shuts down our side and lingers (see connection.h). */
static void finish(struct connection *connection)
{
	uv_shutdown_t *shutdown;

	if (connection->input_ended || !connection->last_request_seen) {
		connection_close(connection);
		return;
	}
	connection->is_lingering = true;
	if (connection->tls) {
		tls_session_end(connection->tls);
		connection_send_output(connection);
	}
	if (connection->is_closed)
		return;
	connection->active_ns = now_ns(connection->worker);
	shutdown = qp_malloc(sizeof(*shutdown));
	shutdown->data = connection;
	if (uv_shutdown(shutdown, (uv_stream_t *)&connection->tcp, on_shut) != 0) {
		free(shutdown);
		connection_close(connection);
	}
}

static bool is_greeting(const struct connection *connection)
{
	return connection->tls && tls_session_state(connection->tls) == TLS_HELLO;
}

static bool is_idle(const struct connection *connection)
{
	return connection->protocol->is_idle(connection) && connection->write_backlog == 0 &&
	       !is_greeting(connection);
}

bool connection_has_unread_input(const struct connection *connection)
{
	int fd, len = 0;

	return uv_fileno((const uv_handle_t *)&connection->tcp, &fd) == 0 &&
	       ioctl(fd, FIONREAD, &len) == 0 && len > 0;
}

/* Returns whether every request is answered and no further request is expected. During a drain, a
 * request that has already arrived is still served, even if the loop has not read it yet. */
static bool is_finished(const struct connection *connection)
{
	bool nothing_follows = connection->last_request_seen || connection->input_ended ||
			       (connection->worker->draining &&
				       connection->protocol->is_between_requests(connection) &&
				       !connection_has_unread_input(connection));

	return nothing_follows && is_idle(connection) && connection->input.len == 0;
}

static void note_turn(struct connection *connection)
{
	struct client_standing standing = connection->protocol->standing(connection);

	if (is_greeting(connection)) {
		standing.state = CLIENT_SENDS;
		standing.since_ns = connection->accepted_ns;
	}
	standing.bytes += connection->write_backlog + connection->queued_bytes;
	if (connection->kept)
		standing.bytes += connection->tls ? sizeof(connection->worker->plain_buffer)
						  : READ_BUFFER_SIZE;
	client_queues_note(&connection->worker->client_queues, connection, standing.state,
		standing.since_ns, standing.bytes);
}

void connection_pump(struct connection *connection)
{
	bool moved;

	if (connection->is_pumping || connection->is_closed || connection->is_resting)
		return;
	connection->is_pumping = true;
	connection->pump_bytes = 0;
	connection->pump_work = 0;
	do {
		connection->pump_work += PUMP_ROUND_WORK;
		moved = connection->protocol->advance(connection);
	} while (moved && !connection->is_closed && connection->pump_work < PUMP_WORK_MAX &&
		 connection->pump_bytes < PUMP_BYTES_MAX);
	connection->is_pumping = false;
	if (connection->is_closed)
		return;
	drop_used_input(connection);
	if (moved)
		worker_rest(connection->worker, connection);
	else if (is_finished(connection) && !connection->is_lingering)
		finish(connection);
	if (connection->is_closed)
		return;
	set_reading(connection);
	note_turn(connection);
	worker_free_memory(connection->worker);
}

#define NO_TLS_BODY                                                                                \
	"{\"type\":\"about:blank\",\"title\":\"Bad Request\",\"status\":400,"                      \
	"\"code\":\"BAD_REQUEST\",\"detail\":\"this port speaks TLS; "                             \
	"use https:// instead of http://\"}"

/* Answers a client that uses http:// instead of https://. Such a client does not speak TLS, so the
 * answer is not encrypted. */
static void answer_in_the_clear(struct connection *connection)
{
	static const char text[] =
		"HTTP/1.1 400 Bad Request\r\nContent-Type: application/problem+json\r\n"
		"Content-Length: 143\r\nConnection: close\r\n\r\n" NO_TLS_BODY;
	uv_buf_t part = uv_buf_init((char *)(uintptr_t)text, sizeof(text) - 1);

	_Static_assert(sizeof(NO_TLS_BODY) - 1 == 143, "the Content-Length above must match");
	tls_session_free(connection->tls);
	connection->tls = NULL;
	connection->last_request_seen = true;
	connection_write_parts(connection, &part, 1);
	connection_pump(connection);
}

/*
 * Decrypts `*bytes`, which came from the socket, and makes `*bytes` point to the plain text in the
 * worker's buffer. Everything that a client sends over TLS passes through here. Returns false if
 * the connection was closed or is ending.
 */
static bool decipher(struct connection *connection, struct slice *bytes)
{
	struct http_worker *worker = connection->worker;
	bool was_open = tls_session_state(connection->tls) == TLS_OPEN;
	size_t len = tls_session_read(connection->tls, *bytes, worker->plain_buffer);

	connection_send_output(connection);
	if (connection->is_closed)
		return false;
	*bytes = slice_make(worker->plain_buffer, len);
	switch (tls_session_state(connection->tls)) {
	case TLS_PLAIN:
		answer_in_the_clear(connection);
		return false;
	case TLS_BROKEN:
		connection->last_request_seen =
			true; /* finish() then lingers, so that the client can read the TLS alert */
		if (was_open)
			connection_close(connection);
		else
			connection_pump(connection);
		return false;
	case TLS_ENDED:
		connection->input_ended = true;
		return true;
	default:
		/* true even without plain text: the caller then pumps, and note_turn() notes that
		 * the handshake has ended */
		return true;
	}
}

static void end_input(struct connection *connection, bool orderly)
{
	connection->input_ended = true;
	connection->is_reading = false;
	uv_read_stop((uv_stream_t *)&connection->tcp);
	if (!orderly || connection->is_lingering || is_greeting(connection))
		connection_close(connection);
	else
		connection->protocol->input_ended(connection);
}

/* Counts discarded bytes, and closes the connection if there are too many. */
static void discard(struct connection *connection, size_t len)
{
	connection->discarded_bytes += len;
	if (connection->discarded_bytes > DISCARDED_MAX)
		connection_close(connection);
}

/* The client's first bytes looked like the start of HTTP/2's preface, but belong to a request of
 * HTTP/1.1. Puts these bytes back in front of the input. */
static void restore_preface(struct connection *connection, struct slice *input)
{
	char *together = connection->worker->plain_buffer;

	if (connection->preface_seen == 0)
		return;
	memmove(together + connection->preface_seen, input->data, input->len);
	memcpy(together, HTTP2_PREFACE, connection->preface_seen);
	*input = slice_make(together, input->len + connection->preface_seen);
}

/*
 * Finds out from the first bytes which protocol the client speaks: HTTP/2 begins with a preface,
 * and no request of HTTP/1.1 begins with the whole preface. Over TLS the handshake has already
 * chosen the protocol, but HTTP/2 still requires the preface. Removes the preface from the input.
 * Returns false if more input is needed, or if the connection was closed.
 */
static bool decide_protocol(struct connection *connection, struct slice *input)
{
	const size_t whole = sizeof(HTTP2_PREFACE) - 1;
	size_t len = whole - connection->preface_seen;
	bool may_be = !connection->tls || tls_session_chose_http2(connection->tls);

	if (len > input->len)
		len = input->len;
	if (may_be && memcmp(input->data, &HTTP2_PREFACE[connection->preface_seen], len) == 0) {
		connection->preface_seen += len;
		*input = slice_make(input->data + len, input->len - len);
		if (connection->preface_seen < whole)
			return false;
		http2_begin(connection);
	} else if (connection->tls && may_be) {
		connection_close(connection);
		return false;
	} else {
		restore_preface(connection, input);
	}
	connection->is_undecided = false;
	return true;
}

static void on_read(uv_stream_t *stream, ssize_t len, const uv_buf_t *buffer)
{
	struct connection *connection = stream->data;
	struct slice input = slice_make(buffer->base, len > 0 ? (size_t)len : 0);
	bool discards = len > 0 && connection->protocol->discards_input(connection);

	if (len < 0)
		end_input(connection, len == UV_EOF);
	if (discards)
		discard(connection, (size_t)len);
	if (len <= 0 || connection->is_lingering || connection->is_closed)
		return;
	if (connection->tls && !decipher(connection, &input))
		return;
	if (discards) {
		if (connection->input_ended)
			connection_close(connection);
		return;
	}
	if (connection->is_undecided && input.len > 0 && !decide_protocol(connection, &input))
		return;
	assert(connection->input.len == 0);
	connection->input = input;
	connection_pump(connection);
	if (connection->is_closed)
		return;
	keep_input(connection);
	note_turn(connection);
	/* If the input fills the buffer, there may be more to read. The connection then rests,
	 * because libuv would otherwise read from it up to 32 times in a row before it polls the
	 * other connections. */
	if (len == READ_BUFFER_SIZE && !connection->is_resting)
		worker_rest(connection->worker, connection);
	set_reading(connection);
}

/* ---- life -------------------------------------------------------------------------------- */

static void on_closed(uv_handle_t *handle)
{
	struct connection *connection = handle->data;

	if (connection->tls)
		tls_session_free(connection->tls);
	if (connection->http2)
		http2_free(connection->http2);
	free(connection->kept);
	free(connection);
}

/* Sends close_notify, so that a TLS client knows that it has received everything. Sends nothing if
 * the socket is full, because the client is then not reading. */
static void send_close_notify(struct connection *connection)
{
	size_t len;
	char *bytes;
	uv_buf_t part;

	if (!connection->tls || connection->write_backlog > 0)
		return;
	tls_session_end(connection->tls);
	bytes = tls_session_take_output(connection->tls, &len);
	part = uv_buf_init(bytes, (unsigned)len);
	if (bytes)
		uv_try_write((uv_stream_t *)&connection->tcp, &part, 1);
	free(bytes);
}

void connection_close(struct connection *connection)
{
	struct http_worker *worker = connection->worker;

	if (connection->is_closed)
		return;
	connection->is_closed = true;
	send_close_notify(connection);
	connection->protocol->drop(connection);
	worker_remove(worker, connection);
	client_queues_note(&worker->client_queues, connection, CLIENT_SERVED, 0, 0);
	tally_add(&worker->connection_count, -1);
	tally_add(&worker->socket_count, -1);
	if (connection->http2)
		tally_add(&worker->http2_connections, -1);
	uv_close((uv_handle_t *)&connection->tcp, on_closed);
}

/* Returns whether the handshake is still going on. Closes the connection if the handshake takes too
 * long. */
static bool check_handshake(struct connection *connection, int64_t now)
{
	enum tls_state state = connection->tls ? tls_session_state(connection->tls) : TLS_OPEN;

	if (state != TLS_NEW && state != TLS_HELLO)
		return false;
	if (now - connection->accepted_ns > connection->worker->limits->head_timeout_ns) {
		tls_session_time_out(connection->tls);
		connection_close(connection);
	}
	return true;
}

void connection_check_deadlines(struct connection *connection, int64_t now)
{
	if (connection->is_closed)
		return; /* the check of another connection has closed this connection */
	if (check_handshake(connection, now))
		return;
	if (!connection->is_lingering)
		connection->protocol->check(connection, now);
	else if (now - connection->active_ns > LINGER_NS)
		connection_close(connection);
}

/* Returns a hash of the client's address. An IPv6 network (/64) counts as one address, because
 * whoever has one address of such a network has all of its addresses. */
static uint64_t address_of(int fd)
{
	struct sockaddr_storage peer = {0};
	socklen_t len = sizeof(peer);
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)&peer;
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&peer;

	if (getpeername(fd, (struct sockaddr *)&peer, &len) != 0)
		return 0;
	if (peer.ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr))
		return hash_bytes(slice_make((const char *)&v6->sin6_addr + 12, 4));
	if (peer.ss_family == AF_INET6)
		return hash_bytes(slice_make((const char *)&v6->sin6_addr, 8));
	return hash_bytes(slice_make((const char *)&v4->sin_addr, sizeof(v4->sin_addr)));
}

void connection_open(struct http_worker *worker, int fd)
{
	struct connection *connection = qp_calloc(1, sizeof(*connection));
	const int unsent_max = UNSENT_MAX;

	connection->worker = worker;
	connection->is_undecided = true;
	connection->address = address_of(fd);
	connection->accepted_ns = connection->active_ns = now_ns(worker);
	http1_init(connection);
	uv_tcp_init(loop_uv(worker->loop), &connection->tcp);
	connection->tcp.data = connection;
	worker_add(worker, connection);
	if (worker->tls)
		connection->tls = tls_session_new(worker->tls);
	if ((worker->tls && !connection->tls) || uv_tcp_open(&connection->tcp, fd) != 0) {
		close(fd);
		connection_close(connection);
		return;
	}
	uv_tcp_nodelay(&connection->tcp, 1);
	/* Without this limit, the kernel would buffer megabytes for each client that does not
	 * read. */
	setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent_max, sizeof(unsent_max));
	set_reading(connection);
	note_turn(connection);
}
