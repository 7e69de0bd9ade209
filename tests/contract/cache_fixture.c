/*
 * Opens the cache under test and wraps its calls for one entry, so that a test reads like the
 * promise it checks. Users have a prefix that is unique for the test, because all tests of a run
 * share one server.
 */
#include "cache_fixture.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "adapters/cache/memory/memory_cache.h"
#include "adapters/cache/redis/redis_cache.h"
#include "adapters/cache/redis/redis_internal.h"
#include "base/buffer.h"
#include "base/random.h"
#include "manual_clock.h"
#include "waiting.h"

/* ---- time -------------------------------------------------------------------------------- */

/* Of the memory cache: it stands still but for what tests move it. */
static struct manual_clock memory_clock;

void cache_fixture_advance_us(int64_t step_us)
{
	manual_clock_pass(&memory_clock, step_us * NS_PER_US);
}

void cache_fixture_wait_until_up(struct cache *cache)
{
	WAIT_UNTIL(cache->ops->is_up(cache));
}

void cache_fixture_wait_until_away(struct cache *cache)
{
	WAIT_UNTIL(!cache->ops->is_up(cache));
}

/* ---- the cache --------------------------------------------------------------------------- */

const char *cache_fixture_url(void)
{
	const char *url = getenv("QUIPU_CONTRACT_CACHE");

	return url && *url ? url : "memory:";
}

bool cache_fixture_is_memory(void)
{
	return strcmp(cache_fixture_url(), "memory:") == 0;
}

static int redis_timeout_ms = HANG_MS;

void cache_fixture_set_timeout_ms(int timeout_ms)
{
	redis_timeout_ms = timeout_ms;
}

static struct cache *new_cache(const char *url)
{
	struct cache *cache;

	if (strcmp(url, "memory:") == 0)
		return memory_cache_new("cache", &memory_clock.base);
	cache = redis_cache_new("cache", url);
	redis_cache_set_timeout_ms(cache, redis_timeout_ms);
	return cache;
}

void cache_fixture_open(struct cache_fixture *fixture, const char *url)
{
	char why[256] = "";
	struct dice dice;

	signal(SIGPIPE, SIG_IGN);
	if (!memory_clock.base.wall_us)
		manual_clock_init(&memory_clock);
	dice_init(&dice);
	snprintf(fixture->prefix, sizeof(fixture->prefix), "%08x-", (unsigned)dice_next(&dice));
	arena_init(&fixture->arena, 64 * 1024);
	fixture->url = url;
	fixture->cache = new_cache(url);
	assert_false(fixture->cache->ops->is_up(fixture->cache));
	if (!fixture->cache->ops->start(fixture->cache, why, sizeof(why)))
		fail_msg("%s", why);
	cache_fixture_wait_until_up(fixture->cache);
	fixture->session = fixture->cache->ops->open_session(fixture->cache);
}

void cache_fixture_close(struct cache_fixture *fixture)
{
	fixture->session->ops->close(fixture->session);
	fixture->cache->ops->free(fixture->cache);
	arena_release(&fixture->arena);
}

int cache_fixture_setup(void **state)
{
	struct cache_fixture *fixture = qp_calloc(1, sizeof(*fixture));

	cache_fixture_open(fixture, cache_fixture_url());
	*state = fixture;
	return 0;
}

int cache_fixture_teardown(void **state)
{
	cache_fixture_close(*state);
	free(*state);
	return 0;
}

/* ---- users ------------------------------------------------------------------------------- */

struct slice cache_fixture_user(struct cache_fixture *fixture, const char *name)
{
	struct buffer user_id = buffer_make(&fixture->arena, 64);

	buffer_text(&user_id, fixture->prefix);
	buffer_text(&user_id, name);
	return buffer_slice(&user_id);
}

struct cached_limit cache_fixture_take(
	struct cache_fixture *fixture, struct slice user_id, int64_t wanted)
{
	struct cached_limit limit = {.user_id = user_id, .wanted = wanted, .granted = 77};

	assert_int_equal(fixture->session->ops->limit_take(fixture->session, &limit, 1), STATUS_OK);
	return limit;
}

void cache_fixture_fill_for(struct cache_fixture *fixture, struct slice user_id, int64_t rate_limit,
	int64_t current_count, int64_t ttl_us)
{
	struct cached_limit limit = {.user_id = user_id,
		.rate_limit = rate_limit,
		.current_count = current_count,
		.window_start_us = WINDOW_START_US,
		.window_us = WINDOW_US,
		.ttl_us = ttl_us};

	assert_int_equal(fixture->session->ops->limit_fill(fixture->session, &limit, 1), STATUS_OK);
}

void cache_fixture_fill(struct cache_fixture *fixture, struct slice user_id, int64_t rate_limit,
	int64_t current_count)
{
	cache_fixture_fill_for(fixture, user_id, rate_limit, current_count, 600 * SECOND_US);
}

void cache_fixture_drop(struct cache_fixture *fixture, struct slice user_id)
{
	assert_int_equal(
		fixture->session->ops->limit_drop(fixture->session, &user_id, 1), STATUS_OK);
}

bool cache_fixture_has(struct cache_fixture *fixture, struct slice user_id)
{
	return cache_fixture_take(fixture, user_id, 0).hit;
}
