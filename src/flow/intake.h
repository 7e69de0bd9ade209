/*
 * Takes messages in: a thread that fetches from a bus, applies what it fetched in ONE transaction,
 * and acknowledges after COMMIT. What comes again is told apart by its id in the same transaction
 * (see inbox_keep_new), so every event has its effect once.
 *
 * What the store may say of a transaction, and what follows:
 *
 *   OK                          acknowledged
 *   RERUN, LOCK_BUSY            the same again, a bounded number of times
 *   POISON                      halved until the one message is found, which is buried
 *   STORE_UNAVAILABLE,          given back to the bus; nothing more is fetched until the store
 *   OUTCOME_UNKNOWN             answers, so that an outage does not use deliveries up
 */
#ifndef QUIPU_FLOW_INTAKE_H
#define QUIPU_FLOW_INTAKE_H

#include "base/buffer.h"
#include "ports/bus.h"
#include "ports/inbox_repository.h"

/* One message of a transaction. */
struct intake_item {
	const struct bus_delivery *delivery;

	/* Set by apply(), or before it where the bus or the store has given the message up: it can
	 * never be used, and this says why. NULL: it is good. */
	const char *poison;
};

/* Items that are applied together. */
struct intake_batch {
	struct intake_item *items;
	size_t count;
	struct arena *arena; /* for this try only */
};

struct intake_config {
	const char *name; /* "notifications": its label in metrics and logs */
	struct bus *bus;  /* not owned, like the store */
	const char *channel;
	const char *group;
	struct store *store;

	/*
	 * In a transaction on `session`: does what the items ask for, puts aside those that are
	 * poison, tells how many had come before. May be called again after a rollback. Returns OK,
	 * or what the session returned.
	 */
	enum status (*apply)(void *context, struct session *session,
		const struct intake_batch *batch, size_t *repeated);

	/* After each COMMIT and before the acknowledgement. */
	void (*committed)(void *context);
	void *context;
};

struct intake;

/* Starts the thread. */
struct intake *intake_start(const struct intake_config *config);

/* Ends the thread after the batch it is at, and frees. */
void intake_stop(struct intake *intake);

/* The metrics of all intakes of the program, since samples of one name stand together. */
void intakes_collect(struct intake *const *intakes, size_t count, struct buffer *page);

/*
 * In a transaction: records the event ids of a batch, of which some may be alike. is_new[i] tells
 * whether ids[i] was never taken in before and is the first of its kind in the batch; an empty id
 * is passed over and counts as not new.
 */
QP_MUST_CHECK enum status inbox_keep_new(const struct inbox_repository *inbox,
	struct session *session, struct arena *arena, const struct slice *ids, bool *is_new,
	size_t count);

#endif
