#include "base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "base/text.h"

static const char *const level_names[] = {"debug", "info", "warn", "error"};

static _Atomic enum log_level least_level = LOG_INFO;
static _Atomic enum log_format log_format = LOG_TEXT;

void log_configure(enum log_level least, enum log_format format)
{
	atomic_store_explicit(&least_level, least, memory_order_relaxed);
	atomic_store_explicit(&log_format, format, memory_order_relaxed);
}

bool log_enabled(enum log_level level)
{
	return level >= atomic_load_explicit(&least_level, memory_order_relaxed);
}

bool log_level_parse(struct slice name, enum log_level *level)
{
	for (size_t i = 0; i < sizeof(level_names) / sizeof(level_names[0]); i++) {
		if (slice_is(name, level_names[i])) {
			*level = (enum log_level)i;
			return true;
		}
	}
	return false;
}

static void json_member(struct buffer *line, const char *name, struct slice value)
{
	struct buffer escaped = buffer_make(line->arena, value.len);

	text_escape_log(&escaped, value);
	buffer_char(line, ',');
	buffer_json_string(line, slice_of(name));
	buffer_char(line, ':');
	buffer_json_string(line, buffer_slice(&escaped));
}

static void json_number(struct buffer *line, const char *name, struct slice digits)
{
	buffer_char(line, ',');
	buffer_json_string(line, slice_of(name));
	buffer_char(line, ':');
	buffer_add(line, digits);
}

static void write_json(struct buffer *line, enum log_level level, const char *part,
	const struct log_field *fields, size_t field_count, struct slice message)
{
	buffer_text(line, "{\"time\":\"");
	buffer_time(line, clock_wall_us(&clock_system));
	buffer_char(line, '"');
	json_member(line, "level", slice_of(level_names[level]));
	json_member(line, "part", slice_of(part));
	json_member(line, "message", message);
	for (size_t i = 0; i < field_count; i++) {
		if (fields[i].is_number)
			json_number(line, fields[i].name, fields[i].value);
		else if (fields[i].value.len > 0)
			json_member(line, fields[i].name, fields[i].value);
	}
	buffer_text(line, "}\n");
}

static void write_text(struct buffer *line, enum log_level level, const char *part,
	const struct log_field *fields, size_t field_count, struct slice message)
{
	buffer_time(line, clock_wall_us(&clock_system));
	buffer_format(line, " %-5s %s: ", level_names[level], part);
	text_escape_log(line, message);
	for (size_t i = 0; i < field_count; i++) {
		if (fields[i].value.len == 0)
			continue;
		buffer_format(line, " %s=", fields[i].name);
		text_escape_log(line, fields[i].value);
	}
	buffer_char(line, '\n');
}

QP_PRINTF(5, 0)
static void write_line(enum log_level level, const char *part, const struct log_field *fields,
	size_t field_count, const char *format, va_list args)
{
	char message[2048];
	struct arena arena;
	struct buffer line;
	int len = vsnprintf(message, sizeof(message), format, args);
	size_t cut = len < 0                         ? 0
		     : (size_t)len < sizeof(message) ? (size_t)len
						     : sizeof(message) - 1;
	ssize_t ignored;

	arena_init(&arena, 4096);
	line = buffer_make(&arena, 1024);
	if (atomic_load_explicit(&log_format, memory_order_relaxed) == LOG_JSON)
		write_json(&line, level, part, fields, field_count, slice_make(message, cut));
	else
		write_text(&line, level, part, fields, field_count, slice_make(message, cut));
	ignored = write(STDERR_FILENO, line.data, line.len);
	(void)ignored; /* a failure to log must not stop the server */
	arena_release(&arena);
}

void log_line(enum log_level level, const char *part, const char *format, ...)
{
	va_list args;

	if (!log_enabled(level))
		return;
	va_start(args, format);
	write_line(level, part, NULL, 0, format, args);
	va_end(args);
}

void log_line_with(enum log_level level, const char *part, const struct log_field *fields,
	size_t field_count, const char *format, ...)
{
	va_list args;

	if (!log_enabled(level))
		return;
	va_start(args, format);
	write_line(level, part, fields, field_count, format, args);
	va_end(args);
}
