/*
 * Runs a batch of count commands in one transaction. Folds commands on the same count, but each
 * command gets the answer that it would get if the commands ran one after another.
 */
#ifndef QUIPU_SERVICES_COUNTS_BATCH_H
#define QUIPU_SERVICES_COUNTS_BATCH_H

#include "flow/write.h"
#include "ports/count_repository.h"
#include "services/counts/count_rules.h"

/* One of several changes in one command. */
struct count_step {
	struct slice item_id;
	struct count_change change;

	enum status status; /* output: OK, or why the change is refused */
	/* output: the count after the change; if the change is refused, the unchanged count */
	struct count_state state;
};

/*
 * A command without steps applies `change` to one count, and its key is that count's id. A command
 * with steps applies its steps in order, in one transaction, and has a unique key; see
 * count_bulk.h.
 */
struct count_command {
	struct write write;
	struct count_change change; /* used if the command has no steps */

	struct count_step *steps;
	size_t step_count;
	bool is_atomic; /* if one step is refused, no step is applied */
};

extern const struct command_type count_command_type;

/* Creates a command in `arena`, zeroed except for its type. */
struct count_command *count_command_new(struct arena *arena);

/* Returns the command that `write` belongs to. Aborts if `write` is not a count command. */
struct count_command *count_command_of(struct write *write);

/* Returns true if the batch has only additions without steps, so that one statement can apply
 * it. */
bool count_batch_is_single(const struct write_batch *batch);

/* Decides the fate of every write of the batch (each a struct count_command); see flow/committer.h.
 * Blocks. */
enum status count_batch_decide(const struct count_repository *repository, struct session *session,
	const struct write_batch *batch);

#endif
