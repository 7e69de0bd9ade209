/*
 * What every operator needs, whatever the roles: /healthz, /readyz, /metrics, /openapi.json.
 */
#ifndef QUIPU_ADMIN_SYSTEM_H
#define QUIPU_ADMIN_SYSTEM_H

#include <stdatomic.h>

#include "base/metrics.h"
#include "http/router.h"
#include "ports/store.h"

#define SYSTEM_STORES_MAX 8
#define SYSTEM_DEPENDENCIES_MAX 16

/* Something outside that /readyz tells of. */
struct dependency {
	const char *name;
	const char *engine;
	bool (*is_up)(void *thing);
	void *thing;
	bool is_optional; /* the program works without it */
};

struct system {
	struct metrics metrics;
	struct store *stores[SYSTEM_STORES_MAX];
	size_t store_count;
	struct dependency dependencies[SYSTEM_DEPENDENCIES_MAX];
	size_t dependency_count;
	struct slice openapi; /* the document, ready to send */
	atomic_bool draining;
};

/* At start only. A store is also a dependency. */
void system_add_store(struct system *system, struct store *store);
void system_add_dependency(struct system *system, const struct dependency *dependency);

/* Adds the routes. `system` outlives the router. */
void system_add_routes(struct system *system, struct router *router);

/* A metrics collector (context: the system): state and errors of the stores, the process. */
void system_collect(void *system, struct buffer *page);

/*
 * Unites OpenAPI documents: their `paths` and the members of their `components`. The result is
 * allocated and lives as long as the program. The documents are embedded, so a broken one aborts.
 */
struct slice system_join_openapi(const char *const *documents, size_t count);

#endif
