/*
 * A cache for a test, with what tests say often. Users have a prefix of their own in every test,
 * so that all tests of a run can share one server.
 */
#ifndef QUIPU_CONTRACT_CACHE_FIXTURE_H
#define QUIPU_CONTRACT_CACHE_FIXTURE_H

/* cmocka.h wants these before it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/arena.h"
#include "ports/cache.h"

#define SECOND_US 1000000LL
#define WINDOW_START_US 1767855000123456LL
#define WINDOW_US 60000000LL

struct cache_fixture {
	const char *url;
	struct cache *cache; /* started, and up */
	struct cache_session *session;
	struct arena arena;
	char prefix[12];
};

/* The URL of the engine that the contract runs on: QUIPU_CONTRACT_CACHE, "memory:" if unset. */
const char *cache_fixture_url(void);
bool cache_fixture_is_memory(void);

/* Opens the cache at `url`, which must outlive it, and waits until it is up. */
void cache_fixture_open(struct cache_fixture *fixture, const char *url);
void cache_fixture_close(struct cache_fixture *fixture);

/* How long a Redis of caches that are opened from now on may take for an answer: for ever, unless a
 * test waits for it to be given up. */
void cache_fixture_set_timeout_ms(int timeout_ms);

/* Moves the time of the memory cache. */
void cache_fixture_advance_us(int64_t step_us);

void cache_fixture_wait_until_up(struct cache *cache);
void cache_fixture_wait_until_away(struct cache *cache);

/* For tests: a fixture in `*state` on the engine of the contract. */
int cache_fixture_setup(void **state);
int cache_fixture_teardown(void **state);

struct slice cache_fixture_user(struct cache_fixture *fixture, const char *name);

/* One entry each, all expected to succeed. */
struct cached_limit cache_fixture_take(
	struct cache_fixture *fixture, struct slice user_id, int64_t wanted);
void cache_fixture_fill(struct cache_fixture *fixture, struct slice user_id, int64_t rate_limit,
	int64_t current_count);
void cache_fixture_fill_for(struct cache_fixture *fixture, struct slice user_id, int64_t rate_limit,
	int64_t current_count, int64_t ttl_us);
void cache_fixture_drop(struct cache_fixture *fixture, struct slice user_id);

/* Takes 0 to look. */
bool cache_fixture_has(struct cache_fixture *fixture, struct slice user_id);

#endif
