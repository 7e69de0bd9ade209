/*
 * A cache in this process, behind ports/cache.h: a hash table under one mutex, which a call holds
 * for its whole batch. It is never away. Several processes would each have their own, and disagree;
 * whoever builds the program refuses that.
 *
 * At most MEMORY_CACHE_ENTRIES_MAX entries are kept, limits, counters and leases together; after
 * that the one that was filled first goes. What has ended is removed when it is met, or by that
 * rule.
 */
#ifndef QUIPU_ADAPTERS_CACHE_MEMORY_MEMORY_CACHE_H
#define QUIPU_ADAPTERS_CACHE_MEMORY_MEMORY_CACHE_H

#include "base/clock.h"
#include "ports/cache.h"

#define MEMORY_CACHE_ENTRIES_MAX 100000

/*
 * Entries end by the steady time of `clock`: a wall clock that steps back would keep a full limit
 * alive past its window. `name` and `clock` must live as long as the cache.
 */
struct cache *memory_cache_new(const char *name, const struct clock *clock);

#endif
