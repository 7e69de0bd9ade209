/*
 * Connections of HTTP/1.1 with one request outstanding each. How many there are decides how many
 * operations are under way, so a server that stalls holds up only those that were sent to it.
 *
 *   state       event                              next        function
 *   CLOSED      RECONNECT_US have passed           CONNECTING  connection_open
 *   CONNECTING  connected                          FREE        connection_connected
 *   FREE        an operation is due                BUSY        connection_take
 *   BUSY        an answer                          FREE        connection_receive
 *   BUSY        an answer 503                      RESTING     connection_receive
 *   RESTING     REST_US have passed                FREE        connections_check
 *   any         error, end of file, --timeout-ms   CLOSED      connection_close
 *
 * A connection rests after a refusal, because a client that asks a server without a database as
 * fast as it can only fills the log.
 */
#define _GNU_SOURCE 1
#include <assert.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "load.h"

enum { RECONNECT_US = 100000, REST_US = 60000 };

enum connection_state {
	CONNECTION_CLOSED,
	CONNECTION_CONNECTING,
	CONNECTION_FREE,
	CONNECTION_BUSY,
	CONNECTION_RESTING,
};

struct connection {
	enum connection_state state;
	int fd;
	uint32_t target;
	uint64_t since_us; /* the state, or for BUSY, the request */
	struct operation *operation;
	uint32_t length;
	char input[RESPONSE_MAX + 1];
};

int socket_connect_to(const struct sockaddr_in *address)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int one = 1;

	if (fd < 0)
		die("socket: %s", strerror(errno));
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	if (connect(fd, (const struct sockaddr *)address, sizeof(*address)) != 0 &&
		errno != EINPROGRESS) {
		close(fd);
		return -1;
	}
	return fd;
}

static void connection_set(struct load *load, struct connection *c, enum connection_state state)
{
	c->state = state;
	c->since_us = load->now_us;
}

static void connection_close(struct load *load, struct connection *c, const char *why)
{
	struct operation *o = c->operation;

	if (c->fd >= 0)
		close(c->fd);
	c->fd = -1;
	c->length = 0;
	c->operation = NULL;
	load->errors.connect += c->state == CONNECTION_CONNECTING;
	connection_set(load, c, CONNECTION_CLOSED);
	if (o)
		operation_lost(load, o, why);
}

static void connection_watch(struct load *load, struct connection *c, int verb, uint32_t events)
{
	struct epoll_event event = {
		.events = events,
		.data = {.u32 = (uint32_t)(c - load->connections)},
	};

	if (epoll_ctl(load->epoll, verb, c->fd, &event) != 0)
		die("epoll_ctl: %s", strerror(errno));
}

static void connection_open(struct load *load, struct connection *c)
{
	c->fd = socket_connect_to(&load->options.targets[c->target]);
	connection_set(load, c, CONNECTION_CONNECTING);
	if (c->fd < 0)
		connection_close(load, c, "lost");
	else
		connection_watch(load, c, EPOLL_CTL_ADD, EPOLLOUT);
}

void connections_open(struct load *load)
{
	load->connection_count = (uint32_t)load->options.connections * load->options.target_count;
	load->connections = allocate(load->connection_count, sizeof(*load->connections));
	for (uint32_t i = 0; i < load->connection_count; i++) {
		load->connections[i].fd = -1;
		load->connections[i].target = i % load->options.target_count;
		connection_open(load, &load->connections[i]);
	}
}

static void connection_connected(struct load *load, struct connection *c)
{
	int error = 0;
	socklen_t size = sizeof(error);

	if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0 || error != 0) {
		connection_close(load, c, "lost");
		return;
	}
	connection_watch(load, c, EPOLL_CTL_MOD, EPOLLIN);
	connection_set(load, c, CONNECTION_FREE);
}

/* -- sending -- */

static bool connection_take(struct load *load, struct connection *c)
{
	struct operation *o = operation_take(load);

	if (!o)
		return false;
	operation_send(load, o, c->target);
	c->operation = o;
	connection_set(load, c, CONNECTION_BUSY);
	return true;
}

/* A request is shorter than any socket's buffer, so it is sent as a whole or the connection is
 * broken. */
static void connection_send(struct load *load, struct connection *c)
{
	const struct operation *o = c->operation;
	ssize_t sent = send(c->fd, o->request, o->length, MSG_NOSIGNAL);

	if (sent != (ssize_t)o->length) {
		load->errors.lost++;
		connection_close(load, c, "lost");
	}
}

void connections_dispatch(struct load *load)
{
	uint32_t first = random_below(&load->random, load->connection_count);
	uint32_t taken[256];
	uint32_t count = 0;

	for (uint32_t i = 0; i < load->connection_count && count < 256; i++) {
		uint32_t index = (first + i) % load->connection_count;

		if (load->connections[index].state != CONNECTION_FREE)
			continue;
		if (!connection_take(load, &load->connections[index]))
			break;
		taken[count++] = index;
	}
	logs_flush(load);
	for (uint32_t i = 0; i < count; i++)
		connection_send(load, &load->connections[taken[i]]);
}

/* -- receiving -- */

static void connection_finish(
	struct load *load, struct connection *c, const struct response *response)
{
	struct operation *o = c->operation;
	bool close_it = response->close;

	c->operation = NULL;
	operation_answered(load, o, response);
	c->length = 0;
	connection_set(load, c, response->status == 503 ? CONNECTION_RESTING : CONNECTION_FREE);
	if (close_it)
		connection_close(load, c, "lost");
}

static void connection_receive(struct load *load, struct connection *c)
{
	ssize_t got = recv(c->fd, c->input + c->length, RESPONSE_MAX - c->length, 0);
	struct response response;

	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (got <= 0 || c->state != CONNECTION_BUSY) {
		load->errors.lost += c->state == CONNECTION_BUSY;
		connection_close(load, c, "lost");
		return;
	}
	c->length += (uint32_t)got;
	c->input[c->length] = '\0';
	switch (response_parse(&response, c->input, c->length)) {
	case PARSE_MORE:
		return;
	case PARSE_BAD:
		load->errors.bad++;
		connection_close(load, c, "unreadable");
		return;
	case PARSE_DONE:
		connection_finish(load, c, &response);
		return;
	}
}

void connection_event(struct load *load, uint32_t index, uint32_t events)
{
	struct connection *c = &load->connections[index];

	if (c->state == CONNECTION_CLOSED)
		return;
	if (c->state == CONNECTION_CONNECTING)
		connection_connected(load, c);
	else
		connection_receive(load, c);
}

/* -- time -- */

static void connection_check(struct load *load, struct connection *c)
{
	uint64_t age_us = load->now_us - c->since_us;
	bool late = age_us > load->options.timeout_ms * 1000;

	if (c->state == CONNECTION_CLOSED && age_us >= RECONNECT_US)
		connection_open(load, c);
	else if (c->state == CONNECTION_RESTING && age_us >= REST_US)
		connection_set(load, c, CONNECTION_FREE);
	else if (late && c->state == CONNECTION_CONNECTING)
		connection_close(load, c, "timeout");
	else if (late && c->state == CONNECTION_BUSY) {
		load->errors.timeout++;
		connection_close(load, c, "timeout");
	}
}

void connections_check(struct load *load)
{
	for (uint32_t i = 0; i < load->connection_count; i++)
		connection_check(load, &load->connections[i]);
}
