/*
 * Tokens that were found good, so that the signature of each is verified once and not with every
 * request: on a cached counter that took a quarter (HS256) to three quarters (ES256) of the
 * throughput. Known are the SHA-256 of a token, its subject, and when it ends, never the token.
 *
 * Memory is bounded: 16384 tokens, about 3 MB, of which only what is used is ever touched. Where
 * there is no room the least recently used goes, and is verified again when it comes back. What is
 * known is true for one key: another key needs another cache.
 *
 * All but new and free are for any thread.
 */
#ifndef QUIPU_ACCESS_TOKEN_CACHE_H
#define QUIPU_ACCESS_TOKEN_CACHE_H

#include "access/tokens.h"
#include "base/digest.h"

/* How many tokens have a place of those whose digests agree in the last 12 of their first 16 bits.
 */
#define TOKEN_CACHE_WAYS 4

struct token_cache;

struct token_cache *token_cache_new(void);
void token_cache_free(struct token_cache *cache);

/* Whether a token is known, and has not ended; then `*claims`, in memory of `arena`. */
QP_MUST_CHECK bool token_cache_find(struct token_cache *cache, struct arena *arena,
	const unsigned char digest[SHA256_SIZE], int64_t now_us, struct token_claims *claims);

/* A token was found good. */
void token_cache_put(struct token_cache *cache, const unsigned char digest[SHA256_SIZE],
	const struct token_claims *claims);

#endif
