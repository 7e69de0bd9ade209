/* The callbacks through which the lanes of dialogs run their batches. */
#include "services/dialogs/dialog_batch.h"
#include "services/dialogs/dialog_lists.h"

static enum status decide(void *context, struct session *session, const struct write_batch *batch)
{
	return dialog_batch_decide(context, session, batch);
}

static enum status look_up(void *context, struct session *session, const struct read_batch *batch)
{
	return dialog_batch_look_up(context, session, batch);
}

static void committed(void *context)
{
	struct store *store = ((struct dialogs *)context)->store;

	store->ops->announce(store, DIALOGS_ANNOUNCEMENT);
}

struct lane_service dialogs_lane_service(struct dialogs *dialogs)
{
	return (struct lane_service){
		.name = "dialogs",
		.context = dialogs,
		.decide = decide,
		.committed = committed,
		.look_up = look_up,
	};
}
