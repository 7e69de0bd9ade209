/*
 * Checks pots for `quipu verify` (admin/verify.h). One statement reads all rows of a pot, and every
 * change of a pot is one transaction, so verification never sees a half-finished change.
 * Differences, besides those of admin/verify_idempotency.h:
 *
 *   name            the name is not valid for a pot
 *   max-coins       max_coins is less than 6
 *   over-max        the pot has more coins than max_coins
 *   lock            only one of lock and lock_expire_time is set
 *   in-the-future   create_time is ahead of the store's time
 *   negative        a negative number of coins
 *   kind            coins of an unknown kind
 *   no-pot          coins of a pot that does not exist
 */
#ifndef QUIPU_SERVICES_POTS_VERIFY_H
#define QUIPU_SERVICES_POTS_VERIFY_H

#include "admin/verify.h"
#include "services/pots/pots.h"

/* Returns the verifier. `pots` must outlive it. */
struct verifier pots_verifier(const struct pots *pots);

#endif
