#include "cli/report.h"

#include <stdarg.h>
#include <stdio.h>

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
