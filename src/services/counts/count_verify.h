/*
 * Checks counts for `quipu verify` (admin/verify.h). Differences:
 *
 *   id               not 1 to 128 bytes without control characters
 *   out-of-bounds    less than min_value or greater than max_value
 *   in-the-future    last_updated_at is ahead of the store's time
 *   answer           no request is ever given the answer that is kept under the Idempotency-Key
 *   older-than-kept  last updated before it was created or set, according to a kept answer: the
 * table of counts is older than that of Idempotency-Keys, as after restoring only one
 *
 * Nothing more can be proved: a count is a number without a history. A kept answer has the value of
 * one moment, and requests without an Idempotency-Key may have changed it since.
 */
#ifndef QUIPU_SERVICES_COUNTS_VERIFY_H
#define QUIPU_SERVICES_COUNTS_VERIFY_H

#include "admin/verify.h"
#include "services/counts/counts.h"

/* Returns the verifier. `counts` outlives it. */
struct verifier counts_verifier(const struct counts *counts);

#endif
