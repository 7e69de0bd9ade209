/*
 * The part of a verifier (admin/verify.h) for the answers that are stored under Idempotency-Keys.
 */
#ifndef QUIPU_ADMIN_VERIFY_IDEMPOTENCY_H
#define QUIPU_ADMIN_VERIFY_IDEMPOTENCY_H

#include "admin/verify.h"

/* The Idempotency-Keys of one service, or of some of its routes. */
struct verify_idempotency {
	const char *prefix; /* the start of their scopes: the method and the start of the route */
	/* keys may be pending, because the service has effects outside the store */
	bool may_wait;
	bool notes_number; /* the note of a pending key is a number */

	/* Optional. Checks answers that are not pending. `count` is at least 1. */
	enum status (*check)(const void *context, struct session *session, struct verify_page *page,
		const struct kept_answer *keys, size_t count);
};

/*
 * Reports Idempotency-Keys that the program could not have written:
 *   fingerprint   the fingerprint has the wrong size
 *   not-kept      the answer has a status that is never stored (only 2xx, 404, 409 and 412 are)
 *   pending       pending, although the service has no effects outside the store
 *   long-lease    pending with a lease that ends later than any lease can
 *   note          pending without a note on what was begun
 *
 * Called on the reader's thread; blocks. Returns the session's status.
 */
QP_MUST_CHECK enum status verify_idempotency_look(const struct verify_idempotency *kind,
	const void *context, struct session *session, struct verify_page *page);

/* Returns the name of an Idempotency-Key, in the page's arena: its scope, a space and the key. */
struct slice verify_idempotency_id(struct verify_page *page, const struct kept_answer *key);

#endif
