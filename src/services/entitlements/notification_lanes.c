/* Connects the lanes of notifications, which carry lookups and what operators do. */
#include "services/entitlements/notifications.h"

void notifications_committed(void *context)
{
	struct store *store = ((struct notifications *)context)->store;

	store->ops->announce(store, NOTIFICATIONS_ANNOUNCEMENT);
}

struct lane_service notifications_lane_service(struct notifications *notifications)
{
	return (struct lane_service){
		.name = "notifications",
		.context = notifications,
		.committed = notifications_committed,
	};
}
