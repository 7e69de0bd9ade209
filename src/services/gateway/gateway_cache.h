/*
 * The cache in front of the store. It may refuse a send by itself, but a send that it grants must
 * still be admitted by the row. Therefore a cache that forgets, holds wrong values or is restored
 * from an old copy can cost a user slots, but never admits more messages than the limit.
 *
 * Sends and takes with an Idempotency-Key bypass the cache: they may be repeats, which only the
 * store recognises. Users in shadow mode are not cached, because they are never refused.
 */
#ifndef QUIPU_SERVICES_GATEWAY_CACHE_H
#define QUIPU_SERVICES_GATEWAY_CACHE_H

#include "services/gateway/gateway_batch.h"

/*
 * Asks the cache about the sends and takes that have no answer yet and no Idempotency-Key. Answers
 * those that the cache refuses, and marks those for which the cache grants slots. On a miss, fills
 * the cache from the store, in a separate transaction. While the store is known to be down, takes
 * no slots and only refuses. Does nothing if the cache cannot be reached. Requires lane->cache.
 * Called on the committer's thread; blocks.
 */
void gateway_cache_refuse(
	struct gateway_lane *lane, struct session *session, const struct write_batch *batch);

/*
 * Called if these writes have failed. Deletes the cached copies that granted slots to them, because
 * it is not certain that the row has admitted them, and the copies of users whose configuration may
 * have changed, because the COMMIT may have succeeded. The next copy is filled from the row, so it
 * counts what the row counts. Skips writes of other types. Requires lane->cache. Called on the
 * committer's thread; blocks.
 */
void gateway_cache_forget(struct gateway_lane *lane, const struct command_list *writes);

/* The functions below require lane->cache and are called on the committer's thread. Only the last
 * one blocks. */

/* Notes that a user's cached copy must be deleted. */
void gateway_cache_note_stale(struct gateway_lane *lane, struct slice user_id);

/* Notes the copies that count a slot which a transaction is about to give back: while the message
 * of a send was under way, a copy may have been filled from the row. Skips sends that got their
 * slot from the cache, because such a slot stays spent in the copy (docs/GATEWAY.md). */
void gateway_cache_note_given_back(struct gateway_lane *lane, const struct write_batch *ended);

/* Deletes the noted copies. */
void gateway_cache_drop_stale(struct gateway_lane *lane);

#endif
