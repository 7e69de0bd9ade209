/*
 * Parses the target of a request: splits it on raw '/', then decodes each segment once. Refuses
 * everything that two programs could read differently: an encoded slash, a dot segment, NUL, bytes
 * that are not UTF-8. Pure, and fuzzed (tests/fuzz).
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
	size_t count; /* PATH_SEGMENTS_MAX + 1 if there are more segments than any route has */
};

/*
 * Parses `target`, in origin form or in absolute form of http or https. On failure `*why` is a
 * static text and the contents of `*path` are undefined.
 */
QP_MUST_CHECK enum status path_parse(
	struct arena *arena, struct slice target, struct path *path, const char **why);

/* One name=value of a query string or form, decoded; '+' stands for a space. */
struct query_pair {
	struct slice name;
	struct slice value;
};

/*
 * Cuts the next pair off `*rest`, which is the whole query at first. Returns OK with `*found` false
 * at the end, and BAD_REQUEST for a broken escape or text that is not UTF-8.
 */
QP_MUST_CHECK enum status query_next(
	struct arena *arena, struct slice *rest, struct query_pair *pair, bool *found);

/* Whether an HTTP Host, with or without a port, is localhost or a loopback address. */
bool host_is_loopback(struct slice host);

/* Returns `host` without its port, or an empty slice if something other than a port follows the
 * name. */
struct slice host_without_port(struct slice host);

#endif
