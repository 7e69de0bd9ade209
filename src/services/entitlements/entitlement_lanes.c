/* The callbacks through which the lanes of entitlements run their batches. */
#include "services/entitlements/entitlement_batch.h"
#include "services/entitlements/entitlement_lookup.h"

static enum status decide(void *context, struct session *session, const struct write_batch *batch)
{
	return entitlement_batch_decide(context, session, batch);
}

static enum status look_up(void *context, struct session *session, const struct read_batch *batch)
{
	return entitlement_look_up(context, session, batch);
}

static void committed(void *context)
{
	struct store *store = ((struct entitlements *)context)->store;

	store->ops->announce(store, ENTITLEMENTS_ANNOUNCEMENT);
}

struct lane_service entitlements_lane_service(struct entitlements *entitlements)
{
	return (struct lane_service){
		.name = "entitlements",
		.context = entitlements,
		.decide = decide,
		.committed = committed,
		.look_up = look_up,
	};
}
