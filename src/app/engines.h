/*
 * The engines that the program knows. engines.c is the only place that names adapters of stores and
 * buses: a new engine is a folder of adapters/ and a line there.
 *
 * The tables end with an entry without a scheme. Everything here runs on the main thread.
 */
#ifndef QUIPU_APP_ENGINES_H
#define QUIPU_APP_ENGINES_H

#include <stdbool.h>

#include "ports/bus.h"
#include "ports/store.h"

struct store_plan {
	const char *name; /* "counts-store" */
	const char *url;
	const char *file;              /* in the data folder, for engines that have one */
	const char *const *components; /* of the schema; ends with NULL */
};

struct bus_plan {
	const char *name; /* "gateway-bus" */
	const char *url;
	const char *file; /* in the data folder, for engines that have one */
	const struct bus_channel *channels;
	size_t channel_count;
	bool is_optional; /* requests are served while it is away: events wait in an outbox */
};

/*
 * `scheme` is what its URLs begin with, or, if it ends with a colon, the whole URL. create() gets
 * the path of the plan's file in the data folder if the engine `has_file`, otherwise NULL; it never
 * fails, and the caller frees what it returns.
 */
struct store_engine {
	const char *scheme;
	bool has_file; /* only one process can use it at a time */
	struct store *(*create)(const struct store_plan *plan, const char *path);
};

struct bus_engine {
	const char *scheme;
	bool has_file;
	struct bus *(*create)(const struct bus_plan *plan, const char *path);
};

extern const struct store_engine store_engines[];
extern const struct bus_engine bus_engines[];

/* Return the engine for a URL, or NULL if there is none. */
const struct store_engine *store_engine_find(const char *url);
const struct bus_engine *bus_engine_find(const char *url);

#endif
