/*
 * Entitlements: seed 002, Entitlement app. Role `entitlements`.
 *
 *   entitlement_rules   what a grant or a revoke does
 *   entitlement_event   the event that tells of it
 *   entitlement_batch   many of them in one transaction
 *   entitlement_routes  HTTP to commands and back; how events are addressed on the bus
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
#define ENTITLEMENTS_ANNOUNCEMENT "outbox_events" /* announced when events were committed */

#define TRACEPARENT_LEN 55 /* of the W3C header: 00-<32 hex>-<16 hex>-01 */

struct entitlements {
	const struct entitlement_repository *repository;
	const struct outbox_repository *outbox;
	struct store *store;
	struct lane_set *lanes;
};

/* What the lanes of the service call; context is the struct entitlements. */
struct lane_service entitlements_lane_service(struct entitlements *entitlements);

/* Adds the routes. `entitlements` outlives the router. */
void entitlements_add_routes(struct entitlements *entitlements, struct router *router);

/* How the relay makes a message of a row of the outbox; see flow/relay.h. */
bool entitlements_address(
	struct arena *arena, const struct claim *row, struct bus_message *message);

#endif
