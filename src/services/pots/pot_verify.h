/*
 * Pots for `quipu verify` (admin/verify.h). All of a pot's rows are read in one statement, and
 * every change of a pot is one transaction, so that a sum is never seen half.
 *
 *   name            one that no pot can be given
 *   max-coins       less than 6
 *   over-max        the coins of a pot are more than max_coins
 *   lock            lock and lock_expire_time are not both there, or both not
 *   in-the-future   create_time is ahead of the store's time
 *   negative        a number of coins below 0
 *   kind            coins of a kind that there is none of
 *   no-pot          coins of a pot that there is none of
 *
 * and what admin/verify_idempotency.h says of keys.
 */
#ifndef QUIPU_SERVICES_POTS_VERIFY_H
#define QUIPU_SERVICES_POTS_VERIFY_H

#include "admin/verify.h"
#include "services/pots/pots.h"

/* `pots` outlives it. */
struct verifier pots_verifier(const struct pots *pots);

#endif
