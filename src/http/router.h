/*
 * Which function answers which method and path. Routes are added at start and never change; looking
 * one up is safe on any thread. The same list is what `quipu routes` prints and what the OpenAPI
 * document is checked against.
 */
#ifndef QUIPU_HTTP_ROUTER_H
#define QUIPU_HTTP_ROUTER_H

#include "access/caller.h"
#include "base/metrics.h"
#include "http/request.h"

#define BODY_MAX_DEFAULT (64 * 1024)

/* HTTP statuses that are counted each by itself; others are counted as "other". */
#define ROUTE_CODES 24

struct route {
	const char *method; /* GET also answers HEAD */
	const char *path;   /* template: /api/v1/counts/{itemId}/increase */
	enum access access; /* ACCESS_OWNER: the user is the first parameter of the path */
	void (*handle)(void *context, struct request *request);
	void *context;
	size_t body_max; /* 0: BODY_MAX_DEFAULT */
};

/*
 * How refusals are told below a prefix, also where no route matched, if not as problem+json. `tell`
 * makes the answer of one whose `problem` is set.
 */
struct route_style {
	const char *prefix; /* "/twirp/" */
	struct answer (*tell)(struct arena *arena, const struct answer *refusal);
};

struct route_stats {
	struct tally by_code[ROUTE_CODES];
	struct histogram duration;
};

struct router;

struct router *router_new(void);
void router_free(struct router *router);

/*
 * Adds the routes of `role`, NULL: of the program, at start only. The strings must live as long as
 * the router; at most PATH_SEGMENTS_MAX segments.
 */
void router_add_all(
	struct router *router, const char *role, const struct route *routes, size_t count);

/* At start only. The same style may be added again. */
void router_add_style(struct router *router, const struct route_style *style);

/* Tells the request's answer, where it is a refusal, in the style of its path. */
void router_apply_style(const struct router *router, struct request *request);

/*
 * OK: `*route` and `params`, in the order of the template. ROUTE_NOT_FOUND: no such path.
 * METHOD_NOT_ALLOWED: `*allow` lists the methods, in memory of `arena`.
 */
QP_MUST_CHECK enum status router_find(const struct router *router, struct arena *arena,
	struct slice method, const struct path *path, const struct route **route,
	struct slice params[REQUEST_PARAMS_MAX], struct slice *allow);

/* Whose a route of the router is, NULL: the program's. */
const char *router_role(const struct route *route);

size_t router_count(const struct router *router);
const struct route *router_at(const struct router *router, size_t index);

/* Counts an answer. `route` may be NULL (nothing matched). Any thread. */
void router_count_answer(
	struct router *router, const struct route *route, int http_status, int64_t duration_ns);

/* A metrics collector (context: the router). */
void router_collect(void *router, struct buffer *page);

#endif
