/*
 * Event streams that follow the counters of unread messages. Each stream belongs to a user; when it
 * is lost, it is opened again, at the next server, with or without Last-Event-ID. The log has every
 * event, so that the checks can see whether versions went back and whether the last one was the
 * truth.
 *
 * The answer is chunked. Of a chunk's frame only the length is needed; the text of the chunks is
 * cut into lines, and a blank line ends an event.
 */
#define _GNU_SOURCE 1
#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "load.h"

enum {
	STREAM_INPUT_MAX = 8192,
	STREAM_LINE_MAX = 1024,
	REOPEN_US = 300000,
	SILENCE_US = 40000000, /* more than two heartbeats */
};

enum stream_state { STREAM_CLOSED, STREAM_CONNECTING, STREAM_HEAD, STREAM_EVENTS };

struct stream {
	enum stream_state state;
	int fd;
	uint32_t user;
	uint32_t target;
	uint64_t heard_us;
	size_t length; /* of the head */
	size_t line_length;
	char id[32]; /* of the last event: Last-Event-ID */
	char data[STREAM_LINE_MAX];
	char line[STREAM_LINE_MAX];
	char input[STREAM_INPUT_MAX + 1];
};

static void stream_close(struct load *load, struct stream *s)
{
	char user[NAME_MAX_LENGTH];

	dialog_user(load, s->user, user);
	if (s->state > STREAM_CONNECTING)
		log_line(load, COUNTERS, "$ %s", user);
	if (s->fd >= 0)
		close(s->fd);
	s->fd = -1;
	s->state = STREAM_CLOSED;
	s->heard_us = load->now_us;
}

static void stream_watch(struct load *load, struct stream *s, int verb, uint32_t events)
{
	struct epoll_event event = {
		.events = events,
		.data = {.u32 = (uint32_t)(s - load->streams) + STREAM_MARK},
	};

	if (epoll_ctl(load->epoll, verb, s->fd, &event) != 0)
		die("epoll_ctl: %s", strerror(errno));
}

static void stream_open(struct load *load, struct stream *s)
{
	s->target = (s->target + 1) % load->options.target_count;
	s->fd = socket_connect_to(&load->options.targets[s->target]);
	s->length = s->line_length = 0;
	s->data[0] = '\0';
	s->heard_us = load->now_us;
	if (s->fd < 0)
		return;
	s->state = STREAM_CONNECTING;
	stream_watch(load, s, EPOLL_CTL_ADD, EPOLLOUT);
}

static void stream_ask(struct load *load, struct stream *s)
{
	char user[NAME_MAX_LENGTH];
	char last[64] = "";
	char request[1024];
	int length;

	dialog_user(load, s->user, user);
	if (s->id[0] && random_below(&load->random, 2) == 0)
		snprintf(last, sizeof(last), "Last-Event-ID: %s\r\n", s->id);
	length = snprintf(request, sizeof(request),
		"GET /counters/user/%s/stream HTTP/1.1\r\nHost: 127.0.0.1\r\n%s%s\r\n", user, last,
		load->options.authorization);
	log_line(load, COUNTERS, "^ %s %u", user, s->target);
	s->state = STREAM_HEAD;
	stream_watch(load, s, EPOLL_CTL_MOD, EPOLLIN);
	if (send(s->fd, request, (size_t)length, MSG_NOSIGNAL) != length)
		stream_close(load, s);
}

/* A blank line: the event is complete. Heartbeats and the pause for reconnecting have no data. */
static void stream_line(struct load *load, struct stream *s)
{
	char user[NAME_MAX_LENGTH];

	s->line[s->line_length] = '\0';
	if (strncmp(s->line, "id: ", 4) == 0)
		snprintf(s->id, sizeof(s->id), "%.31s", s->line + 4);
	else if (strncmp(s->line, "data: ", 6) == 0)
		snprintf(s->data, sizeof(s->data), "%s", s->line + 6);
	else if (s->line_length == 0 && s->data[0]) {
		dialog_user(load, s->user, user);
		log_line(load, COUNTERS, "~ %s %s %s", user, s->id, s->data);
		s->data[0] = '\0';
	}
	s->line_length = 0;
}

static void stream_text(struct load *load, struct stream *s, const char *text, size_t length)
{
	for (size_t i = 0; i < length; i++) {
		if (text[i] == '\n')
			stream_line(load, s);
		else if (text[i] != '\r' && s->line_length < STREAM_LINE_MAX - 1)
			s->line[s->line_length++] = text[i];
	}
}

/* Returns what follows the head; NULL: it is not complete yet, or the server refused. */
static const char *stream_head(struct load *load, struct stream *s)
{
	const char *found = memmem(s->input, s->length, "\r\n\r\n", 4);

	if (!found && s->length < STREAM_INPUT_MAX)
		return NULL;
	if (!found || strncmp(s->input, "HTTP/1.1 200", 12) != 0) {
		stream_close(load, s);
		return NULL;
	}
	s->state = STREAM_EVENTS;
	return found + 4;
}

static void stream_receive(struct load *load, struct stream *s)
{
	size_t kept = s->state == STREAM_HEAD ? s->length : 0;
	ssize_t got = recv(s->fd, s->input + kept, STREAM_INPUT_MAX - kept, 0);
	const char *at = s->input;

	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (got <= 0) {
		stream_close(load, s);
		return;
	}
	s->heard_us = load->now_us;
	s->length = kept + (size_t)got;
	if (s->state == STREAM_HEAD)
		at = stream_head(load, s);
	if (at)
		stream_text(load, s, at, (size_t)(s->input + s->length - at));
}

void stream_event(struct load *load, uint32_t index)
{
	struct stream *s = &load->streams[index];
	int error = 0;
	socklen_t size = sizeof(error);

	if (s->state == STREAM_CLOSED)
		return;
	if (s->state != STREAM_CONNECTING) {
		stream_receive(load, s);
		return;
	}
	getsockopt(s->fd, SOL_SOCKET, SO_ERROR, &error, &size);
	if (error != 0)
		stream_close(load, s);
	else
		stream_ask(load, s);
}

void streams_open(struct load *load)
{
	if (!load->options.roles[COUNTERS])
		return;
	load->stream_count = FOLLOWED_USERS;
	load->streams = allocate(load->stream_count, sizeof(*load->streams));
	for (uint32_t i = 0; i < load->stream_count; i++) {
		load->streams[i].fd = -1;
		load->streams[i].user = i;
		load->streams[i].target = i;
		stream_open(load, &load->streams[i]);
	}
}

void streams_check(struct load *load)
{
	for (uint32_t i = 0; i < load->stream_count; i++) {
		struct stream *s = &load->streams[i];
		uint64_t silent_us = load->now_us - s->heard_us;

		if (s->state == STREAM_CLOSED && silent_us >= REOPEN_US)
			stream_open(load, s);
		else if (s->state != STREAM_CLOSED && silent_us >= SILENCE_US)
			stream_close(load, s);
	}
}
