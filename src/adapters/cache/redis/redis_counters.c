/*
 * The calls of ports/cache.h for counters. The scripts implement the port's guarantees.
 *
 * Most reads are hits, so redis_counter_get() first runs a script that only reads. For the misses
 * it then runs a second script, which can also grant leases. The second script takes Redis three
 * times as long. redis_counter_get() works on copies of the caller's entries, so that a failed call
 * leaves the originals unchanged.
 */
#include <assert.h>

#include "adapters/cache/redis/redis_internal.h"
#include "base/buffer.h"
#include "base/text.h"

/* The largest number that the scripts accept. */
#define NUMBER_MAX 999999999999999LL

#define LIST_BEGIN "[{\"type\":\"UnreadMessages\","
#define LIST_END "}]"

static void add_value_name(const void *entry, struct redis_words *words)
{
	const struct cached_counter *counter = entry;

	redis_add_name(
		words, counter->is_list ? REDIS_NAME_LIST : REDIS_NAME_COUNTER, counter->user_id);
}

static void add_names(const void *entry, struct redis_words *words)
{
	const struct cached_counter *counter = entry;

	add_value_name(counter, words);
	redis_add_name(words, REDIS_NAME_LEASE, counter->user_id);
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

/* Adds the version, which the script compares, and the value to store. */
static void add_value(const struct cached_counter *counter, bool is_list, struct redis_words *words)
{
	struct buffer value = buffer_make(words->arena, 128);

	assert(counter->count >= 0 && counter->count <= NUMBER_MAX);
	assert(counter->version >= 0 && counter->version <= NUMBER_MAX);
	buffer_text(&value, is_list ? LIST_BEGIN : "{");
	add_fields(&value, counter);
	buffer_text(&value, is_list ? LIST_END : "}");
	redis_add_number(words, counter->version);
	redis_add_word(words, buffer_slice(&value));
}

/* ---- looking ----------------------------------------------------------------------------- */

static void add_nothing(const void *entry, struct redis_words *words)
{
	(void)entry;
	(void)words;
}

/* If `*rest` begins with `text`, removes `text` from `*rest` and returns true. */
static bool skip(struct slice *rest, const char *text)
{
	if (!slice_starts_with(*rest, text))
		return false;
	*rest = slice_make(rest->data + strlen(text), rest->len - strlen(text));
	return true;
}

/* Removes a number and the comma after it from the front of `*rest`. Returns false if the text
 * before the comma is not a number from 0 to NUMBER_MAX. */
static bool take_number(struct slice *rest, int64_t *value)
{
	return text_to_int(slice_cut(rest, ','), value) && *value >= 0 && *value <= NUMBER_MAX;
}

/* Reads a value in the form that add_value() writes. Returns false for any other form. */
static bool read_value(struct slice text, struct cached_counter *counter)
{
	struct slice time;

	if (!skip(&text, counter->is_list ? LIST_BEGIN "\"count\":" : "{\"count\":") ||
		!take_number(&text, &counter->count) || !skip(&text, "\"version\":") ||
		!take_number(&text, &counter->version) || !skip(&text, "\"lastUpdated\":\""))
		return false;
	time = slice_cut(&text, '"');
	return slice_is(text, counter->is_list ? LIST_END : "}") &&
	       text_to_time_us(time, &counter->updated_us);
}

static bool read_look(const redisReply *reply, void *entry)
{
	struct cached_counter *counter = entry;

	counter->hit = reply->type == REDIS_REPLY_STRING &&
		       read_value(slice_make(reply->str, reply->len), counter);
	return reply->type == REDIS_REPLY_STRING || reply->type == REDIS_REPLY_NIL;
}

static const struct redis_verb look = {
	.script = REDIS_SCRIPT_COUNTER_LOOK,
	.what = "looking at a counter",
	.entry_size = sizeof(struct cached_counter),
	.entry_names = 1,
	.add_names = add_value_name,
	.add_arguments = add_nothing,
	.read_entry = read_look,
};

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
	/* A value with an impossible date counts as a miss until it expires or is refreshed. */
	counter->hit = text_to_time_us(text, &counter->updated_us);
	counter->lease = 0;
	return true;
}

/* Reads the reply for one entry. `entry` already contains the requested lease; if that lease was
 * not granted, sets it to 0. Returns false if the reply has a form that the script never sends. */
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
	.entry_names = 2,
	.add_names = add_names,
	.add_arguments = add_lease,
	.read_entry = read_got,
};

/* Returns a random lease number. Never returns 0, which means no lease. */
static int64_t draw_lease(struct redis_session *session)
{
	return 1 + (int64_t)dice_below(&session->dice, INT64_MAX);
}

/* Copies the misses into `missed`, each with a new lease number to request. Returns the number of
 * misses. */
static size_t gather_missed(struct redis_session *session, const struct cached_counter *counters,
	size_t count, struct cached_counter *missed)
{
	size_t missed_count = 0;

	for (size_t i = 0; i < count; i++) {
		if (counters[i].hit)
			continue;
		missed[missed_count] = counters[i];
		missed[missed_count++].lease = draw_lease(session);
	}
	return missed_count;
}

/* Copies the entries of `missed` back over the misses in `counters`, in the same order. */
static void put_back(
	struct cached_counter *counters, size_t count, const struct cached_counter *missed)
{
	for (size_t i = 0; i < count; i++) {
		if (!counters[i].hit)
			counters[i] = *missed++;
	}
}

/*
 * Requests leases for the misses. Some misses turn out to be hits: the value was written in the
 * meantime, or the script can read the value although read_value() cannot. Returns false if the
 * connection has failed.
 */
static bool get_missed(struct redis_session *session, struct cached_counter *counters, size_t count)
{
	struct cached_counter *missed = arena_array(&session->arena, struct cached_counter, count);
	size_t missed_count = gather_missed(session, counters, count, missed);

	if (missed_count == 0)
		return true;
	redis_session_drop_replies(session);
	if (!redis_run(session, &get, missed, missed_count) ||
		!redis_read(session, &get, missed, missed_count))
		return false;
	put_back(counters, count, missed);
	return true;
}

enum status redis_counter_get(
	struct cache_session *base, struct cached_counter *counters, size_t count)
{
	struct redis_session *session = redis_session_of(base);
	struct cached_counter *got;
	bool ok;

	if (!redis_session_ready(session, REDIS_IN_USE))
		return STATUS_CACHE_AWAY;
	got = arena_array(&session->arena, struct cached_counter, count);
	for (size_t i = 0; i < count; i++) {
		got[i] = counters[i];
		got[i].lease = 0;
	}
	ok = redis_run(session, &look, got, count) && redis_read(session, &look, got, count) &&
	     get_missed(session, got, count);
	if (ok)
		memcpy(counters, got, count * sizeof(*got));
	return redis_session_finish(session, ok);
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
	.entry_names = 2,
	.add_names = add_names,
	.add_arguments = add_leased_value,
};

/* Returns copies of the entries that have a lease, and sets `*leased_count`. */
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

	if (!redis_session_ready(session, REDIS_IN_USE))
		return STATUS_CACHE_AWAY;
	leased = leased_of(session, counters, count, &leased_count);
	ok = redis_run(session, &fill, leased, leased_count) && redis_check(session, &fill);
	return redis_session_finish(session, ok);
}

/* ---- refresh ----------------------------------------------------------------------------- */

static void add_all_names(const void *entry, struct redis_words *words)
{
	const struct cached_counter *counter = entry;

	redis_add_name(words, REDIS_NAME_COUNTER, counter->user_id);
	redis_add_name(words, REDIS_NAME_LEASE, counter->user_id);
	redis_add_name(words, REDIS_NAME_LIST, counter->user_id);
}

static void add_new_value(const void *entry, struct redis_words *words)
{
	add_value(entry, false, words);
}

static const struct redis_verb refresh = {
	.script = REDIS_SCRIPT_COUNTER_REFRESH,
	.what = "refreshing a counter",
	.entry_size = sizeof(struct cached_counter),
	.entry_names = 3,
	.add_names = add_all_names,
	.add_arguments = add_new_value,
};

/* Returns the users whose cached counters must be deleted if the refresh fails. The list of the ids
 * is allocated from the session's arena, which redis_session_end_call() resets. */
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
	if (!redis_session_ready_or_owe(session, debt))
		return false;
	if (redis_run(session, &refresh, counters, debt->count) && redis_check(session, &refresh))
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
