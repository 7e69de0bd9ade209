/*
 * A part of a verifier for tables whose rows are claimed: outboxes and notifications. See
 * admin/verify.h, and the table of states in ports/claim_repository.h, which this checks. On the
 * reader's thread.
 */
#ifndef QUIPU_ADMIN_VERIFY_CLAIMS_H
#define QUIPU_ADMIN_VERIFY_CLAIMS_H

#include "admin/verify.h"
#include "ports/claim_repository.h"

/* The words of a table. */
struct verify_claims {
	const char *busy;
	const char *done;
	const char *done_at;  /* the column */
	int32_t attempts_max; /* 0: there is no most, since an outage is no attempt that counts */
};

/*
 * Notes rows that no transition leads to:
 *   status      a word that is no state
 *   lease       one that is busy without owner or lease, or has a lease and is not busy
 *   epoch       one that is busy or done, and was never claimed
 *   done        one that is done without a time, or has the time and is not done
 *   error       one that was given up without saying why, or says why and is busy or done
 *   retry       one that has ended, and is due again
 *   attempts    fewer than 0, or more than are made; none of one that was given up
 *   in-the-future
 */
QP_MUST_CHECK enum status verify_claims_look(const struct verify_claims *words,
	const struct claim_repository *repository, struct session *session,
	struct verify_page *page);

#endif
