/*
 * Sweeps out what has outlived its use (expired keys, old records) in small chunks: at start and
 * every hour.
 */
#ifndef QUIPU_FLOW_JANITOR_H
#define QUIPU_FLOW_JANITOR_H

#include "ports/store.h"

#define JANITOR_CHORES_MAX 16

/* One thing to sweep. */
struct chore {
	const char *what; /* "expired idempotency keys" */
	struct store *store;

	/* Deletes up to `limit` and tells how many, in a transaction of its own. */
	enum status (*sweep)(
		const void *context, struct session *session, size_t limit, size_t *deleted);
	const void *context;
};

/* Expired idempotency keys of `store`. */
struct chore chore_idempotency(struct store *store);

struct janitor;

/* Starts a thread. The stores outlive it; it opens a session for each chore. */
struct janitor *janitor_start(const struct chore *chores, size_t count);

/* Ends the thread after the chunk it is at, and frees. */
void janitor_stop(struct janitor *janitor);

#endif
