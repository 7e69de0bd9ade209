/*
 * Readiness is determined anew for each request to /readyz: every dependency reports without I/O
 * whether it can be used, so /readyz never blocks and needs no thread of its own. A process that is
 * being stopped is not ready, although it still serves requests.
 */
#include "admin/health.h"

#include <assert.h>
#include <stdio.h>

#include "base/metrics.h"

static void get_healthz(void *context, struct request *request)
{
	(void)context;
	request_answer(request, answer_json(200, slice_of("{\"status\":\"ok\"}")));
}

static bool store_is_up(void *thing)
{
	struct store *store = thing;

	return store->ops->is_up(store);
}

void health_add_dependency(struct health *health, const struct dependency *dependency)
{
	assert(health->dependency_count < HEALTH_DEPENDENCIES_MAX);
	health->dependencies[health->dependency_count++] = *dependency;
}

void health_add_store(struct health *health, struct store *store)
{
	struct dependency dependency = {
		.name = store->name,
		.engine = store->engine,
		.is_up = store_is_up,
		.thing = store,
		.latency = store->latency,
	};

	assert(health->store_count < HEALTH_STORES_MAX);
	health->stores[health->store_count++] = store;
	health_add_dependency(health, &dependency);
}

static bool all_up(const struct health *health)
{
	for (size_t i = 0; i < health->dependency_count; i++) {
		const struct dependency *dependency = &health->dependencies[i];

		if (!dependency->is_optional && !dependency->is_up(dependency->thing))
			return false;
	}
	return true;
}

static void write_dependencies(const struct health *health, struct buffer *body)
{
	for (size_t i = 0; i < health->dependency_count; i++) {
		const struct dependency *dependency = &health->dependencies[i];

		buffer_format(body, "%s{\"name\":\"%s\",\"engine\":\"%s\",\"status\":\"%s\"}",
			i == 0 ? "" : ",", dependency->name, dependency->engine,
			dependency->is_up(dependency->thing) ? "up" : "down");
	}
}

static void get_readyz(void *context, struct request *request)
{
	struct health *health = context;
	bool draining = atomic_load(&health->draining);
	bool ready = !draining && all_up(health);
	struct buffer body = buffer_make(&request->arena, 256);
	struct answer answer;

	buffer_format(&body, "{\"status\":\"%s\",\"dependencies\":[",
		draining ? "draining"
		: ready  ? "ready"
			 : "unavailable");
	write_dependencies(health, &body);
	buffer_text(&body, "]}");
	answer = answer_json(ready ? 200 : 503, buffer_slice(&body));
	if (!ready)
		answer.headers = slice_of("Retry-After: 1\r\n");
	request_answer(request, answer);
}

void health_add_routes(struct health *health, struct router *router)
{
	const struct route routes[] = {
		{"GET", "/healthz", ACCESS_PUBLIC, get_healthz, health, 0, NULL, names_any},
		{"GET", "/readyz", ACCESS_PUBLIC, get_readyz, health, 0, NULL, names_any},
	};

	router_add_all(router, NULL, routes, sizeof(routes) / sizeof(routes[0]));
}

static void collect_dependencies(const struct health *health, struct buffer *page)
{
	char labels[128];

	metrics_family(page, "quipu_dependency_up", "gauge",
		"1 while the dependency (a store, bus or cache on /readyz) can be used.");
	for (size_t i = 0; i < health->dependency_count; i++) {
		const struct dependency *dependency = &health->dependencies[i];

		snprintf(labels, sizeof(labels), "dependency=\"%s\",engine=\"%s\"",
			dependency->name, dependency->engine);
		metrics_sample(
			page, "quipu_dependency_up", labels, dependency->is_up(dependency->thing));
	}
}

static void collect_latencies(const struct health *health, struct buffer *page)
{
	char labels[128];

	metrics_family(page, "quipu_dependency_duration_seconds", "summary",
		"Duration of round trips to a store or cache, commits of SQLite, and publishes "
		"to a bus.");
	for (size_t i = 0; i < health->dependency_count; i++) {
		const struct dependency *dependency = &health->dependencies[i];

		snprintf(labels, sizeof(labels), "dependency=\"%s\"", dependency->name);
		metrics_latency(
			page, "quipu_dependency_duration_seconds", labels, dependency->latency);
	}
}

static void collect_errors(const struct health *health, struct buffer *page)
{
	static const enum status kinds[] = {STATUS_RERUN, STATUS_LOCK_BUSY, STATUS_POISON,
		STATUS_STORE_UNAVAILABLE, STATUS_OUTCOME_UNKNOWN};
	char labels[128];

	metrics_family(page, "quipu_store_errors_total", "counter",
		"Round trips to a store that failed, by kind of error.");
	for (size_t i = 0; i < health->store_count; i++) {
		struct store *store = health->stores[i];

		for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
			snprintf(labels, sizeof(labels), "store=\"%s\",kind=\"%s\"", store->name,
				status_code(kinds[k]));
			metrics_sample(page, "quipu_store_errors_total", labels,
				store->ops->error_count(store, kinds[k]));
		}
	}
}

void health_collect(void *context, struct buffer *page)
{
	const struct health *health = context;
	char labels[128];

	metrics_family(page, "quipu_store_up", "gauge", "1 while the store can be used.");
	for (size_t i = 0; i < health->store_count; i++) {
		struct store *store = health->stores[i];

		snprintf(labels, sizeof(labels), "store=\"%s\"", store->name);
		metrics_sample(page, "quipu_store_up", labels, store->ops->is_up(store));
	}
	collect_dependencies(health, page);
	collect_latencies(health, page);
	collect_errors(health, page);
}
