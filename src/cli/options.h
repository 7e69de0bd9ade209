/*
 * The configuration. One table of options drives the flags, the environment variables, the
 * configuration file, --help, --print-config and the documents. A flag overrides the environment,
 * the environment overrides the file, and the file overrides the default.
 */
#ifndef QUIPU_CLI_OPTIONS_H
#define QUIPU_CLI_OPTIONS_H

#include <stdint.h>
#include <stdio.h>

#include "base/log.h"
#include "base/status.h"

struct settings {
	const char *listen;
	const char *server;
	const char *data;
	const char *roles;
	const char *store;
	const char *counts_store;
	const char *gateway_store;
	const char *gateway_bus;
	const char *entitlements_store;
	const char *notifications_store;
	const char *entitlements_bus;
	const char *notify_channel;
	const char *webhook_secret_file;
	const char *sms_channel;
	int64_t sms_parallel;
	const char *pots_store;
	const char *dialogs_store;
	const char *counters_store;
	const char *unread_bus;
	const char *masstransit_namespace;
	const char *cache;
	const char *allowed_hosts;
	const char *cors_origins;
	const char *api_keys;
	const char *api_key_file;
	const char *jwt_key;
	const char *jwt_algorithm;
	const char *jwt_issuer;
	const char *jwt_audience;
	const char *tls_cert;
	const char *tls_key;
	const char *ca_file;
	const char *log_format;
	const char *log_level;
	int64_t loops;
	int64_t lanes;
	int64_t batch_max;
	int64_t lane_depth;
	int64_t lane_bytes;
	int64_t max_connections;
	int64_t h2_streams;
	int64_t client_bytes;
	int64_t deadline_us;
	int64_t head_timeout_us;
	int64_t body_timeout_us;
	int64_t idle_timeout_us;
	int64_t drain_delay_us;
	int64_t drain_timeout_us;
	int64_t stream_heartbeat_us;
	int64_t stream_stall_us;
	int64_t streams_per_user;
	int64_t idempotency_ttl_us;
	int64_t gateway_window_unit_us;
	const char *gateway_default_limit;
	int64_t outbox_poll_us;
	int64_t outbox_batch;
	int64_t outbox_lease_us;
	int64_t outbox_max_attempts;
	int64_t notify_timeout_us;
	int64_t notify_lease_us;
	int64_t audit_keep_months;
	int64_t pots_lock_wait_us;
	int64_t pots_lock_retries;
	int64_t pots_lock_ttl_us;
	int64_t jwt_leeway_us;
	bool insecure;
	bool trace_store;
	const char *console; /* "on" or "off" */
	bool core_dumps;
	bool access_log;

	bool print_config;
	bool check_config;
	bool json; /* print the settings, or the result of the check or command, as JSON */
};

#define EXIT_USAGE 2 /* the exit status for wrong arguments */
#define OPTIONS_WHY_SIZE 512
#define OWN_FLAGS_MAX 4
#define OWN_SWITCH "!"

/*
 * The arguments of a command besides the options: words, such as ids, and the command's own flags,
 * such as --why. These flags cannot be set in the environment or in the configuration file.
 */
struct operands {
	const char *const *flags;          /* the names of the command's own flags, ending with
					    * NULL; a flag whose name begins with OWN_SWITCH
					    * takes no value */
	const char *values[OWN_FLAGS_MAX]; /* the value of each flag; NULL if it was not given */
	const char **words;                /* an array with one element per argument */
	size_t word_count;
};

/*
 * Fills `settings` from four sources: the `count` arguments after the command, the environment, the
 * file that --config names, and the defaults. The caller sets the flags of `operands` and provides
 * the array of its words; this function fills in the values and the words. `operands` is NULL if
 * the command takes only options. If an argument or a value is invalid, returns false with the
 * reason in `why` (OPTIONS_WHY_SIZE bytes). Strings stay valid for the life of the program. Main
 * thread only; called once.
 */
QP_MUST_CHECK bool options_read(struct settings *settings, struct operands *operands, int count,
	char *const *arguments, char *why);

/* Returns the value of one of the command's own flags, or NULL if the flag was not given. */
const char *operands_flag(const struct operands *operands, const char *name);

/* Prints one line per option: its value, with secrets hidden, and where the value comes from. */
void options_print(FILE *out);

/* Like options_print(), but prints a JSON object per line. */
void options_print_json(FILE *out);

/* Prints the options that differ from their defaults, on one line, with secrets hidden. */
void options_print_changed(FILE *out);

/* Prints the heading of a group (cli/option_groups.h) and the help for the group's options. */
void options_help(FILE *out, size_t group);

/* Prints the help for the options in `names`, which are separated by spaces. A name that ends with
 * "-" stands for all names that begin with it. */
void options_help_some(FILE *out, const char *names);

#define OPTION_FACT_SIZE 64

/* An option as the manual describes it (cli/manual). The strings are static. */
struct option_facts {
	const char *name;
	const char *value;    /* the placeholder for its value; NULL for a yes-or-no option */
	const char *standard; /* the default; "" if there is no default */
	const char *help;
	char variable[OPTION_FACT_SIZE];
	char range[OPTION_FACT_SIZE]; /* "1 to 64", or "" */
};

/* Enumerate the options in the order of the option table. `index` must be below options_count(). */
size_t options_count(void);
struct option_facts options_at(size_t index);

#endif
