/*
 * Looks counters up: in the cache, with one request for the whole batch, and then, for users that
 * the cache does not know, in the store with one query. Values from the store go into the cache
 * under the lease that the miss returned. A writer that commits in between deletes the lease, so an
 * old value never comes back.
 */
#ifndef QUIPU_SERVICES_COUNTERS_COUNTER_LOOKUP_H
#define QUIPU_SERVICES_COUNTERS_COUNTER_LOOKUP_H

#include "flow/reader.h"
#include "services/counters/counters.h"

/* The key of its command is the user's id. */
struct counter_lookup {
	struct read read;
	bool is_list;          /* a list of all counters of the user, otherwise the one counter */
	int64_t version;       /* set by counter_look_up() */
	struct stream *stream; /* the stream that waits for it, or NULL */
};

extern const struct command_type counter_lookup_type;

/* Creates one in `arena`, zeroed except for its type. */
struct counter_lookup *counter_lookup_new(struct arena *arena);

/* Aborts if `read` is of another type. */
struct counter_lookup *counter_lookup_of(struct read *read);

/* Answers every read of the batch (each a struct counter_lookup); see flow/reader.h. Blocks. */
enum status counter_look_up(
	struct counters *counters, struct session *session, const struct read_batch *batch);

#endif
