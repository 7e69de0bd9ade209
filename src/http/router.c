/*
 * The router searches a list of a few dozen routes linearly. Most routes are rejected at once
 * because their number of segments differs. `quipu routes` and the metrics show the routes in the
 * order of the list. Each entry of the list also holds the tallies of its route's answers, so
 * counting needs no look-up.
 */
#include "http/router.h"

#include <assert.h>
#include <stdlib.h>

#define ROUTES_MAX 64
#define STYLES_MAX 4

static const int codes[ROUTE_CODES - 1] = {200, 201, 204, 400, 401, 403, 404, 405, 408, 409, 412,
	413, 414, 415, 417, 421, 429, 431, 500, 501, 502, 503, 504};

struct route_entry {
	struct route route;
	const char *role; /* NULL if the route belongs to no role, e.g. /healthz */
	struct slice segments[PATH_SEGMENTS_MAX];
	size_t segment_count;
	struct route_stats stats;
};

struct router {
	struct route_entry entries[ROUTES_MAX];
	size_t count;
	struct route_style styles[STYLES_MAX];
	size_t style_count;
	struct route_stats unmatched;
};

struct router *router_new(void)
{
	struct router *router = qp_calloc(1, sizeof(*router));

	histogram_init(&router->unmatched.duration, &histogram_duration_ns);
	return router;
}

void router_free(struct router *router)
{
	free(router);
}

static void add(struct router *router, const char *role, const struct route *route)
{
	struct route_entry *entry = &router->entries[router->count];
	struct slice rest = slice_of(route->path + 1);

	assert(router->count < ROUTES_MAX);
	assert(route->path[0] == '/');
	entry->route = *route;
	entry->role = role;
	if (entry->route.body_max == 0)
		entry->route.body_max = BODY_MAX_DEFAULT;
	while (rest.data && rest.len > 0) {
		assert(entry->segment_count < PATH_SEGMENTS_MAX);
		entry->segments[entry->segment_count++] = slice_cut(&rest, '/');
	}
	histogram_init(&entry->stats.duration, &histogram_duration_ns);
	router->count++;
}

void router_add_all(
	struct router *router, const char *role, const struct route *routes, size_t count)
{
	for (size_t i = 0; i < count; i++)
		add(router, role, &routes[i]);
}

void router_add_style(struct router *router, const struct route_style *style)
{
	for (size_t i = 0; i < router->style_count; i++) {
		if (strcmp(router->styles[i].prefix, style->prefix) == 0)
			return;
	}
	assert(router->style_count < STYLES_MAX);
	router->styles[router->style_count++] = *style;
}

void router_apply_style(const struct router *router, struct request *request)
{
	/* A request that was refused before its target was parsed has no path. */
	struct slice path = request->path.raw.data ? request->path.raw : request->target;

	if (!request->answer.problem)
		return;
	for (size_t i = 0; i < router->style_count; i++) {
		if (slice_starts_with(path, router->styles[i].prefix)) {
			request->answer =
				router->styles[i].render(&request->arena, &request->answer);
			return;
		}
	}
}

static bool is_param(struct slice segment)
{
	return segment.data[0] == '{';
}

static bool path_matches(
	const struct route_entry *entry, const struct path *path, struct slice *params)
{
	size_t param_count = 0;

	if (entry->segment_count != path->count)
		return false;
	for (size_t i = 0; i < path->count; i++) {
		if (!is_param(entry->segments[i])) {
			if (!slice_equal(entry->segments[i], path->segments[i]))
				return false;
			continue;
		}
		assert(param_count < REQUEST_PARAMS_MAX);
		params[param_count++] = path->segments[i];
	}
	return true;
}

static bool method_matches(const struct route *route, struct slice method)
{
	return slice_is(method, route->method) ||
	       (slice_is(method, "HEAD") && strcmp(route->method, "GET") == 0);
}

static void add_allowed(struct buffer *allow, const char *method)
{
	if (allow->len > 0)
		buffer_text(allow, ", ");
	buffer_text(allow, method);
	if (strcmp(method, "GET") == 0)
		buffer_text(allow, ", HEAD");
}

enum status router_find(const struct router *router, struct arena *arena, struct slice method,
	const struct path *path, struct route_match *match)
{
	struct buffer methods = {.arena = arena};

	for (size_t i = 0; i < router->count; i++) {
		const struct route_entry *entry = &router->entries[i];

		if (!path_matches(entry, path, match->params))
			continue;
		if (method_matches(&entry->route, method)) {
			match->route = &entry->route;
			return STATUS_OK;
		}
		add_allowed(&methods, entry->route.method);
	}
	match->allow = buffer_slice(&methods);
	return methods.len > 0 ? STATUS_METHOD_NOT_ALLOWED : STATUS_ROUTE_NOT_FOUND;
}

/* Every route that the router returns is the first member of its entry. */
static struct route_entry *entry_of(const struct route *route)
{
	return (struct route_entry *)(void *)(uintptr_t)route;
}

const char *router_role(const struct route *route)
{
	return entry_of(route)->role;
}

size_t router_count(const struct router *router)
{
	return router->count;
}

const struct route *router_at(const struct router *router, size_t index)
{
	assert(index < router->count);
	return &router->entries[index].route;
}

static size_t code_slot(int http_status)
{
	size_t slot = 0;

	while (slot < ROUTE_CODES - 1 && codes[slot] != http_status)
		slot++;
	return slot;
}

void router_count_answer(
	struct router *router, const struct route *route, int http_status, int64_t duration_ns)
{
	struct route_stats *stats = route ? &entry_of(route)->stats : &router->unmatched;

	tally_add(&stats->by_code[code_slot(http_status)], 1);
	histogram_observe(&stats->duration, duration_ns);
}

static void collect_codes(struct buffer *page, const char *labels, const struct route_stats *stats)
{
	for (size_t slot = 0; slot < ROUTE_CODES; slot++) {
		int64_t value = tally_read(&stats->by_code[slot]);

		if (value == 0)
			continue;
		buffer_format(page, "quipu_http_requests_total{%s,code=\"", labels);
		if (slot < ROUTE_CODES - 1)
			buffer_format(page, "%d\"} ", codes[slot]);
		else
			buffer_text(page, "other\"} ");
		buffer_int(page, value);
		buffer_char(page, '\n');
	}
}

static void entry_labels(const struct route_entry *entry, char *labels, size_t size)
{
	snprintf(
		labels, size, "route=\"%s\",method=\"%s\"", entry->route.path, entry->route.method);
}

/* The labels for requests that no route served: unknown paths and methods, preflights, and bytes
 * that are not HTTP. */
static const char unmatched_labels[] = "route=\"unmatched\",method=\"any\"";

void router_collect(void *context, struct buffer *page)
{
	const struct router *router = context;
	char labels[256];

	metrics_family(page, "quipu_http_requests_total", "counter", "Answers by route and code.");
	for (size_t i = 0; i < router->count; i++) {
		entry_labels(&router->entries[i], labels, sizeof(labels));
		collect_codes(page, labels, &router->entries[i].stats);
	}
	collect_codes(page, unmatched_labels, &router->unmatched);
	metrics_family(page, "quipu_http_request_duration_seconds", "histogram",
		"Time from the first byte of a request to its answer.");
	for (size_t i = 0; i < router->count; i++) {
		entry_labels(&router->entries[i], labels, sizeof(labels));
		metrics_histogram(page, "quipu_http_request_duration_seconds", labels,
			&router->entries[i].stats.duration);
	}
	metrics_histogram(page, "quipu_http_request_duration_seconds", unmatched_labels,
		&router->unmatched.duration);
}
