/*
 * The engines of stores and buses that the program knows. Apart from copy.c, which moves data from
 * SQLite to PostgreSQL, only engines.c includes the adapters of these engines. To add an engine,
 * add a folder in adapters/ and a line in engines.c.
 *
 * The tables end with an entry without a scheme. Everything here runs on the main thread.
 */
#ifndef QUIPU_APP_ENGINES_H
#define QUIPU_APP_ENGINES_H

#include <stdbool.h>

#include "ports/bus.h"
#include "ports/store.h"

struct store_plan {
	const char *name; /* e.g. "counts-store" */
	const char *url;
	/* the name of the store's file in the data folder, for engines with files */
	const char *file;
	const char *const *components; /* components of the schema; ends with NULL */
};

struct bus_plan {
	const char *name; /* e.g. "gateway-bus" */
	const char *url;
	/* the name of the bus's file in the data folder, for engines with files */
	const char *file;
	const struct bus_channel *channels;
	size_t channel_count;
	/* true if the process is ready even while the bus is down, because events can wait in an
	 * outbox */
	bool is_optional;
};

/*
 * `scheme` is either the engine's only URL, such as "local:", or the beginning of all its URLs,
 * such as "kafka://". If `has_file` is true, `path` is the path of the plan's file in the data
 * folder; otherwise `path` is NULL. create() never fails. The caller frees the store or bus that
 * create() returns.
 */
struct store_engine {
	const char *scheme;
	bool has_file; /* the store is a file, which only one process can use at a time */
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
