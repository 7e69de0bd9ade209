/*
 * Redis behind ports/cache.h, with the blocking calls of hiredis. Each session has a connection of
 * its own, made when it is first needed; a call is one pipeline, and its pieces that must be atomic
 * are Lua scripts in the server.
 *
 * Any failure (an error, a silence of 200 ms, a lost connection) makes the whole cache away: calls
 * return CACHE_AWAY at once, and one background thread looks for Redis every 200 ms. When it
 * answers, first the deletions that failed meanwhile are made up for, then the cache is in use
 * again. After a silence nobody knows whether Redis has done what it was told, so the connection is
 * closed, and nothing is told twice.
 *
 * Redis 5.0 or later; 6.0 where the URL names a user. The program must ignore SIGPIPE.
 */
#ifndef QUIPU_ADAPTERS_CACHE_REDIS_REDIS_CACHE_H
#define QUIPU_ADAPTERS_CACHE_REDIS_REDIS_CACHE_H

#include "ports/cache.h"

/*
 * `url` is redis://[user:password@]host[:port][/db]; the user may be empty, and both may have %XX.
 * It is looked at by start(), and no part of it is ever logged. The strings must live as long as
 * the cache.
 */
struct cache *redis_cache_new(const char *name, const char *url);

#endif
