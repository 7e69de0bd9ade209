/*
 * The log: one file per role, text lines. Lines are collected in memory and written together,
 * always before the requests that they announce are sent, so that the file never knows less than a
 * server.
 */
#define _GNU_SOURCE 1
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include "load.h"

static const char *const names[ROLES] = {
	[COUNTS] = "counts",
	[GATEWAY] = "gateway",
	[ENTITLEMENTS] = "entitlements",
	[POTS] = "pots",
	[DIALOGS] = "dialogs",
	[COUNTERS] = "counters",
};

static void make_room(struct log_file *file, size_t more)
{
	if (file->length + more <= file->room)
		return;
	file->room = (file->length + more) * 2;
	file->text = realloc(file->text, file->room);
	if (!file->text)
		die("out of memory");
}

void log_line(struct load *load, enum role role, const char *format, ...)
{
	struct log_file *file = &load->logs[role];
	va_list arguments;
	int length;

	make_room(file, WHAT_MAX + 256);
	length = sprintf(file->text + file->length, "%" PRIu64 " ", load->now_us);
	file->length += (size_t)length;
	va_start(arguments, format);
	length = vsnprintf(
		file->text + file->length, file->room - file->length - 1, format, arguments);
	va_end(arguments);
	if ((size_t)length >= file->room - file->length - 1)
		die("a line of the log is too long");
	file->length += (size_t)length;
	file->text[file->length++] = '\n';
}

void log_answer(
	struct load *load, const struct operation *o, char mark, const struct response *response)
{
	struct log_file *file = &load->logs[o->role];
	char *body;

	make_room(file, response->body_length + 256);
	file->length += (size_t)sprintf(file->text + file->length, "%" PRIu64 " %c %" PRIu64 " %d ",
		load->now_us, mark, o->id, response->status);
	body = file->text + file->length;
	memcpy(body, response->body, response->body_length);
	for (size_t i = 0; i < response->body_length; i++) {
		if (body[i] == '\n' || body[i] == '\r')
			body[i] = ' ';
	}
	file->length += response->body_length;
	file->text[file->length++] = '\n';
}

void logs_flush(struct load *load)
{
	for (int role = 0; role < ROLES; role++) {
		struct log_file *file = &load->logs[role];
		size_t done = 0;

		while (done < file->length) {
			ssize_t wrote = write(file->fd, file->text + done, file->length - done);

			if (wrote < 0 && errno == EINTR)
				continue;
			if (wrote <= 0)
				die("cannot write the log of %s: %s", names[role], strerror(errno));
			done += (size_t)wrote;
		}
		file->length = 0;
	}
}

void logs_open(struct load *load)
{
	char path[4096];

	for (int role = 0; role < ROLES; role++) {
		struct log_file *file = &load->logs[role];

		file->fd = -1;
		if (!load->options.roles[role])
			continue;
		snprintf(path, sizeof(path), "%s/%s.log", load->options.log, names[role]);
		file->fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
		if (file->fd < 0)
			die("cannot create %s: %s", path, strerror(errno));
		make_room(file, 1 << 16);
		file->length = (size_t)sprintf(file->text,
			"# prove-load 1 seed=%" PRIu64 " prefix=%s start=%" PRIu64 "\n",
			load->options.seed, load->prefix, load->now_us);
	}
}
