#include "adapters/memory/memory_cache.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/arena.h"
#include "base/hash.h"

#define US_PER_S 1000000LL

/* More than any window; keeps the end of an entry within int64 nanoseconds. */
#define TTL_S_MAX (100LL * 366 * 24 * 3600)

/* A power of two above MEMORY_CACHE_ENTRIES_MAX; chains stay short. */
#define BUCKETS 131072

struct entry {
	struct entry *next; /* in its bucket */
	struct entry *older;
	struct entry *newer;
	int64_t rate_limit;
	int64_t current_count;
	int64_t window_start_us;
	int64_t window_us;
	int64_t ends_at_ns;
	size_t user_id_len;
	char user_id[];
};

struct memory_cache {
	struct cache base;
	const struct clock *clock;
	atomic_bool started;
	atomic_int sessions;

	pthread_mutex_t lock; /* guards what follows */
	struct entry *buckets[BUCKETS];
	struct entry *oldest;
	struct entry *newest;
	size_t count;
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

/* ---- entries, all with the lock held ----------------------------------------------------- */

/* Where the pointer to the user's entry is, or would be put. */
static struct entry **find_slot(struct memory_cache *cache, struct slice user_id)
{
	struct entry **slot = &cache->buckets[hash_bytes(user_id) % BUCKETS];

	while (*slot && !slice_equal(slice_make((*slot)->user_id, (*slot)->user_id_len), user_id))
		slot = &(*slot)->next;
	return slot;
}

static void link_newest(struct memory_cache *cache, struct entry *entry)
{
	entry->older = cache->newest;
	entry->newer = NULL;
	if (cache->newest)
		cache->newest->newer = entry;
	else
		cache->oldest = entry;
	cache->newest = entry;
	cache->count++;
}

static void unlink_age(struct memory_cache *cache, struct entry *entry)
{
	assert(cache->count > 0);
	if (entry->older)
		entry->older->newer = entry->newer;
	else
		cache->oldest = entry->newer;
	if (entry->newer)
		entry->newer->older = entry->older;
	else
		cache->newest = entry->older;
	cache->count--;
}

static void remove_at(struct memory_cache *cache, struct entry **slot)
{
	struct entry *entry = *slot;

	if (!entry)
		return;
	*slot = entry->next;
	unlink_age(cache, entry);
	free(entry);
}

static void remove_oldest(struct memory_cache *cache)
{
	struct entry *oldest = cache->oldest;

	remove_at(cache, find_slot(cache, slice_make(oldest->user_id, oldest->user_id_len)));
}

/* The user's entry if it has not ended. */
static struct entry *find_live(struct memory_cache *cache, struct slice user_id, int64_t now_ns)
{
	struct entry **slot = find_slot(cache, user_id);

	if (*slot && (*slot)->ends_at_ns <= now_ns)
		remove_at(cache, slot);
	else if (*slot)
		return *slot;
	return NULL;
}

/* The same as in Redis: whole seconds, rounded up, at least one. */
static int64_t ttl_ns(int64_t ttl_us)
{
	int64_t ttl_s = ttl_us / US_PER_S + (ttl_us % US_PER_S > 0);

	if (ttl_s < 1)
		ttl_s = 1;
	return (ttl_s < TTL_S_MAX ? ttl_s : TTL_S_MAX) * NS_PER_S;
}

static void add(struct memory_cache *cache, const struct cached_limit *limit, int64_t now_ns)
{
	struct entry *entry = qp_malloc(sizeof(*entry) + limit->user_id.len);
	struct entry **slot;

	if (cache->count == MEMORY_CACHE_ENTRIES_MAX)
		remove_oldest(cache);
	slot = find_slot(cache, limit->user_id);
	assert(!*slot);
	*entry = (struct entry){.rate_limit = limit->rate_limit,
		.current_count = limit->current_count,
		.window_start_us = limit->window_start_us,
		.window_us = limit->window_us,
		.ends_at_ns = now_ns + ttl_ns(limit->ttl_us),
		.user_id_len = limit->user_id.len};
	memcpy(entry->user_id, limit->user_id.data, limit->user_id.len);
	*slot = entry;
	link_newest(cache, entry);
}

static int64_t least(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static void take(struct entry *entry, struct cached_limit *limit, int64_t now_ns)
{
	int64_t left = entry->rate_limit - entry->current_count;

	assert(limit->wanted >= 0);
	limit->granted = left > 0 ? least(limit->wanted, left) : 0;
	entry->current_count += limit->granted;
	limit->rate_limit = entry->rate_limit;
	limit->current_count = entry->current_count;
	limit->window_start_us = entry->window_start_us;
	limit->window_us = entry->window_us;
	limit->ttl_us = (entry->ends_at_ns - now_ns) / NS_PER_US;
}

/* ---- sessions ---------------------------------------------------------------------------- */

static enum status limit_take(
	struct cache_session *session, struct cached_limit *limits, size_t count)
{
	struct memory_cache *cache = session_of(session)->cache;
	int64_t now_ns = clock_steady_ns(cache->clock);

	pthread_mutex_lock(&cache->lock);
	for (size_t i = 0; i < count; i++) {
		struct entry *entry = find_live(cache, limits[i].user_id, now_ns);

		limits[i].hit = entry != NULL;
		limits[i].granted = 0;
		if (entry)
			take(entry, &limits[i], now_ns);
	}
	pthread_mutex_unlock(&cache->lock);
	return STATUS_OK;
}

static enum status limit_fill(
	struct cache_session *session, const struct cached_limit *limits, size_t count)
{
	struct memory_cache *cache = session_of(session)->cache;
	int64_t now_ns = clock_steady_ns(cache->clock);

	pthread_mutex_lock(&cache->lock);
	for (size_t i = 0; i < count; i++) {
		assert(limits[i].rate_limit >= 0 && limits[i].current_count >= 0);
		if (!find_live(cache, limits[i].user_id, now_ns))
			add(cache, &limits[i], now_ns);
	}
	pthread_mutex_unlock(&cache->lock);
	return STATUS_OK;
}

static enum status limit_drop(
	struct cache_session *session, const struct slice *user_ids, size_t count)
{
	struct memory_cache *cache = session_of(session)->cache;

	pthread_mutex_lock(&cache->lock);
	for (size_t i = 0; i < count; i++)
		remove_at(cache, find_slot(cache, user_ids[i]));
	pthread_mutex_unlock(&cache->lock);
	return STATUS_OK;
}

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

/* ---- life -------------------------------------------------------------------------------- */

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
	while (cache->oldest)
		remove_oldest(cache);
	pthread_mutex_destroy(&cache->lock);
	free(cache);
}

static const struct cache_ops cache_ops = {
	.start = start,
	.open_session = open_session,
	.is_up = is_up,
	.free = free_cache,
};

struct cache *memory_cache_new(const char *name, const struct clock *clock)
{
	struct memory_cache *cache = qp_calloc(1, sizeof(*cache));

	cache->base.ops = &cache_ops;
	cache->base.name = name;
	cache->base.engine = "memory";
	cache->clock = clock;
	pthread_mutex_init(&cache->lock, NULL);
	return &cache->base;
}
