/*
 * Stores the state of each message, which clients look up by the message's id. The transaction that
 * settles a send also stores its message as QUEUED. After the sender has read the message from the
 * bus, the sender's row holds the state; see ports/outbound_repository.h.
 */
#ifndef QUIPU_SERVICES_GATEWAY_MESSAGES_H
#define QUIPU_SERVICES_GATEWAY_MESSAGES_H

#include "services/gateway/gateway_batch.h"

/* Stores the messages that the bus has confirmed, in the transaction that settles their sends. */
QP_MUST_CHECK enum status gateway_messages_note(
	const struct gateway_lane *lane, struct session *session, const struct write_batch *batch);

/* Looks up one message. */
struct gateway_message {
	struct read read; /* has its own look_up, and no key */
	const struct gateway *gateway;
	struct slice id;
};

/* Creates a zeroed lookup in `arena`, and sets its members `type` and `look_up`. */
struct gateway_message *gateway_message_new(struct arena *arena);

#endif
