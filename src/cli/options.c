/*
 * The table of options, with their help texts. Every option is one row, which defines the flag, the
 * environment variable, the line in the file, the documentation and the member of struct settings.
 * flags.c reads the command line, and settings.c combines all sources.
 */
#include "cli/options.h"

#include <assert.h>
#include <ctype.h>
#include <stddef.h>

#include "cli/guess.h"
#include "cli/option_groups.h"
#include "cli/option_table.h"

#define FIELD(field) offsetof(struct settings, field)
#define HOUR_US (3600LL * 1000000)
#define LEAST_TIME_US 1000
#define MOST_TIME_US (366 * 24 * HOUR_US)

static const struct option options[] = {
	{"listen", TYPE_TEXT, FIELD(listen), "127.0.0.1:8080", 0, 0, "HOST:PORT",
		"address to listen on; port 0 chooses a free port"},
	{"server", TYPE_URL, FIELD(server), "", 0, 0, "URL",
		"running server that health, dlq, outbox, erase-user and verify call; if not set, "
		"the server at --listen"},
	{"data", TYPE_TEXT, FIELD(data), "quipu-data", 0, 0, "DIR",
		"folder of the SQLite files; only one process at a time can use it"},
	{"roles", TYPE_TEXT, FIELD(roles), "all", 0, 0, "LIST",
		"roles to run, separated by commas: counts, gateway, sender, entitlements, "
		"notifications, pots, dialogs, counters"},
	{"store", TYPE_URL, FIELD(store), "sqlite:", 0, 0, "URL",
		"where services keep their data: sqlite: (files in --data) or postgres://..."},
	{"counts-store", TYPE_URL, FIELD(counts_store), "", 0, 0, "URL", "--store for counts only"},
	{"gateway-store", TYPE_URL, FIELD(gateway_store), "", 0, 0, "URL",
		"--store for gateway and sender only"},
	{"gateway-bus", TYPE_URL, FIELD(gateway_bus), "local:", 0, 0, "URL",
		"bus from gateway to sender: local: (a file in --data), kafka://host:port, "
		"nats://host:port or amqp://host"},
	{"entitlements-store", TYPE_URL, FIELD(entitlements_store), "", 0, 0, "URL",
		"--store for entitlements only"},
	{"notifications-store", TYPE_URL, FIELD(notifications_store), "", 0, 0, "URL",
		"--store for notifications only"},
	{"entitlements-bus", TYPE_URL, FIELD(entitlements_bus), "local:", 0, 0, "URL",
		"bus from entitlements to notifications: local:, nats://host:port, "
		"kafka://host:port or amqp://host"},
	{"outbox-poll", TYPE_DURATION, FIELD(outbox_poll_us), "1s", LEAST_TIME_US, HOUR_US, "TIME",
		"how often to poll the outbox when no new events are announced"},
	{"outbox-batch", TYPE_INT, FIELD(outbox_batch), "200", 1, 10000, "N",
		"maximum number of events published together"},
	{"outbox-lease", TYPE_DURATION, FIELD(outbox_lease_us), "30s", 1000000, HOUR_US, "TIME",
		"how long claimed events are reserved for one process"},
	{"outbox-max-attempts", TYPE_INT, FIELD(outbox_max_attempts), "10", 1, 1000, "N",
		"number of attempts to publish an event before it becomes a dead letter"},
	{"notify-channel", TYPE_URL, FIELD(notify_channel), "log", 0, 0, "CHANNEL",
		"where to send notifications: log, or webhook:URL (http or https)"},
	{"sms-channel", TYPE_URL, FIELD(sms_channel), "console", 0, 0, "CHANNEL",
		"where the sender sends messages: console (a line on standard output) or "
		"webhook:URL"},
	{"sms-parallel", TYPE_INT, FIELD(sms_parallel), "64", 1, 1024, "N",
		"maximum number of messages sent to the webhook at the same time"},
	{"webhook-secret-file", TYPE_TEXT, FIELD(webhook_secret_file), "", 0, 0, "FILE",
		"file with one or two secrets that sign webhooks, one per line (whsec_..., as in "
		"Standard Webhooks); read again on SIGHUP"},
	{"notify-timeout", TYPE_DURATION, FIELD(notify_timeout_us), "10s", LEAST_TIME_US, HOUR_US,
		"TIME", "how long a webhook may take to answer"},
	{"notify-lease", TYPE_DURATION, FIELD(notify_lease_us), "30s", 1000000, HOUR_US, "TIME",
		"how long claimed notifications are reserved for one process; at least 1 s longer "
		"than --notify-timeout"},
	{"audit-keep-months", TYPE_INT, FIELD(audit_keep_months), "0", 0, 1200, "N",
		"how many months to keep the audit of entitlements; 0 keeps everything"},
	{"pots-store", TYPE_URL, FIELD(pots_store), "", 0, 0, "URL", "--store for pots only"},
	{"dialogs-store", TYPE_URL, FIELD(dialogs_store), "", 0, 0, "URL",
		"--store for dialogs only"},
	{"counters-store", TYPE_URL, FIELD(counters_store), "", 0, 0, "URL",
		"--store for counters only"},
	{"unread-bus", TYPE_URL, FIELD(unread_bus), "local:", 0, 0, "URL",
		"bus from dialogs to counters: local:, amqp://host, kafka://host:port or "
		"nats://host:port"},
	{"masstransit-namespace", TYPE_TEXT, FIELD(masstransit_namespace), "Quipu.Dialogs", 0, 0,
		"NAME", ".NET namespace of the events of dialogs"},
	{"cache", TYPE_URL, FIELD(cache), "auto", 0, 0, "URL",
		"none, memory, redis://host:port, redis+sentinel://host:port,host:port/master, or "
		"auto (memory with SQLite, none with PostgreSQL)"},
	{"gateway-window-unit", TYPE_DURATION, FIELD(gateway_window_unit_us), "1m", LEAST_TIME_US,
		24 * HOUR_US, "TIME",
		"length of the window of a limit whose timeWindow is 1; tests make it shorter"},
	{"gateway-default-limit", TYPE_TEXT, FIELD(gateway_default_limit), "", 0, 0, "N/TIME",
		"limit for users who have no limit of their own, such as 5/1m (5 messages per "
		"minute); if not set, messages to these users are refused"},
	{"pots-lock-wait", TYPE_DURATION, FIELD(pots_lock_wait_us), "20ms", LEAST_TIME_US, HOUR_US,
		"TIME", "average pause before each retry while another process has locked the pot"},
	{"pots-lock-retries", TYPE_INT, FIELD(pots_lock_retries), "50", 0, 1000000, "N",
		"how many times to retry while a pot is locked, before answering with Twirp's "
		"\"aborted\""},
	{"pots-lock-ttl", TYPE_DURATION, FIELD(pots_lock_ttl_us), "10s", LEAST_TIME_US,
		MOST_TIME_US, "TIME",
		"time after which a lock of a pot expires if its owner has not released it"},
	{"lanes", TYPE_INT, FIELD(lanes), "0", 0, 64, "N",
		"write lanes per service; 0 means 1 with SQLite and 2 with PostgreSQL"},
	{"loops", TYPE_INT, FIELD(loops), "0", 0, 256, "N", "HTTP threads; 0 means one per core"},
	{"batch-max", TYPE_INT, FIELD(batch_max), "1024", 1, 65536, "N",
		"maximum number of changes combined into one transaction"},
	{"lane-depth", TYPE_INT, FIELD(lane_depth), "4096", 1, 1000000, "N",
		"maximum number of changes and reads waiting in a lane; further requests are "
		"refused "
		"with 503 OVERLOADED"},
	{"lane-bytes", TYPE_INT, FIELD(lane_bytes), "33554432", 65536, INT64_MAX / 2, "N",
		"maximum memory of the requests waiting in a lane, in bytes"},
	{"max-connections", TYPE_INT, FIELD(max_connections), "16384", 1, 1000000, "N",
		"maximum number of client connections; a further connection replaces the one "
		"whose client has kept the server waiting longest; if no client keeps it waiting, "
		"the further connection is refused with 503 OVERLOADED"},
	{"h2-streams", TYPE_INT, FIELD(h2_streams), "256", 1, 65536, "N",
		"maximum number of requests and event streams at once on one connection of HTTP/2; "
		"further requests are reset with REFUSED_STREAM"},
	{"client-bytes", TYPE_INT, FIELD(client_bytes), "268435456", 1048576, INT64_MAX / 2, "N",
		"maximum memory for requests that clients are sending and answers that clients "
		"have not read, in bytes"},
	{"deadline", TYPE_DURATION, FIELD(deadline_us), "5s", LEAST_TIME_US, MOST_TIME_US, "TIME",
		"how long a request may wait before it is refused"},
	{"head-timeout", TYPE_DURATION, FIELD(head_timeout_us), "10s", LEAST_TIME_US, MOST_TIME_US,
		"TIME", "how long a client may take to send the head of a request"},
	{"body-timeout", TYPE_DURATION, FIELD(body_timeout_us), "30s", LEAST_TIME_US, MOST_TIME_US,
		"TIME", "how long a client may take to send the body of a request"},
	{"idle-timeout", TYPE_DURATION, FIELD(idle_timeout_us), "60s", LEAST_TIME_US, MOST_TIME_US,
		"TIME", "how long a connection may stay idle"},
	{"drain-delay", TYPE_DURATION, FIELD(drain_delay_us), "0", 0, HOUR_US, "TIME",
		"how long to keep accepting connections after SIGTERM, while /readyz answers 503, "
		"so that load balancers stop sending requests in time"},
	{"drain-timeout", TYPE_DURATION, FIELD(drain_timeout_us), "30s", 0, MOST_TIME_US, "TIME",
		"how long to wait for requests to finish after SIGTERM"},
	{"stream-heartbeat", TYPE_DURATION, FIELD(stream_heartbeat_us), "15s", LEAST_TIME_US,
		24 * HOUR_US, "TIME", "how often an event stream without events sends a heartbeat"},
	{"stream-stall", TYPE_DURATION, FIELD(stream_stall_us), "30s", LEAST_TIME_US, 24 * HOUR_US,
		"TIME",
		"how long the client of an event stream may read nothing before it is "
		"disconnected"},
	{"streams-per-user", TYPE_INT, FIELD(streams_per_user), "16", 1, 1000000, "N",
		"maximum number of event streams opened with one user's tokens, per process; "
		"opening another closes the oldest"},
	{"idempotency-ttl", TYPE_DURATION, FIELD(idempotency_ttl_us), "24h", LEAST_TIME_US,
		MOST_TIME_US, "TIME", "how long an Idempotency-Key is remembered"},
	{"allowed-hosts", TYPE_TEXT, FIELD(allowed_hosts), "", 0, 0, "LIST",
		"host names that the headers Host and Origin may contain besides those of "
		"loopback, separated by commas"},
	{"cors-origins", TYPE_TEXT, FIELD(cors_origins), "", 0, 0, "LIST",
		"origins whose web pages may use this server, such as https://app.example.org, "
		"separated by commas; * allows all and needs --api-keys"},
	{"api-keys", TYPE_TEXT, FIELD(api_keys), "", 0, 0, "FILE",
		"file with the API keys that callers must use (created with quipu keys new); read "
		"again on SIGHUP"},
	{"api-key-file", TYPE_TEXT, FIELD(api_key_file), "", 0, 0, "FILE",
		"file with the API key that health, dlq, outbox, erase-user and verify send to "
		"the server; if not set, they send the key in the variable QUIPU_API_KEY"},
	{"jwt-key", TYPE_TEXT, FIELD(jwt_key), "", 0, 0, "FILE",
		"key that verifies users' tokens, for dialogs and counters: a public key "
		"in PEM, or the secret for HS256; read again on SIGHUP"},
	{"jwt-algorithm", TYPE_TEXT, FIELD(jwt_algorithm), "RS256", 0, 0, "NAME",
		"the only algorithm accepted for users' tokens: HS256, RS256 or ES256"},
	{"jwt-issuer", TYPE_TEXT, FIELD(jwt_issuer), "", 0, 0, "TEXT",
		"value required in the claim iss of users' tokens; if not set, any value is "
		"accepted"},
	{"jwt-audience", TYPE_TEXT, FIELD(jwt_audience), "", 0, 0, "TEXT",
		"value required in the claim aud of users' tokens; if not set, any value is "
		"accepted"},
	{"jwt-leeway", TYPE_DURATION, FIELD(jwt_leeway_us), "30s", 0, HOUR_US, "TIME",
		"how much the issuer's clock may differ from the server's"},
	{"tls-cert", TYPE_TEXT, FIELD(tls_cert), "", 0, 0, "FILE",
		"certificate for HTTPS, in PEM, followed by the certificates of its authorities; "
		"needs --tls-key; read again on SIGHUP"},
	{"tls-key", TYPE_TEXT, FIELD(tls_key), "", 0, 0, "FILE",
		"private key of --tls-cert (PEM, not encrypted)"},
	{"ca-file", TYPE_TEXT, FIELD(ca_file), "", 0, 0, "FILE",
		"CA certificates (PEM) to trust instead of the system's; used by health, dlq, "
		"outbox, erase-user and verify"},
	{"insecure", TYPE_FLAG, FIELD(insecure), "no", 0, 0, NULL,
		"allow a public address without authentication"},
	{"core-dumps", TYPE_FLAG, FIELD(core_dumps), "no", 0, 0, NULL,
		"let a crash write a core dump, which contains passwords and data"},
	{"log-level", TYPE_TEXT, FIELD(log_level), "info", 0, 0, "LEVEL",
		"lowest level to log: debug, info, warn or error"},
	{"log-format", TYPE_TEXT, FIELD(log_format), "auto", 0, 0, "FORMAT",
		"text, json, or auto (text on a terminal, json elsewhere)"},
	{"access-log", TYPE_FLAG, FIELD(access_log), "no", 0, 0, NULL,
		"log a line for every answer, at level info"},
	{"console", TYPE_TEXT, FIELD(console), "on", 0, 0, "WORD",
		"whether to serve the console at /console: on or off"},
	{"trace-store", TYPE_FLAG, FIELD(trace_store), "no", 0, 0, NULL,
		"for debugging: log every call to a store, with its duration, row count and "
		"result; "
		"needs --log-level debug"},
};

#define OPTION_COUNT (sizeof(options) / sizeof(options[0]))

_Static_assert(OPTION_COUNT <= OPTIONS_MAX, "OPTIONS_MAX must be at least the number of options");

/* ---- the table --------------------------------------------------------------------------- */

size_t options_count(void)
{
	return OPTION_COUNT;
}

const struct option *option_at(size_t index)
{
	assert(index < OPTION_COUNT);
	return &options[index];
}

size_t option_find(struct slice name)
{
	size_t i = 0;

	while (i < OPTION_COUNT && !slice_is(name, options[i].name))
		i++;
	return i;
}

const char *option_guess(struct slice name)
{
	const char *names[OPTION_COUNT + 1] = {NULL};

	for (size_t i = 0; i < OPTION_COUNT; i++)
		names[i] = options[i].name;
	return guess_name(name, names, "");
}

void option_variable(const char *option, char *out, size_t size)
{
	size_t len = (size_t)snprintf(out, size, "QUIPU_%s", option);

	for (size_t i = 0; i < len && i < size; i++)
		out[i] = out[i] == '-' ? '_' : (char)toupper((unsigned char)out[i]);
}

/* ---- help -------------------------------------------------------------------------------- */

static void help_option(FILE *out, const struct option *option)
{
	char flag[64];

	snprintf(flag, sizeof(flag), "--%s %s", option->name,
		option->value_name ? option->value_name : "");
	fprintf(out, "  %-28s %s%s%s%s\n", flag, option->help, *option->standard ? " [" : "",
		option->standard, *option->standard ? "]" : "");
}

void options_help(FILE *out, size_t group)
{
	fprintf(out, "%s:\n\n", option_group_title(group));
	for (size_t i = 0; i < OPTION_COUNT; i++) {
		if (option_is_in_group(options[i].name, group))
			help_option(out, &options[i]);
	}
}

void options_help_some(FILE *out, const char *names)
{
	fputs("Options:\n\n", out);
	for (size_t i = 0; i < OPTION_COUNT; i++) {
		if (option_is_listed(options[i].name, names))
			help_option(out, &options[i]);
	}
}

/* ---- facts for the manual ---------------------------------------------------------------- */

/* Writes a duration in the largest unit that needs no fraction: 90 seconds as "90s". */
static void write_duration(char *out, size_t size, int64_t value_us)
{
	static const struct {
		int64_t us;
		const char *name;
	} units[] = {{24 * HOUR_US, "d"}, {HOUR_US, "h"}, {60000000, "m"}, {1000000, "s"},
		{1000, "ms"}, {1, "us"}};
	size_t i = 0;

	while (value_us % units[i].us != 0)
		i++;
	if (value_us == 0)
		snprintf(out, size, "0");
	else
		snprintf(out, size, "%lld%s", (long long)(value_us / units[i].us), units[i].name);
}

static void write_range(char *out, size_t size, const struct option *option)
{
	char least[24], most[24];

	if (option->type == TYPE_INT) {
		snprintf(out, size, "%lld to %lld", (long long)option->least,
			(long long)option->most);
	} else if (option->type == TYPE_DURATION) {
		write_duration(least, sizeof(least), option->least);
		write_duration(most, sizeof(most), option->most);
		snprintf(out, size, "%s to %s", least, most);
	}
}

struct option_facts options_at(size_t index)
{
	const struct option *option = option_at(index);
	struct option_facts facts = {
		.name = option->name,
		.value = option->value_name,
		.standard = option->standard,
		.help = option->help,
	};

	option_variable(option->name, facts.variable, sizeof(facts.variable));
	write_range(facts.range, sizeof(facts.range), option);
	return facts;
}
