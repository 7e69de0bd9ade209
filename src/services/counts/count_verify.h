/*
 * Counts for `quipu verify` (admin/verify.h).
 *
 *   id               1 to 128 bytes without control characters
 *   in-the-future    last_updated_at is ahead of the store's time
 *   answer           a kept answer says what no such request is ever answered
 *   older-than-kept  the count was last updated before it was made, as a kept answer says: the
 * table is older than the keys, as after a restore of one without the other
 *
 * Nothing more can be proved: a count is a number without a history. Kept answers tell the value at
 * a moment, and changes without a key may have come after.
 */
#ifndef QUIPU_SERVICES_COUNTS_VERIFY_H
#define QUIPU_SERVICES_COUNTS_VERIFY_H

#include "admin/verify.h"
#include "services/counts/counts.h"

/* `counts` outlives it. */
struct verifier counts_verifier(const struct counts *counts);

#endif
