/*
 * The names that a route knows: the members of its JSON body and the parameters of its query.
 * Anything else is refused, because a name that was mistyped would otherwise be ignored and its
 * value silently replaced by the default. Lists end with NULL; NULL itself is the empty list. Any
 * thread.
 */
#ifndef QUIPU_HTTP_NAMES_H
#define QUIPU_HTTP_NAMES_H

#include "ports/answer.h"

/* For routes that ignore the query and do not parse it: probes add parameters of their own. */
extern const char *const names_any[];

/* The unknown names of one request. */
struct unknown_names {
	struct arena *arena;
	enum status status;       /* UNKNOWN_FIELD or UNKNOWN_PARAMETER */
	const char *const *known; /* never names_any */
	struct field_error *errors;
	size_t count; /* at most UNKNOWN_NAMES_MAX: further ones are not noted */
};

#define UNKNOWN_NAMES_MAX 16

/* Notes `name`, which must be UTF-8 and is copied, unless it is known or noted already. */
void names_check(struct unknown_names *unknown, struct slice name);

/*
 * Returns a 400 that lists the unknown names, of which there must be at least one. It suggests the
 * known name that resembles an unknown one most, or lists all known names if none does.
 */
struct answer names_refuse(const struct unknown_names *unknown);

#endif
