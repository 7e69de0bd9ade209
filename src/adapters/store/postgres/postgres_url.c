/*
 * Checks postgres://user:password@host:port,…/database?option=value&… before libpq uses it.
 *
 * libpq's error messages repeat the text that libpq cannot parse. That text may be a password or a
 * part of one: if a password contains an unescaped / or @, libpq mistakes the text after that
 * character for a host, a port or a database. Therefore no error text here repeats any part of the
 * URL, and libpq's own messages about a URL are not passed on. Each static check_ function returns
 * NULL on success; otherwise it returns a text that completes the error "… is not valid: …".
 */
#include <stdio.h>

#include "adapters/shared/server_address.h"
#include "adapters/store/postgres/postgres_internal.h"
#include "base/text.h"

#define PORT_MAX 65535

static const char *check_escapes(const char *url)
{
	for (const char *at = strchr(url, '%'); at; at = strchr(at + 1, '%')) {
		int high = text_hex_digit(at[1]);
		int low = high >= 0 ? text_hex_digit(at[2]) : -1;

		if (low < 0 || high + low == 0)
			return "it has a broken %XX; a % in a password is written %25";
	}
	return NULL;
}

/* Accepts a colon that no port follows, because libpq then uses the default port. */
static const char *check_server(struct slice text)
{
	struct slice host;
	int port;

	if (text.len > 0 && text.data[text.len - 1] == ':')
		text.len--;
	return server_address_parse(text, &host, &port);
}

/* Skips the user and the password, which for libpq are everything up to the first @. If a / comes
 * before the first @, there is no user. */
static const char *skip_user(const char *start)
{
	const char *end = start + strcspn(start, "@/");

	return *end == '@' ? end + 1 : start;
}

static const char *check_servers(const char *url)
{
	const char *scheme = strstr(url, "://");
	const char *start = skip_user(scheme ? scheme + 3 : url);
	struct slice servers = slice_make(start, strcspn(start, "/?"));
	const char *problem = NULL;

	if (memchr(start, '@', strcspn(start, "?")))
		return "there is one @ too many; in a password, @ is written %40 and / %2F";
	while (!problem && servers.data)
		problem = check_server(slice_cut(&servers, ','));
	return problem;
}

/* Checks the ports that libpq has found, including those in the option "port". */
static const char *check_ports(const PQconninfoOption *options)
{
	struct slice ports = {0};
	int64_t number;

	for (; options->keyword; options++) {
		if (strcmp(options->keyword, "port") == 0 && options->val)
			ports = slice_of(options->val);
	}
	while (ports.data) {
		struct slice port = slice_cut(&ports, ',');

		if (port.len > 0 &&
			(!text_to_int(port, &number) || number < 1 || number > PORT_MAX))
			return "the port must be a number from 1 to 65535";
	}
	return NULL;
}

static const char *check_options(const char *url)
{
	PQconninfoOption *options = PQconninfoParse(url, NULL);
	const char *problem;

	if (!options)
		return "an address is empty, or an option after the ? is unknown or has no value";
	problem = check_ports(options);
	PQconninfoFree(options);
	return problem;
}

bool pg_url_check(const char *url, char *why, size_t size)
{
	const char *problem = check_escapes(url);

	if (!problem)
		problem = check_servers(url);
	if (!problem)
		problem = check_options(url);
	if (problem)
		snprintf(why, size,
			"the URL of PostgreSQL, postgres://user:password@host:port/database, is "
			"not valid: %s",
			problem);
	return !problem;
}
