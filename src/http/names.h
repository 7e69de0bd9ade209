/*
 * The names that a route accepts: the members of its JSON body and the parameters of its query. Any
 * other name is refused. Otherwise a mistyped name would be ignored, and its value silently
 * replaced by the default. Lists end with NULL; NULL itself is the empty list. Thread-safe.
 */
#ifndef QUIPU_HTTP_NAMES_H
#define QUIPU_HTTP_NAMES_H

#include "ports/answer.h"

/* For routes that neither parse nor check the query, because probes add parameters of their own. */
extern const char *const names_any[];

/* The unknown names of one request. */
struct unknown_names {
	struct arena *arena;
	enum status status;       /* UNKNOWN_FIELD or UNKNOWN_PARAMETER */
	const char *const *known; /* never names_any */
	struct field_error *errors;
	size_t count; /* at most UNKNOWN_NAMES_MAX; further names are not noted */
};

#define UNKNOWN_NAMES_MAX 16

/* Notes a copy of `name`, which must be UTF-8, unless it is known or already noted. */
void names_check(struct unknown_names *unknown, struct slice name);

/*
 * Returns a 400 that lists the unknown names, of which there must be at least one. If a known name
 * resembles one of them, the answer suggests it; otherwise the answer lists all known names.
 */
struct answer names_refuse(const struct unknown_names *unknown);

#endif
