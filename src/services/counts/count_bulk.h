/*
 * Batches that have commands with several steps: all rows are locked, in the order of their ids,
 * and then every command of the batch runs in memory, in the order of arrival.
 *
 * A command with steps runs in the lane of its first item. Its other items may belong to other
 * lanes, which are then to it what another process is: row locks keep them apart, and all take them
 * in the same order.
 */
#ifndef QUIPU_SERVICES_COUNTS_BULK_H
#define QUIPU_SERVICES_COUNTS_BULK_H

#include "services/counts/count_batch.h"

/* Whether the batch has a command with steps. */
bool count_bulk_is_in(const struct write_batch *batch);

/* Settles every write of the batch; see flow/committer.h. A command of which one row is busy is
 * BUSY as a whole. Not for TRANSACTION_SINGLE. Blocks. */
enum status count_bulk_decide(const struct count_repository *repository, struct session *session,
	const struct write_batch *batch);

#endif
