#include "admin/system.h"

#include <assert.h>
#include <jansson.h>
#include <stdio.h>

#include "base/clock.h"

static void healthz(void *context, struct request *request)
{
	(void)context;
	request_answer(request, answer_json(200, slice_of("{\"status\":\"ok\"}")));
}

static bool store_is_up(void *thing)
{
	struct store *store = thing;

	return store->ops->is_up(store);
}

void system_add_dependency(struct system *system, const struct dependency *dependency)
{
	assert(system->dependency_count < SYSTEM_DEPENDENCIES_MAX);
	system->dependencies[system->dependency_count++] = *dependency;
}

void system_add_store(struct system *system, struct store *store)
{
	struct dependency dependency = {
		.name = store->name,
		.engine = store->engine,
		.is_up = store_is_up,
		.thing = store,
	};

	assert(system->store_count < SYSTEM_STORES_MAX);
	system->stores[system->store_count++] = store;
	system_add_dependency(system, &dependency);
}

static bool all_up(const struct system *system)
{
	for (size_t i = 0; i < system->dependency_count; i++) {
		const struct dependency *dependency = &system->dependencies[i];

		if (!dependency->is_optional && !dependency->is_up(dependency->thing))
			return false;
	}
	return true;
}

static void write_dependencies(const struct system *system, struct buffer *body)
{
	for (size_t i = 0; i < system->dependency_count; i++) {
		const struct dependency *dependency = &system->dependencies[i];

		buffer_format(body, "%s{\"name\":\"%s\",\"engine\":\"%s\",\"status\":\"%s\"}",
			i == 0 ? "" : ",", dependency->name, dependency->engine,
			dependency->is_up(dependency->thing) ? "up" : "down");
	}
}

static void readyz(void *context, struct request *request)
{
	struct system *system = context;
	bool draining = atomic_load(&system->draining);
	bool ready = !draining && all_up(system);
	struct buffer body = buffer_make(&request->arena, 256);
	struct answer answer;

	buffer_format(&body, "{\"status\":\"%s\",\"dependencies\":[",
		draining ? "draining"
		: ready  ? "ready"
			 : "unavailable");
	write_dependencies(system, &body);
	buffer_text(&body, "]}");
	answer = answer_json(ready ? 200 : 503, buffer_slice(&body));
	if (!ready)
		answer.headers = slice_of("Retry-After: 1\r\n");
	request_answer(request, answer);
}

static void metrics(void *context, struct request *request)
{
	const struct system *system = context;
	struct buffer page = buffer_make(&request->arena, 32 * 1024);
	struct answer answer = {
		.http_status = 200,
		.content_type = SLICE("text/plain; version=0.0.4; charset=utf-8"),
	};

	metrics_write(&system->metrics, &page);
	answer.body = buffer_slice(&page);
	request_answer(request, answer);
}

static void openapi(void *context, struct request *request)
{
	const struct system *system = context;

	request_answer(request, answer_json(200, system->openapi));
}

void system_add_routes(struct system *system, struct router *router)
{
	const struct route routes[] = {
		{"GET", "/healthz", ACCESS_PUBLIC, healthz, system, 0},
		{"GET", "/readyz", ACCESS_PUBLIC, readyz, system, 0},
		{"GET", "/metrics", ACCESS_INTERNAL, metrics, system, 0},
		{"GET", "/openapi.json", ACCESS_PUBLIC, openapi, system, 0},
	};

	router_add_all(router, NULL, routes, sizeof(routes) / sizeof(routes[0]));
}

static int64_t resident_bytes(void)
{
	FILE *file = fopen("/proc/self/statm", "re");
	long long pages = 0;

	if (!file)
		return 0;
	if (fscanf(file, "%*s %lld", &pages) != 1)
		pages = 0;
	fclose(file);
	return pages * 4096;
}

static void collect_dependencies(const struct system *system, struct buffer *page)
{
	char labels[128];

	metrics_family(page, "quipu_dependency_up", "gauge",
		"1 while a store, bus or cache can be used, as /readyz lists them.");
	for (size_t i = 0; i < system->dependency_count; i++) {
		const struct dependency *dependency = &system->dependencies[i];

		snprintf(labels, sizeof(labels), "dependency=\"%s\",engine=\"%s\"",
			dependency->name, dependency->engine);
		metrics_sample(
			page, "quipu_dependency_up", labels, dependency->is_up(dependency->thing));
	}
}

void system_collect(void *context, struct buffer *page)
{
	static const enum status kinds[] = {STATUS_RERUN, STATUS_LOCK_BUSY, STATUS_POISON,
		STATUS_STORE_UNAVAILABLE, STATUS_OUTCOME_UNKNOWN};
	struct system *system = context;
	char labels[128];

	metrics_family(page, "quipu_store_up", "gauge", "1 while the store can be used.");
	for (size_t i = 0; i < system->store_count; i++) {
		struct store *store = system->stores[i];

		snprintf(labels, sizeof(labels), "store=\"%s\"", store->name);
		metrics_sample(page, "quipu_store_up", labels, store->ops->is_up(store));
	}
	collect_dependencies(system, page);
	metrics_family(page, "quipu_store_errors_total", "counter", "Failed round trips by kind.");
	for (size_t i = 0; i < system->store_count; i++) {
		struct store *store = system->stores[i];

		for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
			snprintf(labels, sizeof(labels), "store=\"%s\",kind=\"%s\"", store->name,
				status_code(kinds[k]));
			metrics_sample(page, "quipu_store_errors_total", labels,
				store->ops->error_count(store, kinds[k]));
		}
	}
	metrics_family(page, "process_resident_memory_bytes", "gauge", "Resident memory.");
	metrics_sample(page, "process_resident_memory_bytes", "", resident_bytes());
}

static void unite(json_t *into, const char *name, json_t *from)
{
	json_t *target = json_object_get(into, name);

	if (!target) {
		json_object_set(into, name, from);
		return;
	}
	json_object_update(target, from);
}

static void unite_documents(json_t *into, json_t *document)
{
	json_t *components = json_object_get(into, "components");
	const char *kind;
	json_t *members;

	unite(into, "paths", json_object_get(document, "paths"));
	json_array_extend(json_object_get(into, "tags"), json_object_get(document, "tags"));
	json_object_foreach(json_object_get(document, "components"), kind, members)
		unite(components, kind, members);
}

struct slice system_join_openapi(const char *const *documents, size_t count)
{
	json_t *all = json_loads(documents[0], JSON_REJECT_DUPLICATES, NULL);
	char *text;

	assert(all);
	for (size_t i = 1; i < count; i++) {
		json_t *document = json_loads(documents[i], JSON_REJECT_DUPLICATES, NULL);

		assert(document);
		unite_documents(all, document);
		json_decref(document);
	}
	text = json_dumps(all, JSON_COMPACT);
	json_decref(all);
	assert(text);
	return slice_of(text);
}
