/*
 * Maps methods and paths to the functions that serve them. Routes are added at start and never
 * change, so any thread may look up a route. `quipu routes` prints all routes, and a test compares
 * that list with the OpenAPI document.
 */
#ifndef QUIPU_HTTP_ROUTER_H
#define QUIPU_HTTP_ROUTER_H

#include "access/caller.h"
#include "base/metrics.h"
#include "http/names.h"
#include "http/request.h"

#define BODY_MAX_DEFAULT (64 * 1024)

/* How many tallies of answers each route has: one for each HTTP status listed in router.c, and one,
 * "other", for all other statuses. */
#define ROUTE_CODES 24

struct route {
	const char *method; /* GET also answers HEAD */
	const char *path;   /* a template, e.g. /api/v1/counts/{itemId}/increase */
	/* with ACCESS_OWNER and ACCESS_OWNER_STREAM, the user's id is the first parameter of the
	 * path */
	enum access access;
	void (*handle)(void *context, struct request *request);
	void *context;
	size_t body_max;            /* 0 for BODY_MAX_DEFAULT */
	const char *const *members; /* names that the JSON body may have (see names.h) */
	const char *const
		*parameters; /* names that the query may have; names_any to ignore the query */
};

/*
 * A style replaces problem+json as the format of refusals on all paths that begin with `prefix`,
 * even on paths without a route. `render` returns the answer for `refusal`, whose member `problem`
 * is set. The answer is allocated from `arena`.
 */
struct route_style {
	const char *prefix; /* e.g. "/twirp/" */
	struct answer (*render)(struct arena *arena, const struct answer *refusal);
};

struct route_stats {
	struct tally by_code[ROUTE_CODES];
	struct histogram duration;
};

struct route_match {
	const struct route *route;
	struct slice params[REQUEST_PARAMS_MAX]; /* in the order of the template */
	struct slice allow;                      /* methods of this path, e.g. "GET, HEAD, POST" */
};

struct router;

struct router *router_new(void);
void router_free(struct router *router);

/*
 * Adds routes that belong to `role`. If `role` is NULL, the routes belong to no role, as /healthz
 * does. Call it only at start. The strings must outlive the router, and a path may have at most
 * PATH_SEGMENTS_MAX segments.
 */
void router_add_all(
	struct router *router, const char *role, const struct route *routes, size_t count);

/* Adds a style. Call this only at start. A second style for the same prefix is ignored. */
void router_add_style(struct router *router, const struct route_style *style);

/* If the request's answer is a refusal, rewrites the answer in the style of the request's path. */
void router_apply_style(const struct router *router, struct request *request);

/*
 * Finds the route for a method and path. Returns OK and sets `route` and `params` of `*match`; or
 * returns METHOD_NOT_ALLOWED and sets `allow`, allocated from `arena`, if the path has only routes
 * for other methods; or returns ROUTE_NOT_FOUND if no route has this path. Members that are not set
 * are undefined.
 */
QP_MUST_CHECK enum status router_find(const struct router *router, struct arena *arena,
	struct slice method, const struct path *path, struct route_match *match);

/* Returns the role of a route of the router, or NULL if the route belongs to no role. */
const char *router_role(const struct route *route);

size_t router_count(const struct router *router);
const struct route *router_at(const struct router *router, size_t index);

/* Counts an answer. `route` is NULL if no route matched. Thread-safe. */
void router_count_answer(
	struct router *router, const struct route *route, int http_status, int64_t duration_ns);

/* A metrics collector (context: the router). Thread-safe. */
void router_collect(void *router, struct buffer *page);

#endif
