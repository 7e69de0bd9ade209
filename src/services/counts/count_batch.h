/*
 * Runs a batch of count commands in one transaction. Folds commands on the same count, and gives
 * each the answer that it would have had alone.
 */
#ifndef QUIPU_SERVICES_COUNTS_BATCH_H
#define QUIPU_SERVICES_COUNTS_BATCH_H

#include "flow/write.h"
#include "ports/count_repository.h"
#include "services/counts/count_rules.h"

/* One change of several that belong together. */
struct count_step {
	struct slice item_id;
	struct count_change change;

	enum status status;       /* out */
	struct count_state state; /* out: after the change, or as it is if that was refused */
};

/*
 * A change of one count; the key of its command is the item's id. Or, if it has steps, several
 * changes in one transaction, in their order; its key is then its own, see count_bulk.h.
 */
struct count_command {
	struct write write;
	struct count_change change; /* if it has no steps */

	struct count_step *steps;
	size_t step_count;
	bool is_atomic; /* if one step is refused, none is made */
};

extern const struct command_type count_command_type;

/* Creates one in `arena`, zeroed except for its type. */
struct count_command *count_command_new(struct arena *arena);

/* Aborts if `write` is of another type. */
struct count_command *count_command_of(struct write *write);

/* Whether one statement can do the batch, which is the case if it has only single additions. */
bool count_batch_is_single(const struct write_batch *batch);

/* Settles every write of the batch (each a struct count_command); see flow/committer.h. Blocks. */
enum status count_batch_decide(const struct count_repository *repository, struct session *session,
	const struct write_batch *batch);

#endif
