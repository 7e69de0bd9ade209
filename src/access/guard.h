/*
 * Decides who may call what: by API keys where there is a file of them, by users' tokens where
 * there is a key for them. Where neither is configured there is no guard.
 *
 * guard_check() is for any thread; the rest for the main thread. What a caller shows is never
 * logged.
 */
#ifndef QUIPU_ACCESS_GUARD_H
#define QUIPU_ACCESS_GUARD_H

#include "access/caller.h"
#include "access/tokens.h"
#include "base/arena.h"
#include "base/buffer.h"

#define GUARD_WHY_SIZE 512

struct guard_config {
	const char *keys_file;      /* "": no keys are checked */
	struct token_config tokens; /* key_file "": no tokens are checked */
};

struct guard;

/* The strings of `config` outlive it. NULL: `why` (GUARD_WHY_SIZE). */
QP_MUST_CHECK struct guard *guard_new(const struct guard_config *config, char *why);
void guard_free(struct guard *guard);

/* Reads the files again. false: `why` (GUARD_WHY_SIZE) says which cannot be used; what was read of
 * it before stays. */
QP_MUST_CHECK bool guard_reload(struct guard *guard, char *why);

/* Grows when a reload has brought other keys: whoever was let in before may not be any more. Any
 * thread. */
uint64_t guard_generation(const struct guard *guard);

/* What a request asks for, and what it shows. */
struct access_question {
	enum access access;
	const char *role;           /* of the route, NULL: none */
	struct slice user;          /* in the path, for ACCESS_OWNER */
	struct slice authorization; /* the header, {NULL, 0}: none */
	struct slice query_token;   /* {NULL, 0}: none, or the route does not take it there */
};

/* Whether it shows a token, good or not, where a user is asked for. */
bool access_shows_token(const struct access_question *question);

/*
 * OK: `*caller`, in memory of `arena`. UNAUTHENTICATED or FORBIDDEN: `*why` is a static sentence
 * for the client, and `*caller` anyone. `guard` may be NULL: then anyone may do everything.
 */
QP_MUST_CHECK enum status guard_check(struct guard *guard, struct arena *arena,
	const struct access_question *question, struct caller *caller, const char **why);

/* A metrics collector (context: the guard): refusals by reason, keys, when they were read. */
void guard_collect(void *guard, struct buffer *page);

#endif
