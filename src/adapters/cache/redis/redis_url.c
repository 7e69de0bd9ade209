/*
 * Parses redis://user:password@host:port/db and
 * redis+sentinel://user:password@host:port,…/master/db. No error text repeats any part of the URL.
 */
#include <stdio.h>

#include "adapters/cache/redis/redis_internal.h"
#include "adapters/shared/server_address.h"
#include "base/text.h"

#define SCHEME "redis://"
#define SENTINEL_SCHEME "redis+sentinel://"
#define PORT_DEFAULT 6379
#define SENTINEL_PORT_DEFAULT 26379
#define DB_MAX 99999

/*
 * Copies `from`, decodes its %XX escapes and adds a NUL. Returns false if an escape is not valid or
 * the text does not fit.
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

static const char *parse_place(struct redis_url *url, struct slice text, int port_default)
{
	struct redis_place *place = &url->places[url->place_count];
	struct slice host;
	const char *problem;

	if (url->place_count == REDIS_PLACES_MAX)
		return "it has too many hosts";
	place->port = port_default;
	problem = server_address_parse(text, &host, &place->port);
	if (problem)
		return problem;
	if (host.len == 0 || !decode(place->host, sizeof(place->host), host))
		return "there must be a host";
	url->place_count++;
	return NULL;
}

static const char *parse_sentinels(struct redis_url *url, struct slice places, struct slice *rest)
{
	struct slice master = rest->data ? slice_cut(rest, '/') : (struct slice){0};
	const char *problem = NULL;

	while (!problem && places.data)
		problem = parse_place(url, slice_cut(&places, ','), SENTINEL_PORT_DEFAULT);
	if (!problem && (master.len == 0 || !decode(url->master, sizeof(url->master), master)))
		problem = "after the Sentinels there must be / and the name of their master";
	return problem;
}

static const char *parse_server(struct redis_url *url, struct slice place)
{
	if (place.data && memchr(place.data, ',', place.len))
		return "it can name only one server; to use a group of servers, name its "
		       "Sentinels with " SENTINEL_SCHEME "host,host/master";
	return parse_place(url, place, PORT_DEFAULT);
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

/* If `*text` begins with user:password@, parses that part and removes it from `*text`. Returns NULL
 * on success, otherwise a text that describes the error. */
static const char *parse_login(struct redis_url *url, struct slice *text)
{
	const char *at = memrchr(text->data, '@', text->len);
	size_t len = at ? (size_t)(at - text->data) : 0;
	struct slice login = slice_make(text->data, len);

	if (!at)
		return NULL;
	*text = slice_make(at + 1, text->len - len - 1);
	return parse_user(url, login);
}

static const char *parse(struct redis_url *url, struct slice text)
{
	bool has_sentinels = slice_starts_with(text, SENTINEL_SCHEME);
	size_t scheme_len = has_sentinels ? strlen(SENTINEL_SCHEME) : strlen(SCHEME);
	const char *problem;
	struct slice places;

	if (slice_starts_with(text, "rediss://"))
		return "TLS is not supported; use redis://";
	if (!has_sentinels && !slice_starts_with(text, SCHEME))
		return "it must begin with " SCHEME " or " SENTINEL_SCHEME;
	text = slice_make(text.data + scheme_len, text.len - scheme_len);
	problem = parse_login(url, &text);
	places = slice_cut(&text, '/');
	if (!problem)
		problem = has_sentinels ? parse_sentinels(url, places, &text)
					: parse_server(url, places);
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
