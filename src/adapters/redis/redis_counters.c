/* The calls of ports/cache.h for counters. What they guarantee is in the scripts. */
#include <assert.h>

#include "adapters/redis/redis_internal.h"
#include "base/buffer.h"
#include "base/text.h"

/* What the scripts take for numbers of ours. */
#define NUMBER_MAX 999999999999999LL

static void add_keys(const void *entry, struct redis_words *words)
{
	const struct cached_counter *counter = entry;

	redis_add_key(
		words, counter->is_list ? REDIS_KEY_LIST : REDIS_KEY_COUNTER, counter->user_id);
	redis_add_key(words, REDIS_KEY_LEASE, counter->user_id);
}

static void add_fields(struct buffer *value, const struct cached_counter *counter)
{
	buffer_text(value, "\"count\":");
	buffer_int(value, counter->count);
	buffer_text(value, ",\"version\":");
	buffer_int(value, counter->version);
	buffer_text(value, ",\"lastUpdated\":\"");
	buffer_time(value, counter->updated_us);
	buffer_char(value, '"');
}

/* The version for the script to compare, and the value as it will be under the key. */
static void add_value(const struct cached_counter *counter, bool is_list, struct redis_words *words)
{
	struct buffer value = buffer_make(words->arena, 128);

	assert(counter->count >= 0 && counter->count <= NUMBER_MAX);
	assert(counter->version >= 0 && counter->version <= NUMBER_MAX);
	buffer_text(&value, is_list ? "[{\"type\":\"UnreadMessages\"," : "{");
	add_fields(&value, counter);
	buffer_text(&value, is_list ? "}]" : "}");
	redis_add_number(words, counter->version);
	redis_add_word(words, buffer_slice(&value));
}

/* ---- get --------------------------------------------------------------------------------- */

static void add_lease(const void *entry, struct redis_words *words)
{
	redis_add_number(words, ((const struct cached_counter *)entry)->lease);
}

static bool read_hit(struct slice text, struct cached_counter *counter)
{
	struct slice count = slice_cut(&text, ' '), version = slice_cut(&text, ' ');

	if (!text_to_int(count, &counter->count) || !text_to_int(version, &counter->version))
		return false;
	/* A 31st of February is not of ours: a miss, until it ends or is refreshed. */
	counter->hit = text_to_time_us(text, &counter->updated_us);
	counter->lease = 0;
	return true;
}

/* The entry has the lease that it asked for. */
static bool read_got(const redisReply *reply, void *entry)
{
	struct cached_counter *counter = entry;

	counter->hit = false;
	if (reply->type == REDIS_REPLY_STRING)
		return read_hit(slice_make(reply->str, reply->len), counter);
	if (reply->type != REDIS_REPLY_INTEGER)
		return false;
	if (reply->integer == 0)
		counter->lease = 0;
	return true;
}

static const struct redis_verb get = {
	.script = REDIS_SCRIPT_COUNTER_GET,
	.what = "getting a counter",
	.entry_size = sizeof(struct cached_counter),
	.entry_keys = 2,
	.add_keys = add_keys,
	.add_arguments = add_lease,
	.read_entry = read_got,
};

/* Not 0, which is none. */
static int64_t draw_lease(struct redis_session *session)
{
	return 1 + (int64_t)dice_below(&session->dice, INT64_MAX);
}

enum status redis_counter_get(
	struct cache_session *base, struct cached_counter *counters, size_t count)
{
	struct redis_session *session = redis_session_of(base);
	struct cached_counter *got;
	bool ok;

	if (!redis_session_make_ready(session, REDIS_IN_USE))
		return STATUS_CACHE_AWAY;
	got = arena_array(&session->arena, struct cached_counter, count);
	for (size_t i = 0; i < count; i++) {
		got[i] = counters[i];
		got[i].lease = draw_lease(session);
	}
	ok = redis_ask(session, &get, got, count) && redis_read(session, &get, got, count);
	if (ok)
		memcpy(counters, got, count * sizeof(*got));
	redis_session_end_call(session);
	return ok ? STATUS_OK : redis_session_fail(session);
}

/* ---- fill -------------------------------------------------------------------------------- */

static void add_leased_value(const void *entry, struct redis_words *words)
{
	const struct cached_counter *counter = entry;

	redis_add_number(words, counter->lease);
	add_value(counter, counter->is_list, words);
}

static const struct redis_verb fill = {
	.script = REDIS_SCRIPT_COUNTER_FILL,
	.what = "filling a counter",
	.entry_size = sizeof(struct cached_counter),
	.entry_keys = 2,
	.add_keys = add_keys,
	.add_arguments = add_leased_value,
};

/* Those that have a lease. */
static struct cached_counter *leased_of(struct redis_session *session,
	const struct cached_counter *counters, size_t count, size_t *leased_count)
{
	struct cached_counter *leased = arena_array(&session->arena, struct cached_counter, count);

	*leased_count = 0;
	for (size_t i = 0; i < count; i++) {
		if (counters[i].lease != 0)
			leased[(*leased_count)++] = counters[i];
	}
	return leased;
}

enum status redis_counter_fill(
	struct cache_session *base, const struct cached_counter *counters, size_t count)
{
	struct redis_session *session = redis_session_of(base);
	const struct cached_counter *leased;
	size_t leased_count;
	bool ok;

	if (!redis_session_make_ready(session, REDIS_IN_USE))
		return STATUS_CACHE_AWAY;
	leased = leased_of(session, counters, count, &leased_count);
	ok = redis_ask(session, &fill, leased, leased_count) && redis_check(session, &fill);
	redis_session_end_call(session);
	return ok ? STATUS_OK : redis_session_fail(session);
}

/* ---- refresh ----------------------------------------------------------------------------- */

static void add_all_keys(const void *entry, struct redis_words *words)
{
	const struct cached_counter *counter = entry;

	redis_add_key(words, REDIS_KEY_COUNTER, counter->user_id);
	redis_add_key(words, REDIS_KEY_LEASE, counter->user_id);
	redis_add_key(words, REDIS_KEY_LIST, counter->user_id);
}

static void add_new_value(const void *entry, struct redis_words *words)
{
	add_value(entry, false, words);
}

static const struct redis_verb refresh = {
	.script = REDIS_SCRIPT_COUNTER_REFRESH,
	.what = "refreshing a counter",
	.entry_size = sizeof(struct cached_counter),
	.entry_keys = 3,
	.add_keys = add_all_keys,
	.add_arguments = add_new_value,
};

/* The deletion that a refresh which fails leaves behind; in the arena of the call. */
static struct redis_debt debt_of(
	struct redis_session *session, const struct cached_counter *counters, size_t count)
{
	struct slice *user_ids = arena_array(&session->arena, struct slice, count);

	for (size_t i = 0; i < count; i++)
		user_ids[i] = counters[i].user_id;
	return (struct redis_debt){REDIS_COUNTERS, user_ids, count};
}

static bool refresh_now(struct redis_session *session, const struct cached_counter *counters,
	const struct redis_debt *debt)
{
	/* Again only when Redis has begun to return between the two looks. */
	while (!redis_session_make_ready(session, REDIS_RETURNS)) {
		if (redis_cache_owe_if_away(session->cache, debt))
			return false;
	}
	if (redis_ask(session, &refresh, counters, debt->count) && redis_check(session, &refresh))
		return true;
	redis_cache_owe(session->cache, debt, session->connection.why);
	return false;
}

enum status redis_counter_refresh(
	struct cache_session *base, const struct cached_counter *counters, size_t count)
{
	struct redis_session *session = redis_session_of(base);
	const struct redis_debt debt = debt_of(session, counters, count);
	bool ok = refresh_now(session, counters, &debt);

	redis_session_end_call(session);
	return ok ? STATUS_OK : STATUS_CACHE_AWAY;
}
