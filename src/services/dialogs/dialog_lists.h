/* Looks up lists: messages between two users, and a user's conversations. */
#ifndef QUIPU_SERVICES_DIALOGS_DIALOG_LISTS_H
#define QUIPU_SERVICES_DIALOGS_DIALOG_LISTS_H

#include "flow/reader.h"
#include "services/dialogs/dialogs.h"

enum dialog_list { DIALOG_LIST_MESSAGES, DIALOG_LIST_CONVERSATIONS };

struct dialog_lookup {
	struct read read;
	enum dialog_list list;
	struct slice user_id;  /* the caller */
	struct slice other_id; /* the other user, who may be the caller; only for MESSAGES */
	struct slice before;   /* the previous page's oldest message id; empty for the first page */
	size_t limit;
};

extern const struct command_type dialog_lookup_type;

/* Creates a zeroed lookup in `arena`, and sets its type. */
struct dialog_lookup *dialog_lookup_new(struct arena *arena);

/* Returns the lookup that `read` belongs to. Aborts if `read` is not a dialog lookup. */
struct dialog_lookup *dialog_lookup_of(struct read *read);

/* Answers every read of the batch (each a struct dialog_lookup); see flow/reader.h. Blocks. */
enum status dialog_batch_look_up(
	const struct dialogs *dialogs, struct session *session, const struct read_batch *batch);

#endif
