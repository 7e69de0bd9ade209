/*
 * The cache in front of the store. It may refuse a send by itself; what it grants is still admitted
 * by the row. So a cache that forgets, holds wrong values or is restored from an old copy can cost
 * a user slots or save the store work, but never admits one message too many.
 *
 * Sends and takes with an Idempotency-Key bypass it: they may be repeats, which only the store
 * recognises. Users in shadow mode are not in the cache, because nothing is refused to them.
 */
#ifndef QUIPU_SERVICES_GATEWAY_CACHE_H
#define QUIPU_SERVICES_GATEWAY_CACHE_H

#include "services/gateway/gateway_batch.h"

/*
 * Answers the open sends and takes that the cache refuses and marks those that it grants. Fills the
 * cache from the store on a miss, in transactions of its own. Does nothing if the cache cannot be
 * reached. Requires lane->cache. On the lane's thread; blocks.
 */
void gateway_cache_refuse(
	struct gateway_lane *lane, struct session *session, const struct write_batch *batch);

/* Notes that the cached copy of a user has to be deleted before the lane uses the cache again. */
void gateway_cache_note_stale(struct gateway_lane *lane, struct slice user_id);

#endif
