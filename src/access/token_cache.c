#include "access/token_cache.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>

#define SETS 4096 /* a power of two */
#define LOCKS 64  /* each lock guards every 64th set; with only one lock, loops would often wait */

struct known_token {
	unsigned char digest[SHA256_SIZE];
	int64_t ends_us; /* 0 if the entry is free */
	uint32_t used;   /* the value of set.uses when the entry was last used */
	uint32_t name_len;
	char name[TOKEN_SUBJECT_MAX]; /* the subject */
};

struct set {
	struct known_token tokens[TOKEN_CACHE_WAYS];
	uint32_t uses;
};

struct token_cache {
	pthread_mutex_t locks[LOCKS];
	struct set *sets;
};

struct token_cache *token_cache_new(void)
{
	struct token_cache *cache = qp_calloc(1, sizeof(*cache));

	for (size_t i = 0; i < LOCKS; i++)
		pthread_mutex_init(&cache->locks[i], NULL);
	cache->sets = qp_calloc(SETS, sizeof(*cache->sets));
	return cache;
}

void token_cache_free(struct token_cache *cache)
{
	for (size_t i = 0; i < LOCKS; i++)
		pthread_mutex_destroy(&cache->locks[i]);
	free(cache->sets);
	free(cache);
}

static size_t set_of(const unsigned char digest[SHA256_SIZE])
{
	return ((size_t)digest[0] << 8 | digest[1]) & (SETS - 1);
}

/* ---- for callers that hold the set's lock ------------------------------------------------ */

static struct known_token *find(struct set *set, const unsigned char digest[SHA256_SIZE])
{
	for (size_t i = 0; i < TOKEN_CACHE_WAYS; i++) {
		struct known_token *token = &set->tokens[i];

		if (token->ends_us != 0 && memcmp(token->digest, digest, SHA256_SIZE) == 0)
			return token;
	}
	return NULL;
}

/* Returns a free entry, or the least recently used one if none is free. */
static struct known_token *find_place(struct set *set)
{
	struct known_token *place = &set->tokens[0];

	for (size_t i = 0; i < TOKEN_CACHE_WAYS; i++) {
		struct known_token *token = &set->tokens[i];

		if (token->ends_us == 0)
			return token;
		if (set->uses - token->used > set->uses - place->used)
			place = token;
	}
	return place;
}

static void fill(struct known_token *token, const unsigned char digest[SHA256_SIZE],
	const struct token_claims *claims)
{
	memcpy(token->digest, digest, SHA256_SIZE);
	token->ends_us = claims->ends_us;
	token->name_len = (uint32_t)claims->subject.len;
	memcpy(token->name, claims->subject.data, claims->subject.len);
}

/* ---- for any thread ---------------------------------------------------------------------- */

bool token_cache_find(struct token_cache *cache, struct arena *arena,
	const unsigned char digest[SHA256_SIZE], int64_t now_us, struct token_claims *claims)
{
	size_t index = set_of(digest);
	struct set *set = &cache->sets[index];
	struct known_token *token;
	bool found;

	pthread_mutex_lock(&cache->locks[index % LOCKS]);
	token = find(set, digest);
	found = token && now_us < token->ends_us;
	if (found) {
		token->used = ++set->uses;
		claims->subject = arena_copy(arena, slice_make(token->name, token->name_len));
		claims->ends_us = token->ends_us;
	} else if (token) {
		token->ends_us = 0;
	}
	pthread_mutex_unlock(&cache->locks[index % LOCKS]);
	return found;
}

void token_cache_put(struct token_cache *cache, const unsigned char digest[SHA256_SIZE],
	const struct token_claims *claims)
{
	size_t index = set_of(digest);
	struct set *set = &cache->sets[index];
	struct known_token *token;

	assert(claims->subject.len > 0 && claims->subject.len <= TOKEN_SUBJECT_MAX);
	pthread_mutex_lock(&cache->locks[index % LOCKS]);
	token = find(set, digest); /* another thread may have stored the same token meanwhile */
	if (!token)
		token = find_place(set);
	fill(token, digest, claims);
	token->used = ++set->uses;
	pthread_mutex_unlock(&cache->locks[index % LOCKS]);
}
