/*
 * The calls of ports/cache.h over one connection. Replies are kept until all of a call are there,
 * so that a call that fails has written nothing to its caller's entries.
 */
#include <assert.h>
#include <stdlib.h>

#include "adapters/redis/redis_internal.h"
#include "base/buffer.h"
#include "base/text.h"

#define SESSION_ARENA_SIZE (80 * 1024)
#define US_PER_S 1000000LL
#define US_PER_MS 1000LL

/* More than any window, and less than what EXPIRE refuses. */
#define TTL_S_MAX (100LL * 366 * 24 * 3600)

/* What the scripts take for numbers of ours. */
#define COUNT_MAX 999999999999999LL
#define TIME_MAX_US 99999999999999999LL

struct redis_session {
	struct cache_session base;
	struct redis_cache *cache;
	struct redis_connection connection;
	uint64_t moment; /* at which the connection was made, or tried */
	redisReply **replies;
	size_t replies_size;
	struct arena arena; /* of the call that runs */
};

static const struct cache_session_ops session_ops;

static struct redis_session *session_of(struct cache_session *session)
{
	assert(session->ops == &session_ops);
	return (struct redis_session *)session;
}

/* ---- the connection ---------------------------------------------------------------------- */

static enum status fail(struct redis_session *session)
{
	assert(!session->connection.context);
	redis_cache_failed(session->cache, session->moment, session->connection.why);
	return STATUS_CACHE_AWAY;
}

/* Has a connection of the present round; false: Redis is not in that phase, or away by now. */
static bool make_ready(struct redis_session *session, enum redis_phase least)
{
	uint64_t moment = redis_cache_moment(session->cache);

	if (redis_phase_at(moment) < least) {
		redis_connection_close(&session->connection);
		return false;
	}
	if (redis_is_same_round(session->moment, moment) &&
		redis_connection_is_quiet(&session->connection))
		return true;
	redis_connection_close(&session->connection);
	session->moment = moment;
	if (redis_cache_connect(session->cache, &session->connection))
		return true;
	(void)fail(session);
	return false;
}

/* ---- replies ----------------------------------------------------------------------------- */

static void make_room(struct redis_session *session, size_t count)
{
	if (count <= session->replies_size)
		return;
	free(session->replies);
	session->replies = qp_calloc(count, sizeof(redisReply *));
	session->replies_size = count;
}

static void end_call(struct redis_session *session, size_t reply_count)
{
	for (size_t i = 0; i < reply_count; i++) {
		freeReplyObject(session->replies[i]);
		session->replies[i] = NULL;
	}
	arena_reset(&session->arena);
}

/* ---- scripts ----------------------------------------------------------------------------- */

/*
 * A script runs for up to REDIS_ENTRIES_MAX entries at once; a call is as many runs as it takes, in
 * one round trip. While it runs Redis serves nobody else, so they are not more.
 */
static size_t run_count(size_t count)
{
	return (count + REDIS_ENTRIES_MAX - 1) / REDIS_ENTRIES_MAX;
}

static size_t entries_of_run(size_t run, size_t count)
{
	size_t left = count - run * REDIS_ENTRIES_MAX;

	return left < REDIS_ENTRIES_MAX ? left : REDIS_ENTRIES_MAX;
}

/* A command in the making. */
struct words {
	struct arena *arena;
	struct slice *words;
	size_t count;
};

static void add_word(struct words *words, struct slice word)
{
	assert(words->count < REDIS_WORDS_MAX);
	words->words[words->count++] = word;
}

static void add_number(struct words *words, int64_t value)
{
	struct buffer digits = buffer_make(words->arena, 24);

	buffer_int(&digits, value);
	add_word(words, buffer_slice(&digits));
}

static void add_key(struct words *words, struct slice user_id)
{
	char *space = arena_alloc(words->arena, REDIS_USER_ID_MAX + 32);

	add_word(words, redis_key(user_id, space));
}

static void take_arguments(const struct cached_limit *limit, struct words *words)
{
	assert(limit->wanted >= 0);
	add_number(words, limit->wanted);
}

/* The seed's formula gives whole seconds: rounded up, so that no window ends early. */
static int64_t ttl_s(int64_t ttl_us)
{
	int64_t seconds = ttl_us / US_PER_S + (ttl_us % US_PER_S > 0);

	if (seconds < 1)
		return 1;
	return seconds < TTL_S_MAX ? seconds : TTL_S_MAX;
}

static void fill_arguments(const struct cached_limit *limit, struct words *words)
{
	assert(limit->rate_limit >= 0 && limit->rate_limit <= COUNT_MAX);
	assert(limit->current_count >= 0 && limit->current_count <= COUNT_MAX);
	assert(limit->window_start_us >= -TIME_MAX_US && limit->window_start_us <= TIME_MAX_US);
	assert(limit->window_us >= 0 && limit->window_us <= TIME_MAX_US);
	add_number(words, limit->rate_limit);
	add_number(words, limit->current_count);
	add_number(words, limit->window_start_us);
	add_number(words, limit->window_us);
	add_number(words, ttl_s(limit->ttl_us));
}

static void (*const add_arguments[REDIS_SCRIPTS])(
	const struct cached_limit *limit, struct words *words) = {
	[REDIS_SCRIPT_TAKE] = take_arguments,
	[REDIS_SCRIPT_FILL] = fill_arguments,
};

/* How a script is named: by its text, or by the SHA that the server knows it by. */
enum naming { BY_SHA, BY_TEXT };

static bool send_run(struct redis_session *session, enum redis_script script, enum naming naming,
	const struct cached_limit *limits, size_t count)
{
	struct words words = {.arena = &session->arena};

	words.words = arena_alloc(words.arena, REDIS_WORDS_MAX * sizeof(*words.words));
	if (naming == BY_SHA) {
		add_word(&words, slice_of("EVALSHA"));
		add_word(&words, slice_make(session->connection.shas[script], REDIS_SHA_LEN));
	} else {
		add_word(&words, slice_of("EVAL"));
		add_word(&words, slice_of(redis_script_texts[script]));
	}
	add_number(&words, (int64_t)count);
	for (size_t i = 0; i < count; i++)
		add_key(&words, limits[i].user_id);
	for (size_t i = 0; i < count; i++)
		add_arguments[script](&limits[i], &words);
	return redis_send(&session->connection, words.words, words.count);
}

/* Whether the run is still to be answered: never asked, or by a server without the script. */
static bool is_open(const redisReply *reply)
{
	return !reply || redis_is_error(reply, "NOSCRIPT");
}

/* One round trip for the runs that are open. */
static bool ask(struct redis_session *session, enum redis_script script, enum naming naming,
	const struct cached_limit *limits, size_t count)
{
	size_t runs = run_count(count);

	redis_begin(&session->connection);
	for (size_t i = 0; i < runs; i++) {
		if (is_open(session->replies[i]) &&
			!send_run(session, script, naming, &limits[i * REDIS_ENTRIES_MAX],
				entries_of_run(i, count)))
			return false;
		arena_reset(&session->arena);
	}
	for (size_t i = 0; i < runs; i++) {
		if (!is_open(session->replies[i]))
			continue;
		freeReplyObject(session->replies[i]);
		session->replies[i] = redis_receive(&session->connection);
		if (!session->replies[i])
			return false;
	}
	return true;
}

static bool has_open(const struct redis_session *session, size_t runs)
{
	for (size_t i = 0; i < runs; i++) {
		if (is_open(session->replies[i]))
			return true;
	}
	return false;
}

/*
 * Runs the script for all entries; the replies of the runs are in session->replies, without a
 * promise that they are what the script answers. NOSCRIPT means that the script did not run, so
 * that the entries can be asked again, this time with the text.
 */
static bool run(struct redis_session *session, enum redis_script script,
	const struct cached_limit *limits, size_t count)
{
	make_room(session, run_count(count));
	if (!ask(session, script, BY_SHA, limits, count))
		return false;
	return !has_open(session, run_count(count)) || ask(session, script, BY_TEXT, limits, count);
}

/* ---- take -------------------------------------------------------------------------------- */

/* Numbers with a space between them; false: not so many, or no numbers. */
static bool read_numbers(const redisReply *reply, int64_t *numbers, size_t count)
{
	struct slice rest = slice_make(reply->str, reply->len);

	for (size_t i = 0; i < count; i++) {
		if (!text_to_int(slice_cut(&rest, ' '), &numbers[i]))
			return false;
	}
	return !rest.data;
}

static bool read_entry(const redisReply *reply, struct cached_limit *limit)
{
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

static bool read_run(const redisReply *reply, struct cached_limit *limits, size_t count)
{
	if (reply->type != REDIS_REPLY_ARRAY || reply->elements != count)
		return false;
	for (size_t i = 0; i < count; i++) {
		if (!read_entry(reply->element[i], &limits[i]))
			return false;
	}
	return true;
}

/* Into `limits` only when all of them can be read. */
static bool read_taken(struct redis_session *session, struct cached_limit *limits, size_t count)
{
	struct cached_limit *taken = arena_array(&session->arena, struct cached_limit, count);

	memcpy(taken, limits, count * sizeof(*taken));
	for (size_t i = 0; i < run_count(count); i++) {
		if (read_run(session->replies[i], &taken[i * REDIS_ENTRIES_MAX],
			    entries_of_run(i, count)))
			continue;
		redis_connection_refuse(
			&session->connection, "taking from a limit", session->replies[i]);
		return false;
	}
	memcpy(limits, taken, count * sizeof(*taken));
	return true;
}

static enum status limit_take(struct cache_session *base, struct cached_limit *limits, size_t count)
{
	struct redis_session *session = session_of(base);
	bool ok;

	if (!make_ready(session, REDIS_IN_USE))
		return STATUS_CACHE_AWAY;
	ok = run(session, REDIS_SCRIPT_TAKE, limits, count) && read_taken(session, limits, count);
	end_call(session, run_count(count));
	return ok ? STATUS_OK : fail(session);
}

/* ---- fill and drop ----------------------------------------------------------------------- */

static bool check_filled(struct redis_session *session, size_t runs)
{
	for (size_t i = 0; i < runs; i++) {
		if (session->replies[i]->type == REDIS_REPLY_INTEGER)
			continue;
		redis_connection_refuse(
			&session->connection, "filling a limit", session->replies[i]);
		return false;
	}
	return true;
}

static enum status limit_fill(
	struct cache_session *base, const struct cached_limit *limits, size_t count)
{
	struct redis_session *session = session_of(base);
	bool ok;

	if (!make_ready(session, REDIS_IN_USE))
		return STATUS_CACHE_AWAY;
	ok = run(session, REDIS_SCRIPT_FILL, limits, count) &&
	     check_filled(session, run_count(count));
	end_call(session, run_count(count));
	return ok ? STATUS_OK : fail(session);
}

static bool drop_now(struct redis_session *session, const struct slice *user_ids, size_t count)
{
	char space[REDIS_USER_ID_MAX + 32];

	redis_begin(&session->connection);
	for (size_t i = 0; i < count; i++) {
		const struct slice words[] = {SLICE("DEL"), redis_key(user_ids[i], space)};

		if (!redis_send(&session->connection, words, 2))
			return false;
	}
	return redis_receive_ok(&session->connection, "DEL", count);
}

static enum status limit_drop(
	struct cache_session *base, const struct slice *user_ids, size_t count)
{
	struct redis_session *session = session_of(base);

	/* Again only when Redis has begun to return between the two looks. */
	while (!make_ready(session, REDIS_RETURNS)) {
		if (redis_cache_owe_if_away(session->cache, user_ids, count))
			return STATUS_CACHE_AWAY;
	}
	if (drop_now(session, user_ids, count))
		return STATUS_OK;
	redis_cache_owe(session->cache, user_ids, count, session->connection.why);
	return STATUS_CACHE_AWAY;
}

/* ---- life -------------------------------------------------------------------------------- */

static void close_session(struct cache_session *base)
{
	struct redis_session *session = session_of(base);

	redis_connection_close(&session->connection);
	redis_cache_session_closed(session->cache);
	arena_release(&session->arena);
	free(session->replies);
	free(session);
}

static const struct cache_session_ops session_ops = {
	.limit_take = limit_take,
	.limit_fill = limit_fill,
	.limit_drop = limit_drop,
	.close = close_session,
};

struct cache_session *redis_session_open(struct cache *cache)
{
	struct redis_session *session = qp_calloc(1, sizeof(*session));

	session->base.ops = &session_ops;
	session->cache = redis_cache_of(cache);
	arena_init(&session->arena, SESSION_ARENA_SIZE);
	redis_cache_session_opened(session->cache);
	return &session->base;
}
