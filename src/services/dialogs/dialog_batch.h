/* Runs a batch of sends and reads in one transaction, which commits each change with its event. */
#ifndef QUIPU_SERVICES_DIALOGS_DIALOG_BATCH_H
#define QUIPU_SERVICES_DIALOGS_DIALOG_BATCH_H

#include "flow/write.h"
#include "services/dialogs/dialogs.h"

enum dialog_verb { DIALOG_SEND, DIALOG_READ_ONE, DIALOG_READ_MANY, DIALOG_READ_UP_TO };

/* The key of its command is the receiver of a SEND, otherwise the user who reads. */
struct dialog_command {
	struct write write;
	enum dialog_verb verb;
	struct slice user_id; /* the caller */
	struct slice traceparent;

	struct slice receiver_id; /* SEND */
	struct slice text;

	struct slice sender_id; /* READ_UP_TO */
	struct slice up_to;

	/* READ_ONE, READ_MANY; the batch fills them in for READ_UP_TO, in memory of its arena */
	const struct slice *message_ids;
	size_t message_count;
	bool up_to_exists;
	bool has_more; /* there are unread messages beyond these */
};

#define DIALOG_READ_MAX 1000 /* messages that one command marks as read */

extern const struct command_type dialog_command_type;

/* Creates one in `arena`, zeroed except for its type. */
struct dialog_command *dialog_command_new(struct arena *arena);

/* Aborts if `write` is of another type. */
struct dialog_command *dialog_command_of(struct write *write);

/* Settles every write of the batch (each a struct dialog_command); see flow/committer.h. Blocks. */
enum status dialog_batch_decide(
	const struct dialogs *dialogs, struct session *session, const struct write_batch *batch);

#endif
