/*
 * The configuration: one table of options that the flags, the environment, the file, --help,
 * --print-config and the documents are all made of. Precedence: flag > environment > file >
 * default.
 */
#ifndef QUIPU_CLI_OPTIONS_H
#define QUIPU_CLI_OPTIONS_H

#include <stdint.h>
#include <stdio.h>

#include "base/log.h"
#include "base/status.h"

struct settings {
	const char *listen;
	const char *data;
	const char *roles;
	const char *store;
	const char *counts_store;
	const char *gateway_store;
	const char *gateway_bus;
	const char *pots_store;
	const char *cache;
	const char *allowed_hosts;
	const char *log_format;
	const char *log_level;
	int64_t loops;
	int64_t lanes;
	int64_t batch_max;
	int64_t lane_depth;
	int64_t lane_bytes;
	int64_t max_connections;
	int64_t deadline_us;
	int64_t head_timeout_us;
	int64_t body_timeout_us;
	int64_t idle_timeout_us;
	int64_t drain_timeout_us;
	int64_t idempotency_ttl_us;
	int64_t gateway_window_unit_us;
	int64_t pots_lock_wait_us;
	int64_t pots_lock_retries;
	int64_t pots_lock_ttl_us;
	bool insecure;

	bool print_config;
	bool check_config;
};

#define OPTIONS_WHY_SIZE 512

/*
 * Fills `settings` from everything: `count` arguments behind the command, the environment, the file
 * that --config names, the defaults. false: `why` (OPTIONS_WHY_SIZE) says which value is wrong.
 * Strings stay valid for the life of the program. Main thread, once.
 */
QP_MUST_CHECK bool options_read(
	struct settings *settings, int count, char *const *arguments, char *why);

/* One line an option: its value and where it comes from, passwords hidden. */
void options_print(FILE *out);

/* The help for all options. */
void options_help(FILE *out);

#endif
