/*
 * Compares every counter with the messages that it counts, page by page, for `quipu verify unread`.
 * A repair applies the missing "new" and "read" events to the counter; it never sets the count
 * directly. Requires the roles `dialogs` and `counters` in one process.
 *
 * Events that are still on their way look like differences. Repairing them is harmless, because an
 * event that arrives after the repair changes nothing.
 */
#ifndef QUIPU_SERVICES_COUNTERS_COUNTER_VERIFY_H
#define QUIPU_SERVICES_COUNTERS_COUNTER_VERIFY_H

#include <pthread.h>
#include <stdatomic.h>

#include "admin/verify.h"
#include "http/router.h"
#include "ports/message_repository.h"
#include "services/counters/counters.h"

/* A user whom a repair has changed; defined in counter_verify.c. */
struct repaired_user;

struct counter_verifier {
	const struct message_repository *messages; /* the messages that the counters count */
	struct store *messages_store;
	struct counters *counters;

	/*
	 * The members below are for repairs. All repairs have the same key and therefore run on one
	 * committer's thread, the owner. Only the owner uses these members, except that other
	 * committers read `has_owner` and `owner`. `repaired` lists the users that the current
	 * transaction repairs.
	 */
	pthread_t owner; /* set by the first repair, before has_owner */
	atomic_bool has_owner;
	struct arena arena;
	struct repaired_user *repaired; /* allocated from `arena` */
	struct session *session;
	struct cache_session *cache; /* NULL without a cache */
};

/* counter_verify_open() opens the verifier's sessions, counter_verify_close() closes them. The
 * stores must be open. */
void counter_verify_open(struct counter_verifier *verifier);
void counter_verify_close(struct counter_verifier *verifier);

/*
 * Updates the cache and streams of repaired users. Every committer of the counters' lanes calls
 * this after each COMMIT. On the thread of a committer that runs no repairs, the call does nothing.
 */
void counter_verify_committed(struct counter_verifier *verifier);

/*
 * Returns the interface of `verifier` for admin/verify.h. The only difference that it reports is
 * counter-differs, with the members userId, unread and counted. `verifier` must outlive the result.
 */
struct verifier counter_verifier(const struct counter_verifier *verifier);

/* Adds the route that repairs one user. `verifier` must outlive the router. */
void counter_verify_add_routes(struct counter_verifier *verifier, struct router *router);

#endif
