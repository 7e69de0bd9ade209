/* Configures clients of librdkafka and writes their log lines to our log. */
#include <stdio.h>

#include "adapters/bus/kafka/kafka_internal.h"
#include "base/log.h"

/* How many lines librdkafka may log per LOG_INTERVAL_NS. A few are enough, because the watcher
 * already logs when the cluster becomes unreachable and when it is reachable again. */
#define LOG_LINES_MAX 10
#define LOG_INTERVAL_NS (60 * NS_PER_S)

/* The log levels of librdkafka, which are those of syslog. Including syslog.h would clash with our
 * own LOG_ names. */
enum { SYSLOG_ERR = 3, SYSLOG_NOTICE = 5 };

/* Settings for all clients. The user's options override them. */
static const struct kafka_setting defaults[] = {
	{"client.id", "quipu"},
	{"socket.nagle.disable", "true"},
	{"socket.keepalive.enable", "true"},
	{"socket.timeout.ms", "10000"},
	{"socket.connection.setup.timeout.ms", "5000"},
	{"reconnect.backoff.ms", "50"},
	{"reconnect.backoff.max.ms", "500"},
	{"log.connection.close", "false"},
	{NULL, NULL},
};

/* Settings for consumers; the user's options override them. The session timeout is short, because
 * nobody reads the partitions of a dead consumer until its session times out. */
static const struct kafka_setting consumer_defaults[] = {
	{"session.timeout.ms", "10000"},
	{"heartbeat.interval.ms", "2000"},
	{NULL, NULL},
};

/* ---- log --------------------------------------------------------------------------------- */

static bool may_log(struct kafka_bus *bus)
{
	int64_t now_ns = clock_steady_ns(&clock_system);
	int64_t from_ns = atomic_load(&bus->log_interval_from_ns);

	if (now_ns - from_ns >= LOG_INTERVAL_NS &&
		atomic_compare_exchange_strong(&bus->log_interval_from_ns, &from_ns, now_ns))
		atomic_store(&bus->log_lines, 0);
	return atomic_fetch_add(&bus->log_lines, 1) < LOG_LINES_MAX;
}

/* Returns true if log lines of this facility report a failed connection. librdkafka repeats such
 * lines endlessly, and the watcher already logs the failure. */
static bool is_about_connections(const char *facility)
{
	return !strcmp(facility, "FAIL") || !strcmp(facility, "ERROR");
}

static enum log_level level_of(int level, const char *facility)
{
	if (level >= SYSLOG_NOTICE || is_about_connections(facility))
		return LOG_DEBUG;
	return level <= SYSLOG_ERR ? LOG_ERROR : LOG_WARN;
}

static void write_log(const rd_kafka_t *rk, int level, const char *facility, const char *text)
{
	struct kafka_client *client = rd_kafka_opaque(rk);
	enum log_level ours = level_of(level, facility);

	if (!log_enabled(ours) || (ours > LOG_DEBUG && !may_log(client->bus)))
		return;
	log_line(ours, "bus", "%s: librdkafka %s: %s", client->bus->base.name, facility, text);
}

/* ---- configuration ------------------------------------------------------------------------ */

/* Sets an option. On failure returns false and writes the reason to `why`. The reason is not
 * librdkafka's own error message, because that message may repeat a secret value. */
static bool set(rd_kafka_conf_t *conf, const char *name, const char *value, char *why, size_t size)
{
	char ignored[256];

	switch (rd_kafka_conf_set(conf, name, value, ignored, sizeof(ignored))) {
	case RD_KAFKA_CONF_OK:
		return true;
	case RD_KAFKA_CONF_UNKNOWN:
		snprintf(why, size, "librdkafka has no option %s", name);
		return false;
	default:
		snprintf(why, size, "librdkafka does not accept the value of the option %s", name);
		return false;
	}
}

static bool set_all(
	rd_kafka_conf_t *conf, const struct kafka_setting *settings, char *why, size_t size)
{
	for (; settings->name; settings++) {
		if (!set(conf, settings->name, settings->value, why, size))
			return false;
	}
	return true;
}

static bool set_options(rd_kafka_conf_t *conf, const struct kafka_url *url, rd_kafka_type_t type,
	char *why, size_t size)
{
	for (size_t i = 0; i < url->option_count; i++) {
		const struct kafka_option *option = &url->options[i];

		if (option->consumers_only && type != RD_KAFKA_CONSUMER)
			continue;
		if (!set(conf, option->name, option->value, why, size))
			return false;
	}
	return set(conf, "bootstrap.servers", url->servers, why, size);
}

rd_kafka_conf_t *kafka_conf_new(struct kafka_client *client, rd_kafka_type_t type,
	const struct kafka_setting *settings, char *why, size_t size)
{
	rd_kafka_conf_t *conf = rd_kafka_conf_new();

	rd_kafka_conf_set_opaque(conf, client);
	rd_kafka_conf_set_log_cb(conf, write_log);
	if (set_all(conf, defaults, why, size) &&
		(type != RD_KAFKA_CONSUMER || set_all(conf, consumer_defaults, why, size)) &&
		set_options(conf, &client->bus->url, type, why, size) &&
		set_all(conf, settings, why, size))
		return conf;
	rd_kafka_conf_destroy(conf);
	return NULL;
}

bool kafka_client_open(struct kafka_client *client, rd_kafka_type_t type, rd_kafka_conf_t *conf,
	char *why, size_t size)
{
	char words[256];

	assert(!client->rk);
	client->rk = rd_kafka_new(type, conf, words, sizeof(words));
	if (client->rk)
		return true;
	rd_kafka_conf_destroy(conf);
	snprintf(why, size, "librdkafka cannot start: %s", words);
	return false;
}
