/*
 * A path is split into segments before they are decoded, and each segment is decoded only once. So
 * an encoded slash can never become a separator, and "%252e" can never become a dot. A segment
 * without '%' is not copied; it points into the target.
 */
#include "http/path.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include "base/text.h"

/* Decodes %XX and, if `plus_is_space`, '+' as a space. Returns false for a broken escape. */
static bool decode(struct arena *arena, struct slice raw, bool plus_is_space, struct slice *out)
{
	char *text = arena_alloc(arena, raw.len + 1);
	size_t len = 0;

	for (size_t i = 0; i < raw.len; i++) {
		char c = raw.data[i];

		if (c == '%') {
			bool whole = raw.len - i > 2;
			int high = whole ? text_hex_digit(raw.data[i + 1]) : -1;
			int low = whole ? text_hex_digit(raw.data[i + 2]) : -1;

			if (high < 0 || low < 0)
				return false;
			c = (char)(high * 16 + low);
			i += 2;
		} else if (c == '+' && plus_is_space) {
			c = ' ';
		}
		text[len++] = c;
	}
	text[len] = '\0';
	*out = slice_make(text, len);
	return true;
}

static enum status decode_segment(
	struct arena *arena, struct slice raw, struct slice *out, const char **why)
{
	if (!memchr(raw.data, '%', raw.len)) {
		*out = raw;
	} else if (!decode(arena, raw, false, out)) {
		*why = "the path has a broken percent escape";
		return STATUS_BAD_REQUEST;
	}
	if (!text_is_utf8(*out)) {
		*why = "a segment of the path contains NUL or is not UTF-8";
		return STATUS_BAD_REQUEST;
	}
	if (memchr(out->data, '/', out->len)) {
		*why = "the path has an encoded slash";
		return STATUS_BAD_REQUEST;
	}
	if (slice_is(*out, ".") || slice_is(*out, "..")) {
		*why = "the path has a dot segment";
		return STATUS_BAD_REQUEST;
	}
	return STATUS_OK;
}

/* Cuts the origin (http://host) off `target`; the rest starts with '/' or '?' or is empty. Returns
 * false, and does not change `target`, if `target` has no origin. */
static bool cut_origin(struct slice *target)
{
	if (!slice_starts_with(*target, "http://") && !slice_starts_with(*target, "https://"))
		return false;
	slice_cut(target, '/');
	slice_cut(target, '/');
	while (target->len > 0 && target->data[0] != '/' && target->data[0] != '?') {
		target->data++;
		target->len--;
	}
	return true;
}

enum status path_parse(
	struct arena *arena, struct slice target, struct path *path, const char **why)
{
	struct slice rest = target;

	if (target.len > 0 && memchr(target.data, '#', target.len)) {
		*why = "the request target has a fragment";
		return STATUS_BAD_REQUEST;
	}
	if (!cut_origin(&rest) && (rest.len == 0 || rest.data[0] != '/')) {
		*why = "the request target is not a path";
		return STATUS_BAD_REQUEST;
	}
	path->raw = slice_cut(&rest, '?');
	if (path->raw.len == 0)
		path->raw = slice_of("/");
	path->query = rest;
	path->count = 0;
	rest = slice_make(path->raw.data + 1, path->raw.len - 1);
	while (rest.data) {
		struct slice raw = slice_cut(&rest, '/');
		enum status status;
		struct slice segment;

		if (raw.len == 0 && !rest.data && path->count == 0)
			break; /* the path is "/" */
		status = decode_segment(arena, raw, &segment, why);
		if (status != STATUS_OK)
			return status;
		if (path->count < PATH_SEGMENTS_MAX)
			path->segments[path->count] = segment;
		if (path->count <= PATH_SEGMENTS_MAX)
			path->count++;
	}
	return STATUS_OK;
}

/* Decodes a name or value of a query. Text without escapes is not copied. Returns false for a
 * broken escape or text that is not UTF-8. */
static bool decode_text(struct arena *arena, struct slice raw, struct slice *out)
{
	*out = raw.data ? raw : slice_of("");
	if (raw.len > 0 && (memchr(raw.data, '%', raw.len) || memchr(raw.data, '+', raw.len)) &&
		!decode(arena, raw, true, out))
		return false;
	return text_is_utf8(*out);
}

/* Returns the number of pairs in a query, including empty pairs, which query_parse() leaves out. */
static size_t count_pairs(struct slice raw)
{
	size_t count = raw.len > 0;

	for (size_t i = 0; i < raw.len; i++)
		count += raw.data[i] == '&';
	return count;
}

enum status query_parse(
	struct arena *arena, struct slice raw, struct query *query, const char **why)
{
	size_t room = count_pairs(raw), count = 0;
	struct query_pair *pairs = arena_array(
		arena, struct query_pair, room < QUERY_PAIRS_MAX ? room : QUERY_PAIRS_MAX);

	while (raw.data) {
		struct slice value = slice_cut(&raw, '&');
		struct slice name = slice_cut(&value, '=');

		if (name.len == 0 && value.len == 0)
			continue;
		if (count == QUERY_PAIRS_MAX) {
			*why = "the query has more than 1100 parameters";
			return STATUS_BAD_REQUEST;
		}
		if (!decode_text(arena, name, &pairs[count].name) ||
			!decode_text(arena, value, &pairs[count].value)) {
			*why = "the query is not UTF-8 or has a broken percent escape";
			return STATUS_BAD_REQUEST;
		}
		count++;
	}
	*query = (struct query){.pairs = pairs, .count = count};
	return STATUS_OK;
}

struct slice query_value(const struct query *query, const char *name)
{
	for (size_t i = query->count; i > 0; i--) {
		if (slice_is(query->pairs[i - 1].name, name))
			return query->pairs[i - 1].value;
	}
	return (struct slice){0};
}

/* Returns whether `text` is empty, ":" or a port such as ":8080". */
static bool is_port(struct slice text)
{
	if (text.len == 0)
		return true;
	if (text.data[0] != ':' || text.len > sizeof(":65535") - 1)
		return false;
	for (size_t i = 1; i < text.len; i++) {
		if (text.data[i] < '0' || text.data[i] > '9')
			return false;
	}
	return true;
}

struct slice host_without_port(struct slice host)
{
	bool is_v6 = host.len > 0 && host.data[0] == '[';
	const char *end = host.len == 0 ? NULL : memchr(host.data, is_v6 ? ']' : ':', host.len);
	size_t len = !end ? host.len : (size_t)(end - host.data) + is_v6;

	if ((is_v6 && !end) || !is_port(slice_make(host.data + len, host.len - len)))
		return (struct slice){0};
	return slice_make(host.data, len);
}

bool host_is_loopback(struct slice host)
{
	struct slice name = host_without_port(host);
	struct in_addr address;
	char text[16];

	if (slice_is_nocase(name, "localhost") || slice_is(name, "[::1]"))
		return true;
	if (name.len == 0 || name.len >= sizeof(text))
		return false;
	memcpy(text, name.data, name.len);
	text[name.len] = '\0';
	return inet_pton(AF_INET, text, &address) == 1 && ntohl(address.s_addr) >> 24 == 127;
}
