/*
 * The memory cache: the calls of ports/cache.h on a table under one mutex.
 *
 * A call holds the lock for its whole batch, so each entry is handled atomically. No call can fail.
 * TTLs and versions follow the same rules as in the Redis cache, and one contract suite tests both
 * caches.
 */
#include "adapters/cache/memory/memory_cache.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "adapters/cache/memory/memory_table.h"
#include "base/arena.h"
#include "base/random.h"

#define US_PER_S 1000000LL

/* The longest TTL. It is longer than any limit's window, but short enough that an expiry in
 * nanoseconds fits into an int64. */
#define TTL_S_MAX (100LL * 366 * 24 * 3600)

struct memory_cache {
	struct cache base;
	const struct clock *clock;
	atomic_bool started;
	atomic_int sessions;

	pthread_mutex_t lock; /* guards the members below */
	struct memory_table table;
	struct dice dice; /* generates lease numbers */
};

struct memory_session {
	struct cache_session base;
	struct memory_cache *cache;
};

static const struct cache_ops cache_ops;
static const struct cache_session_ops session_ops;

static struct memory_cache *cache_of(struct cache *cache)
{
	assert(cache->ops == &cache_ops);
	return (struct memory_cache *)cache;
}

static struct memory_session *session_of(struct cache_session *session)
{
	assert(session->ops == &session_ops);
	return (struct memory_session *)session;
}

/* ---- limits ------------------------------------------------------------------------------ */

/* Converts a TTL to nanoseconds. Like the Redis cache, rounds it up to whole seconds, and to at
 * least one second. */
static int64_t ttl_ns(int64_t ttl_us)
{
	int64_t ttl_s = ttl_us / US_PER_S + (ttl_us % US_PER_S > 0);

	if (ttl_s < 1)
		ttl_s = 1;
	return (ttl_s < TTL_S_MAX ? ttl_s : TTL_S_MAX) * NS_PER_S;
}

static int64_t least(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/* The caller holds the lock. */
static void take(struct memory_limit *there, struct cached_limit *limit)
{
	int64_t left = there->rate_limit - there->current_count;

	assert(limit->wanted >= 0);
	limit->granted = left > 0 ? least(limit->wanted, left) : 0;
	there->current_count += limit->granted;
	limit->rate_limit = there->rate_limit;
	limit->current_count = there->current_count;
	limit->window_start_us = there->window_start_us;
	limit->window_us = there->window_us;
}

static enum status limit_take(
	struct cache_session *session, struct cached_limit *limits, size_t count)
{
	struct memory_cache *cache = session_of(session)->cache;
	int64_t now_ns = clock_steady_ns(cache->clock);

	pthread_mutex_lock(&cache->lock);
	for (size_t i = 0; i < count; i++) {
		struct memory_entry *entry =
			memory_table_find(&cache->table, MEMORY_LIMIT, limits[i].user_id, now_ns);

		limits[i].hit = entry != NULL;
		limits[i].granted = 0;
		if (!entry)
			continue;
		take(&entry->limit, &limits[i]);
		limits[i].ttl_us = (entry->ends_at_ns - now_ns) / NS_PER_US;
	}
	pthread_mutex_unlock(&cache->lock);
	return STATUS_OK;
}

/* The caller holds the lock. */
static void fill_limit(struct memory_cache *cache, const struct cached_limit *limit, int64_t now_ns)
{
	struct memory_entry *entry;

	assert(limit->rate_limit >= 0 && limit->current_count >= 0);
	if (memory_table_find(&cache->table, MEMORY_LIMIT, limit->user_id, now_ns))
		return;
	entry = memory_table_put(
		&cache->table, MEMORY_LIMIT, limit->user_id, now_ns + ttl_ns(limit->ttl_us));
	entry->limit = (struct memory_limit){.rate_limit = limit->rate_limit,
		.current_count = limit->current_count,
		.window_start_us = limit->window_start_us,
		.window_us = limit->window_us};
}

static enum status limit_fill(
	struct cache_session *session, const struct cached_limit *limits, size_t count)
{
	struct memory_cache *cache = session_of(session)->cache;
	int64_t now_ns = clock_steady_ns(cache->clock);

	pthread_mutex_lock(&cache->lock);
	for (size_t i = 0; i < count; i++)
		fill_limit(cache, &limits[i], now_ns);
	pthread_mutex_unlock(&cache->lock);
	return STATUS_OK;
}

static enum status limit_drop(
	struct cache_session *session, const struct slice *user_ids, size_t count)
{
	struct memory_cache *cache = session_of(session)->cache;

	pthread_mutex_lock(&cache->lock);
	for (size_t i = 0; i < count; i++)
		memory_table_remove(&cache->table, MEMORY_LIMIT, user_ids[i]);
	pthread_mutex_unlock(&cache->lock);
	return STATUS_OK;
}

/* ---- counters; the caller of the functions up to refresh() holds the lock ---------------- */

static enum memory_kind kind_of(const struct cached_counter *counter)
{
	return counter->is_list ? MEMORY_LIST : MEMORY_COUNTER;
}

/* Returns a new lease, or 0 if another reader has the user's lease. */
static int64_t grant_lease(struct memory_cache *cache, struct slice user_id, int64_t now_ns)
{
	struct memory_entry *entry;

	if (memory_table_find(&cache->table, MEMORY_LEASE, user_id, now_ns))
		return 0;
	entry = memory_table_put(
		&cache->table, MEMORY_LEASE, user_id, now_ns + CACHE_LEASE_TTL_S * NS_PER_S);
	entry->lease = 1 + (int64_t)dice_below(&cache->dice, INT64_MAX);
	return entry->lease;
}

static bool holds_lease(
	struct memory_cache *cache, const struct cached_counter *counter, int64_t now_ns)
{
	const struct memory_entry *entry =
		memory_table_find(&cache->table, MEMORY_LEASE, counter->user_id, now_ns);

	return counter->lease != 0 && entry && entry->lease == counter->lease;
}

static void get(struct memory_cache *cache, struct cached_counter *counter, int64_t now_ns)
{
	const struct memory_entry *entry =
		memory_table_find(&cache->table, kind_of(counter), counter->user_id, now_ns);

	counter->hit = entry != NULL;
	counter->lease = entry ? 0 : grant_lease(cache, counter->user_id, now_ns);
	if (!entry)
		return;
	counter->count = entry->counter.count;
	counter->version = entry->counter.version;
	counter->updated_us = entry->counter.updated_us;
}

/* Writes the counter, unless the table has a later version. */
static void put(struct memory_cache *cache, enum memory_kind kind,
	const struct cached_counter *counter, int64_t now_ns)
{
	struct memory_entry *entry =
		memory_table_find(&cache->table, kind, counter->user_id, now_ns);

	assert(counter->count >= 0 && counter->version >= 0);
	if (entry && entry->counter.version > counter->version)
		return;
	entry = memory_table_put(
		&cache->table, kind, counter->user_id, now_ns + CACHE_COUNTER_TTL_S * NS_PER_S);
	entry->counter = (struct memory_counter){.count = counter->count,
		.version = counter->version,
		.updated_us = counter->updated_us};
}

/* Updates the counter only if the table contains it. A missing counter is not added, because the
 * table may have contained and removed a later version of it. */
static void refresh(
	struct memory_cache *cache, const struct cached_counter *counter, int64_t now_ns)
{
	memory_table_remove(&cache->table, MEMORY_LEASE, counter->user_id);
	memory_table_remove(&cache->table, MEMORY_LIST, counter->user_id);
	if (memory_table_find(&cache->table, MEMORY_COUNTER, counter->user_id, now_ns))
		put(cache, MEMORY_COUNTER, counter, now_ns);
}

static enum status counter_get(
	struct cache_session *session, struct cached_counter *counters, size_t count)
{
	struct memory_cache *cache = session_of(session)->cache;
	int64_t now_ns = clock_steady_ns(cache->clock);

	pthread_mutex_lock(&cache->lock);
	for (size_t i = 0; i < count; i++)
		get(cache, &counters[i], now_ns);
	pthread_mutex_unlock(&cache->lock);
	return STATUS_OK;
}

static enum status counter_fill(
	struct cache_session *session, const struct cached_counter *counters, size_t count)
{
	struct memory_cache *cache = session_of(session)->cache;
	int64_t now_ns = clock_steady_ns(cache->clock);

	pthread_mutex_lock(&cache->lock);
	for (size_t i = 0; i < count; i++) {
		if (!holds_lease(cache, &counters[i], now_ns))
			continue;
		memory_table_remove(&cache->table, MEMORY_LEASE, counters[i].user_id);
		put(cache, kind_of(&counters[i]), &counters[i], now_ns);
	}
	pthread_mutex_unlock(&cache->lock);
	return STATUS_OK;
}

static enum status counter_refresh(
	struct cache_session *session, const struct cached_counter *counters, size_t count)
{
	struct memory_cache *cache = session_of(session)->cache;
	int64_t now_ns = clock_steady_ns(cache->clock);

	pthread_mutex_lock(&cache->lock);
	for (size_t i = 0; i < count; i++)
		refresh(cache, &counters[i], now_ns);
	pthread_mutex_unlock(&cache->lock);
	return STATUS_OK;
}

/* ---- sessions ---------------------------------------------------------------------------- */

static void close_session(struct cache_session *base)
{
	struct memory_session *session = session_of(base);

	atomic_fetch_sub(&session->cache->sessions, 1);
	free(session);
}

static const struct cache_session_ops session_ops = {
	.limit_take = limit_take,
	.limit_fill = limit_fill,
	.limit_drop = limit_drop,
	.counter_get = counter_get,
	.counter_fill = counter_fill,
	.counter_refresh = counter_refresh,
	.close = close_session,
};

static struct cache_session *open_session(struct cache *base)
{
	struct memory_session *session = qp_calloc(1, sizeof(*session));

	session->base.ops = &session_ops;
	session->cache = cache_of(base);
	atomic_fetch_add(&session->cache->sessions, 1);
	return &session->base;
}

/* ---- the port's functions ---------------------------------------------------------------- */

static bool start(struct cache *base, char *why, size_t size)
{
	(void)why;
	(void)size;
	atomic_store(&cache_of(base)->started, true);
	return true;
}

static bool is_up(struct cache *base)
{
	return atomic_load(&cache_of(base)->started);
}

static void free_cache(struct cache *base)
{
	struct memory_cache *cache = cache_of(base);

	assert(atomic_load(&cache->sessions) == 0);
	memory_table_clear(&cache->table);
	pthread_mutex_destroy(&cache->lock);
	free(cache);
}

/* No other process uses this cache, so announcements are neither sent nor received. */
static void announce(struct cache *base, const char *announcement)
{
	(void)base;
	(void)announcement;
}

static void listen_to(
	struct cache *base, const char *announcement, void (*heard)(void *context), void *context)
{
	(void)base;
	(void)announcement;
	(void)heard;
	(void)context;
}

static void unlisten(struct cache *base, void *context)
{
	(void)base;
	(void)context;
}

static const struct cache_ops cache_ops = {
	.start = start,
	.open_session = open_session,
	.is_up = is_up,
	.announce = announce,
	.listen = listen_to,
	.unlisten = unlisten,
	.free = free_cache,
};

struct cache *memory_cache_new(const char *name, const struct clock *clock)
{
	struct memory_cache *cache = qp_calloc(1, sizeof(*cache));

	cache->base.ops = &cache_ops;
	cache->base.name = name;
	cache->base.engine = "memory";
	cache->clock = clock;
	dice_init(&cache->dice);
	pthread_mutex_init(&cache->lock, NULL);
	return &cache->base;
}
