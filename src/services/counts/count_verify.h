/*
 * Checks counts for `quipu verify` (admin/verify.h). Differences:
 *
 *   id               the id is empty, has more than 128 bytes, is not UTF-8, or has control
 *                    characters
 *   out-of-bounds    the value is less than min_value or greater than max_value
 *   in-the-future    last_updated_at is ahead of the store's time
 *   answer           the answer stored under an Idempotency-Key cannot be an answer to the request
 *                    that used the key
 *   older-than-kept  according to a stored answer, the count was updated later than its row says,
 *                    so the table of counts is older than the Idempotency-Keys, e.g. because only
 *                    the table of counts was restored from a backup
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
