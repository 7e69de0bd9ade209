/*
 * Deletes rows that are no longer needed (expired Idempotency-Keys, old records) in small chunks,
 * at start and every hour, on a thread of its own.
 */
#ifndef QUIPU_FLOW_JANITOR_H
#define QUIPU_FLOW_JANITOR_H

#include "ports/store.h"

#define JANITOR_CHORES_MAX 32

/* One kind of row to delete. */
struct chore {
	const char *what; /* for the log, e.g. "expired idempotency keys" */
	struct store *store;

	/* Deletes up to `limit` rows in a transaction of its own and sets `*deleted` to the number
	 * of deleted rows. Blocks. */
	enum status (*sweep)(
		const void *context, struct session *session, size_t limit, size_t *deleted);
	const void *context;
};

/* Returns the chore that deletes the expired Idempotency-Keys of `store`. */
struct chore chore_idempotency(struct store *store);

struct janitor;

/* Starts the thread and copies the chores. Opens a session per chore; the stores must outlive the
 * janitor. */
struct janitor *janitor_start(const struct chore *chores, size_t count);

/* Ends the thread after its current chunk and frees the janitor. */
void janitor_stop(struct janitor *janitor);

#endif
