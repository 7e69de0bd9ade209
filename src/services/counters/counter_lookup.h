/*
 * Counts from the cache, one question for a whole batch; what it does not have, from the store, one
 * query, and then into the cache under the lease that the miss gave: a writer that commits in
 * between deletes the lease, so an old value never comes back.
 */
#ifndef QUIPU_SERVICES_COUNTERS_COUNTER_LOOKUP_H
#define QUIPU_SERVICES_COUNTERS_COUNTER_LOOKUP_H

#include "flow/reader.h"
#include "services/counters/counters.h"

/* The key of its command is the user's id. */
struct counter_lookup {
	struct read read;
	bool is_list;          /* all counters of the user, else the one */
	int64_t version;       /* out: of the counter that was answered with */
	struct stream *stream; /* that it is for; NULL: none */
};

extern const struct command_type counter_lookup_type;

/* Creates one in `arena`, zeroed except for its type. */
struct counter_lookup *counter_lookup_new(struct arena *arena);

/* Aborts if `read` is of another type. */
struct counter_lookup *counter_lookup_of(struct read *read);

/* See flow/reader.h; the context is the struct counters. */
enum status counter_look_up(
	struct counters *counters, struct session *session, const struct read_batch *batch);

#endif
