/*
 * Which engines the program knows: the only place that names adapters of stores and buses. A new
 * engine is a folder of adapters/ and a line in engines.c.
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
	const char *file;              /* in the data folder, for engines that keep one */
	const char *const *components; /* of the schema, ends with NULL */
};

struct bus_plan {
	const char *name; /* "gateway-bus" */
	const char *url;
	const char *file; /* in the data folder, for engines that keep one */
	const struct bus_channel *channels;
	size_t channel_count;
	bool is_optional; /* requests are served without it: events wait in an outbox */
};

/*
 * `scheme` is how its URLs begin, or, if it ends in a single colon, the whole URL. `path` is the
 * plan's file in the data folder if the engine `has_file`, else NULL.
 */
struct store_engine {
	const char *scheme;
	bool has_file; /* only this process can use it */
	struct store *(*create)(const struct store_plan *plan, const char *path);
};

struct bus_engine {
	const char *scheme;
	bool has_file;
	struct bus *(*create)(const struct bus_plan *plan, const char *path);
};

extern const struct store_engine store_engines[];
extern const struct bus_engine bus_engines[];

/* Returns the engine for a URL, or NULL if there is none. */
const struct store_engine *store_engine_find(const char *url);
const struct bus_engine *bus_engine_find(const char *url);

#endif
