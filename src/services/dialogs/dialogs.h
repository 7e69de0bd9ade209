/*
 * Dialogs: seed 004, DialogService. Role `dialogs`.
 *
 *   message_event   the events, as MassTransit writes them
 *   dialog_batch    sends and reads in one transaction, with their events in the outbox
 *   dialog_routes   HTTP to commands and back; how events are addressed on the bus
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

#define DIALOGS_ANNOUNCEMENT "dialog_outbox_events" /* announced when events were committed */

struct dialogs {
	const struct message_repository *repository;
	const struct outbox_repository *outbox;
	struct store *store;
	struct lane_set *lanes;
	const char *name_space; /* --masstransit-namespace */
};

/* What the lanes of the service call; context is the struct dialogs. */
struct lane_service dialogs_lane_service(struct dialogs *dialogs);

/* Adds the routes. `dialogs` outlives the router. */
void dialogs_add_routes(struct dialogs *dialogs, struct router *router);

/* How the relay makes a message of a row of the outbox; see flow/relay.h. */
bool dialogs_address(struct arena *arena, const struct claim *row, struct bus_message *message);

#endif
