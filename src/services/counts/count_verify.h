/*
 * Checks counts for `quipu verify` (admin/verify.h). Differences:
 *
 *   id               not 1 to 128 bytes without control characters
 *   out-of-bounds    less than min_value or greater than max_value
 *   in-the-future    last_updated_at is ahead of the store's time
 *   answer           a stored answer under an Idempotency-Key that its request cannot get
 *   older-than-kept  the last update is earlier than that in a stored answer: the table of
 *                    counts is older than the Idempotency-Keys, as after restoring only that table
 *
 * Nothing more can be proved: a count is a number without a history. A stored answer shows the
 * value at one moment, and requests without an Idempotency-Key may have changed the count since.
 */
#ifndef QUIPU_SERVICES_COUNTS_VERIFY_H
#define QUIPU_SERVICES_COUNTS_VERIFY_H

#include "admin/verify.h"
#include "services/counts/counts.h"

/* Returns the verifier. `counts` must outlive it. */
struct verifier counts_verifier(const struct counts *counts);

#endif
