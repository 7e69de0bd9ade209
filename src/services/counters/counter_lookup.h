/*
 * Looks up counters: first in the cache, with one request for the whole batch; then in the store,
 * with one query for the users that the cache does not have. On a miss, the cache grants a lease to
 * one reader, and the value from the store is written into the cache only under that lease. A
 * writer that commits after the miss deletes the lease, so an old value never replaces a newer
 * value.
 */
#ifndef QUIPU_SERVICES_COUNTERS_COUNTER_LOOKUP_H
#define QUIPU_SERVICES_COUNTERS_COUNTER_LOOKUP_H

#include "flow/reader.h"
#include "services/counters/counters.h"

/* A lookup of a counter. The key of its command is the user's id. */
struct counter_lookup {
	struct read read;
	bool is_list;          /* look up the list of all the user's counters, not just one */
	int64_t version;       /* set by counter_look_up() */
	struct stream *stream; /* the stream that waits for this value, or NULL */
	struct hub *hub;       /* the hub of that stream */
};

extern const struct command_type counter_lookup_type;

/* Creates a zeroed lookup in `arena`, and sets its type. */
struct counter_lookup *counter_lookup_new(struct arena *arena);

/* Returns the lookup that `read` belongs to. Aborts if `read` is not a counter lookup. */
struct counter_lookup *counter_lookup_of(struct read *read);

/* Answers every read of the batch (each a struct counter_lookup); see flow/reader.h. Blocks. */
enum status counter_look_up(
	struct counters *counters, struct session *session, const struct read_batch *batch);

#endif
