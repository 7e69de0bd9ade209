/*
 * The target of a request, taken apart: split on raw '/', then each segment decoded once. What
 * could be read in two ways (an encoded slash, a dot segment, NUL, bytes that are not UTF-8) is
 * refused. Pure; the target is a fuzz target.
 */
#ifndef QUIPU_HTTP_PATH_H
#define QUIPU_HTTP_PATH_H

#include "base/arena.h"
#include "base/slice.h"
#include "base/status.h"

#define PATH_SEGMENTS_MAX 12

struct path {
	struct slice raw;   /* before '?' */
	struct slice query; /* after '?', raw */
	struct slice segments[PATH_SEGMENTS_MAX];
	size_t count; /* PATH_SEGMENTS_MAX + 1: more than any route has */
};

/*
 * Takes `target` (origin form, or absolute form of http) apart. On failure `*why` is a static text
 * and `path` is not to be used.
 */
QP_MUST_CHECK enum status path_parse(
	struct arena *arena, struct slice target, struct path *path, const char **why);

/* One name=value of a query string or form, decoded ('+' is a space). */
struct query_pair {
	struct slice name;
	struct slice value;
};

/*
 * The next pair of `*rest`, which starts as the query and is consumed. OK with `*found` false: the
 * end. BAD_REQUEST: an escape is broken, or what it gives is not UTF-8.
 */
QP_MUST_CHECK enum status query_next(
	struct arena *arena, struct slice *rest, struct query_pair *pair, bool *found);

/* Whether a HTTP Host (with or without a port) names this machine's loopback. */
bool host_is_loopback(struct slice host);

/* `host` without its port. */
struct slice host_without_port(struct slice host);

#endif
