/*
 * Listens, accepts connections, and starts and ends the workers. A single acceptor on the first
 * loop passes each socket to the worker with the fewest connections. With one listening socket per
 * loop (SO_REUSEPORT), the kernel would choose by a hash, and one loop could get many connections
 * while others get few.
 *
 * Above --max-connections, the chosen worker closes the connection whose client has kept the worker
 * waiting longest. If that worker repeatedly finds no connection to close, the new connection is
 * refused (see admit()). A socket is counted in the `socket_count` of its worker as soon as the
 * worker is chosen, so that server_wait_idle() misses no socket.
 */
#include "http/server.h"

#include <assert.h>
#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/container.h"
#include "base/log.h"
#include "base/text.h"
#include "http/connection.h"
#include "http/server_internal.h"

#define LISTEN_BACKLOG 4096
#define ACCEPT_ROUND_MAX 128
#define ADMIT_TURNS_MAX 32
#define WAITING_MAX 64 /* while this many sockets wait for room, no socket is accepted */
#define IDLE_POLL_NS (5 * NS_PER_MS)

struct server {
	struct server_limits limits;
	struct http_worker *workers;
	size_t worker_count;
	atomic_size_t stream_count; /* open streams of all workers */

	int listen_fd;
	char address[128];
	/* only the loop of the first worker changes this member and the next two */
	uv_poll_t acceptor;
	atomic_bool accepting;        /* other threads may read this member */
	bool acceptor_paused;         /* true while file descriptors or memory are used up */
	struct tally waiting_sockets; /* accepted sockets for which there is no room yet */
	struct tally refused_connections;
};

/* ---- messages to workers ----------------------------------------------------------------- */

/* A message to a worker's loop: a socket to serve, or a function to call. */
struct worker_task {
	struct loop_task task;
	struct http_worker *worker;
	void (*order)(struct http_worker *worker); /* NULL to serve `fd` */
	int fd;
	int turns; /* how many iterations of the loop the socket has waited for room */
};

static void admit(struct http_worker *worker, int fd, int turns);
static void admit_waiting(struct http_worker *worker, int fd, int turns);

static void run_worker_task(struct loop_task *task)
{
	struct worker_task *message = CONTAINER_OF(task, struct worker_task, task);

	if (message->order)
		message->order(message->worker);
	else if (message->turns > 0)
		admit_waiting(message->worker, message->fd, message->turns);
	else
		admit(message->worker, message->fd, 0);
	free(message);
}

static void post_task(const struct worker_task *task)
{
	struct worker_task *message = qp_malloc(sizeof(*message));

	*message = *task;
	message->task.run = run_worker_task;
	loop_post(message->worker->loop, &message->task);
}

static void post_order(struct http_worker *worker, void (*order)(struct http_worker *worker))
{
	post_task(&(struct worker_task){.worker = worker, .order = order});
}

static void post_socket(struct http_worker *worker, int fd, int turns)
{
	post_task(&(struct worker_task){.worker = worker, .fd = fd, .turns = turns});
}

/* ---- accepting --------------------------------------------------------------------------- */

/* Returns the sum, over all workers, of the tally at `offset` in struct http_worker. */
static int64_t sum_workers(const struct server *server, size_t offset)
{
	int64_t total = 0;

	for (size_t i = 0; i < server->worker_count; i++) {
		const char *worker = (const char *)&server->workers[i];

		total += tally_read((const struct tally *)(const void *)(worker + offset));
	}
	return total;
}

bool server_take_stream(struct server *server, size_t most)
{
	size_t open = atomic_load(&server->stream_count);

	do {
		if (open >= most)
			return false;
	} while (!atomic_compare_exchange_weak(&server->stream_count, &open, open + 1));
	return true;
}

void server_return_stream(struct server *server)
{
	atomic_fetch_sub(&server->stream_count, 1);
}

static size_t connection_total(const struct server *server)
{
	return (size_t)sum_workers(server, offsetof(struct http_worker, connection_count));
}

static struct http_worker *least_busy(struct server *server)
{
	struct http_worker *best = &server->workers[0];

	for (size_t i = 1; i < server->worker_count; i++) {
		struct http_worker *worker = &server->workers[i];

		if (tally_read(&worker->connection_count) < tally_read(&best->connection_count))
			best = worker;
	}
	return best;
}

/* Writes an unencrypted refusal, so this must not be called for clients that expect TLS. */
static void write_refusal(int fd)
{
	static const char body[] =
		"{\"type\":\"about:blank\",\"title\":\"Service Unavailable\",\"status\":503,"
		"\"code\":\"OVERLOADED\",\"detail\":\"too many connections are open; "
		"nothing was changed, try again shortly\"}";
	char text[512];
	int len = snprintf(text, sizeof(text),
		"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/problem+json\r\n"
		"Content-Length: %zu\r\nRetry-After: 1\r\nConnection: close\r\n\r\n%s",
		sizeof(body) - 1, body);
	ssize_t ignored = write(fd, text, (size_t)len);

	(void)ignored;
	shutdown(fd, SHUT_WR);
}

static void refuse_connection(struct server *server, int fd)
{
	if (!server->workers[0].tls)
		write_refusal(fd);
	close(fd);
	tally_add(&server->refused_connections, 1);
}

/*
 * Finds room for a new socket, which is already counted as a connection. If no connection can be
 * closed now (see worker_make_room()), the socket waits for some iterations of the loop, which
 * serve the requests that have arrived. A socket that waits does not count as a connection. If
 * there is no room after ADMIT_TURNS_MAX iterations, the socket is refused. Runs on the worker's
 * loop.
 */
static void admit(struct http_worker *worker, int fd, int turns)
{
	struct server *server = worker->server;

	if (connection_total(server) <= server->limits.connections_max ||
		worker_make_room(worker)) {
		connection_open(worker, fd);
		return;
	}
	tally_add(&worker->connection_count, -1);
	if (turns < ADMIT_TURNS_MAX) {
		tally_add(&server->waiting_sockets, 1);
		post_socket(worker, fd, turns + 1);
		return;
	}
	tally_add(&worker->socket_count, -1);
	refuse_connection(server, fd);
}

static void admit_waiting(struct http_worker *worker, int fd, int turns)
{
	tally_add(&worker->connection_count, 1);
	tally_add(&worker->server->waiting_sockets, -1);
	admit(worker, fd, turns);
}

static void hand_out(struct server *server, int fd)
{
	struct http_worker *worker = least_busy(server);

	tally_add(&worker->connection_count, 1);
	tally_add(&worker->socket_count, 1);
	if (worker == &server->workers[0])
		admit(worker, fd, 0);
	else
		post_socket(worker, fd, 0);
}

/* Accepts up to ACCEPT_ROUND_MAX connections. Returns true if more may be waiting in the kernel. */
static bool accept_round(struct server *server)
{
	for (int i = 0; i < ACCEPT_ROUND_MAX; i++) {
		int fd = accept4(server->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd >= 0) {
			hand_out(server, fd);
			continue;
		}
		if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
			log_line(LOG_WARN, "http",
				"cannot accept a connection: %s; retrying shortly",
				strerror(errno));
			uv_poll_stop(&server->acceptor);
			server->acceptor_paused = true;
			return false;
		}
		if (errno != ECONNABORTED && errno != EINTR)
			return false;
	}
	return true;
}

static void on_connectable(uv_poll_t *acceptor, int failed, int events)
{
	struct server *server = acceptor->data;

	(void)events;
	if (!failed && tally_read(&server->waiting_sockets) < WAITING_MAX)
		accept_round(server);
}

void server_resume_accepting(struct server *server, const struct http_worker *worker)
{
	if (worker != &server->workers[0])
		return;
	if (!server->acceptor_paused || !server->accepting)
		return;
	server->acceptor_paused = false;
	uv_poll_start(&server->acceptor, UV_READABLE, on_connectable);
}

static void on_acceptor_closed(uv_handle_t *handle)
{
	struct server *server = handle->data;

	close(server->listen_fd);
	server->listen_fd = -1;
}

/* Runs on the first loop. Takes over the connections that the kernel has already accepted, then
 * closes the listening socket. */
static void stop_accepting(struct http_worker *worker)
{
	struct server *server = worker->server;

	if (!server->accepting)
		return;
	for (int i = 0; i < LISTEN_BACKLOG / ACCEPT_ROUND_MAX && accept_round(server); i++)
		;
	server->accepting = false;
	uv_close((uv_handle_t *)&server->acceptor, on_acceptor_closed);
}

/* ---- listening --------------------------------------------------------------------------- */

static bool split_address(const char *address, char *host, size_t size, const char **port)
{
	const char *colon = strrchr(address, ':');
	int64_t number;
	size_t len;

	if (!colon || !text_to_int(slice_of(colon + 1), &number) || number < 0 || number > 65535)
		return false;
	len = (size_t)(colon - address);
	if (len >= 2 && address[0] == '[' && address[len - 1] == ']') {
		address++;
		len -= 2;
	}
	if (len == 0 || len >= size)
		return false;
	memcpy(host, address, len);
	host[len] = '\0';
	*port = colon + 1;
	return true;
}

static struct addrinfo *resolve(const char *address, int *failed)
{
	struct addrinfo hints = {
		.ai_family = AF_UNSPEC,
		.ai_socktype = SOCK_STREAM,
		.ai_flags = AI_PASSIVE | AI_NUMERICSERV,
	};
	struct addrinfo *found = NULL;
	char host[256];
	const char *port;

	*failed = EAI_NONAME;
	if (split_address(address, host, sizeof(host), &port))
		*failed = getaddrinfo(host, port, &hints, &found);
	return *failed ? NULL : found;
}

static bool is_loopback(const struct sockaddr *address)
{
	if (address->sa_family == AF_INET) {
		const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)address;

		return ntohl(v4->sin_addr.s_addr) >> 24 == 127;
	}
	return IN6_IS_ADDR_LOOPBACK(
		&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr);
}

enum address_reach server_address_reach(const char *address)
{
	int failed;
	struct addrinfo *found = resolve(address, &failed);
	bool loopback = true;

	if (!found)
		return ADDRESS_INVALID;
	for (struct addrinfo *one = found; one; one = one->ai_next)
		loopback = loopback && is_loopback(one->ai_addr);
	freeaddrinfo(found);
	return loopback ? ADDRESS_LOOPBACK : ADDRESS_PUBLIC;
}

static void note_address(struct server *server)
{
	struct sockaddr_storage bound;
	socklen_t len = sizeof(bound);
	char host[64], port[16];

	getsockname(server->listen_fd, (struct sockaddr *)&bound, &len);
	getnameinfo((struct sockaddr *)&bound, len, host, sizeof(host), port, sizeof(port),
		NI_NUMERICHOST | NI_NUMERICSERV);
	snprintf(server->address, sizeof(server->address),
		bound.ss_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host, port);
}

static int listen_on(const struct addrinfo *address)
{
	int fd = socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	int on = 1;

	if (fd < 0)
		return -1;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (bind(fd, address->ai_addr, address->ai_addrlen) == 0 && listen(fd, LISTEN_BACKLOG) == 0)
		return fd;
	on = errno;
	close(fd);
	errno = on;
	return -1;
}

void server_use_tls(struct server *server, struct tls_context *tls)
{
	for (size_t i = 0; i < server->worker_count; i++)
		server->workers[i].tls = tls;
}

void server_log_access(struct server *server)
{
	for (size_t i = 0; i < server->worker_count; i++)
		server->workers[i].logs_access = true;
}

bool server_listen(struct server *server, const char *address, char *why, size_t size)
{
	int failed;
	struct addrinfo *found = resolve(address, &failed);

	if (!found) {
		snprintf(why, size, "cannot listen on %s: %s (use host:port)", address,
			gai_strerror(failed));
		return false;
	}
	server->listen_fd = listen_on(found);
	failed = errno;
	freeaddrinfo(found);
	if (server->listen_fd < 0) {
		snprintf(why, size, "cannot listen on %s: %s%s", address, strerror(failed),
			failed == EADDRINUSE ? " (another program uses this port; choose another "
					       "port with --listen)"
					     : "");
		return false;
	}
	note_address(server);
	return true;
}

const char *server_address(const struct server *server)
{
	return server->address;
}

/* ---- life -------------------------------------------------------------------------------- */

struct server *server_new(size_t loops, const struct server_limits *limits, struct router *router,
	const struct admission *admission)
{
	struct server *server = qp_calloc(1, sizeof(*server));
	const struct worker_config config = {
		.server = server,
		.limits = &server->limits,
		.router = router,
		.admission = admission,
		.client_bytes_max = limits->client_bytes_max / loops,
	};

	assert(loops > 0);
	server->limits = *limits;
	server->listen_fd = -1;
	server->worker_count = loops;
	server->workers = qp_calloc(loops, sizeof(*server->workers));
	for (size_t i = 0; i < loops; i++)
		worker_init(&server->workers[i], &config);
	return server;
}

void server_use_clock(struct server *server, const struct clock *clock)
{
	for (size_t i = 0; i < server->worker_count; i++)
		server->workers[i].clock = clock;
}

void server_start(struct server *server)
{
	assert(server->listen_fd >= 0);
	uv_poll_init(loop_uv(server->workers[0].loop), &server->acceptor, server->listen_fd);
	server->acceptor.data = server;
	server->accepting = true;
	uv_poll_start(&server->acceptor, UV_READABLE, on_connectable);
	for (size_t i = 0; i < server->worker_count; i++)
		loop_start(server->workers[i].loop, "http");
}

void server_drain(struct server *server)
{
	post_order(&server->workers[0], stop_accepting);
	for (size_t i = 0; i < server->worker_count; i++)
		post_order(&server->workers[i], worker_drain);
}

static int64_t socket_total(const struct server *server)
{
	return sum_workers(server, offsetof(struct http_worker, socket_count));
}

static int64_t in_flight(const struct server *server)
{
	return sum_workers(server, offsetof(struct http_worker, in_flight));
}

/*
 * The count of sockets is complete only after the server has stopped accepting: until then the
 * kernel may hold connections that are not counted yet. Requests are counted after sockets, because
 * without a socket no new request can arrive.
 */
static bool is_idle(const struct server *server)
{
	return !atomic_load(&server->accepting) && socket_total(server) == 0 &&
	       in_flight(server) == 0;
}

bool server_wait_idle(struct server *server, int64_t until_ns)
{
	while (!is_idle(server)) {
		struct timespec pause = {.tv_nsec = IDLE_POLL_NS};

		if (clock_steady_ns(&clock_system) >= until_ns)
			return false;
		nanosleep(&pause, NULL);
	}
	return true;
}

void server_free(struct server *server)
{
	post_order(&server->workers[0], stop_accepting);
	for (size_t i = 0; i < server->worker_count; i++) {
		post_order(&server->workers[i], worker_end);
		loop_stop(server->workers[i].loop);
	}
	for (size_t i = 0; i < server->worker_count; i++) {
		loop_join(server->workers[i].loop);
		worker_release(&server->workers[i]);
	}
	free(server->workers);
	free(server);
}

static void collect_streams(const struct server *server, struct buffer *page)
{
	metrics_family(page, "quipu_http_streams", "gauge", "Open event streams.");
	metrics_sample(page, "quipu_http_streams", "", (int64_t)atomic_load(&server->stream_count));
	metrics_family(page, "quipu_http_stream_events_total", "counter",
		"Values written to event streams.");
	metrics_sample(page, "quipu_http_stream_events_total", "",
		sum_workers(server, offsetof(struct http_worker, events_sent)));
	metrics_family(page, "quipu_http_stream_events_skipped_total", "counter",
		"Values that a newer value replaced before they were written to a stream.");
	metrics_sample(page, "quipu_http_stream_events_skipped_total", "",
		sum_workers(server, offsetof(struct http_worker, events_skipped)));
}

static void collect_protocols(const struct server *server, struct buffer *page)
{
	metrics_family(page, "quipu_http_answers_total", "counter", "Answers by protocol.");
	metrics_sample(page, "quipu_http_answers_total", "protocol=\"HTTP/1.1\"",
		sum_workers(server, offsetof(struct http_worker, http1_answers)));
	metrics_sample(page, "quipu_http_answers_total", "protocol=\"HTTP/2\"",
		sum_workers(server, offsetof(struct http_worker, http2_answers)));
	metrics_family(page, "quipu_http2_connections", "gauge",
		"Open client connections that speak HTTP/2.");
	metrics_sample(page, "quipu_http2_connections", "",
		sum_workers(server, offsetof(struct http_worker, http2_connections)));
}

static void collect_ended(const struct server *server, struct buffer *page)
{
	static const char name[] = "quipu_http_connections_ended_total";

	metrics_family(page, name, "counter",
		"Connections that the server closed to make room for others, to free memory, or "
		"because the client flooded them.");
	metrics_sample(page, name, "for=\"room\"",
		sum_workers(server, offsetof(struct http_worker, ended_for_room)));
	metrics_sample(page, name, "for=\"memory\"",
		sum_workers(server, offsetof(struct http_worker, ended_for_memory)));
	metrics_sample(page, name, "for=\"flood\"",
		sum_workers(server, offsetof(struct http_worker, ended_for_flood)));
}

void server_collect(void *context, struct buffer *page)
{
	const struct server *server = context;

	metrics_family(page, "quipu_http_requests_in_flight", "gauge",
		"Requests that have begun but are not answered yet.");
	metrics_sample(page, "quipu_http_requests_in_flight", "", in_flight(server));
	metrics_family(page, "quipu_http_connections", "gauge", "Open client connections.");
	metrics_sample(page, "quipu_http_connections", "", (int64_t)connection_total(server));
	metrics_family(page, "quipu_http_connections_refused_total", "counter",
		"Connections refused above --max-connections because no open connection could be "
		"closed.");
	metrics_sample(page, "quipu_http_connections_refused_total", "",
		tally_read(&server->refused_connections));
	collect_protocols(server, page);
	collect_ended(server, page);
	collect_streams(server, page);
}
