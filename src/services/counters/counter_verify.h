/*
 * Compares every counter with the messages that it counts, and repairs by telling the counters of
 * messages that they do not know to be new or read; a number is never just set. `quipu verify
 * unread` asks for it, page by page, so that it holds nobody up. Where the roles dialogs and
 * counters run in one process.
 *
 * Events that are still on their way look like differences; repairing them is harmless, because an
 * event that comes after its repair changes nothing.
 */
#ifndef QUIPU_SERVICES_COUNTERS_COUNTER_VERIFY_H
#define QUIPU_SERVICES_COUNTERS_COUNTER_VERIFY_H

#include "admin/verify.h"
#include "http/router.h"
#include "ports/message_repository.h"
#include "services/counters/counters.h"

#define REPAIRED_MAX 1024

struct unread_verifier {
	const struct message_repository *messages; /* what the counters count */
	struct store *messages_store;
	struct counters *counters;

	/* Of the one committer that all repairs go through: who was repaired in the transaction
	 * that is under way. */
	struct arena arena;
	struct slice repaired[REPAIRED_MAX];
	size_t repaired_count;
	struct session *session;
	struct cache_session *cache; /* NULL: none */
};

/* Once the stores are open. */
void unread_verify_open(struct unread_verifier *verifier);
void unread_verify_close(struct unread_verifier *verifier);

/* On the committer: tells the cache and the streams of those who were repaired. */
void unread_verify_committed(struct unread_verifier *verifier);

/*
 * What admin/verify.h asks for: counter-differs, with the members userId, unread and counted.
 * `verifier` outlives it.
 */
struct verifier unread_verifier(const struct unread_verifier *verifier);

/* Adds the route that repairs. `verifier` outlives the router. */
void unread_verify_add_routes(struct unread_verifier *verifier, struct router *router);

#endif
