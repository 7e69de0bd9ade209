/*
 * Defines the access that a route requires, and the caller of a request. ACCESS_EXTERNAL is 0 and
 * thus the default, so that a route whose author forgot to choose an access requires an API key
 * instead of being open to everyone.
 */
#ifndef QUIPU_ACCESS_CALLER_H
#define QUIPU_ACCESS_CALLER_H

#include <stdint.h>

#include "base/slice.h"

/* Each comment says what a request must contain. */
enum access {
	ACCESS_EXTERNAL,     /* an API key with the scope external, internal or admin */
	ACCESS_INTERNAL,     /* an API key with the scope internal or admin */
	ACCESS_ADMIN,        /* an API key with the scope admin */
	ACCESS_PUBLIC,       /* nothing */
	ACCESS_USER,         /* a user's token, or, if the server does not check tokens, an API key
			      * as for ACCESS_INTERNAL */
	ACCESS_OWNER,        /* a token of the user whose id is in the path, or an API key as for
			      * ACCESS_INTERNAL */
	ACCESS_OWNER_STREAM, /* the same as for ACCESS_OWNER; the token may also be in the query,
			      * because a browser's EventSource cannot send headers */
};

/* Returns the name for people and documents, e.g. "external". The string is static. */
const char *access_name(enum access access);

enum caller_kind {
	CALLER_ANYONE, /* the route is public, or its callers are not checked */
	CALLER_KEY,    /* the caller has an API key; `name` is the key's id */
	CALLER_USER,   /* the caller has a token; `name` is the token's subject */
};

struct caller {
	enum caller_kind kind;
	struct slice name;
	int64_t ends_us;     /* wall time at which the caller's token expires; 0 without a token */
	uint64_t generation; /* guard_generation() when the guard admitted the caller */
};

#endif
