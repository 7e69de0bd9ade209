/*
 * API keys, as --api-keys names a file of them. A line each, '#' begins a comment:
 *
 *   # id      SHA-256 of the secret, in hex                                     scopes
 *   billing   9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08  external
 *   ops       60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752
 * admin,internal:counts
 *
 * A scope includes those before it: external, internal, admin. With a role behind it, it counts for
 * the routes of that role alone. An id may stand on two lines, so that a secret can be replaced
 * while the old one still works. What a client shows is qk_<id>_<secret>.
 *
 * A ring is made whole and never changes, so any thread may look in it.
 */
#ifndef QUIPU_ACCESS_API_KEYS_H
#define QUIPU_ACCESS_API_KEYS_H

#include "access/caller.h"
#include "base/status.h"

#define KEY_PREFIX "qk_"
#define KEYS_WHY_SIZE 512

struct key_ring;
struct api_key;

/* NULL: `why` (KEYS_WHY_SIZE) names the line and what is wrong with it, never a secret. */
QP_MUST_CHECK struct key_ring *key_ring_read(const char *file, char *why);
void key_ring_free(struct key_ring *ring);
size_t key_ring_count(const struct key_ring *ring);

/* Whether both have the same keys with the same scopes, in the same order. */
bool key_ring_is_same(const struct key_ring *a, const struct key_ring *b);

#define KEY_LINE_SIZE 512
#define KEY_SHOWN_SIZE 160

struct new_key {
	char line[KEY_LINE_SIZE];   /* for the file, without a line break */
	char shown[KEY_SHOWN_SIZE]; /* for the client, the secret in it */
};

/*
 * A key with a new random secret. false: `why` (KEYS_WHY_SIZE) says what a file would not take of
 * `id` or `scopes` ("admin,internal:counts").
 */
QP_MUST_CHECK bool key_make(const char *id, const char *scopes, struct new_key *key, char *why);

/* Whether it looks like a key at all, right or not. */
bool key_is_shown(struct slice shown);

/*
 * The key that `shown` is the secret of, NULL: none. How long it takes says nothing about the
 * secret.
 */
const struct api_key *key_ring_find(const struct key_ring *ring, struct slice shown);

/* Lives as long as the ring. */
struct slice api_key_id(const struct api_key *key);

/* Whether it opens a route that asks for `access` (external, internal or admin) of `role`, NULL:
 * of none. */
bool api_key_opens(const struct api_key *key, enum access access, const char *role);

#endif
