/*
 * The calls of ports/cache.h for limits. The scripts handle each entry atomically; deletions need
 * no script. redis_limit_take() works on a copy of the caller's entries, so that a failed call
 * leaves the originals unchanged.
 */
#include <assert.h>

#include "adapters/cache/redis/redis_internal.h"
#include "base/text.h"

#define US_PER_S 1000000LL
#define US_PER_MS 1000LL

/* Longer than any window, but short enough for EXPIRE. */
#define TTL_S_MAX (100LL * 366 * 24 * 3600)

/* The largest numbers that ports/cache.h allows. */
#define COUNT_MAX 999999999999999LL
#define TIME_MAX_US 99999999999999999LL

static void add_names(const void *entry, struct redis_words *words)
{
	redis_add_name(words, REDIS_NAME_LIMIT, ((const struct cached_limit *)entry)->user_id);
}

/* ---- take -------------------------------------------------------------------------------- */

static void add_wanted(const void *entry, struct redis_words *words)
{
	const struct cached_limit *limit = entry;

	assert(limit->wanted >= 0);
	redis_add_number(words, limit->wanted);
}

/* Reads numbers separated by spaces. Returns true if there are exactly `count` numbers. */
static bool read_numbers(const redisReply *reply, int64_t *numbers, size_t count)
{
	struct slice rest = slice_make(reply->str, reply->len);

	for (size_t i = 0; i < count; i++) {
		if (!text_to_int(slice_cut(&rest, ' '), &numbers[i]))
			return false;
	}
	return !rest.data;
}

static bool read_taken(const redisReply *reply, void *entry)
{
	struct cached_limit *limit = entry;
	int64_t numbers[6];

	if (reply->type != REDIS_REPLY_STRING)
		return false;
	limit->hit = reply->len > 0;
	limit->granted = 0;
	if (!limit->hit)
		return true;
	if (!read_numbers(reply, numbers, 6))
		return false;
	limit->granted = numbers[0];
	limit->rate_limit = numbers[1];
	limit->current_count = numbers[2];
	limit->ttl_us = numbers[3] * US_PER_MS;
	limit->window_start_us = numbers[4];
	limit->window_us = numbers[5];
	return true;
}

static const struct redis_verb take = {
	.script = REDIS_SCRIPT_TAKE,
	.what = "taking from a limit",
	.entry_size = sizeof(struct cached_limit),
	.entry_names = 1,
	.add_names = add_names,
	.add_arguments = add_wanted,
	.read_entry = read_taken,
};

enum status redis_limit_take(struct cache_session *base, struct cached_limit *limits, size_t count)
{
	struct redis_session *session = redis_session_of(base);
	struct cached_limit *taken;
	bool ok;

	if (!redis_session_ready(session, REDIS_IN_USE))
		return STATUS_CACHE_AWAY;
	taken = arena_array(&session->arena, struct cached_limit, count);
	memcpy(taken, limits, count * sizeof(*taken));
	ok = redis_run(session, &take, taken, count) && redis_read(session, &take, taken, count);
	if (ok)
		memcpy(limits, taken, count * sizeof(*taken));
	return redis_session_finish(session, ok);
}

/* ---- fill -------------------------------------------------------------------------------- */

/* Converts a TTL to seconds, the unit of EXPIRE, and rounds up so that no entry expires before its
 * window ends. */
static int64_t ttl_s(int64_t ttl_us)
{
	int64_t seconds = ttl_us / US_PER_S + (ttl_us % US_PER_S > 0);

	if (seconds < 1)
		return 1;
	return seconds < TTL_S_MAX ? seconds : TTL_S_MAX;
}

static void add_fields(const void *entry, struct redis_words *words)
{
	const struct cached_limit *limit = entry;

	assert(limit->rate_limit >= 0 && limit->rate_limit <= COUNT_MAX);
	assert(limit->current_count >= 0 && limit->current_count <= COUNT_MAX);
	assert(limit->window_start_us >= -TIME_MAX_US && limit->window_start_us <= TIME_MAX_US);
	assert(limit->window_us >= 0 && limit->window_us <= TIME_MAX_US);
	redis_add_number(words, limit->rate_limit);
	redis_add_number(words, limit->current_count);
	redis_add_number(words, limit->window_start_us);
	redis_add_number(words, limit->window_us);
	redis_add_number(words, ttl_s(limit->ttl_us));
}

static const struct redis_verb fill = {
	.script = REDIS_SCRIPT_FILL,
	.what = "filling a limit",
	.entry_size = sizeof(struct cached_limit),
	.entry_names = 1,
	.add_names = add_names,
	.add_arguments = add_fields,
};

enum status redis_limit_fill(
	struct cache_session *base, const struct cached_limit *limits, size_t count)
{
	struct redis_session *session = redis_session_of(base);
	bool ok;

	if (!redis_session_ready(session, REDIS_IN_USE))
		return STATUS_CACHE_AWAY;
	ok = redis_run(session, &fill, limits, count) && redis_check(session, &fill);
	return redis_session_finish(session, ok);
}

/* ---- drop -------------------------------------------------------------------------------- */

static bool drop_now(struct redis_session *session, const struct redis_debt *drop)
{
	char space[REDIS_NAME_SIZE];

	redis_begin(&session->connection);
	for (size_t i = 0; i < drop->count; i++) {
		const struct slice words[] = {
			SLICE("DEL"), redis_name(REDIS_NAME_LIMIT, drop->user_ids[i], space)};

		if (!redis_send(&session->connection, words, 2))
			return false;
	}
	return redis_receive_ok(&session->connection, "DEL", drop->count);
}

enum status redis_limit_drop(struct cache_session *base, const struct slice *user_ids, size_t count)
{
	struct redis_session *session = redis_session_of(base);
	const struct redis_debt drop = {REDIS_LIMITS, user_ids, count};

	if (!redis_session_ready_or_owe(session, &drop))
		return STATUS_CACHE_AWAY;
	if (drop_now(session, &drop))
		return STATUS_OK;
	redis_cache_owe(session->cache, &drop, session->connection.why);
	return STATUS_CACHE_AWAY;
}
