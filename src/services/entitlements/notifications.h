/*
 * Notifications, specified by seed 002 (Notification app). Role `notifications`. Creates one
 * notification for every entitlement event and sends it through a notifier at least once.
 *
 *   notification_intake  turns events into notifications, each event once
 *   notification_sending writes the body of a notification; flow/delivery sends it
 *   notification_lanes   the callbacks of the lanes, which run lookups and operators' actions
 *   notification_routes  the debug inbox: lists the newest notifications of a user
 *   notification_verify  checks the tables for `quipu verify`
 */
#ifndef QUIPU_SERVICES_NOTIFICATIONS_H
#define QUIPU_SERVICES_NOTIFICATIONS_H

#include "flow/delivery.h"
#include "flow/intake.h"
#include "flow/lane_set.h"
#include "http/router.h"
#include "ports/notification_repository.h"

#define NOTIFICATIONS_GROUP "notifications"
#define NOTIFICATIONS_ANNOUNCEMENT "notifications" /* announces committed notifications */

/* Owns none of its members. */
struct notifications {
	const struct notification_repository *repository;
	struct store *store;
	struct lane_set *lanes;
};

/* Returns the callbacks for the lanes of the service. `notifications` must outlive the lanes. */
struct lane_service notifications_lane_service(struct notifications *notifications);

/* Adds the routes. `notifications` must outlive the router. */
void notifications_add_routes(struct notifications *notifications, struct router *router);

/* ---- intake ---- */

/* The callbacks apply and committed of flow/intake.h; the context is the struct notifications. */
enum status notifications_apply(void *notifications, struct session *session,
	const struct intake_batch *batch, size_t *repeated);
void notifications_committed(void *notifications);

/*
 * Applies the payload of a poison message that became a dead letter. Must be called in a
 * transaction. If the payload cannot be read, sets `is_read` to false and changes nothing. An event
 * that was applied meanwhile is not applied again. Blocks; returns the session's status.
 */
QP_MUST_CHECK enum status notifications_take_again(void *notifications, struct session *session,
	struct arena *arena, struct slice payload, bool *is_read);

/* ---- sending ---- */

/* The callback write_body of flow/delivery.h. */
const char *notifications_write_body(
	struct arena *arena, const struct claim *claim, struct slice *body);

/* A metrics collector. Its context is the struct delivery that sends the notifications. */
void notifications_collect(void *delivery, struct buffer *page);

#endif
