/*
 * Notifications: seed 002, Notification app. Role `notifications`. Makes a notification of every
 * entitlement event, once, and sends it through a notifier, at least once.
 *
 *   notification_intake  events to notifications, in the transaction of the inbox
 *   notification_worker  claims notifications and sends them
 *   notification_routes  the debug inbox
 */
#ifndef QUIPU_SERVICES_NOTIFICATIONS_H
#define QUIPU_SERVICES_NOTIFICATIONS_H

#include "flow/intake.h"
#include "flow/lane_set.h"
#include "http/router.h"
#include "ports/notification_repository.h"
#include "ports/notifier.h"

#define NOTIFICATIONS_GROUP "notifications"
#define NOTIFICATIONS_ANNOUNCEMENT "notifications" /* announced when some were committed */

struct notifications {
	const struct notification_repository *repository;
	struct store *store;
	struct lane_set *lanes;
};

/* What the lanes of the service call: lookups, and what operators do. */
struct lane_service notifications_lane_service(struct notifications *notifications);

/* Adds the routes. `notifications` outlives the router. */
void notifications_add_routes(struct notifications *notifications, struct router *router);

/* ---- intake ---- */

/* See flow/intake.h; the context is the struct notifications. */
enum status notifications_apply(void *notifications, struct session *session,
	const struct intake_batch *batch, size_t *repeated);
void notifications_committed(void *notifications);

/*
 * In a transaction: takes in the payload of a message that was put aside once. `is_read` false: it
 * can still not be read, and nothing was done. An event that was taken in meanwhile has no second
 * effect.
 */
QP_MUST_CHECK enum status notifications_take_again(void *notifications, struct session *session,
	struct arena *arena, struct slice payload, bool *is_read);

/* ---- worker ---- */

struct notification_worker_config {
	struct notifications *notifications;
	struct notifier *notifier; /* not owned */
	int64_t poll_us;
	int64_t lease_us; /* longer than anything can take in the notifier */
	int32_t attempts_max;
};

struct notification_worker;

/* Starts a thread. */
struct notification_worker *notification_worker_start(
	const struct notification_worker_config *config);

/* Ends the thread, returns what is not sent, and frees. */
void notification_worker_stop(struct notification_worker *worker);

/* A metrics collector (context: the worker). */
void notification_worker_collect(void *worker, struct buffer *page);

#endif
