/*
 * What becomes of messages after their send was counted: the gateway notes each one as QUEUED, in
 * the transaction that counts it, and looks it up by its id. From the sender on, the rows of
 * ports/outbound_repository.h know it.
 */
#ifndef QUIPU_SERVICES_GATEWAY_MESSAGES_H
#define QUIPU_SERVICES_GATEWAY_MESSAGES_H

#include "services/gateway/gateway_batch.h"

/* In the transaction of gateway_batch_settle(): notes the messages that the bus has confirmed. */
QP_MUST_CHECK enum status gateway_messages_note(
	const struct gateway_lane *lane, struct session *session, const struct write_batch *batch);

/* Looks one message up. */
struct gateway_message {
	struct read read; /* has a look_up of its own, and no key */
	const struct gateway *gateway;
	struct slice id;
};

/* Creates one in `arena`, zeroed except for its type and look_up. */
struct gateway_message *gateway_message_new(struct arena *arena);

#endif
