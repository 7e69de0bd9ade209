/*
 * Appends text to memory of an arena: how every answer body, log line and metrics page is written.
 * Appending cannot fail (see arena.h).
 */
#ifndef QUIPU_BASE_BUFFER_H
#define QUIPU_BASE_BUFFER_H

#include <stdint.h>

#include "base/arena.h"
#include "base/slice.h"
#include "base/status.h"

struct buffer {
	struct arena *arena;
	char *data;
	size_t len;
	size_t size;
};

/* An empty buffer that will hold about `expected` bytes. */
struct buffer buffer_make(struct arena *arena, size_t expected);

/* What was appended so far; valid until the next append. */
struct slice buffer_slice(const struct buffer *buffer);

void buffer_bytes(struct buffer *buffer, const void *data, size_t len);
void buffer_add(struct buffer *buffer, struct slice text);
void buffer_text(struct buffer *buffer, const char *text);
void buffer_char(struct buffer *buffer, char c);
void buffer_int(struct buffer *buffer, int64_t value);
void buffer_format(struct buffer *buffer, const char *format, ...) QP_PRINTF(2, 3);

/* A JSON string with its quotes; `text` must be valid UTF-8. */
void buffer_json_string(struct buffer *buffer, struct slice text);

/*
 * A member of a JSON object: "name":"value", "name":7, "name":"2026-01-08T07:10:00Z". With a comma
 * in front, unless it is the first behind the brace, or in the buffer. `name` needs no escapes.
 */
void buffer_member(struct buffer *buffer, const char *name, struct slice value);
void buffer_member_int(struct buffer *buffer, const char *name, int64_t value);
void buffer_member_time(struct buffer *buffer, const char *name, int64_t time_us);

/* `text` with everything but unreserved characters of RFC 3986 as %NN. */
void buffer_percent(struct buffer *buffer, struct slice text);

/* The bytes in base64, with padding. */
void buffer_base64(struct buffer *buffer, struct slice bytes);

/* RFC 3339 in UTC with the fraction that is there, e.g. "2026-01-08T07:10:00Z", without quotes. */
void buffer_time(struct buffer *buffer, int64_t time_us);

#endif
