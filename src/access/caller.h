/*
 * Who may call a route, and who is calling. Every route names the access that it requires. The
 * default requires a key, so that a route whose author forgot to choose is not open.
 */
#ifndef QUIPU_ACCESS_CALLER_H
#define QUIPU_ACCESS_CALLER_H

#include <stdint.h>

#include "base/slice.h"

enum access {
	ACCESS_EXTERNAL,     /* a key with the scope external, internal or admin */
	ACCESS_INTERNAL,     /* a key with the scope internal or admin */
	ACCESS_ADMIN,        /* a key with the scope admin */
	ACCESS_PUBLIC,       /* no key or token */
	ACCESS_USER,         /* a user's token, or an internal key if tokens are not checked */
	ACCESS_OWNER,        /* a token of the user in the path, or an internal key */
	ACCESS_OWNER_STREAM, /* the same; EventSource may also send the token as ?access_token= */
};

/* Returns the name for people and documents, e.g. "external". The string is static. */
const char *access_name(enum access access);

enum caller_kind {
	CALLER_ANYONE, /* the route is public, or nothing is checked */
	CALLER_KEY,    /* `name` is the key's id */
	CALLER_USER,   /* `name` is the token's subject */
};

struct caller {
	enum caller_kind kind;
	struct slice name;
	int64_t ends_us;     /* wall time at which its token expires; 0 for never */
	uint64_t generation; /* guard_generation() when the guard admitted the caller */
};

#endif
