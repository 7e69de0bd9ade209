/*
 * The receiver of webhooks that deliveries are measured with: answers every POST with 200 over
 * connections that stay open, and GET with the number of POSTs so far. One thread, epoll, loopback
 * only. It reads as little of a request as it can, so that it costs less than what is measured.
 *
 *     webhook_receiver        prints the port it listens on, and ends with its standard input
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define CONNECTIONS_MAX 1024
#define REQUEST_MAX (64 * 1024)
#define EVENTS_MAX 256

struct connection {
	int socket; /* -1 if it is free */
	size_t length;
	char bytes[REQUEST_MAX + 1];
};

struct receiver {
	int epoll;
	int listener;
	unsigned long long posts;
	struct connection *connections; /* CONNECTIONS_MAX */
};

__attribute__((noreturn)) static void fail(const char *what)
{
	fprintf(stderr, "webhook_receiver: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void watch(const struct receiver *receiver, int file, void *what)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = what};

	if (epoll_ctl(receiver->epoll, EPOLL_CTL_ADD, file, &event) != 0)
		fail("epoll_ctl");
}

static void open_listener(struct receiver *receiver)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof(address);

	receiver->listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	if (receiver->listener < 0 ||
		bind(receiver->listener, (struct sockaddr *)&address, size) != 0 ||
		listen(receiver->listener, 512) != 0 ||
		getsockname(receiver->listener, (struct sockaddr *)&address, &size) != 0)
		fail("cannot listen");
	printf("%d\n", ntohs(address.sin_port));
	fflush(stdout);
}

static void drop(struct connection *connection)
{
	close(connection->socket);
	connection->socket = -1;
}

static struct connection *free_connection(const struct receiver *receiver)
{
	for (size_t i = 0; i < CONNECTIONS_MAX; i++) {
		if (receiver->connections[i].socket < 0)
			return &receiver->connections[i];
	}
	return NULL;
}

static void take_connections(const struct receiver *receiver)
{
	int one = 1, accepted;

	while ((accepted = accept4(receiver->listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
		struct connection *connection = free_connection(receiver);

		if (!connection) {
			close(accepted);
			continue;
		}
		setsockopt(accepted, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		connection->socket = accepted;
		connection->length = 0;
		watch(receiver, accepted, connection);
	}
}

/* Returns the length of the first request, or 0 if it is not complete. */
static size_t request_length(const char *bytes, size_t length)
{
	const char *end = strstr(bytes, "\r\n\r\n");
	const char *field = strcasestr(bytes, "\r\nContent-Length:");
	size_t body = field && field < end ? strtoul(field + 17, NULL, 10) : 0;
	size_t whole = end ? (size_t)(end - bytes) + 4 + body : 0;

	return whole > 0 && whole <= length ? whole : 0;
}

static bool answer(struct receiver *receiver, const struct connection *connection)
{
	char text[128], count[32] = "";
	int size;

	if (connection->bytes[0] == 'P')
		receiver->posts++;
	else
		snprintf(count, sizeof(count), "%llu", receiver->posts);
	size = snprintf(text, sizeof(text), "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n%s",
		strlen(count), count);
	return send(connection->socket, text, (size_t)size, MSG_NOSIGNAL) == size;
}

static void serve(struct receiver *receiver, struct connection *connection)
{
	ssize_t got = recv(connection->socket, connection->bytes + connection->length,
		REQUEST_MAX - connection->length, 0);
	size_t used;

	if (got <= 0) {
		if (got == 0 || (errno != EAGAIN && errno != EINTR))
			drop(connection);
		return;
	}
	connection->length += (size_t)got;
	connection->bytes[connection->length] = '\0';
	while ((used = request_length(connection->bytes, connection->length)) > 0) {
		if (!answer(receiver, connection)) {
			drop(connection);
			return;
		}
		connection->length -= used;
		memmove(connection->bytes, connection->bytes + used, connection->length + 1);
	}
	if (connection->length == REQUEST_MAX)
		drop(connection);
}

/* Returns false once standard input has ended. */
static bool step(struct receiver *receiver)
{
	struct epoll_event events[EVENTS_MAX];
	int count = epoll_wait(receiver->epoll, events, EVENTS_MAX, -1);
	char ignored[64];

	for (int i = 0; i < count; i++) {
		if (events[i].data.ptr == &receiver->listener)
			take_connections(receiver);
		else if (events[i].data.ptr)
			serve(receiver, events[i].data.ptr);
		else if (read(STDIN_FILENO, ignored, sizeof(ignored)) <= 0)
			return false;
	}
	return count >= 0 || errno == EINTR;
}

int main(void)
{
	struct receiver receiver = {.epoll = epoll_create1(EPOLL_CLOEXEC)};

	receiver.connections = calloc(CONNECTIONS_MAX, sizeof(*receiver.connections));
	if (receiver.epoll < 0 || !receiver.connections)
		fail("cannot start");
	for (size_t i = 0; i < CONNECTIONS_MAX; i++)
		receiver.connections[i].socket = -1;
	open_listener(&receiver);
	watch(&receiver, receiver.listener, &receiver.listener);
	watch(&receiver, STDIN_FILENO, NULL);
	while (step(&receiver))
		;
	free(receiver.connections);
	return 0;
}
