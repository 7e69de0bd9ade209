/*
 * The guard decides who may call a route: by API keys if a key file is configured, and by users'
 * tokens if a key for tokens is configured. A server with neither has no guard.
 *
 * guard_new(), guard_reload() and guard_free() are for the main thread; any thread may call the
 * other functions. API keys and tokens are never logged.
 */
#ifndef QUIPU_ACCESS_GUARD_H
#define QUIPU_ACCESS_GUARD_H

#include "access/caller.h"
#include "access/tokens.h"
#include "base/arena.h"
#include "base/buffer.h"

#define GUARD_WHY_SIZE 512

struct guard_config {
	const char *keys_file;      /* "" to check no API keys */
	struct token_config tokens; /* key_file is "" to check no tokens */
};

struct guard;

/*
 * Reads the files that `config` names; blocks. The strings of `config` must outlive the guard. On
 * failure returns NULL and writes the reason to `why` (GUARD_WHY_SIZE bytes).
 */
QP_MUST_CHECK struct guard *guard_new(const struct guard_config *config, char *why);
void guard_free(struct guard *guard);

/*
 * Reads the file of API keys and the key for tokens again; blocks. If one of these files cannot be
 * used, returns false, writes the reason to `why` (GUARD_WHY_SIZE bytes) and keeps using the
 * previous contents of that file. Changes of the other file still take effect.
 */
QP_MUST_CHECK bool guard_reload(struct guard *guard, char *why);

/* Returns a number that grows whenever a reload changes the keys. A caller that was admitted under
 * a smaller number may be refused now. */
uint64_t guard_generation(const struct guard *guard);

/* The access that the route of a request requires, and the credentials that the request sent. */
struct access_question {
	enum access access;
	const char *role;           /* the role of the route, or NULL */
	struct slice user;          /* the user in the path, for ACCESS_OWNER */
	struct slice authorization; /* the Authorization header, or {NULL, 0} if absent */
	/* the token in the query; {NULL, 0} if absent, or if the route does not accept it */
	struct slice query_token;
	uint64_t address; /* a hash of the client's network address */
};

/* Returns whether the request sent a token, valid or not, to a route that accepts users' tokens. */
bool access_shows_token(const struct access_question *question);

/*
 * If the caller may call the route, returns OK and sets `*caller`, whose name is allocated from
 * `arena`. Otherwise returns UNAUTHENTICATED, FORBIDDEN or TOO_MANY_BAD_TOKENS, sets `*why` to a
 * static sentence for the client, and `*caller` to an anonymous caller. If `guard` is NULL,
 * everyone may call every route. Thread-safe; waits only while a reload swaps keys.
 */
QP_MUST_CHECK enum status guard_check(struct guard *guard, struct arena *arena,
	const struct access_question *question, struct caller *caller, const char **why);

/*
 * Returns whether the caller may call the route. Decides like guard_check(), except that it counts
 * no refusals, and returns false for a user's token on a route that accepts users' tokens. Sets
 * `*name` to the id of the API key that opens the route, allocated from `arena`, or to {NULL, 0} if
 * no API key opens the route. Thread-safe.
 */
bool guard_would_open(struct guard *guard, struct arena *arena,
	const struct access_question *question, struct slice *name);

/* A metrics collector, whose context is the guard. Writes the refusals by reason, the number of API
 * keys, and when a file of the guard was last read. */
void guard_collect(void *guard, struct buffer *page);

#endif
