/*
 * The calls of ports/cache.h over one connection. Replies are kept until all of a call are there,
 * so that a call that fails has written nothing to its caller's entries.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "adapters/redis/redis_internal.h"
#include "base/arena.h"
#include "base/text.h"

#define US_PER_S 1000000LL
#define US_PER_MS 1000LL

/* More than any window, and less than what EXPIRE refuses. */
#define TTL_S_MAX (100LL * 366 * 24 * 3600)

/* What the scripts take for numbers of ours. */
#define COUNT_MAX 999999999999999LL
#define TIME_MAX_US 99999999999999999LL

#define ARGUMENTS_MAX 5

struct redis_session {
	struct cache_session base;
	struct redis_cache *cache;
	struct redis_connection connection;
	uint64_t moment; /* at which the connection was made, or tried */
	redisReply **replies;
	size_t replies_size;
};

/* The ARGV of a script. */
struct arguments {
	char texts[ARGUMENTS_MAX][24];
	size_t count;
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

static void free_replies(struct redis_session *session, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		freeReplyObject(session->replies[i]);
		session->replies[i] = NULL;
	}
}

/* ---- scripts ----------------------------------------------------------------------------- */

static void add_argument(struct arguments *arguments, int64_t value)
{
	assert(arguments->count < ARGUMENTS_MAX);
	snprintf(arguments->texts[arguments->count++], sizeof(arguments->texts[0]), "%" PRId64,
		value);
}

static void take_arguments(const struct cached_limit *limit, struct arguments *arguments)
{
	assert(limit->wanted >= 0);
	add_argument(arguments, limit->wanted);
}

/* The seed's formula gives whole seconds: rounded up, so that no window ends early. */
static int64_t ttl_s(int64_t ttl_us)
{
	int64_t seconds = ttl_us / US_PER_S + (ttl_us % US_PER_S > 0);

	if (seconds < 1)
		return 1;
	return seconds < TTL_S_MAX ? seconds : TTL_S_MAX;
}

static void fill_arguments(const struct cached_limit *limit, struct arguments *arguments)
{
	assert(limit->rate_limit >= 0 && limit->rate_limit <= COUNT_MAX);
	assert(limit->current_count >= 0 && limit->current_count <= COUNT_MAX);
	assert(limit->window_start_us >= -TIME_MAX_US && limit->window_start_us <= TIME_MAX_US);
	add_argument(arguments, limit->rate_limit);
	add_argument(arguments, limit->current_count);
	assert(limit->window_us >= 0 && limit->window_us <= TIME_MAX_US);
	add_argument(arguments, limit->window_start_us);
	add_argument(arguments, limit->window_us);
	add_argument(arguments, ttl_s(limit->ttl_us));
}

static void (*const add_arguments[REDIS_SCRIPTS])(
	const struct cached_limit *limit, struct arguments *arguments) = {
	[REDIS_SCRIPT_TAKE] = take_arguments,
	[REDIS_SCRIPT_FILL] = fill_arguments,
};

/* How a script is named: by its text, or by the SHA that the server knows it by. */
enum naming { BY_SHA, BY_TEXT };

static bool send_entry(struct redis_session *session, enum redis_script script, enum naming naming,
	const struct cached_limit *limit)
{
	char space[REDIS_USER_ID_MAX + 32];
	struct arguments arguments = {.count = 0};
	struct slice words[4 + ARGUMENTS_MAX] = {SLICE("EVALSHA"),
		slice_make(session->connection.shas[script], REDIS_SHA_LEN), SLICE("1"),
		redis_key(limit->user_id, space)};

	if (naming == BY_TEXT) {
		words[0] = slice_of("EVAL");
		words[1] = slice_of(redis_script_texts[script]);
	}
	add_arguments[script](limit, &arguments);
	for (size_t i = 0; i < arguments.count; i++)
		words[4 + i] = slice_of(arguments.texts[i]);
	return redis_send(&session->connection, words, 4 + arguments.count);
}

/* Whether the entry is still to be answered: never asked, or by a server without the script. */
static bool is_open(const redisReply *reply)
{
	return !reply || redis_is_error(reply, "NOSCRIPT");
}

/* One round trip for the entries that are open. */
static bool ask(struct redis_session *session, enum redis_script script, enum naming naming,
	const struct cached_limit *limits, size_t count)
{
	redis_begin(&session->connection);
	for (size_t i = 0; i < count; i++) {
		if (is_open(session->replies[i]) &&
			!send_entry(session, script, naming, &limits[i]))
			return false;
	}
	for (size_t i = 0; i < count; i++) {
		if (!is_open(session->replies[i]))
			continue;
		freeReplyObject(session->replies[i]);
		session->replies[i] = redis_receive(&session->connection);
		if (!session->replies[i])
			return false;
	}
	return true;
}

static bool has_open(const struct redis_session *session, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (is_open(session->replies[i]))
			return true;
	}
	return false;
}

/*
 * Runs the script for each entry; the replies are in session->replies, without a promise that they
 * are what the script answers. NOSCRIPT means that the script did not run, so that the entry can be
 * asked again, this time with the text.
 */
static bool run(struct redis_session *session, enum redis_script script,
	const struct cached_limit *limits, size_t count)
{
	if (!ask(session, script, BY_SHA, limits, count))
		return false;
	return !has_open(session, count) || ask(session, script, BY_TEXT, limits, count);
}

/* ---- take -------------------------------------------------------------------------------- */

static bool is_hit(const redisReply *reply)
{
	static const int types[] = {REDIS_REPLY_INTEGER, REDIS_REPLY_INTEGER, REDIS_REPLY_INTEGER,
		REDIS_REPLY_INTEGER, REDIS_REPLY_STRING, REDIS_REPLY_STRING};
	const size_t count = sizeof(types) / sizeof(types[0]);

	if (reply->type != REDIS_REPLY_ARRAY || reply->elements != count)
		return false;
	for (size_t i = 0; i < count; i++) {
		if (reply->element[i]->type != types[i])
			return false;
	}
	return true;
}

static bool check_taken(struct redis_session *session, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		const redisReply *reply = session->replies[i];

		if (reply->type == REDIS_REPLY_NIL || is_hit(reply))
			continue;
		redis_connection_refuse(&session->connection, "taking from a limit", reply);
		return false;
	}
	return true;
}

/* The script has looked that it is one. */
static int64_t int_of(const redisReply *text)
{
	int64_t number = 0;
	bool is_int = text_to_int(slice_make(text->str, text->len), &number);

	assert(is_int);
	return number;
}

static void read_taken(struct cached_limit *limit, const redisReply *reply)
{
	limit->hit = reply->type == REDIS_REPLY_ARRAY;
	limit->granted = 0;
	if (!limit->hit)
		return;
	limit->granted = reply->element[0]->integer;
	limit->rate_limit = reply->element[1]->integer;
	limit->current_count = reply->element[2]->integer;
	limit->ttl_us = reply->element[3]->integer * US_PER_MS;
	limit->window_start_us = int_of(reply->element[4]);
	limit->window_us = int_of(reply->element[5]);
}

static enum status limit_take(struct cache_session *base, struct cached_limit *limits, size_t count)
{
	struct redis_session *session = session_of(base);
	bool ok;

	if (!make_ready(session, REDIS_IN_USE))
		return STATUS_CACHE_AWAY;
	make_room(session, count);
	ok = run(session, REDIS_SCRIPT_TAKE, limits, count) && check_taken(session, count);
	for (size_t i = 0; ok && i < count; i++)
		read_taken(&limits[i], session->replies[i]);
	free_replies(session, count);
	return ok ? STATUS_OK : fail(session);
}

/* ---- fill and drop ----------------------------------------------------------------------- */

static bool check_filled(struct redis_session *session, size_t count)
{
	for (size_t i = 0; i < count; i++) {
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
	make_room(session, count);
	ok = run(session, REDIS_SCRIPT_FILL, limits, count) && check_filled(session, count);
	free_replies(session, count);
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
	redis_cache_session_opened(session->cache);
	return &session->base;
}
