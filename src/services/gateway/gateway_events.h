/* The message that a send publishes on the bus. */
#ifndef QUIPU_SERVICES_GATEWAY_EVENTS_H
#define QUIPU_SERVICES_GATEWAY_EVENTS_H

#include "ports/bus.h"
#include "services/gateway/gateway_batch.h"

/* Chooses the id of the message, unless the command has one already. */
void gateway_event_name(struct gateway_command *command);

/* Fills in `message`. Its texts are allocated from `arena` or belong to the command. */
void gateway_event_address(
	struct arena *arena, struct gateway_command *command, struct bus_message *message);

#endif
