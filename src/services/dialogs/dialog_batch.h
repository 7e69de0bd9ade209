/* Runs a batch of sends and reads in one transaction. Each change is committed with its event. */
#ifndef QUIPU_SERVICES_DIALOGS_DIALOG_BATCH_H
#define QUIPU_SERVICES_DIALOGS_DIALOG_BATCH_H

#include "flow/write.h"
#include "services/dialogs/dialogs.h"

enum dialog_verb { DIALOG_SEND, DIALOG_READ_ONE, DIALOG_READ_MANY, DIALOG_READ_UP_TO };

/* A send or read. The key of a SEND is its receiver; the key of a read is the user who reads. */
struct dialog_command {
	struct write write;
	enum dialog_verb verb;
	struct slice user_id; /* the caller */
	struct slice traceparent;

	struct slice receiver_id; /* for SEND, like `text` */
	struct slice text;

	struct slice sender_id; /* for READ_UP_TO, like `up_to` */
	struct slice up_to;

	/* READ_ONE and READ_MANY. For READ_UP_TO, the batch sets them, in its arena. */
	const struct slice *message_ids;
	size_t message_count;
	bool up_to_exists;
	bool has_more; /* out: not all unread messages could be marked */
};

#define DIALOG_READ_MAX 1000 /* how many messages one command may mark as read */

extern const struct command_type dialog_command_type;

/* Creates a command in `arena`, zeroed except for its type. */
struct dialog_command *dialog_command_new(struct arena *arena);

/* Aborts unless `write` is a dialog command. */
struct dialog_command *dialog_command_of(struct write *write);

/* Settles every write of the batch (each a struct dialog_command); see flow/committer.h. Blocks. */
enum status dialog_batch_decide(
	const struct dialogs *dialogs, struct session *session, const struct write_batch *batch);

#endif
