#include "cli/report.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/text.h"

int report_failure(int code, const char *format, ...)
{
	char message[4096];
	struct arena arena;
	struct buffer line;
	va_list args;

	va_start(args, format);
	vsnprintf(message, sizeof(message), format, args);
	va_end(args);
	arena_init(&arena, sizeof(message));
	line = buffer_make(&arena, sizeof(message));
	text_escape_log(&line, slice_of(message));
	fprintf(stderr, "quipu: %.*s\n", (int)line.len, line.data);
	arena_release(&arena);
	return code;
}

char *report_json(const json_t *value, size_t flags)
{
	char *line =
		json_dumps(value, JSON_COMPACT); /* has no line breaks, which are control too */
	char *text;

	assert(line);
	text = json_dumps(
		value, flags | (text_has_control(slice_of(line)) ? JSON_ENSURE_ASCII : 0));
	assert(text);
	free(line);
	return text;
}
