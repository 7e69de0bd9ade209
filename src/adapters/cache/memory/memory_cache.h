/*
 * Implements ports/cache.h inside this process: a hash table under one mutex, which a call holds
 * for its whole batch. The cache is always available. Several processes with memory caches would
 * disagree about cached values, so the program refuses this cache together with PostgreSQL, which
 * several processes can share.
 *
 * The cache keeps at most MEMORY_CACHE_ENTRIES_MAX entries: limits, counters, lists and leases
 * together. When it is full, it evicts the entry that was stored longest ago; limit_take() does not
 * count as storing. An expired entry is removed when a look-up finds it, or when it is evicted.
 */
#ifndef QUIPU_ADAPTERS_CACHE_MEMORY_MEMORY_CACHE_H
#define QUIPU_ADAPTERS_CACHE_MEMORY_MEMORY_CACHE_H

#include "base/clock.h"
#include "ports/cache.h"

#define MEMORY_CACHE_ENTRIES_MAX 100000

/*
 * Entries expire by the monotonic time of `clock`, because a wall clock that steps back would keep
 * an exhausted limit past its window. `name` and `clock` must live as long as the cache.
 */
struct cache *memory_cache_new(const char *name, const struct clock *clock);

#endif
