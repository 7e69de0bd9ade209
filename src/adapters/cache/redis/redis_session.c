/*
 * A session of ports/cache.h: its connection and the table of its calls. A call writes to the
 * caller's entries only after all of its replies have arrived and been read, so that a failed call
 * leaves the entries unchanged.
 */
#include <assert.h>
#include <stdlib.h>

#include "adapters/cache/redis/redis_internal.h"

/* Enough for the largest run of a script, unless user ids are very long. */
#define ARENA_SIZE (32 * 1024)
#define WORDS_ARENA_SIZE (64 * 1024)

static const struct cache_session_ops session_ops;

struct redis_session *redis_session_of(struct cache_session *session)
{
	assert(session->ops == &session_ops);
	return (struct redis_session *)session;
}

/* ---- the connection ---------------------------------------------------------------------- */

/* Reports to the cache that a call has failed. The connection must already be closed. Returns
 * CACHE_AWAY. */
static enum status fail(struct redis_session *session)
{
	assert(!session->connection.context);
	redis_cache_failed(session->cache, session->moment, session->connection.why);
	return STATUS_CACHE_AWAY;
}

bool redis_session_ready(struct redis_session *session, enum redis_phase least)
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

/* If Redis comes back after redis_session_ready() has failed, the debt is not recorded, and the
 * loop tries again. */
bool redis_session_ready_or_owe(struct redis_session *session, const struct redis_debt *debt)
{
	while (!redis_session_ready(session, REDIS_RETURNS)) {
		if (redis_cache_owe_if_away(session->cache, debt))
			return false;
	}
	return true;
}

void redis_session_drop_replies(struct redis_session *session)
{
	for (size_t i = 0; i < session->reply_count; i++) {
		freeReplyObject(session->replies[i]);
		session->replies[i] = NULL;
	}
	session->reply_count = 0;
}

void redis_session_end_call(struct redis_session *session)
{
	redis_session_drop_replies(session);
	arena_reset(&session->arena);
}

enum status redis_session_finish(struct redis_session *session, bool ok)
{
	redis_session_end_call(session);
	return ok ? STATUS_OK : fail(session);
}

/* ---- opening and closing ----------------------------------------------------------------- */

static void close_session(struct cache_session *base)
{
	struct redis_session *session = redis_session_of(base);

	redis_connection_close(&session->connection);
	redis_cache_session_closed(session->cache);
	arena_release(&session->arena);
	arena_release(&session->words);
	free(session->replies);
	free(session);
}

static const struct cache_session_ops session_ops = {
	.limit_take = redis_limit_take,
	.limit_fill = redis_limit_fill,
	.limit_drop = redis_limit_drop,
	.counter_get = redis_counter_get,
	.counter_fill = redis_counter_fill,
	.counter_refresh = redis_counter_refresh,
	.close = close_session,
};

struct cache_session *redis_session_open(struct cache *cache)
{
	struct redis_session *session = qp_calloc(1, sizeof(*session));

	session->base.ops = &session_ops;
	session->cache = redis_cache_of(cache);
	session->latency = &cache->latency;
	arena_init(&session->arena, ARENA_SIZE);
	arena_init(&session->words, WORDS_ARENA_SIZE);
	dice_init(&session->dice);
	redis_cache_session_opened(session->cache);
	return &session->base;
}
