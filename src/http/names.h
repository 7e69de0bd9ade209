/*
 * Each route lists the names that it accepts: the members of its JSON body and the parameters of
 * its query. Any other name is refused. Otherwise a mistyped name would be ignored, and its value
 * silently replaced by the default. A list of names ends with NULL; a null pointer instead of a
 * list means that no names are accepted. Thread-safe.
 */
#ifndef QUIPU_HTTP_NAMES_H
#define QUIPU_HTTP_NAMES_H

#include "ports/answer.h"

/* For routes that ignore the query, for example because health probes add parameters of their
 * own. */
extern const char *const names_any[];

/* The unknown names of one request. */
struct unknown_names {
	struct arena *arena;
	enum status status;       /* UNKNOWN_FIELD or UNKNOWN_PARAMETER */
	const char *const *known; /* never names_any */
	struct field_error *errors;
	size_t count; /* at most UNKNOWN_NAMES_MAX; further names are left out */
};

#define UNKNOWN_NAMES_MAX 16

/* If `name`, which must be UTF-8, is unknown, adds a copy of it to `unknown`. Has no effect if the
 * name is known or was added before. */
void names_check(struct unknown_names *unknown, struct slice name);

/*
 * Returns a 400 that lists the unknown names, of which there must be at least one. For each unknown
 * name, the answer suggests the most similar known name, or lists all known names if none is
 * similar.
 */
struct answer names_refuse(const struct unknown_names *unknown);

#endif
