/*
 * The sender: seed 001, Sender_Service. Role `sender`. Takes messages from the bus, "sends" each by
 * printing SMS SENT on standard output, records it, and acknowledges. A message that the bus
 * delivers again is not sent again; only a crash between printing and recording can repeat one.
 *
 * A message that cannot be read is logged, copied to the dead letter channel, and skipped.
 */
#ifndef QUIPU_SERVICES_GATEWAY_SENDER_H
#define QUIPU_SERVICES_GATEWAY_SENDER_H

#include "base/metrics.h"
#include "ports/bus.h"
#include "ports/sent_repository.h"
#include "ports/store.h"

struct sender_config {
	struct bus *bus; /* nothing here is owned */
	struct store *store;
	const struct sent_repository *repository;
};

struct sender;

/* Starts a thread. */
struct sender *sender_start(const struct sender_config *config);

/* Ends the thread after its current batch and frees the sender. */
void sender_stop(void *sender);

/* A metrics collector (context: the sender). */
void sender_collect(void *sender, struct buffer *page);

#endif
