/*
 * A cache may forget anything at any time and may be unreachable; correctness never depends on it.
 * Implemented by adapters/cache/memory and adapters/cache/redis. If there is no cache, the pointer
 * to it is NULL.
 *
 * A session is used by one thread at a time. Its functions block for at most a few round trips,
 * however many entries there are, and each round trip has a short timeout. CACHE_AWAY means that
 * the cache cannot be used now and the caller continues without it. While the cache is away, calls
 * return immediately and a background probe tries to reach the cache; each change of state is
 * logged once.
 */
#ifndef QUIPU_PORTS_CACHE_H
#define QUIPU_PORTS_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/metrics.h"
#include "base/slice.h"
#include "base/status.h"

/*
 * A user's limit in the cache: the hash RateLimiterCache:<userId> with the fields rateLimit,
 * currentCount, windowStart (microseconds since 1970) and windowLength (microseconds). The hash
 * expires with the window. Only windowStart may be negative; all other numbers are at least 0.
 * Counts stay below 10^15 and times below 10^17. A user id has at most 256 bytes.
 */
struct cached_limit {
	struct slice user_id;

	/* Input of limit_take. */
	int64_t wanted;

	/* The members below are output of limit_take. All of them except `hit` and `granted` are
	 * also input of limit_fill. */
	bool hit;
	int64_t granted; /* min(wanted, rate_limit - previous current_count), at least 0 */
	int64_t rate_limit;
	int64_t current_count;   /* including `granted` */
	int64_t window_start_us; /* 0 if another program wrote the hash without windowStart */
	int64_t window_us;       /* length of the window */
	/* limit_take returns the time until the entry expires; limit_fill keeps the entry for this
	 * time, rounded up to whole seconds */
	int64_t ttl_us;
};

#define CACHE_COUNTER_TTL_S 300
#define CACHE_LEASE_TTL_S 10

/*
 * A user's counter in the cache, kept for 5 minutes. counter:<userId>:UnreadMessages holds
 * {"count","version","lastUpdated"}; counters:<userId>, the list of all the user's counters, holds
 * an array of objects with "type" and these three members. Count and version are not negative and
 * stay below 10^15. Version 0 means that the user has no counter; this is cached as well.
 *
 * A user has one lease (counter:<userId>:UnreadMessages:lease, 10 s) for the counter and the list
 * together. A reader that does not find a value in the cache takes the lease and then reads the
 * value from the store. The reader may put that value into the cache only if it still holds the
 * lease. After a commit, a writer refreshes the cache, which also deletes the lease. So a reader
 * never caches a value older than the last refresh:
 *
 *   event since the reader took its lease            why the cache refuses the reader's value
 *   a refresh                                        the lease is gone
 *   a refresh, then a deletion, eviction or expiry   the lease is gone
 *   the lease expired                                the lease is gone
 *   the lease expired, another reader took a lease   the reader's lease is not the current lease
 *
 * Only readers create entries. A refresh replaces an existing entry unless the entry has a later
 * version. So the cache never serves a value older than the last refreshed value, in whatever order
 * refreshes arrive and whatever is deleted, evicted or expires in between. This holds only if the
 * cache never restores a value that it has lost. A Redis that restarts from an older snapshot, or
 * fails over to a replica that lagged behind, does restore older values.
 */
struct cached_counter {
	struct slice user_id;
	/* input of counter_get and counter_fill: true if the entry is the list, false if it is the
	 * counter */
	bool is_list;
	bool hit;      /* set by counter_get */
	int64_t lease; /* set by counter_get on a miss; 0 if another reader has the lease */
	int64_t count;
	int64_t version;
	int64_t updated_us;
};

struct cache_session;

struct cache_session_ops {
	/*
	 * For each element of `limits`, atomically: reads the user's hash, grants as much of
	 * `wanted` as the limit leaves, and adds the grant to currentCount. On a miss, only sets
	 * `hit` to false and `granted` to 0. If the function returns CACHE_AWAY, `limits` is
	 * unchanged, but the cache may have counted the grants.
	 */
	QP_MUST_CHECK enum status (*limit_take)(
		struct cache_session *session, struct cached_limit *limits, size_t count);

	/* Stores each limit that the cache does not have yet, with its time to live. */
	QP_MUST_CHECK enum status (*limit_fill)(
		struct cache_session *session, const struct cached_limit *limits, size_t count);

	/*
	 * Deletes the hashes of these users. If a deletion fails, the adapter remembers the
	 * deletion and repeats it before it uses the cache again.
	 */
	QP_MUST_CHECK enum status (*limit_drop)(
		struct cache_session *session, const struct slice *user_ids, size_t count);

	/*
	 * For each element of `counters`: fills in the counter, or takes a lease if the cache does
	 * not have the counter. A cached value that does not have the form that struct
	 * cached_counter describes counts as a miss. If the function returns CACHE_AWAY, `counters`
	 * is unchanged, but leases may have been taken.
	 */
	QP_MUST_CHECK enum status (*counter_get)(
		struct cache_session *session, struct cached_counter *counters, size_t count);

	/*
	 * For each element of `counters` whose lease is still valid: deletes the lease, and writes
	 * the counter to the cache unless the cache has a later version.
	 */
	QP_MUST_CHECK enum status (*counter_fill)(
		struct cache_session *session, const struct cached_counter *counters, size_t count);

	/*
	 * Call it after a change has committed. For each element of `counters`: replaces the cached
	 * counter, unless the cached version is later. Always deletes the lease and the list. If a
	 * refresh fails, the counter, the lease and the list are deleted before the cache is used
	 * again.
	 *
	 * A counter that is not in the cache is not written: a later version may have been cached
	 * and then deleted or expired. The next reader puts the counter into the cache.
	 */
	QP_MUST_CHECK enum status (*counter_refresh)(
		struct cache_session *session, const struct cached_counter *counters, size_t count);

	void (*close)(struct cache_session *session);
};

struct cache_session {
	const struct cache_session_ops *ops;
};

struct cache;

struct cache_ops {
	/*
	 * Starts connecting in the background. Returns false if the cache can never work; `why` is
	 * then a sentence for the user.
	 */
	QP_MUST_CHECK bool (*start)(struct cache *cache, char *why, size_t size);

	struct cache_session *(*open_session)(struct cache *cache);

	/* Returns whether the cache can be used now. Thread-safe; never blocks. */
	bool (*is_up)(struct cache *cache);

	/*
	 * Sends `announcement`, which means that something new was committed, to its listeners in
	 * OTHER processes that use this cache. Each announcement is sent at most once per 20 ms,
	 * and it can get lost. It always gets lost if this process has not called listen() yet.
	 * `announcement` must be static. Thread-safe; never blocks.
	 */
	void (*announce)(struct cache *cache, const char *announcement);

	/*
	 * From now on `heard` is called whenever another process sends `announcement`, and when the
	 * cache is back after it was away, because another process may have sent `announcement`
	 * meanwhile. `heard` runs on any thread; it must neither block nor call listen().
	 * `announcement` must be static. Call listen() and unlisten() after start(), from one
	 * thread at a time.
	 */
	void (*listen)(struct cache *cache, const char *announcement, void (*heard)(void *context),
		void *context);

	/* Once unlisten() returns, no function is called with this context any more. */
	void (*unlisten)(struct cache *cache, void *context);

	/* Call it after all sessions are closed. */
	void (*free)(struct cache *cache);
};

/* Each adapter embeds this struct as the first member of a struct of its own. */
struct cache {
	const struct cache_ops *ops;
	const char *name;       /* the name in /readyz and the metrics, e.g. "cache" */
	const char *engine;     /* "memory", "redis" */
	struct latency latency; /* latency of round trips; stays empty for the memory engine */
};

#endif
