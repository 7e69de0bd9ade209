/*
 * A part of a verifier that every service can have: what is kept under Idempotency-Keys. See
 * admin/verify.h. On the reader's thread.
 */
#ifndef QUIPU_ADMIN_VERIFY_KEYS_H
#define QUIPU_ADMIN_VERIFY_KEYS_H

#include "admin/verify.h"

/* The keys of one service, or of some of its routes. */
struct verify_idempotency {
	const char *prefix; /* of their scopes: method and the beginning of the route */
	bool may_wait;      /* some are pending: the service acts outside the store */
	bool notes_number;  /* and have a number as their note */

	/* Optional: what the service knows of kept answers that are final. `count` is at least 1.
	 */
	enum status (*check)(const void *context, struct session *session, struct verify_page *page,
		const struct kept_answer *keys, size_t count);
};

/*
 * Notes keys that could never have been written:
 *   fingerprint   it has not the size of one
 *   not-kept      an answer with a status that is never kept (answers are 2xx, 404, 409, 412)
 *   pending       a key that waits, of a service that never waits
 *   long-lease    a key that waits for longer than any lease lasts
 *   note          a key that waits without saying what it has begun
 */
QP_MUST_CHECK enum status verify_idempotency_look(const struct verify_idempotency *kind,
	const void *context, struct session *session, struct verify_page *page);

/* How a key is called: its scope, a space, and itself; in memory of the page. */
struct slice verify_key_id(struct verify_page *page, const struct kept_answer *key);

#endif
