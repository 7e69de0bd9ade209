/*
 * The relay of an outbox: claims events that wait, publishes them, and ends the claims, in threads
 * of its own. Several relays, in this and other processes, share one outbox: each claims what no
 * other holds, and one that has stalled past its lease publishes and records nothing.
 *
 *   claim      a transaction; up to `batch` rows, oldest first
 *   publish    all at once, outside any transaction, well within the lease
 *   end        a transaction, in which the next rows are claimed too
 *
 * An event is published at least once: a crash, or an end that could not be recorded, repeats it
 * with the same id. While the bus is away only one row is claimed a poll, as a probe, and no row is
 * ever given up for it; so an outage of any length drains by itself.
 */
#ifndef QUIPU_FLOW_RELAY_H
#define QUIPU_FLOW_RELAY_H

#include "base/buffer.h"
#include "ports/bus.h"
#include "ports/outbox_repository.h"

struct relay_config {
	const char *name;    /* "entitlements": its label in metrics and logs */
	struct store *store; /* not owned, like the bus */
	const struct outbox_repository *outbox;
	const char *announcement; /* announced on the store when rows were committed */
	struct bus *bus;

	/*
	 * Makes the message of a row, whose id is set already; what it needs is in memory of the
	 * claim or `arena`. false: the row can never be published.
	 */
	bool (*address)(struct arena *arena, const struct claim *row, struct bus_message *message);

	int64_t poll_us;
	int64_t lease_us;
	int32_t attempts_max;
	size_t batch;

	/*
	 * Threads, 1 at least. With several, one batch is ended and claimed while others wait for
	 * the bus; events then leave in order only as far as a batch goes.
	 */
	size_t workers;
};

struct relay;

/* Starts the threads. */
struct relay *relay_start(const struct relay_config *config);

/* Ends each thread after the batch it is at, returns what is claimed, and frees. */
void relay_stop(struct relay *relay);

/* The metrics of all relays of the program, since samples of one name stand together. */
void relays_collect(struct relay *const *relays, size_t count, struct buffer *page);

#endif
