/*
 * A cache: may forget anything at any time, may be away, and is never asked to be right.
 * Implemented by adapters/cache/memory and adapters/cache/redis. (No cache is a NULL pointer.)
 *
 * A session is used by one thread at a time; its functions block, each for one round trip whatever
 * the number of entries, and are bounded by a short timeout. CACHE_AWAY: the cache cannot be used
 * now; the caller goes on without it. While it is away calls return at once and a background probe
 * looks for it; the change of state is logged once.
 */
#ifndef QUIPU_PORTS_CACHE_H
#define QUIPU_PORTS_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/slice.h"
#include "base/status.h"

/*
 * A user's limit in the cache: hash RateLimiterCache:<userId> with the fields rateLimit,
 * currentCount, windowStart (microseconds since 1970) and windowLength (microseconds), which ends
 * with the window. No number is negative, counts stay below 10^15, times below 10^17; user ids have
 * at most 256 bytes.
 */
struct cached_limit {
	struct slice user_id;

	/* limit_take: in */
	int64_t wanted;

	/* limit_take: out; limit_fill: in, but for granted and hit */
	bool hit;
	int64_t granted; /* min(wanted, rate_limit - current_count before), at least 0 */
	int64_t rate_limit;
	int64_t current_count; /* after what was granted */
	int64_t window_start_us;
	int64_t window_us; /* how long the window is */
	int64_t ttl_us; /* limit_take: what is left; limit_fill: rounded up to a second by the cache
			 */
};

#define CACHE_COUNTER_TTL_S 300
#define CACHE_LEASE_TTL_S 10

/*
 * A user's counter in the cache, for 5 minutes: counter:<userId>:UnreadMessages holds
 * {"count","version","lastUpdated"}; and counters:<userId>, the list of all, holds the same in an
 * array, with a "type" before. Count and version are not negative and stay below 10^15.
 *
 * A reader that finds nothing gets the user's lease (counter:<userId>:UnreadMessages:lease, 10 s),
 * one for the counter and the list, and may write what it then reads from the store only while it
 * holds that; writers delete it. So what a reader writes is never older than the last refresh:
 *
 *   what happened since the reader got its lease     why its value is not written
 *   refreshed                                        the lease is gone
 *   refreshed, then deleted, evicted or expired      the lease is gone
 *   the lease ended                                  the lease is gone
 *   it ended, and another reader has it              that is another lease
 *
 * Readers alone make entries; a refresh replaces the one that is there, if that is not of a later
 * version. So a value older than the last refreshed one is never served, in whatever order
 * refreshes come and whatever is deleted, evicted or ends in between. That is for a cache that
 * forgets: a Redis that has died and is back with an older snapshot, or as a replica that lagged,
 * brings older values back with it.
 */
struct cached_counter {
	struct slice user_id;
	bool is_list;  /* counter_get, counter_fill: of the list, else of the counter */
	bool hit;      /* counter_get: out */
	int64_t lease; /* counter_get: out where it missed, 0: another reader has it */
	int64_t count;
	int64_t version;
	int64_t updated_us;
};

struct cache_session;

struct cache_session_ops {
	/*
	 * For each entry, atomically: read the hash, grant what the limit leaves, add it to
	 * currentCount. A miss writes hit = false and granted = 0, and nothing else. One script,
	 * one round trip. CACHE_AWAY leaves the entries as they are; what was granted may be
	 * counted.
	 */
	QP_MUST_CHECK enum status (*limit_take)(
		struct cache_session *session, struct cached_limit *limits, size_t count);

	/* Writes each hash with its TTL where there is none. */
	QP_MUST_CHECK enum status (*limit_fill)(
		struct cache_session *session, const struct cached_limit *limits, size_t count);

	/*
	 * Deletes the hashes of these users. A deletion that fails is remembered and made up for
	 * before the cache is used again.
	 */
	QP_MUST_CHECK enum status (*limit_drop)(
		struct cache_session *session, const struct slice *user_ids, size_t count);

	/*
	 * For each entry: the counter, or a lease where there is none. One script, one round trip.
	 * What is under the key and not of that form counts as none. CACHE_AWAY leaves the entries
	 * as they are; leases may be taken.
	 */
	QP_MUST_CHECK enum status (*counter_get)(
		struct cache_session *session, struct cached_counter *counters, size_t count);

	/*
	 * For each entry that has a lease: if that still stands, ends it, and writes the entry
	 * unless a later version is there.
	 */
	QP_MUST_CHECK enum status (*counter_fill)(
		struct cache_session *session, const struct cached_counter *counters, size_t count);

	/*
	 * After a change has committed, for each entry: writes the counter where one is there that
	 * is not of a later version, and in any case deletes the lease and the list of all. One
	 * that fails is remembered as a deletion of all three and made up for before the cache is
	 * used again.
	 *
	 * Where none is there, a later one may have been refreshed before this one, and deleted or
	 * ended since: nothing is written, and the next reader fills.
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
	/* Connects in the background. false: it can never work; `why` is a sentence for the user.
	 */
	QP_MUST_CHECK bool (*start)(struct cache *cache, char *why, size_t size);

	struct cache_session *(*open_session)(struct cache *cache);

	/* Whether it is in use now. Any thread, never blocks. */
	bool (*is_up)(struct cache *cache);

	/*
	 * Tells those who listen to `announcement` in OTHER processes with this cache that
	 * something new was committed: soon, at most every 20 ms. A call can get lost, and is where
	 * nobody has listened in this process yet. `announcement` is static. Any thread, never
	 * blocks.
	 */
	void (*announce)(struct cache *cache, const char *announcement);

	/*
	 * `heard` is called on any thread and must not block nor listen: when another process
	 * announces it, and when one may have, because the cache was away. `announcement` is
	 * static. After start(), by one thread at a time, as the next.
	 */
	void (*listen)(struct cache *cache, const char *announcement, void (*heard)(void *context),
		void *context);

	/* When it returns, nothing is called with this context any more. */
	void (*unlisten)(struct cache *cache, void *context);

	/* After all sessions are closed. */
	void (*free)(struct cache *cache);
};

/* The head of each adapter's own cache. */
struct cache {
	const struct cache_ops *ops;
	const char *name;   /* "cache": what /readyz and the metrics call it */
	const char *engine; /* "memory", "redis" */
};

#endif
