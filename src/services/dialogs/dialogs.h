/*
 * Dialogs, specified by seed 004 (DialogService). Role `dialogs`.
 *
 *   dialog_batch    runs many commands in one transaction, with their events in the outbox
 *   dialog_lists    looks up lists of messages and conversations
 *   dialog_events   sets the channel, subject and key of events (events/ defines their format)
 *   dialog_lanes    the callbacks through which lanes run batches
 *   dialog_routes   turns HTTP requests into commands and lookups
 *   dialog_verify   checks messages and conversations for `quipu verify`
 *
 * The CounterService of the same seed is in counters.h.
 */
#ifndef QUIPU_SERVICES_DIALOGS_DIALOGS_H
#define QUIPU_SERVICES_DIALOGS_DIALOGS_H

#include "flow/lane_set.h"
#include "flow/relay.h"
#include "http/router.h"
#include "ports/message_repository.h"
#include "ports/outbox_repository.h"

#define DIALOGS_ANNOUNCEMENT "dialog_outbox_events" /* announces committed events */

/* Owns none of its members. */
struct dialogs {
	const struct message_repository *repository;
	const struct outbox_repository *outbox;
	struct store *store;
	struct lane_set *lanes;
	const char *name_space; /* --masstransit-namespace */
};

/* Returns the callbacks for the lanes of the service. `dialogs` must outlive the lanes. */
struct lane_service dialogs_lane_service(struct dialogs *dialogs);

/* Adds the routes. `dialogs` must outlive the router. */
void dialogs_add_routes(struct dialogs *dialogs, struct router *router);

/* Fills in the message for a row of the outbox; see `address` in flow/relay.h. */
bool dialogs_address(struct arena *arena, const struct claim *row, struct bus_message *message);

#endif
