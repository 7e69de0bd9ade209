/*
 * The sender, specified by seed 001 (Sender_Service). Role `sender`. Turns messages of the bus into
 * rows of outbound_messages, which flow/delivery sends through a notifier: the console, or a
 * webhook.
 *
 * A repeated event is recognised by its row. If an earlier version of Quipu sent the message, or if
 * its user was erased, there is no such row; the repeated event is then recognised by an entry in
 * sent_messages. A poison message, which can never be used, is copied to the dead letter channel,
 * logged, and skipped. Nothing is printed or sent inside a transaction.
 */
#ifndef QUIPU_SERVICES_GATEWAY_SENDER_H
#define QUIPU_SERVICES_GATEWAY_SENDER_H

#include "base/metrics.h"
#include "flow/delivery.h"
#include "flow/intake.h"
#include "flow/lane_set.h"
#include "ports/outbound_repository.h"
#include "ports/sent_repository.h"

#define SENDER_ANNOUNCEMENT "outbound" /* announces committed messages */
#define SENDER_ATTEMPTS_MAX 10

/* Owns nothing that its members point to. */
struct sender {
	struct store *store;
	const struct outbound_repository *repository;
	const struct sent_repository *sent;
	struct producer *dead_letters;
	struct lane_set *lanes;

	/* repeated events in the current transaction; used only by the intake */
	size_t repeated_now;
	struct tally repeated;
	struct tally malformed;
};

/* Returns the callbacks for the lanes of the sender. The lanes carry only operators' actions. */
struct lane_service sender_lane_service(struct sender *sender);

/* The callbacks apply, committed and put_aside of flow/intake.h; the context is the struct
 * sender. */
enum status sender_apply(
	void *sender, struct session *session, const struct intake_batch *batch, size_t *repeated);
void sender_taken(void *sender);
bool sender_put_aside(void *sender, const struct intake_item *items, size_t count);

/* The callback write_body of flow/delivery.h. */
const char *sender_write_body(struct arena *arena, const struct claim *claim, struct slice *body);

/* Writes the metrics of the sender and of its delivery. */
void sender_collect(
	const struct sender *sender, const struct delivery_counts *counts, struct buffer *page);

#endif
