/*
 * The part of a verifier (admin/verify.h) for tables whose rows are claimed: outboxes,
 * notifications and outbound messages. It checks the rows against the states that
 * ports/claim_repository.h lists.
 */
#ifndef QUIPU_ADMIN_VERIFY_CLAIMS_H
#define QUIPU_ADMIN_VERIFY_CLAIMS_H

#include "admin/verify.h"
#include "ports/claim_repository.h"

/* The words that a table uses for its states. */
struct verify_claims {
	const char *busy;
	const char *done;
	const char *done_at; /* the column with the time at which a row was done */
	/* how many attempts a row may have; 0 for no limit, as in an outbox, whose relay retries
	 * for as long as an outage lasts */
	int32_t attempts_max;
};

/*
 * Reports rows in states that no transition can produce:
 *   status         not the name of a state
 *   lease          busy, but the owner or the lease is missing; or not busy, but has a lease
 *   epoch          busy or done, but never claimed
 *   done           done, but has no end time; or not done, but has an end time
 *   error          given up, but has no error; or busy or done, but has an error
 *   retry          done or given up, but due again
 *   attempts       fewer than 0, more than attempts_max, or given up without an attempt
 *   in-the-future  created or done later than now
 *
 * Called on the reader's thread; blocks. Returns a status that ports/store.h lists.
 */
QP_MUST_CHECK enum status verify_claims_look(const struct verify_claims *words,
	const struct claim_repository *repository, struct session *session,
	struct verify_page *page);

#endif
