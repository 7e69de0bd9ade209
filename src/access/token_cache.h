/*
 * Remembers valid tokens, so that a token's signature is verified only once and not with every
 * request. In measurements, verifying a token with every request reduced the throughput of reading
 * a cached counter by a quarter (HS256) to three quarters (ES256). The cache keeps the SHA-256 of a
 * token, its subject and its expiry, never the token.
 *
 * Memory is bounded: the cache holds up to 16384 tokens, which take about 3 MB. Memory pages
 * without tokens are never touched. The cache is divided into sets of TOKEN_CACHE_WAYS tokens. A
 * full set drops its least recently used token; if a client sends that token again, it is verified
 * again. Entries are valid only for the key that verified their signatures: a new key requires a
 * new cache.
 *
 * token_cache_find() and token_cache_put() are thread-safe.
 */
#ifndef QUIPU_ACCESS_TOKEN_CACHE_H
#define QUIPU_ACCESS_TOKEN_CACHE_H

#include "access/tokens.h"
#include "base/digest.h"

/*
 * How many tokens fit into one set. The first two bytes of a token's digest, as a big-endian number
 * modulo the number of sets (4096), choose the token's set.
 */
#define TOKEN_CACHE_WAYS 4

struct token_cache;

struct token_cache *token_cache_new(void);
void token_cache_free(struct token_cache *cache);

/*
 * If the token is known and has not expired at `now_us`, returns true and sets `*claims`, whose
 * subject is allocated from `arena`. Otherwise returns false and leaves `*claims` alone.
 */
QP_MUST_CHECK bool token_cache_find(struct token_cache *cache, struct arena *arena,
	const unsigned char digest[SHA256_SIZE], int64_t now_us, struct token_claims *claims);

/* Remembers a token that was verified. */
void token_cache_put(struct token_cache *cache, const unsigned char digest[SHA256_SIZE],
	const struct token_claims *claims);

#endif
