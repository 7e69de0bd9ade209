/*
 * The issuer of users' tokens, for tests: has a key of one algorithm, gives the public side of it
 * as the file that --jwt-key names, and signs whatever it is given, sense or not.
 */
#ifndef QUIPU_TESTS_TOKEN_MAKER_H
#define QUIPU_TESTS_TOKEN_MAKER_H

#include <openssl/evp.h>

#include "base/arena.h"

#define MAKER_SECRET "a secret of forty bytes, no more, no les"

struct token_maker {
	const char *algorithm; /* "HS256", "RS256" or "ES256": how it signs */
	EVP_PKEY *key;         /* NULL: HS256 */
	char file[64];         /* for --jwt-key */
};

/* A file of its own below /tmp with these bytes; `path` has 64 bytes. */
void write_key_file(char *path, struct slice bytes);

/* A new key, of RSA with 2048 bits or on P-256; HS256: MAKER_SECRET. */
void token_maker_init(struct token_maker *maker, const char *algorithm);

/* The file goes, too. */
void token_maker_release(struct token_maker *maker);

struct slice to_base64url(struct arena *arena, struct slice bytes);

/* The bytes of a signature under `text`, as JWS has them. */
struct slice token_maker_sign(
	const struct token_maker *maker, struct arena *arena, struct slice text);

/* header.claims.signature, all in base64url. */
struct slice token_maker_make(const struct token_maker *maker, struct arena *arena,
	struct slice header, struct slice claims);

#endif
