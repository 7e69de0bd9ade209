/*
 * The issuer of users' tokens in tests. It has a key of one algorithm, writes its public half as
 * the file for --jwt-key, and signs whatever it is given, valid or not.
 */
#ifndef QUIPU_TESTS_TOKEN_MAKER_H
#define QUIPU_TESTS_TOKEN_MAKER_H

#include <openssl/evp.h>

#include "base/arena.h"

#define MAKER_SECRET "a secret of forty bytes, no more, no les"

struct token_maker {
	const char *algorithm; /* "HS256", "RS256" or "ES256" */
	EVP_PKEY *key;         /* NULL for HS256 */
	char file[64];         /* for --jwt-key */
};

/* Creates a file below /tmp with these bytes; `path` has room for 64 bytes. */
void write_key_file(char *path, struct slice bytes);

/* Creates a new key: RSA with 2048 bits, or on P-256; for HS256 it is MAKER_SECRET. */
void token_maker_init(struct token_maker *maker, const char *algorithm);

/* Also removes the file. */
void token_maker_release(struct token_maker *maker);

struct slice to_base64url(struct arena *arena, struct slice bytes);

/* Returns the bytes of the signature of `text`, in the form of JWS. */
struct slice token_maker_sign(
	const struct token_maker *maker, struct arena *arena, struct slice text);

/* Returns header.claims.signature, each in base64url. */
struct slice token_maker_make(const struct token_maker *maker, struct arena *arena,
	struct slice header, struct slice claims);

#endif
