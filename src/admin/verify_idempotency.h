/*
 * The part of a verifier (admin/verify.h) for the answers that are stored under Idempotency-Keys.
 */
#ifndef QUIPU_ADMIN_VERIFY_IDEMPOTENCY_H
#define QUIPU_ADMIN_VERIFY_IDEMPOTENCY_H

#include "admin/verify.h"

/* The Idempotency-Keys of one service, or of some of its routes. */
struct verify_idempotency {
	/* A method and the start of a route. Only Idempotency-Keys whose scopes begin with this
	 * text are checked. */
	const char *prefix;
	/* true if the service has effects outside the store: an Idempotency-Key is then pending
	 * until the outcome of its effect is stored */
	bool may_wait;
	bool notes_number; /* true if the note of a pending Idempotency-Key must be a number */

	/* Optional. Checks the answers of Idempotency-Keys that are not pending. `count` is at
	 * least 1. Returns a status that ports/store.h lists. */
	enum status (*check)(const void *context, struct session *session, struct verify_page *page,
		const struct kept_answer *keys, size_t count);
};

/*
 * Reports Idempotency-Keys that the program could not have written:
 *   fingerprint   the fingerprint has the wrong size
 *   not-kept      the answer has a status other than those that are stored: 2xx, 404, 409 and 412
 *   pending       the key is pending, although the service has no effects outside the store
 *   long-lease    the key is pending with a lease that ends later than any lease can
 *   note          the key is pending, and its note is not a number although notes_number is true
 *
 * Called on the reader's thread; blocks. Returns a status that ports/store.h lists.
 */
QP_MUST_CHECK enum status verify_idempotency_look(const struct verify_idempotency *kind,
	const void *context, struct session *session, struct verify_page *page);

/* Returns the name of an Idempotency-Key (its scope, a space and the key), allocated from the
 * page's arena. */
struct slice verify_idempotency_id(struct verify_page *page, const struct kept_answer *key);

#endif
