/*
 * Implements ports/cache.h with Redis, through the blocking calls of hiredis. Each session has its
 * own connection and opens it at the first call. A call is normally one pipeline; counter_get()
 * needs a second pipeline if there are misses. Lua scripts in the server handle everything that
 * must be atomic.
 *
 * After any failure (an error, no reply for 200 ms, a lost connection) the whole cache is away:
 * calls return CACHE_AWAY immediately, and a background thread tries to reach Redis every 200 ms.
 * When the thread succeeds, it first carries out the deletions that failed or were requested in the
 * meantime; then the cache is in use again. After a timeout it is unknown whether Redis has run a
 * command, so the connection is closed and the command is not sent again.
 *
 * Requires Redis 5.0, or 6.0 if the URL names a user. The program must ignore SIGPIPE.
 */
#ifndef QUIPU_ADAPTERS_CACHE_REDIS_REDIS_CACHE_H
#define QUIPU_ADAPTERS_CACHE_REDIS_REDIS_CACHE_H

#include "ports/cache.h"

/*
 * `url` is redis://[user:password@]host[:port][/db]. With Sentinels, which report the server's
 * address, `url` is
 * redis+sentinel://[user:password@]host[:port][,host[:port]...]/master[/db]. The user may be empty,
 * and user and password are percent-decoded. start() checks the URL, and no part of the URL is ever
 * logged. `name` and `url` must live as long as the cache.
 */
struct cache *redis_cache_new(const char *name, const char *url);

#endif
