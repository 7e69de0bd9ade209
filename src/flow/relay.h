/*
 * A relay publishes the events of an outbox: it claims pending rows, publishes them and ends the
 * claims, on threads of its own. Several relays, in this process and in others, may share one
 * outbox. A relay claims only rows that no other relay holds. If a relay stalls and another relay
 * claims its rows meanwhile, the stalled relay does not publish these rows and records nothing
 * about them.
 *
 *   claim      a transaction; up to `batch` rows, oldest first
 *   publish    all rows at once, outside any transaction, well within the lease
 *   end        a transaction, which also claims the next rows
 *
 * An event is published at least once: after a crash, or if the end of a claim could not be
 * recorded, it is published again under the same id. While the bus is away, the relay claims one
 * row per poll as a probe and gives up no row, so the outbox drains by itself after an outage of
 * any length.
 */
#ifndef QUIPU_FLOW_RELAY_H
#define QUIPU_FLOW_RELAY_H

#include "base/buffer.h"
#include "ports/bus.h"
#include "ports/outbox_repository.h"

struct relay_config {
	const char *kind;    /* the kind of its dead letters, as shown to operators */
	const char *name;    /* label in metrics and logs, e.g. "entitlements" */
	struct store *store; /* the store and the bus are not owned */
	const struct outbox_repository *outbox;
	const char *announcement; /* the name under which the store announces new rows */
	struct bus *bus;

	/*
	 * Fills in the message for a row; the message's id is already set. Text that the claim does
	 * not contain is allocated from `arena`. Returns false if the row can never be published.
	 * Runs on a thread of the relay.
	 */
	bool (*address)(struct arena *arena, const struct claim *row, struct bus_message *message);

	int64_t poll_us;
	int64_t lease_us;
	int32_t attempts_max;
	size_t batch;

	/*
	 * Number of threads, at least 1. With several threads, one thread works in the store while
	 * others wait for the bus, but events keep their order only within a batch.
	 */
	size_t workers;
};

struct relay;

/* Starts the threads. */
struct relay *relay_start(const struct relay_config *config);

/* Lets each thread publish its current batch and end its claims, ends the threads, and frees the
 * relay. If the store does not answer, the claims end with their leases. */
void relay_stop(void *relay);

/* Writes the metrics of all relays together, because samples of one name must be adjacent. */
void relays_collect(struct relay *const *relays, size_t count, struct buffer *page);

#endif
