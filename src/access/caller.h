/*
 * Who may call a route, and who calls. Every route says what it asks for, and a route that says
 * nothing asks for a key, so that a forgotten one is not open.
 */
#ifndef QUIPU_ACCESS_CALLER_H
#define QUIPU_ACCESS_CALLER_H

#include <stdint.h>

#include "base/slice.h"

enum access {
	ACCESS_EXTERNAL,     /* a key with the scope external, or one that includes it */
	ACCESS_INTERNAL,     /* a key with the scope internal, or admin */
	ACCESS_ADMIN,        /* a key with the scope admin */
	ACCESS_PUBLIC,       /* nothing */
	ACCESS_USER,         /* a user's token; where tokens are not checked, a key with internal */
	ACCESS_OWNER,        /* a token of the user in the path, or a key with internal */
	ACCESS_OWNER_STREAM, /* the same, also as ?access_token=, for browsers' EventSource */
};

/* "external"; for people and documents. Static. */
const char *access_name(enum access access);

enum caller_kind {
	CALLER_ANYONE, /* nothing was asked for */
	CALLER_KEY,    /* `name` is the key's id */
	CALLER_USER,   /* `name` is the token's subject */
};

struct caller {
	enum caller_kind kind;
	struct slice name;
	int64_t ends_us;     /* of a token, when it is no longer one; 0: never */
	uint64_t generation; /* of the keys by which it was known */
};

#endif
