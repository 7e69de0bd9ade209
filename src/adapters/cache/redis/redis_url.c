/* Parses redis://user:password@host:port/db. No message here repeats any part of the URL. */
#include <stdio.h>

#include "adapters/cache/redis/redis_internal.h"
#include "base/text.h"

#define SCHEME "redis://"
#define PORT_DEFAULT 6379
#define DB_MAX 99999

/*
 * Decodes the %XX of `from` and adds a NUL. Returns false if one is not valid or the text does not
 * fit.
 */
static bool decode(char *to, size_t size, struct slice from)
{
	size_t len = 0;

	for (size_t i = 0; i < from.len; i++) {
		int c = (unsigned char)from.data[i];

		if (c == '%') {
			int high = i + 2 < from.len ? text_hex_digit(from.data[i + 1]) : -1;
			int low = high >= 0 ? text_hex_digit(from.data[i + 2]) : -1;

			if (low < 0)
				return false;
			c = high * 16 + low;
			i += 2;
		}
		if (c == '\0' || len + 1 >= size)
			return false;
		to[len++] = (char)c;
	}
	to[len] = '\0';
	return true;
}

static const char *parse_user(struct redis_url *url, struct slice text)
{
	struct slice user = slice_cut(&text, ':');

	if (text.len == 0)
		return "the part before @ must be user:password or :password";
	if (!decode(url->user, sizeof(url->user), user))
		return "the user is too long or has a bad %XX";
	if (!decode(url->password, sizeof(url->password), text))
		return "the password is too long or has a bad %XX";
	return NULL;
}

static const char *parse_port(struct redis_url *url, struct slice text)
{
	int64_t port = PORT_DEFAULT;

	if (text.data && (!text_to_int(text, &port) || port < 1 || port > 65535))
		return "the port must be a number from 1 to 65535";
	url->port = (int)port;
	return NULL;
}

/* host, host:port, [::1] or [::1]:port */
static const char *parse_place(struct redis_url *url, struct slice text)
{
	struct slice host;

	if (slice_starts_with(text, "[")) {
		text = slice_make(text.data + 1, text.len - 1);
		host = slice_cut(&text, ']');
		if (!text.data || (text.len > 0 && text.data[0] != ':'))
			return "an address in [] must be followed by :port or nothing";
		text = text.len > 0 ? slice_make(text.data + 1, text.len - 1) : (struct slice){0};
	} else {
		host = slice_cut(&text, ':');
	}
	if (host.len == 0 || !decode(url->host, sizeof(url->host), host))
		return "there must be a host";
	return parse_port(url, text);
}

static const char *parse_db(struct redis_url *url, struct slice text)
{
	int64_t db = 0;

	if (text.len == 0)
		return NULL;
	if (!text_to_int(text, &db) || db < 0 || db > DB_MAX)
		return "what follows the last / must be the number of a database";
	snprintf(url->db, sizeof(url->db), "%d", (int)db);
	return NULL;
}

static const char *parse(struct redis_url *url, struct slice text)
{
	const char *at, *problem = NULL;
	struct slice place;

	if (slice_starts_with(text, "rediss://"))
		return "TLS is not supported, use redis://";
	if (!slice_starts_with(text, SCHEME))
		return "it must begin with " SCHEME;
	text = slice_make(text.data + strlen(SCHEME), text.len - strlen(SCHEME));
	at = memrchr(text.data, '@', text.len);
	if (at) {
		size_t len = (size_t)(at - text.data);

		problem = parse_user(url, slice_make(text.data, len));
		text = slice_make(at + 1, text.len - len - 1);
	}
	place = slice_cut(&text, '/');
	if (!problem)
		problem = parse_place(url, place);
	return problem ? problem : parse_db(url, text);
}

bool redis_url_parse(struct redis_url *url, struct slice text, char *why, size_t size)
{
	struct redis_url parsed = {0};
	const char *problem = parse(&parsed, text);

	if (problem) {
		snprintf(why, size, "the URL of Redis is not valid: %s", problem);
		return false;
	}
	*url = parsed;
	return true;
}
