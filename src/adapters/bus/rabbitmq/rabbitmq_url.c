/*
 * Parses amqp://user:password@host:port,…/vhost?option=value&…
 *
 * Values may be secrets, so no error text repeats a value. The parser of rabbitmq-c is not used,
 * because it does not support options and does not report what is wrong. Most functions here return
 * NULL on success, and otherwise the reason why the URL is not valid. rabbitmq_url_parse() appends
 * the reason to "the URL of RabbitMQ … is not valid: ".
 */
#include <stdio.h>

#include "adapters/bus/rabbitmq/rabbitmq_internal.h"
#include "adapters/shared/server_address.h"
#include "base/text.h"

#define PLAIN_SCHEME "amqp://"
#define TLS_SCHEME "amqps://"
#define PLAIN_PORT 5672
#define TLS_PORT 5671
#define HEARTBEAT_DEFAULT_S 10
#define HEARTBEAT_MAX_S 3600
#define CACERT_DEFAULT "/etc/ssl/certs/ca-certificates.crt"

/* The maximum length of AMQP's short strings. */
#define VHOST_MAX 255

static const char *parse_scheme(struct rabbitmq_url *url, struct slice *rest)
{
	const char *scheme = PLAIN_SCHEME;

	if (slice_starts_with(*rest, TLS_SCHEME)) {
		scheme = TLS_SCHEME;
		url->tls = true;
	}
	if (!slice_starts_with(*rest, scheme))
		return "it must begin with " PLAIN_SCHEME " or " TLS_SCHEME;
	*rest = slice_make(rest->data + strlen(scheme), rest->len - strlen(scheme));
	return NULL;
}

static const char *parse_user(struct rabbitmq_url *url, struct arena *arena, struct slice text)
{
	struct slice user = slice_cut(&text, ':');

	if (user.len == 0 || !text.data)
		return "the part before @ must be user:password";
	url->user = text_unescape(arena, user);
	url->password = text_unescape(arena, text);
	if (!url->user || !url->password)
		return "the user or the password has a broken %XX";
	return NULL;
}

static bool is_host(const char *host)
{
	for (const char *c = host; *c; c++) {
		if (*c <= ' ' || *c >= 0x7f || strchr("/@#,[]", *c))
			return false;
	}
	return *host;
}

static const char *parse_place(struct rabbitmq_url *url, struct arena *arena, struct slice text)
{
	struct rabbitmq_place *place = &url->places[url->place_count];
	struct slice host;
	const char *problem;

	if (url->place_count == RABBITMQ_PLACES_MAX)
		return "it has too many hosts";
	place->port = url->tls ? TLS_PORT : PLAIN_PORT;
	problem = server_address_parse(text, &host, &place->port);
	if (problem)
		return problem;
	place->host = text_unescape(arena, host);
	if (!place->host || !is_host(place->host))
		return "there must be a host, or several hosts with commas between them";
	url->place_count++;
	return NULL;
}

static const char *parse_places(struct rabbitmq_url *url, struct arena *arena, struct slice rest)
{
	const char *problem = NULL;

	do {
		problem = parse_place(url, arena, slice_cut(&rest, ','));
	} while (!problem && rest.data);
	return problem;
}

static const char *parse_authority(struct rabbitmq_url *url, struct arena *arena, struct slice text)
{
	struct slice place = text;
	struct slice user = slice_cut(&place, '@');
	const char *problem = NULL;

	url->user = url->password = "guest";
	if (!place.data)
		return parse_places(url, arena, text);
	if (memchr(place.data, '@', place.len))
		return "there is more than one @; in the user or password, @ must be written %40";
	problem = parse_user(url, arena, user);
	return problem ? problem : parse_places(url, arena, place);
}

/*
 * According to the AMQP URI specification, a / with nothing after it means a vhost with an empty
 * name. That is rarely intended, so here it means the default vhost.
 */
static const char *parse_vhost(struct rabbitmq_url *url, struct arena *arena, struct slice text)
{
	url->vhost = "/";
	if (text.len == 0)
		return NULL;
	url->vhost = text_unescape(arena, text);
	if (!url->vhost || memchr(text.data, '/', text.len))
		return "the vhost has a broken %XX, or a / that is not written %2F";
	return strlen(url->vhost) <= VHOST_MAX ? NULL : "the vhost is too long";
}

/* ---- options ----------------------------------------------------------------------------- */

static const char *set_heartbeat(struct rabbitmq_url *url, const char *value)
{
	int64_t seconds;

	if (!text_to_int(slice_of(value), &seconds) || seconds < 1 || seconds > HEARTBEAT_MAX_S)
		return "the option heartbeat must be a number of seconds from 1 to 3600";
	url->heartbeat_s = (int)seconds;
	return NULL;
}

static const char *set_verify(struct rabbitmq_url *url, const char *value)
{
	url->verify = strcmp(value, "none") != 0;
	return url->verify && strcmp(value, "peer") ? "the option verify must be peer or none"
						    : NULL;
}

static const char *set_queues(struct rabbitmq_url *url, const char *value)
{
	url->has_quorum_queues = strcmp(value, "quorum") == 0;
	return !url->has_quorum_queues && strcmp(value, "classic")
		       ? "the option queues must be quorum or classic"
		       : NULL;
}

static const char *set_option(struct rabbitmq_url *url, struct slice name, const char *value)
{
	if (slice_is(name, "heartbeat"))
		return set_heartbeat(url, value);
	if (slice_is(name, "queues"))
		return set_queues(url, value);
	if (!url->tls)
		return "it has an option that amqp:// does not support; amqp:// supports "
		       "heartbeat and queues, and amqps:// also cacert, cert, key and verify";
	if (slice_is(name, "cacert"))
		url->cacert_file = value;
	else if (slice_is(name, "cert"))
		url->cert_file = value;
	else if (slice_is(name, "key"))
		url->key_file = value;
	else if (slice_is(name, "verify"))
		return set_verify(url, value);
	else
		return "it has an unknown option; the options are heartbeat, queues, cacert, cert, "
		       "key and verify";
	return NULL;
}

static const char *parse_options(struct rabbitmq_url *url, struct arena *arena, struct slice rest)
{
	const char *problem = NULL;

	url->heartbeat_s = HEARTBEAT_DEFAULT_S;
	url->cacert_file = CACERT_DEFAULT;
	url->verify = true;
	while (!problem && rest.len > 0) {
		struct slice value = slice_cut(&rest, '&');
		struct slice name = slice_cut(&value, '=');
		const char *decoded = value.len > 0 ? text_unescape(arena, value) : NULL;

		problem = decoded ? set_option(url, name, decoded)
				  : "an option has no value, or a value with a broken %XX";
	}
	if (!problem && !url->cert_file != !url->key_file)
		problem = "the options cert and key must be used together";
	return problem;
}

/* ---- the whole URL ----------------------------------------------------------------------- */

static const char *parse(struct rabbitmq_url *url, struct arena *arena, struct slice rest)
{
	const char *problem = parse_scheme(url, &rest);
	struct slice path;
	struct slice authority;

	if (problem)
		return problem;
	path = slice_cut(&rest, '?');
	authority = slice_cut(&path, '/');
	problem = parse_authority(url, arena, authority);
	if (!problem)
		problem = parse_vhost(url, arena, path);
	return problem ? problem : parse_options(url, arena, rest);
}

bool rabbitmq_url_parse(
	const char *text, struct arena *arena, struct rabbitmq_url *url, char *why, size_t size)
{
	const char *problem;

	memset(url, 0, sizeof(*url));
	problem = parse(url, arena, slice_of(text));
	if (problem)
		snprintf(why, size,
			"the URL of RabbitMQ, amqp://user:password@host:port/vhost, is not valid: "
			"%s",
			problem);
	return !problem;
}
