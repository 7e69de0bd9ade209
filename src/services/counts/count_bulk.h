/*
 * Runs batches that have commands with several steps: locks all rows in id order, and then runs
 * every command of the batch in memory, in order of arrival.
 *
 * A command with steps runs in the lane of its first item. Its other items may belong to other
 * lanes, whose commands run at the same time. Only row locks keep these commands apart, as they do
 * for commands of other processes. All commands take row locks in the same order, so they cannot
 * deadlock.
 */
#ifndef QUIPU_SERVICES_COUNTS_BULK_H
#define QUIPU_SERVICES_COUNTS_BULK_H

#include "services/counts/count_batch.h"

/* Returns true if the batch has a bulk command, which is a command with steps. */
bool count_bulk_is_in(const struct write_batch *batch);

/* Decides the fate of every write of the batch; see flow/committer.h. If one row of a command is
 * busy, the whole command is BUSY. The mode must not be TRANSACTION_SINGLE. Blocks. */
enum status count_bulk_decide(const struct count_repository *repository, struct session *session,
	const struct write_batch *batch);

#endif
