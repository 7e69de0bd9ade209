/*
 * Parses kafka://host:port[,host:port]?option=value&… A URL may contain only options for reaching
 * the cluster and for staying a member of a group. The adapter itself sets the options on which the
 * port's guarantees depend (acks, idempotence, offsets, and the time limits of messages). Values
 * may be secrets, so no error text repeats a value.
 */
#include <stdio.h>

#include "adapters/bus/kafka/kafka_internal.h"
#include "base/text.h"

#define SCHEME "kafka://"

struct allowed {
	/* the name of an option; a name that ends with a dot allows all options whose names begin
	 * with it */
	const char *name;
	bool consumers_only;
};

static const struct allowed allowed[] = {
	{"security.protocol", false},
	{"sasl.", false},
	{"ssl.", false},
	{"enable.ssl.certificate.verification", false},
	{"socket.", false},
	{"reconnect.", false},
	{"broker.address.", false},
	{"client.id", false},
	{"client.rack", false},
	{"session.timeout.ms", true},
	{"heartbeat.interval.ms", true},
	{"max.poll.interval.ms", true},
};

static const struct allowed *find_allowed(struct slice name)
{
	for (size_t i = 0; i < sizeof(allowed) / sizeof(allowed[0]); i++) {
		const char *entry = allowed[i].name;
		bool is_prefix = entry[strlen(entry) - 1] == '.';

		if (is_prefix ? slice_starts_with(name, entry) : slice_is(name, entry))
			return &allowed[i];
	}
	return NULL;
}

static bool parse_servers(
	struct slice text, struct arena *arena, struct kafka_url *url, char *why, size_t size)
{
	struct slice rest = text;

	while (rest.data) {
		if (!text_is_server(slice_cut(&rest, ','))) {
			snprintf(why, size,
				"a Kafka URL is kafka://host:port[,host:port]?option=value; the "
				"servers in this URL are not valid");
			return false;
		}
	}
	url->servers = arena_copy(arena, text).data;
	return true;
}

static bool parse_option(
	struct slice text, struct arena *arena, struct kafka_url *url, char *why, size_t size)
{
	struct slice value = text;
	struct slice name = slice_cut(&value, '=');
	const struct allowed *entry = find_allowed(name);
	struct kafka_option *option = &url->options[url->option_count];

	if (!entry) {
		snprintf(why, size, "\"%.*s\" is not an option that a Kafka URL can have",
			(int)(name.len < 64 ? name.len : 64), name.data);
		return false;
	}
	option->name = arena_copy(arena, name).data;
	option->value = value.data ? text_unescape(arena, value) : NULL;
	option->consumers_only = entry->consumers_only;
	if (!option->value) {
		snprintf(why, size,
			"the Kafka option %s has no value, or a value with a broken %%XX",
			option->name);
		return false;
	}
	url->option_count++;
	return true;
}

bool kafka_url_parse(
	const char *text, struct arena *arena, struct kafka_url *url, char *why, size_t size)
{
	struct slice rest = slice_of(text);
	struct slice servers;

	memset(url, 0, sizeof(*url));
	if (!slice_starts_with(rest, SCHEME)) {
		snprintf(why, size, "a Kafka URL begins with " SCHEME);
		return false;
	}
	rest = slice_make(rest.data + strlen(SCHEME), rest.len - strlen(SCHEME));
	servers = slice_cut(&rest, '?');
	if (servers.len > 0 && servers.data[servers.len - 1] == '/')
		servers.len--;
	if (!parse_servers(servers, arena, url, why, size))
		return false;
	while (rest.data && rest.len > 0) {
		if (url->option_count == KAFKA_OPTIONS_MAX) {
			snprintf(why, size, "the Kafka URL has too many options");
			return false;
		}
		if (!parse_option(slice_cut(&rest, '&'), arena, url, why, size))
			return false;
	}
	return true;
}
