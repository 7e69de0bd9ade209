/*
 * The one transaction of a batch: replays Idempotency-Keys, lets the service decide, records the
 * effects of earlier batches, keeps the answers, and commits. Private to flow/; used only on the
 * committer's thread.
 */
#ifndef QUIPU_FLOW_TRANSACTION_H
#define QUIPU_FLOW_TRANSACTION_H

#include "flow/committer.h"

/*
 * Decides whether this attempt can be a single statement, and returns the mode for it. A write that
 * a single statement has skipped before needs a transaction that reads its row.
 */
enum transaction_mode transaction_plan(
	const struct committer_config *config, const struct write_batch *batch);

/*
 * Runs the transaction in the mode of the batch. Every write must be OPEN. If it returns OK, the
 * transaction has committed and no write is OPEN any more. Any other status comes from the store;
 * the transaction has then been rolled back, except after OUTCOME_UNKNOWN.
 */
QP_MUST_CHECK enum status transaction_run(
	const struct committer_config *config, const struct write_batch *batch);

#endif
