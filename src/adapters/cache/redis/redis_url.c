/*
 * Parses redis://user:password@host:port/db and
 * redis+sentinel://user:password@host:port,…/master/db. No message here repeats any part of the
 * URL.
 */
#include <stdio.h>

#include "adapters/cache/redis/redis_internal.h"
#include "adapters/shared/server_address.h"
#include "base/text.h"

#define SCHEME "redis://"
#define PORT_DEFAULT 6379
#define DB_MAX 99999

/*
 * Decodes the %XX of `from` and adds a NUL. Returns false if an escape is not valid or the text
 * does not fit.
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

static const char *parse_place(struct redis_url *url, struct slice text)
{
	struct slice host;
	const char *problem;

	url->port = PORT_DEFAULT;
	problem = server_address_parse(text, &host, &url->port);
	if (problem)
		return problem;
	return host.len > 0 && decode(url->host, sizeof(url->host), host) ? NULL
									  : "there must be a host";
}

static const char *parse_db(struct redis_url *url, struct slice text)
{
	int64_t db = 0;

	if (text.len == 0)
		return NULL;
	if (!text_to_int(text, &db) || db < 0 || db > DB_MAX)
		return "the part after the last / must be the number of a database";
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
