/*
 * Health and readiness: /healthz answers as long as the process serves requests; /readyz lists the
 * stores, buses and caches that the process depends on, and says whether each can be used.
 */
#ifndef QUIPU_ADMIN_HEALTH_H
#define QUIPU_ADMIN_HEALTH_H

#include <stdatomic.h>

#include "base/buffer.h"
#include "base/metrics.h"
#include "http/router.h"
#include "ports/store.h"

#define HEALTH_STORES_MAX 8
#define HEALTH_DEPENDENCIES_MAX 16

/* A store, bus or cache that /readyz reports on. */
struct dependency {
	const char *name;
	const char *engine;
	bool (*is_up)(void *thing); /* called on any thread; must not block */
	void *thing;
	const struct latency *latency;
	bool is_optional; /* true if the process is ready even while the dependency is down */
};

struct health {
	struct store *stores[HEALTH_STORES_MAX]; /* not owned */
	size_t store_count;
	struct dependency dependencies[HEALTH_DEPENDENCIES_MAX];
	size_t dependency_count;
	atomic_bool draining; /* while true, /readyz answers 503 */
};

/* Adds a store to health->stores, and to the dependencies. Called at start only. */
void health_add_store(struct health *health, struct store *store);

/* Adds a copy of `dependency`. Called at start only. */
void health_add_dependency(struct health *health, const struct dependency *dependency);

/* Adds /healthz and /readyz. `health` must outlive the router. */
void health_add_routes(struct health *health, struct router *router);

/* A metrics collector (context: the struct health) for the state, latencies and errors of
 * dependencies. */
void health_collect(void *health, struct buffer *page);

#endif
