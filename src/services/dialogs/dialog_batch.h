/* Runs a batch of commands that send messages or mark messages as read, in one transaction. Each
 * change is committed with its event. */
#ifndef QUIPU_SERVICES_DIALOGS_DIALOG_BATCH_H
#define QUIPU_SERVICES_DIALOGS_DIALOG_BATCH_H

#include "flow/write.h"
#include "services/dialogs/dialogs.h"

enum dialog_verb { DIALOG_SEND, DIALOG_READ_ONE, DIALOG_READ_MANY, DIALOG_READ_UP_TO };

/* A command that sends a message or marks messages as read. The key of a SEND is its receiver; the
 * key of the other verbs is the user who reads. */
struct dialog_command {
	struct write write;
	enum dialog_verb verb;
	struct slice user_id; /* the caller */
	struct slice traceparent;

	/* Only SEND uses `receiver_id` and `text`. */
	struct slice receiver_id;
	struct slice text;

	/* Only READ_UP_TO uses `sender_id` and `up_to`. */
	struct slice sender_id;
	struct slice up_to;

	/* The messages to mark as read. For READ_UP_TO, dialog_batch_decide() sets `message_ids`
	 * and the members below, and the ids are allocated from the batch's arena. */
	const struct slice *message_ids;
	size_t message_count;
	bool up_to_exists;
	/* some messages up to `up_to` stay unread, because the number of messages that
	 * one command marks is limited */
	bool has_more;
};

#define DIALOG_READ_MAX 1000 /* how many messages one command may mark as read */

extern const struct command_type dialog_command_type;

/* Creates a command in `arena`, zeroed except for its type. */
struct dialog_command *dialog_command_new(struct arena *arena);

/* Returns the command that `write` belongs to. Aborts if `write` is not a dialog command. */
struct dialog_command *dialog_command_of(struct write *write);

/* Answers every write of the batch (each a struct dialog_command); see flow/committer.h. Blocks. */
enum status dialog_batch_decide(
	const struct dialogs *dialogs, struct session *session, const struct write_batch *batch);

#endif
