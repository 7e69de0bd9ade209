/*
 * Checks that the settings fit together before anything is opened, so that a mistake is reported at
 * once and not halfway through the start. Numbers, times and words such as log levels were checked
 * when they were read (cli/settings.c). This file checks roles, URLs, addresses and origins, and
 * the rules that involve several options.
 */
#include <string.h>

#include "adapters/notifier/webhook/webhook_notifier.h"
#include "app/app.h"
#include "base/clock.h"
#include "base/text.h"
#include "http/cors.h"
#include "ports/notifier.h"
#include "services/gateway/limit_rules.h"

bool url_has_scheme(const char *url, const char *scheme)
{
	return strncmp(url, scheme, strlen(scheme)) == 0;
}

bool url_is_redis(const char *url)
{
	return url_has_scheme(url, "redis://") || url_has_scheme(url, "redis+sentinel://");
}

const char *store_url(const struct settings *settings, const char *own)
{
	return *own ? own : settings->store;
}

static void refuse_role(struct slice name, char *why)
{
	size_t len = (size_t)snprintf(why, OPTIONS_WHY_SIZE, "there is no role \"%.*s\"; roles are",
		(int)name.len, name.data);

	for (size_t i = 0; i < ROLE_COUNT && len < OPTIONS_WHY_SIZE; i++)
		len += (size_t)snprintf(why + len, OPTIONS_WHY_SIZE - len, "%s %s",
			i == 0 ? ":" : ",", role_name(i));
}

static bool read_roles(struct app *app, char *why)
{
	struct slice rest = slice_of(app->settings.roles);

	while (rest.data) {
		struct slice name = slice_trim(slice_cut(&rest, ','));
		unsigned found = slice_is(name, "all") ? ROLES_ALL : role_find(name);

		if (!found) {
			refuse_role(name, why);
			return false;
		}
		app->roles |= found;
	}
	return true;
}

static bool check_store_url(const struct app *app, const char *own, char *why)
{
	const char *url = store_url(&app->settings, own);

	if (store_engine_find(url))
		return true;
	snprintf(why, OPTIONS_WHY_SIZE,
		"the URL of a store must be \"sqlite:\" or begin with postgres://");
	return false;
}

static bool is_shared(const struct app *app, const char *own)
{
	return !store_engine_find(store_url(&app->settings, own))->has_file;
}

bool cache_is_shared(const struct app *app)
{
	return (app_plays(app, ROLE_GATEWAY) && is_shared(app, app->settings.gateway_store)) ||
	       (app_plays(app, ROLE_COUNTERS) && is_shared(app, app->settings.counters_store));
}

/* Returns true if the URL has a host after scheme:// and the optional user:password@. */
static bool url_has_host(const char *url)
{
	const char *start = strstr(url, "://");
	const char *end, *at;

	if (!start)
		return false;
	start += 3;
	end = start + strcspn(start, "/?");
	at = memrchr(start, '@', (size_t)(end - start));
	if (at)
		start = at + 1;
	return start < end && *start != ':' && *start != ',';
}

static bool check_cache(const struct app *app, char *why)
{
	const char *cache = app->settings.cache;
	bool shared = cache_is_shared(app);

	if (strcmp(cache, "memory") == 0 && shared)
		snprintf(why, OPTIONS_WHY_SIZE,
			"--cache memory cannot be used with PostgreSQL, because the caches of "
			"several processes would disagree; use redis:// or none");
	else if (url_has_scheme(cache, "rediss://"))
		snprintf(why, OPTIONS_WHY_SIZE,
			"--cache rediss:// cannot be used: the Redis client of this build has no "
			"TLS; use redis:// to a TLS proxy on this machine, such as "
			"stunnel");
	else if (strcmp(cache, "memory") != 0 && strcmp(cache, "none") != 0 &&
		 strcmp(cache, "auto") != 0 && !url_is_redis(cache))
		snprintf(why, OPTIONS_WHY_SIZE,
			"--cache must be none, memory, auto or a redis:// URL; this value is not "
			"one of them");
	else if (url_is_redis(cache) && !url_has_host(cache))
		snprintf(why, OPTIONS_WHY_SIZE,
			"--cache has no host after ://; write host or host:port");
	else
		return true;
	return false;
}

/* A bus and the two roles that it connects. A local bus works only if both roles run in the same
 * process. */
struct bus_check {
	const char *option;
	const char *url;
	enum role from, to;
	const char *ends;
};

static bool check_bus(const struct app *app, const struct bus_check *bus, char *why)
{
	const struct bus_engine *engine = bus_engine_find(bus->url);

	if (!engine)
		snprintf(why, OPTIONS_WHY_SIZE,
			"--%s must be \"local:\" or a kafka://, nats:// or amqp:// URL; this "
			"value is not one of them",
			bus->option);
	else if (!engine->has_file && !url_has_host(bus->url))
		snprintf(why, OPTIONS_WHY_SIZE,
			"--%s has no host after ://; write host or host:port", bus->option);
	else if (engine->has_file && app_plays(app, bus->from) != app_plays(app, bus->to))
		snprintf(why, OPTIONS_WHY_SIZE,
			"--%s can be \"local:\" only if the roles %s run in one process",
			bus->option, bus->ends);
	else
		return true;
	return false;
}

static bool check_buses(const struct app *app, char *why)
{
	const struct bus_check checks[] = {
		{"gateway-bus", app->settings.gateway_bus, ROLE_GATEWAY, ROLE_SENDER,
			"gateway and sender"},
		{"entitlements-bus", app->settings.entitlements_bus, ROLE_ENTITLEMENTS,
			ROLE_NOTIFICATIONS, "entitlements and notifications"},
		{"unread-bus", app->settings.unread_bus, ROLE_DIALOGS, ROLE_COUNTERS,
			"dialogs and counters"},
	};

	for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]); i++) {
		if (!check_bus(app, &checks[i], why))
			return false;
	}
	return true;
}

/* Checks `channel`, the value of the option that says where notifications or SMS are sent. The
 * value must be either `plain` ("log" or "console"), or "webhook:" followed by a URL. */
static bool check_notifier(const char *option, const char *channel, const char *plain, char *why)
{
	const char *problem;

	if (strcmp(channel, plain) == 0)
		return true;
	if (!url_has_scheme(channel, "webhook:")) {
		snprintf(why, OPTIONS_WHY_SIZE,
			"--%s must be %s or webhook:URL; this value is neither", option, plain);
		return false;
	}
	problem = webhook_url_problem(channel + strlen("webhook:"));
	if (problem)
		snprintf(why, OPTIONS_WHY_SIZE, "--%s: the URL of the webhook cannot be used: %s",
			option, problem);
	return !problem;
}

static bool check_channels(const struct settings *settings, char *why)
{
	if (!check_notifier("notify-channel", settings->notify_channel, "log", why) ||
		!check_notifier("sms-channel", settings->sms_channel, "console", why))
		return false;
	if (settings->notify_lease_us >=
		settings->notify_timeout_us + NOTIFIER_SLACK_NS / NS_PER_US)
		return true;
	snprintf(why, OPTIONS_WHY_SIZE,
		"--notify-lease must be at least 1 s longer than --notify-timeout; otherwise two "
		"processes could send the same notification");
	return false;
}

bool gateway_default_limit(const struct settings *settings, struct limit_default *standard)
{
	struct slice rest = slice_of(settings->gateway_default_limit);
	struct slice number = slice_cut(&rest, '/');
	int64_t count, window_us, unit_us = settings->gateway_window_unit_us;

	*standard = (struct limit_default){0};
	if (!*settings->gateway_default_limit)
		return true;
	if (!rest.data || !text_to_int(number, &count) || count < 1 || count > INT32_MAX ||
		!text_to_duration_us(rest, &window_us))
		return false;
	if (window_us < unit_us || window_us % unit_us != 0 ||
		window_us / unit_us > TIME_WINDOW_MAX)
		return false;
	standard->rate_limit = (int32_t)count;
	standard->time_window = (int32_t)(window_us / unit_us);
	return true;
}

static bool check_default_limit(const struct settings *settings, char *why)
{
	struct limit_default standard;

	if (gateway_default_limit(settings, &standard))
		return true;
	snprintf(why, OPTIONS_WHY_SIZE,
		"--gateway-default-limit must be a number of messages and a time, such as 5/1m, "
		"and the "
		"time must be a multiple of --gateway-window-unit; this value is \"%s\"",
		settings->gateway_default_limit);
	return false;
}

static bool check_address(const struct settings *settings, char *why)
{
	enum address_reach reach = server_address_reach(settings->listen);

	if (reach == ADDRESS_INVALID)
		snprintf(why, OPTIONS_WHY_SIZE,
			"--listen must be host:port of this machine, such as 127.0.0.1:8080, not "
			"\"%s\"",
			settings->listen);
	else if (reach == ADDRESS_PUBLIC && !settings->insecure && !*settings->api_keys)
		snprintf(why, OPTIONS_WHY_SIZE,
			"%s can be reached from other machines, and their requests would not be "
			"authenticated; set --api-keys, listen on 127.0.0.1, or set --insecure if "
			"a proxy or firewall guards this address",
			settings->listen);
	else
		return true;
	return false;
}

/* Returns the first origin of --cors-origins that has the wrong form, or {NULL, 0}. */
static struct slice find_wrong_origin(const struct settings *settings)
{
	struct slice rest = slice_of(settings->cors_origins);

	while (rest.data) {
		struct slice origin = slice_trim(slice_cut(&rest, ','));

		if (origin.len > 0 && !cors_origin_is_valid(origin))
			return origin;
	}
	return (struct slice){0};
}

static bool check_origins(const struct settings *settings, char *why)
{
	bool allows_any = strcmp(settings->cors_origins, "*") == 0;
	struct slice wrong = allows_any ? (struct slice){0} : find_wrong_origin(settings);

	if (allows_any && !*settings->api_keys)
		snprintf(why, OPTIONS_WHY_SIZE,
			"--cors-origins * needs --api-keys: without API keys, every web page that "
			"a user of this machine opens could read everything; list the origins "
			"instead");
	else if (wrong.data)
		snprintf(why, OPTIONS_WHY_SIZE,
			"--cors-origins must be * or a list of origins in lower case such as "
			"https://app.example.org or http://localhost:3000, without a path; "
			"\"%.*s\" is not an origin",
			(int)wrong.len, wrong.data);
	else
		return true;
	return false;
}

static bool check_tls(const struct settings *settings, char *why)
{
	if (!*settings->tls_cert == !*settings->tls_key)
		return true;
	snprintf(why, OPTIONS_WHY_SIZE,
		"--tls-cert and --tls-key belong together; set --tls-%s too",
		*settings->tls_cert ? "key" : "cert");
	return false;
}

static bool check_tokens(const struct settings *settings, char *why)
{
	if (!token_algorithm_is_known(settings->jwt_algorithm))
		snprintf(why, OPTIONS_WHY_SIZE,
			"--jwt-algorithm must be HS256, RS256 or ES256, not \"%s\"",
			settings->jwt_algorithm);
	else if (!*settings->jwt_key && (*settings->jwt_issuer || *settings->jwt_audience))
		snprintf(why, OPTIONS_WHY_SIZE,
			"--jwt-issuer and --jwt-audience need --jwt-key: without a key, tokens are "
			"not checked");
	else
		return true;
	return false;
}

bool app_check(struct app *app, char *why)
{
	const struct settings *settings = &app->settings;

	return read_roles(app, why) && check_store_url(app, settings->counts_store, why) &&
	       check_store_url(app, settings->gateway_store, why) &&
	       check_store_url(app, settings->entitlements_store, why) &&
	       check_store_url(app, settings->notifications_store, why) &&
	       check_store_url(app, settings->pots_store, why) &&
	       check_store_url(app, settings->dialogs_store, why) &&
	       check_store_url(app, settings->counters_store, why) && check_cache(app, why) &&
	       check_buses(app, why) && check_channels(settings, why) &&
	       check_default_limit(settings, why) && check_address(settings, why) &&
	       check_origins(settings, why) && check_tls(settings, why) &&
	       check_tokens(settings, why);
}
