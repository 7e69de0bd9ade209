/*
 * A batch of count commands against the repository, in one transaction: this is where commands on
 * the same count are folded, and where each gets the answer that it would have had alone.
 */
#ifndef QUIPU_SERVICES_COUNTS_BATCH_H
#define QUIPU_SERVICES_COUNTS_BATCH_H

#include "flow/reader.h"
#include "flow/write.h"
#include "ports/count_repository.h"
#include "services/counts/count_rules.h"

/* A change of one count; the key of the command is the item's id. */
struct count_command {
	struct write write;
	struct count_change change;
};

extern const struct command_type count_command_type;

/* Creates one in `arena`, zeroed except for its type. */
struct count_command *count_command_new(struct arena *arena);

/* Aborts if `write` is of another type. */
struct count_command *count_command_of(struct write *write);

/* A look at some counts, in the order asked, without repetition. */
struct count_lookup {
	struct read read;
	const struct slice *item_ids;
	size_t item_count;
	bool single; /* one object, or 404; else a list without the unknown */
};

extern const struct command_type count_lookup_type;

/* Creates one in `arena`, zeroed except for its type. */
struct count_lookup *count_lookup_new(struct arena *arena);

/* Aborts if `read` is of another type. */
struct count_lookup *count_lookup_of(struct read *read);

/* Whether one statement may do for the batch: additions only. */
bool count_batch_is_single(const struct write_batch *batch);

/* Settles every write of the batch (each a struct count_command); see flow/committer.h. */
enum status count_batch_decide(const struct count_repository *repository, struct session *session,
	const struct write_batch *batch);

/* Answers every read of the batch (each a struct count_lookup); see flow/reader.h. */
enum status count_batch_look_up(const struct count_repository *repository, struct session *session,
	const struct read_batch *batch);

#endif
