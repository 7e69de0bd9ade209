/* Runs a batch of sends and reads in one transaction, which commits each change with its event. */
#ifndef QUIPU_SERVICES_DIALOGS_DIALOG_BATCH_H
#define QUIPU_SERVICES_DIALOGS_DIALOG_BATCH_H

#include "flow/reader.h"
#include "flow/write.h"
#include "services/dialogs/dialogs.h"

enum dialog_verb { DIALOG_SEND, DIALOG_READ_ONE, DIALOG_READ_MANY };

/* The key of its command is the receiver of a SEND, otherwise the user who reads. */
struct dialog_command {
	struct write write;
	enum dialog_verb verb;
	struct slice user_id; /* the caller */
	struct slice traceparent;

	struct slice receiver_id; /* SEND */
	struct slice text;

	const struct slice *message_ids; /* READ_ONE, READ_MANY */
	size_t message_count;
};

extern const struct command_type dialog_command_type;

/* Creates one in `arena`, zeroed except for its type. */
struct dialog_command *dialog_command_new(struct arena *arena);

/* Aborts if `write` is of another type. */
struct dialog_command *dialog_command_of(struct write *write);

/* A lookup of the last messages between two users. */
struct dialog_lookup {
	struct read read;
	struct slice user_id;
	struct slice other_id;
	struct slice before;
	size_t limit;
};

extern const struct command_type dialog_lookup_type;

/* Creates one in `arena`, zeroed except for its type. */
struct dialog_lookup *dialog_lookup_new(struct arena *arena);

/* Aborts if `read` is of another type. */
struct dialog_lookup *dialog_lookup_of(struct read *read);

/* Settles every write of the batch (each a struct dialog_command); see flow/committer.h. Blocks. */
enum status dialog_batch_decide(
	const struct dialogs *dialogs, struct session *session, const struct write_batch *batch);

/* Answers every read of the batch (each a struct dialog_lookup); see flow/reader.h. Blocks. */
enum status dialog_batch_look_up(
	const struct dialogs *dialogs, struct session *session, const struct read_batch *batch);

#endif
