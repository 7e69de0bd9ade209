/*
 * A client of event streams on a bare, non-blocking socket. Everything that it waits for has a
 * deadline of HANG_MS, which only ends a test that hangs: a test never passes because time has
 * passed.
 */
#include "stream_client.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "waiting.h"

static int64_t now_ms(void)
{
	return clock_steady_ns(&clock_system) / NS_PER_MS;
}

_Noreturn static void give_up(const struct stream_client *client, const char *why)
{
	fprintf(stderr, "client: %s; unread: \"%.*s\"\n", why,
		(int)(client->len < 400 ? client->len : 400), client->bytes);
	abort();
}

void client_connect(struct stream_client *client, int port, int receive_buffer)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET,
		.sin_port = htons((uint16_t)port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};

	memset(client, 0, sizeof(*client));
	client->retry_ms = -1;
	client->bytes = malloc(CLIENT_BUFFER_SIZE);
	client->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert(client->bytes && client->fd >= 0);
	if (receive_buffer > 0)
		setsockopt(
			client->fd, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof(receive_buffer));
	if (connect(client->fd, (struct sockaddr *)&address, sizeof(address)) != 0)
		give_up(client, strerror(errno));
}

void client_close(struct stream_client *client)
{
	close(client->fd);
	free(client->bytes);
}

void client_vanish(struct stream_client *client)
{
	struct linger reset = {.l_onoff = 1};

	setsockopt(client->fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
	client_close(client);
}

void client_send(struct stream_client *client, const char *text)
{
	size_t len = strlen(text);

	while (len > 0) {
		ssize_t sent = send(client->fd, text, len, MSG_NOSIGNAL);

		if (sent < 0)
			give_up(client, strerror(errno));
		text += sent;
		len -= (size_t)sent;
	}
}

/* Returns false if nothing arrived before `until_ms`, or if the server has closed. */
static bool receive(struct stream_client *client, int64_t until_ms)
{
	struct pollfd ready = {.fd = client->fd, .events = POLLIN};
	int64_t left = until_ms - now_ms();
	ssize_t got;

	if (client->ended || left < 0 || poll(&ready, 1, (int)left) <= 0)
		return false;
	assert(client->len < CLIENT_BUFFER_SIZE);
	got = recv(client->fd, client->bytes + client->len, CLIENT_BUFFER_SIZE - client->len, 0);
	if (got <= 0) {
		client->ended = true;
		return false;
	}
	client->len += (size_t)got;
	return true;
}

/* Returns the position after `mark` in the received bytes, or 0 if it has not arrived before
 * `until_ms`. */
static size_t receive_until(struct stream_client *client, const char *mark, int64_t until_ms)
{
	for (;;) {
		const char *at = memmem(client->bytes, client->len, mark, strlen(mark));

		if (at)
			return (size_t)(at - client->bytes) + strlen(mark);
		if (!receive(client, until_ms))
			return 0;
	}
}

static void skip(struct stream_client *client, size_t len)
{
	client->len -= len;
	memmove(client->bytes, client->bytes + len, client->len);
}

void client_read_head(struct stream_client *client)
{
	size_t len = receive_until(client, "\r\n\r\n", now_ms() + HANG_MS);

	if (len == 0 || len >= sizeof(client->head))
		give_up(client, "no head");
	memcpy(client->head, client->bytes, len);
	client->head[len] = '\0';
	skip(client, len);
}

const char *client_read(struct stream_client *client, size_t len)
{
	static char body[4096];
	int64_t until_ms = now_ms() + HANG_MS;

	assert(len < sizeof(body));
	while (client->len < len) {
		if (!receive(client, until_ms))
			give_up(client, "no body");
	}
	memcpy(body, client->bytes, len);
	body[len] = '\0';
	skip(client, len);
	return body;
}

void client_get(struct stream_client *client, const char *target, const char *more)
{
	char text[1024];

	snprintf(text, sizeof(text), "GET %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n", target, more);
	client_send(client, text);
	client_read_head(client);
}

static void read_line(struct stream_client *client, struct client_event *event, const char *line)
{
	size_t used = strlen(event->data);

	if (strcmp(line, ": keep-alive") == 0)
		client->heartbeats++;
	else if (strncmp(line, "retry: ", 7) == 0)
		client->retry_ms = atoll(line + 7);
	else if (strncmp(line, "id: ", 4) == 0)
		event->id = atoll(line + 4);
	else if (strncmp(line, "data: ", 6) == 0)
		snprintf(event->data + used, sizeof(event->data) - used, "%s%s", used ? "\n" : "",
			line + 6);
	else
		give_up(client, "a line that is none of an event");
}

/* Reads the lines of one block. Returns whether it was an event. */
static bool read_block(struct stream_client *client, struct client_event *event, size_t len)
{
	char *line = client->bytes;
	char *end = client->bytes + len - 1;

	event->id = -1;
	event->data[0] = '\0';
	*end = '\0';
	while (line < end) {
		char *next = strchr(line, '\n');

		if (next)
			*next = '\0';
		read_line(client, event, line);
		line = next ? next + 1 : end;
	}
	skip(client, len);
	return event->id >= 0;
}

bool client_next_within(
	struct stream_client *client, struct client_event *event, int64_t timeout_ms)
{
	int64_t until_ms = now_ms() + timeout_ms;
	size_t len;

	while ((len = receive_until(client, "\n\n", until_ms)) > 0) {
		if (read_block(client, event, len))
			return true;
	}
	return false;
}

void client_next(struct stream_client *client, struct client_event *event)
{
	if (!client_next_within(client, event, HANG_MS))
		give_up(client, "no event");
}

int64_t client_next_id(struct stream_client *client)
{
	struct client_event event;

	client_next(client, &event);
	return event.id;
}

void client_wait_heartbeat(struct stream_client *client)
{
	size_t before = client->heartbeats;
	int64_t until_ms = now_ms() + HANG_MS;

	while (client->heartbeats == before) {
		struct client_event event;
		size_t len = receive_until(client, "\n\n", until_ms);

		if (len == 0 || read_block(client, &event, len))
			give_up(client, "no heartbeat");
	}
}

void client_wait_end(struct stream_client *client)
{
	int64_t until_ms = now_ms() + HANG_MS;

	while (receive(client, until_ms))
		client->len = 0;
	if (!client->ended)
		give_up(client, "no end");
}
