/*
 * Just enough of HTTP/1.1 to read the answers of a keep-alive connection that has one request
 * outstanding: the status, where the body is, and whether the server closes. An answer without
 * Content-Length (chunked), or longer than RESPONSE_MAX, is bad: no answer of a count is either.
 */
#ifndef BENCH_RESPONSE_H
#define BENCH_RESPONSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { RESPONSE_MAX = 16384 };

enum parse_result { PARSE_MORE, PARSE_DONE, PARSE_BAD };

struct response {
	int status;
	bool close;
	const char *body;
	size_t body_length;
};

static inline bool header_is(const char *line, const char *name)
{
	return strncasecmp(line, name, strlen(name)) == 0;
}

/* Reads the header lines from `line` to `end`; false where no length of the body is told. */
static inline bool response_headers(struct response *response, const char *line, const char *end)
{
	bool sized = response->status == 204 || response->status == 304;

	while (line < end) {
		const char *next = memchr(line, '\n', (size_t)(end - line));

		if (header_is(line, "content-length:")) {
			response->body_length = strtoul(line + 15, NULL, 10);
			sized = true;
		} else if (header_is(line, "connection: close")) {
			response->close = true;
		}
		if (!next)
			break;
		line = next + 1;
	}
	return sized;
}

/* `text` is followed by a NUL, so that no number or name is read past its end. */
static inline enum parse_result response_parse(
	struct response *response, const char *text, size_t length)
{
	const char *end = memmem(text, length, "\r\n\r\n", 4);
	const char *line;
	size_t head;

	memset(response, 0, sizeof(*response));
	if (!end)
		return length < RESPONSE_MAX ? PARSE_MORE : PARSE_BAD;
	if (length < 13 || memcmp(text, "HTTP/1.", 7) != 0)
		return PARSE_BAD;
	response->status = atoi(text + 9);
	line = memchr(text, '\n', length);
	if (!response_headers(response, line + 1, end))
		return PARSE_BAD;
	head = (size_t)(end - text) + 4;
	response->body = text + head;
	if (response->body_length > RESPONSE_MAX - head || length > head + response->body_length)
		return PARSE_BAD;
	return length == head + response->body_length ? PARSE_DONE : PARSE_MORE;
}

static inline bool response_mentions(const struct response *response, const char *code)
{
	return memmem(response->body, response->body_length, code, strlen(code)) != NULL;
}

#endif
