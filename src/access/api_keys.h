/*
 * API keys, from the file that --api-keys names. Each line is a key; '#' begins a comment:
 *
 *   # id      SHA-256 of the secret, in hex                                     scopes
 *   billing   9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08  external
 *   ops       60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752  admin
 *
 * Scopes are separated by commas. In the order external, internal, admin, each scope includes the
 * scopes before it. With a role ("internal:counts") a scope covers only the routes of that role. An
 * id may have two lines, so that a secret can be replaced while the old secret still works. Clients
 * send qk_<id>_<secret>.
 *
 * A key ring never changes after it has been read, so any thread may look up keys in it.
 */
#ifndef QUIPU_ACCESS_API_KEYS_H
#define QUIPU_ACCESS_API_KEYS_H

#include "access/caller.h"
#include "base/status.h"

#define KEY_PREFIX "qk_"
#define KEYS_WHY_SIZE 512

struct key_ring;
struct api_key;

/*
 * Reads a file of API keys; blocks. On failure returns NULL and writes the reason to `why`
 * (KEYS_WHY_SIZE bytes). If a line is wrong, the reason contains the line number. The reason
 * never contains a secret.
 */
QP_MUST_CHECK struct key_ring *key_ring_read(const char *file, char *why);
void key_ring_free(struct key_ring *ring);
size_t key_ring_count(const struct key_ring *ring);

/* Returns whether both rings have the same keys with the same scopes, in the same order. */
bool key_ring_is_same(const struct key_ring *a, const struct key_ring *b);

#define KEY_LINE_SIZE 512
#define KEY_SHOWN_SIZE 160

struct new_key {
	char line[KEY_LINE_SIZE];   /* the line for the file, without a line break */
	char shown[KEY_SHOWN_SIZE]; /* the key for the client; contains the secret */
};

/*
 * Creates a key with a random secret. If `id` or `scopes` (such as "admin,internal:counts") is not
 * valid, returns false and writes the reason to `why` (KEYS_WHY_SIZE bytes).
 */
QP_MUST_CHECK bool key_make(const char *id, const char *scopes, struct new_key *key, char *why);

/* Returns whether `shown` begins with qk_, as every API key does. Does not check whether the server
 * knows the key. */
bool key_is_shown(struct slice shown);

/*
 * Returns the key that a client has sent as `shown`, or NULL if the ring has no such key. The time
 * that a call takes reveals nothing about the secret.
 */
const struct api_key *key_ring_find(const struct key_ring *ring, struct slice shown);

/* Returns the key's id, which lives as long as the ring. */
struct slice api_key_id(const struct api_key *key);

/* Returns whether the key opens a route of `role` that requires `access` (external, internal or
 * admin). `role` is NULL for a route that belongs to no role. */
bool api_key_opens(const struct api_key *key, enum access access, const char *role);

#endif
