/*
 * An intake consumes the messages of a bus: a thread fetches them, applies each fetch in ONE
 * transaction and acknowledges it after COMMIT. The same transaction recognises messages that were
 * applied before (see inbox_keep_new), so every event takes effect once, even if the bus delivers
 * it again.
 *
 * How the intake reacts to each status that the store may return for a transaction:
 *
 *   OK                          acknowledges the messages
 *   RERUN, LOCK_BUSY            runs the transaction again at once, a bounded number of times
 *   POISON                      halves the batch until it has found the message that the store
 *                               refuses, and treats that message as poison
 *   STORE_UNAVAILABLE,          tries again until the store applies the messages; after a second
 *   OUTCOME_UNKNOWN, and        or two fetches them again, except on a bus that counts deliveries
 *   RERUN, LOCK_BUSY too often  (bus->counts_deliveries)
 *
 * Poison is a message that can never be used. apply() or put_aside() may keep it as a dead letter.
 * Whether they keep it or not, the intake logs it and acknowledges it like any other message.
 */
#ifndef QUIPU_FLOW_INTAKE_H
#define QUIPU_FLOW_INTAKE_H

#include "base/buffer.h"
#include "ports/bus.h"
#include "ports/inbox_repository.h"

/* One message of a transaction. */
struct intake_item {
	const struct bus_delivery *delivery;

	/*
	 * Why the message can never be used, or NULL if it is valid. Usually apply() sets it. It is
	 * already set before apply() is called if the bus has delivered the message too many times,
	 * or if the store refuses the message.
	 */
	const char *poison;
};

/* Items that one transaction applies. */
struct intake_batch {
	struct intake_item *items;
	size_t count;
	struct arena *arena; /* reset before the next attempt */
};

struct intake_config {
	const char *name; /* label in metrics and logs, e.g. "notifications" */
	struct bus *bus;  /* the bus and the store are not owned */
	const char *channel;
	const char *group;
	struct store *store;

	/*
	 * Applies the valid items and sets `poison` of the other items, which it may store as dead
	 * letters. Sets `*repeated` to the number of items that were applied before. Called in a
	 * transaction on `session`, and perhaps again for the same items after a rollback. Returns
	 * OK, or the session's status.
	 */
	enum status (*apply)(void *context, struct session *session,
		const struct intake_batch *batch, size_t *repeated);

	/*
	 * Optional. Keeps the poison items of a fetch outside the store. Called with all items of
	 * the fetch, after COMMIT and before the acknowledgement. Returns false if the bus has to
	 * deliver the whole fetch again.
	 */
	bool (*put_aside)(void *context, const struct intake_item *items, size_t count);

	/* Called on the intake's thread after each COMMIT, before the acknowledgement. */
	void (*committed)(void *context);
	void *context;
};

struct intake;

/* Starts the thread. */
struct intake *intake_start(const struct intake_config *config);

/* Ends the thread after its current batch and frees the intake. */
void intake_stop(void *intake);

/* Writes the metrics of all intakes together, because samples of one name must be adjacent. */
void intakes_collect(struct intake *const *intakes, size_t count, struct buffer *page);

/*
 * Records the event ids of a batch, which may contain duplicates. Must be called in a transaction.
 * Sets is_new[i] to true if ids[i] was not recorded before and does not occur earlier in the batch,
 * otherwise to false. Empty ids are skipped and are not new. Blocks; returns the session's status.
 */
QP_MUST_CHECK enum status inbox_keep_new(const struct inbox_repository *inbox,
	struct session *session, struct arena *arena, const struct slice *ids, bool *is_new,
	size_t count);

/* Returns the traceparent of a message, or an empty slice if it has no valid one. */
struct slice intake_trace(const struct bus_delivery *delivery);

#endif
