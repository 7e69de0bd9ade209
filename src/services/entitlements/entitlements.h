/*
 * Entitlements, specified by seed 002 (Entitlement app). Role `entitlements`.
 *
 *   entitlement_rules   what a grant or a revoke does
 *   entitlement_batch   runs many commands in one transaction
 *   entitlement_lookup  looks up what users have, and the audit
 *   entitlement_bulk    reads a request that has many grants
 *   entitlement_answers renders answers
 *   entitlement_events  the channel, subject and key of published events
 *   entitlement_lanes   the callbacks through which lanes run batches
 *   entitlement_routes  turns HTTP requests into commands and lookups
 *   entitlement_verify  checks the tables for `quipu verify`
 *
 * The Notification app of the same seed is in notifications.h.
 */
#ifndef QUIPU_SERVICES_ENTITLEMENTS_H
#define QUIPU_SERVICES_ENTITLEMENTS_H

#include "flow/lane_set.h"
#include "flow/relay.h"
#include "http/router.h"
#include "ports/entitlement_repository.h"
#include "ports/outbox_repository.h"

#define ENTITLEMENTS_CHANNEL "entitlements.events"
#define ENTITLEMENTS_PARTITIONS 4
#define ENTITLEMENTS_STREAM "ENTITLEMENTS"
#define ENTITLEMENTS_SUBJECTS "entitlements.events.granted entitlements.events.revoked"
#define ENTITLEMENTS_ANNOUNCEMENT "outbox_events" /* announces committed events */

/* Owns none of its members. */
struct entitlements {
	const struct entitlement_repository *repository;
	const struct outbox_repository *outbox;
	struct store *store;
	struct lane_set *lanes;
};

/* Returns the callbacks for the lanes of the service. `entitlements` must outlive the lanes. */
struct lane_service entitlements_lane_service(struct entitlements *entitlements);

/* Adds the routes. `entitlements` must outlive the router. */
void entitlements_add_routes(struct entitlements *entitlements, struct router *router);

/* Fills in the message for a row of the outbox; see `address` in flow/relay.h. */
bool entitlements_address(
	struct arena *arena, const struct claim *row, struct bus_message *message);

#endif
