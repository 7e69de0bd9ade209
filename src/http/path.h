/*
 * Parses the target of a request: splits the path at every '/', then decodes each segment once.
 * Refuses everything that two programs could read differently: an encoded slash, a dot segment,
 * NUL, bytes that are not UTF-8. The functions have no side effects, and tests/fuzz fuzzes them.
 */
#ifndef QUIPU_HTTP_PATH_H
#define QUIPU_HTTP_PATH_H

#include "base/arena.h"
#include "base/slice.h"
#include "base/status.h"

#define PATH_SEGMENTS_MAX 12

struct path {
	struct slice raw;   /* the raw path, before '?' */
	struct slice query; /* the raw query, after '?' */
	struct slice segments[PATH_SEGMENTS_MAX];
	size_t count; /* PATH_SEGMENTS_MAX + 1 if there are more segments than any route has */
};

/*
 * Parses `target`, in origin form or in absolute form of http or https. On failure `*why` is a
 * static text and the contents of `*path` are undefined.
 */
QP_MUST_CHECK enum status path_parse(
	struct arena *arena, struct slice target, struct path *path, const char **why);

/* Enough for a list of 1000 ids and some other parameters. */
#define QUERY_PAIRS_MAX 1100

/* A parameter of a query, decoded; each '+' of the query has become a space. */
struct query_pair {
	struct slice name;
	struct slice value;
};

struct query {
	const struct query_pair *pairs; /* in the order of the request */
	size_t count;
};

/*
 * Parses the raw query of a path. Admission calls it once; later code uses the parsed parameters.
 * On failure (a broken escape, text that is not UTF-8, more than QUERY_PAIRS_MAX pairs) `*why` is a
 * static text and `*query` is untouched.
 */
QP_MUST_CHECK enum status query_parse(
	struct arena *arena, struct slice raw, struct query *query, const char **why);

/* Returns the value of a parameter, or {NULL, 0} if the query does not have it. If the parameter
 * occurs several times, returns the last value. */
struct slice query_value(const struct query *query, const char *name);

/* Returns whether an HTTP Host, with or without a port, is localhost or a loopback address. */
bool host_is_loopback(struct slice host);

/* Returns `host` without its port, or an empty slice if something other than a port follows the
 * name. */
struct slice host_without_port(struct slice host);

#endif
