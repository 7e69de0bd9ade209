#include "cache_bench.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "adapters/memory/memory_cache.h"
#include "adapters/redis/redis_cache.h"
#include "base/buffer.h"
#include "base/clock.h"
#include "base/random.h"

/* ---- time -------------------------------------------------------------------------------- */

static _Atomic int64_t advanced_us;

static int64_t wall_us(const struct clock *clock)
{
	(void)clock;
	return clock_wall_us(&clock_system) + advanced_us;
}

/* Stands still but for what tests move it. */
static int64_t steady_ns(const struct clock *clock)
{
	(void)clock;
	return NS_PER_S + advanced_us * NS_PER_US;
}

static const struct clock clock_moved = {.wall_us = wall_us, .steady_ns = steady_ns};

void cache_bench_advance_us(int64_t step_us)
{
	advanced_us += step_us;
}

int64_t cache_bench_now_ms(void)
{
	return clock_steady_ns(&clock_system) / NS_PER_MS;
}

void cache_bench_wait(bool (*is_true)(void *context), void *context)
{
	const struct timespec moment = {.tv_nsec = 5 * NS_PER_MS};
	int64_t deadline_ms = cache_bench_now_ms() + PATIENCE_MS;

	while (!is_true(context)) {
		if (cache_bench_now_ms() > deadline_ms)
			fail_msg("waited %d ms in vain", PATIENCE_MS);
		nanosleep(&moment, NULL);
	}
}

static bool is_up(void *context)
{
	struct cache *cache = context;

	return cache->ops->is_up(cache);
}

static bool is_away(void *context)
{
	return !is_up(context);
}

void cache_bench_wait_until_up(struct cache *cache)
{
	cache_bench_wait(is_up, cache);
}

void cache_bench_wait_until_away(struct cache *cache)
{
	cache_bench_wait(is_away, cache);
}

/* ---- the cache --------------------------------------------------------------------------- */

const char *cache_bench_url(void)
{
	const char *url = getenv("QUIPU_CONTRACT_CACHE");

	return url && *url ? url : "memory:";
}

bool cache_bench_is_memory(void)
{
	return strcmp(cache_bench_url(), "memory:") == 0;
}

static struct cache *new_cache(const char *url)
{
	if (strcmp(url, "memory:") == 0)
		return memory_cache_new("cache", &clock_moved);
	return redis_cache_new("cache", url);
}

void cache_bench_open(struct cache_bench *bench, const char *url)
{
	char why[256] = "";
	struct dice dice;

	signal(SIGPIPE, SIG_IGN);
	dice_init(&dice);
	snprintf(bench->prefix, sizeof(bench->prefix), "%08x-", (unsigned)dice_next(&dice));
	arena_init(&bench->arena, 64 * 1024);
	bench->url = url;
	bench->cache = new_cache(url);
	assert_false(bench->cache->ops->is_up(bench->cache));
	if (!bench->cache->ops->start(bench->cache, why, sizeof(why)))
		fail_msg("%s", why);
	cache_bench_wait_until_up(bench->cache);
	bench->session = bench->cache->ops->open_session(bench->cache);
}

void cache_bench_close(struct cache_bench *bench)
{
	bench->session->ops->close(bench->session);
	bench->cache->ops->free(bench->cache);
	arena_release(&bench->arena);
}

int cache_bench_setup(void **state)
{
	struct cache_bench *bench = qp_calloc(1, sizeof(*bench));

	cache_bench_open(bench, cache_bench_url());
	*state = bench;
	return 0;
}

int cache_bench_teardown(void **state)
{
	cache_bench_close(*state);
	free(*state);
	return 0;
}

/* ---- users ------------------------------------------------------------------------------- */

struct slice cache_bench_user(struct cache_bench *bench, const char *name)
{
	struct buffer user_id = buffer_make(&bench->arena, 64);

	buffer_text(&user_id, bench->prefix);
	buffer_text(&user_id, name);
	return buffer_slice(&user_id);
}

struct cached_limit cache_bench_take(
	struct cache_bench *bench, struct slice user_id, int64_t wanted)
{
	struct cached_limit limit = {.user_id = user_id, .wanted = wanted, .granted = 77};

	assert_int_equal(bench->session->ops->limit_take(bench->session, &limit, 1), STATUS_OK);
	return limit;
}

void cache_bench_fill_for(struct cache_bench *bench, struct slice user_id, int64_t rate_limit,
	int64_t current_count, int64_t ttl_us)
{
	struct cached_limit limit = {.user_id = user_id,
		.rate_limit = rate_limit,
		.current_count = current_count,
		.window_start_us = WINDOW_START_US,
		.window_us = WINDOW_US,
		.ttl_us = ttl_us};

	assert_int_equal(bench->session->ops->limit_fill(bench->session, &limit, 1), STATUS_OK);
}

void cache_bench_fill(
	struct cache_bench *bench, struct slice user_id, int64_t rate_limit, int64_t current_count)
{
	cache_bench_fill_for(bench, user_id, rate_limit, current_count, 600 * SECOND_US);
}

void cache_bench_drop(struct cache_bench *bench, struct slice user_id)
{
	assert_int_equal(bench->session->ops->limit_drop(bench->session, &user_id, 1), STATUS_OK);
}

bool cache_bench_has(struct cache_bench *bench, struct slice user_id)
{
	return cache_bench_take(bench, user_id, 0).hit;
}
