/* A buffer collects text in a block that is allocated from an arena. Every answer body, log line
 * and metrics page is written through a buffer. Appending cannot fail (see arena.h). */
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

/* Returns an empty buffer with room for `expected` bytes; it grows when it needs more. */
struct buffer buffer_make(struct arena *arena, size_t expected);

/* Returns the text so far; valid until the next append. */
struct slice buffer_slice(const struct buffer *buffer);

void buffer_bytes(struct buffer *buffer, const void *data, size_t len);
void buffer_add(struct buffer *buffer, struct slice text);
void buffer_text(struct buffer *buffer, const char *text);
void buffer_char(struct buffer *buffer, char c);
void buffer_int(struct buffer *buffer, int64_t value);
void buffer_format(struct buffer *buffer, const char *format, ...) QP_PRINTF(2, 3);

/* Appends a number and what it counts: "2 messages sent", "1 message sent". `plural` is the text
 * after any number other than 1. After 1, the first word of `plural` that ends with s is written
 * without the s. */
void buffer_counted(struct buffer *buffer, int64_t count, struct slice plural);

/* Appends a JSON string with its quotes. `text` must be valid UTF-8. */
void buffer_json_string(struct buffer *buffer, struct slice text);

/* Returns how many bytes buffer_json_string() appends for `text`. */
size_t buffer_json_length(struct slice text);

/*
 * Append a member of a JSON object: "name":"value", "name":7 or "name":"2026-01-08T07:10:00Z". A
 * comma comes first, unless the buffer is empty or ends with an opening brace. `name` must not need
 * escapes.
 */
void buffer_member(struct buffer *buffer, const char *name, struct slice value);
void buffer_member_int(struct buffer *buffer, const char *name, int64_t value);
void buffer_member_time(struct buffer *buffer, const char *name, int64_t time_us);

/* Appends `text` percent-encoded: only the unreserved characters of RFC 3986 stay as they are. */
void buffer_percent(struct buffer *buffer, struct slice text);

/* Appends `bytes` in base64, with padding. */
void buffer_base64(struct buffer *buffer, struct slice bytes);

/*
 * Appends a time in the format of RFC 3339, in UTC and without quotes: "2026-01-08T07:10:00Z". A
 * fraction of a second is written with three or six digits, and left out if it is 0.
 */
void buffer_time(struct buffer *buffer, int64_t time_us);

#endif
