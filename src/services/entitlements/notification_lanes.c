/*
 * The callbacks of the lanes of notifications. The lanes carry only lookups and operators' actions.
 * Each of these commands has its own look_up() or decide(), so the service itself does not define
 * these callbacks.
 */
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
