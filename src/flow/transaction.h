/*
 * Runs the one transaction of a batch: replays Idempotency-Keys, lets the service decide, records
 * the effects of earlier batches, stores the answers, and commits. Private to flow/; used only on
 * the committer's thread.
 */
#ifndef QUIPU_FLOW_TRANSACTION_H
#define QUIPU_FLOW_TRANSACTION_H

#include "flow/committer.h"

/*
 * Returns the mode in which to run the batch: TRANSACTION_SINGLE if one statement can apply the
 * whole batch and that saves a round trip, otherwise batch->mode. Also returns batch->mode if an
 * earlier single statement skipped one of the writes, because the row of that write has to be read.
 */
enum transaction_mode transaction_plan(
	const struct committer_config *config, const struct write_batch *batch);

/*
 * Runs the transaction in the mode of the batch. Every write must be OPEN. If the function returns
 * OK, the transaction has committed and no write is OPEN any more. After any other status, the
 * transaction has been rolled back; only after OUTCOME_UNKNOWN it may have been committed.
 */
QP_MUST_CHECK enum status transaction_run(
	const struct committer_config *config, const struct write_batch *batch);

#endif
