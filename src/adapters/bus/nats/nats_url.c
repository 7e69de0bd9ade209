/*
 * Parses nats://user:password@host:port,host:port?option=value&…
 *
 * Values may be secrets, so no error text repeats a value. Secrets are kept out of the servers'
 * addresses, because cnats includes the addresses in its error texts. Defaults are set before the
 * options are read, so every field is valid once nats_url_parse() has returned true.
 */
#include <stdio.h>

#include "adapters/bus/nats/nats_internal.h"
#include "base/text.h"

#define PLAIN "nats://"
#define SECURE "tls://"

#define ACK_WAIT_DEFAULT_NS (30 * NS_PER_S)
#define MAX_DELIVER_DEFAULT 20

#define SHOWN(slice) (int)((slice).len < 64 ? (slice).len : 64), (slice).data

/* ---- servers ----------------------------------------------------------------------------- */

static const char *address_of(struct arena *arena, struct slice server)
{
	struct buffer out = buffer_make(arena, server.len + sizeof(PLAIN));

	buffer_text(&out, PLAIN);
	buffer_add(&out, server);
	buffer_char(&out, '\0');
	return out.data;
}

static bool parse_servers(
	struct slice text, struct arena *arena, struct nats_url *url, char *why, size_t size)
{
	while (text.data) {
		struct slice server = slice_cut(&text, ',');

		if (!text_is_server(server)) {
			snprintf(why, size,
				"a NATS URL is "
				"nats://user:password@host:port,host:port?option=value; the "
				"servers in this URL are not valid");
			return false;
		}
		if (url->server_count == NATS_SERVERS_MAX) {
			snprintf(why, size, "the NATS URL has too many servers");
			return false;
		}
		url->servers[url->server_count++] = address_of(arena, server);
	}
	return true;
}

/*
 * Accepts user:password or :token. Refuses NATS's own notation of a token, which has no colon,
 * because programs that hide passwords in URLs would show the token. Also refuses a slash, because
 * such programs would then not find the @.
 */
static bool parse_user(
	struct slice text, struct arena *arena, struct nats_url *url, char *why, size_t size)
{
	struct slice secret = text;
	struct slice user = slice_cut(&secret, ':');
	const char *decoded = secret.data ? text_unescape(arena, secret) : NULL;

	if (decoded && *decoded && !memchr(text.data, '/', text.len)) {
		url->user = user.len ? text_unescape(arena, user) : NULL;
		url->password = user.len ? decoded : NULL;
		url->token = user.len ? NULL : decoded;
		if (url->user || url->token)
			return true;
	}
	snprintf(why, size,
		"the part of the NATS URL before @ must be user:password or :token, with %%XX for "
		"special characters");
	return false;
}

/* ---- options ----------------------------------------------------------------------------- */

enum kind { NUMBER, DURATION, FILE_NAME };

struct option {
	const char *name;
	enum kind kind;
	size_t place; /* the offset of the option's value in struct nats_url */
	int64_t least;
	int64_t most;
	const char *must; /* describes valid values, for the error message */
};

static const struct option options[] = {
	{"ack-wait", DURATION, offsetof(struct nats_url, ack_wait_ns), 100 * NS_PER_MS,
		3600 * NS_PER_S, "a duration from 100ms to 1h"},
	{"max-deliver", NUMBER, offsetof(struct nats_url, max_deliver), 2, 10000,
		"a number from 2 to 10000"},
	{"replicas", NUMBER, offsetof(struct nats_url, replicas), 1, 5, "a number from 1 to 5"},
	{"creds", FILE_NAME, offsetof(struct nats_url, creds), 0, 0, "the name of a file"},
	{"tls-ca", FILE_NAME, offsetof(struct nats_url, tls_ca), 0, 0, "the name of a file"},
	{"tls-cert", FILE_NAME, offsetof(struct nats_url, tls_cert), 0, 0, "the name of a file"},
	{"tls-key", FILE_NAME, offsetof(struct nats_url, tls_key), 0, 0, "the name of a file"},
};

static const struct option *find_option(struct slice name)
{
	for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
		if (slice_is(name, options[i].name))
			return &options[i];
	}
	return NULL;
}

static bool set_option(const struct option *option, const char *text, struct nats_url *url)
{
	char *place = (char *)url + option->place;
	int64_t value = 0;

	switch (option->kind) {
	case FILE_NAME:
		memcpy(place, &text, sizeof(text));
		return *text != '\0';
	case NUMBER:
		if (!text_to_int(slice_of(text), &value))
			return false;
		break;
	case DURATION:
		if (!text_to_duration_us(slice_of(text), &value) ||
			value > option->most / NS_PER_US)
			return false;
		value *= NS_PER_US;
		break;
	}
	memcpy(place, &value, sizeof(value));
	return value >= option->least && value <= option->most;
}

static bool parse_option(
	struct slice text, struct arena *arena, struct nats_url *url, char *why, size_t size)
{
	struct slice value = text;
	struct slice name = slice_cut(&value, '=');
	const struct option *option = find_option(name);
	const char *decoded = value.data ? text_unescape(arena, value) : NULL;

	if (!option) {
		snprintf(why, size, "\"%.*s\" is not an option that a NATS URL can have",
			SHOWN(name));
		return false;
	}
	if (!decoded || !set_option(option, decoded, url)) {
		snprintf(why, size, "the NATS option %s must be %s", option->name, option->must);
		return false;
	}
	return true;
}

static bool parse_options(
	struct slice text, struct arena *arena, struct nats_url *url, char *why, size_t size)
{
	while (text.data && text.len > 0) {
		if (!parse_option(slice_cut(&text, '&'), arena, url, why, size))
			return false;
	}
	if (!url->tls_cert != !url->tls_key) {
		snprintf(why, size, "the NATS options tls-cert and tls-key must be used together");
		return false;
	}
	if (!url->secure && (url->tls_ca || url->tls_cert)) {
		snprintf(why, size, "NATS options for TLS need a URL that begins with " SECURE);
		return false;
	}
	return true;
}

/* ---- the whole URL ----------------------------------------------------------------------- */

static bool parse_scheme(struct slice *rest, struct nats_url *url, char *why, size_t size)
{
	const char *scheme = PLAIN;

	if (slice_starts_with(*rest, SECURE)) {
		scheme = SECURE;
		url->secure = true;
	}
	if (!slice_starts_with(*rest, scheme)) {
		snprintf(why, size, "a NATS URL begins with " PLAIN " or " SECURE);
		return false;
	}
	*rest = slice_make(rest->data + strlen(scheme), rest->len - strlen(scheme));
	return true;
}

bool nats_url_parse(
	const char *text, struct arena *arena, struct nats_url *url, char *why, size_t size)
{
	struct slice rest = slice_of(text);
	struct slice servers;
	const char *at;

	*url = (struct nats_url){.ack_wait_ns = ACK_WAIT_DEFAULT_NS,
		.max_deliver = MAX_DELIVER_DEFAULT,
		.replicas = 1};
	if (!parse_scheme(&rest, url, why, size))
		return false;
	servers = slice_cut(&rest, '?');
	if (servers.len > 0 && servers.data[servers.len - 1] == '/')
		servers.len--;
	at = servers.data ? memrchr(servers.data, '@', servers.len) : NULL;
	if (at) {
		size_t len = (size_t)(at - servers.data);

		if (!parse_user(slice_make(servers.data, len), arena, url, why, size))
			return false;
		servers = slice_make(at + 1, servers.len - len - 1);
	}
	url->shown = arena_copy(arena, servers).data;
	return parse_servers(servers, arena, url, why, size) &&
	       parse_options(rest, arena, url, why, size);
}
