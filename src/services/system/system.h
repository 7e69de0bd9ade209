/*
 * What every operator needs, whatever the roles: /healthz, /readyz, /metrics, /openapi.json.
 */
#ifndef QUIPU_SERVICES_SYSTEM_H
#define QUIPU_SERVICES_SYSTEM_H

#include <stdatomic.h>

#include "base/metrics.h"
#include "http/router.h"
#include "ports/store.h"

#define SYSTEM_STORES_MAX 8

struct system {
	struct metrics metrics;
	struct store *stores[SYSTEM_STORES_MAX];
	size_t store_count;
	struct slice openapi; /* the document, ready to send */
	atomic_bool draining;
};

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
