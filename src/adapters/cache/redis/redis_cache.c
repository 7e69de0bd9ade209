/*
 * The circuit breaker: decides whether Redis is in use. A background thread probes Redis. Deletions
 * that fail, or that a call requests while Redis is away, are owed: they must succeed before Redis
 * is used again.
 *
 *   phase     event                                           next      log line
 *   away      the thread reaches Redis                        returns
 *   away      the thread does not reach Redis                 away      REDIS DOWN
 *   returns   the owed deletions have succeeded               in use    Redis is in use
 *   returns   an owed or a new deletion fails                 away      REDIS DOWN
 *   in use    a deletion fails                                away      REDIS DOWN
 *   in use    a ping or another call fails on a connection    away      REDIS DOWN
 *             that was opened since Redis was last away
 *   in use    the Sentinels have chosen another master        away      REDIS DOWN
 *
 * After REDIS DOWN was logged, it is not logged again until Redis has been in use.
 *
 * A call reads the phase from one atomic variable, without the lock. Log lines are written with the
 * lock held, so that they appear in the order of the phase changes.
 */
#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "adapters/cache/redis/redis_internal.h"
#include "base/arena.h"
#include "base/clock.h"
#include "base/log.h"

struct redis_cache {
	struct cache base;
	const char *url_text;
	struct redis_url url;
	int timeout_ms;          /* for connecting, and for each round trip */
	_Atomic uint64_t moment; /* written with the lock held; see redis_internal.h */
	atomic_int sessions;
	struct listeners listeners;
	_Atomic(struct redis_waker *) waker; /* NULL until the first listener is added */

	/* The background thread. It alone uses the members from `connection` to `making_up`. */
	pthread_t prober;
	struct redis_connection connection;
	struct redis_connection sentinel; /* to a Sentinel; unused without Sentinels */
	struct redis_place master; /* the server to use, as named by the URL or the Sentinels */
	struct redis_drops *making_up;

	pthread_mutex_t lock; /* guards the members below */
	pthread_cond_t stop_requested;
	struct redis_place place; /* the numeric address at which Redis was last reached */
	struct redis_drops *owed;
	bool has_logged_away;
	bool has_prober;
	bool stopping;
};

static const struct cache_ops cache_ops;

struct redis_cache *redis_cache_of(struct cache *cache)
{
	assert(cache->ops == &cache_ops);
	return (struct redis_cache *)cache;
}

void redis_cache_set_timeout_ms(struct cache *cache, int timeout_ms)
{
	redis_cache_of(cache)->timeout_ms = timeout_ms;
}

/* ---- the phase --------------------------------------------------------------------------- */

uint64_t redis_cache_moment(const struct redis_cache *cache)
{
	return atomic_load(&cache->moment);
}

static enum redis_phase phase_of(const struct redis_cache *cache)
{
	return redis_phase_at(redis_cache_moment(cache));
}

/* Changes the phase. No other function changes the phase. The caller holds the lock. */
static void enter(struct redis_cache *cache, enum redis_phase phase)
{
	uint64_t moment = redis_cache_moment(cache);
	uint64_t steps = REDIS_PHASES + (uint64_t)phase - (uint64_t)redis_phase_at(moment);

	atomic_fetch_add(&cache->moment, steps % REDIS_PHASES);
}

/* The caller holds the lock. */
static void log_away(struct redis_cache *cache, const char *why)
{
	const struct log_field fields[] = {{.name = "cache", .value = slice_of(cache->base.name)},
		{.name = "reason", .value = slice_of(why)}};

	if (cache->has_logged_away)
		return;
	cache->has_logged_away = true;
	log_line_with(LOG_WARN, "cache", fields, 2, "REDIS DOWN — Falling back to Postgres");
}

/* The caller holds the lock. */
static void go_away(struct redis_cache *cache, const char *why)
{
	enter(cache, REDIS_AWAY);
	log_away(cache, why);
}

/* The caller holds the lock. */
static void come_back(struct redis_cache *cache)
{
	const struct log_field fields[] = {{.name = "cache", .value = slice_of(cache->base.name)}};

	assert(phase_of(cache) == REDIS_RETURNS && redis_drops_is_empty(cache->owed));
	enter(cache, REDIS_IN_USE);
	cache->has_logged_away = false;
	log_line_with(LOG_INFO, "cache", fields, 1, "Redis is in use");
}

void redis_cache_failed(struct redis_cache *cache, uint64_t moment, const char *why)
{
	pthread_mutex_lock(&cache->lock);
	if (redis_is_same_round(redis_cache_moment(cache), moment))
		go_away(cache, why);
	pthread_mutex_unlock(&cache->lock);
}

/* The caller holds the lock. */
static void owe(struct redis_cache *cache, const struct redis_debt *debt)
{
	for (size_t i = 0; i < debt->count; i++)
		redis_drops_add(cache->owed, debt->kind, debt->user_ids[i]);
}

bool redis_cache_owe_if_away(struct redis_cache *cache, const struct redis_debt *debt)
{
	bool is_away;

	pthread_mutex_lock(&cache->lock);
	is_away = phase_of(cache) == REDIS_AWAY;
	if (is_away)
		owe(cache, debt);
	pthread_mutex_unlock(&cache->lock);
	return is_away;
}

/* Stops using Redis, whatever the phase is: even if Redis has been away and come back since the
 * deletion failed, Redis still has the entries that should have been deleted. */
void redis_cache_owe(struct redis_cache *cache, const struct redis_debt *debt, const char *why)
{
	pthread_mutex_lock(&cache->lock);
	owe(cache, debt);
	go_away(cache, why);
	pthread_mutex_unlock(&cache->lock);
}

bool redis_cache_connect(struct redis_cache *cache, struct redis_connection *connection)
{
	struct redis_place place;

	pthread_mutex_lock(&cache->lock);
	place = cache->place;
	pthread_mutex_unlock(&cache->lock);
	connection->timeout_ms = cache->timeout_ms;
	return redis_connection_open(connection, &place, &cache->url);
}

/* ---- the background thread --------------------------------------------------------------- */

static bool has_sentinels(const struct redis_cache *cache)
{
	return cache->url.master[0] != '\0';
}

/*
 * Enters the phase REDIS_RETURNS. From now on, new deletions go to Redis directly; the deletions
 * owed so far are in `making_up`.
 *
 * With Sentinels, the master may be a former replica that lacks the last deletions, so the entries
 * of all users are added to `making_up`. Every process does this when it reaches the new master,
 * and thereby also deletes the entries that faster processes have already stored there.
 */
static void begin_return(struct redis_cache *cache)
{
	struct redis_drops *empty = cache->making_up;

	assert(redis_drops_is_empty(empty));
	pthread_mutex_lock(&cache->lock);
	enter(cache, REDIS_RETURNS);
	cache->making_up = cache->owed;
	cache->owed = empty;
	pthread_mutex_unlock(&cache->lock);
	if (has_sentinels(cache))
		redis_drops_add_everybody(cache->making_up);
}

static void end_return(struct redis_cache *cache, bool is_made_up)
{
	pthread_mutex_lock(&cache->lock);
	if (!is_made_up) {
		redis_drops_add_all(cache->owed, cache->making_up);
		go_away(cache, cache->connection.why);
	} else if (phase_of(cache) == REDIS_RETURNS) {
		come_back(cache);
	}
	pthread_mutex_unlock(&cache->lock);
	redis_drops_clear(cache->making_up);
}

static bool find_master(struct redis_cache *cache, struct redis_place *master)
{
	cache->sentinel.timeout_ms = cache->timeout_ms;
	return redis_sentinel_find(&cache->sentinel, &cache->url, master);
}

static bool find_place(struct redis_cache *cache)
{
	if (!has_sentinels(cache)) {
		cache->master = cache->url.places[0];
		return true;
	}
	if (find_master(cache, &cache->master))
		return true;
	memcpy(cache->connection.why, cache->sentinel.why, sizeof(cache->connection.why));
	return false;
}

/* Connects to the server that find_place() has found. */
static bool reach(struct redis_cache *cache)
{
	struct redis_place place;

	cache->connection.timeout_ms = cache->timeout_ms;
	if (!redis_connection_open(&cache->connection, &cache->master, &cache->url))
		return false;
	place.port = cache->master.port;
	if (!redis_connection_address(&cache->connection, place.host)) {
		snprintf(cache->connection.why, sizeof(cache->connection.why),
			"the address of Redis is unknown");
		redis_connection_close(&cache->connection);
		return false;
	}
	pthread_mutex_lock(&cache->lock);
	cache->place = place;
	pthread_mutex_unlock(&cache->lock);
	return true;
}

/* Tries to reach Redis and to repeat the owed deletions. Called while Redis is away. */
static void try_to_come_back(struct redis_cache *cache)
{
	redis_connection_close(&cache->connection);
	if (find_place(cache) && reach(cache)) {
		begin_return(cache);
		end_return(cache, redis_drops_make_up(cache->making_up, &cache->connection));
		return;
	}
	pthread_mutex_lock(&cache->lock);
	log_away(cache, cache->connection.why);
	pthread_mutex_unlock(&cache->lock);
}

static bool answers_ping(struct redis_cache *cache)
{
	const struct slice words[] = {SLICE("PING")};

	if (!redis_connection_is_quiet(&cache->connection))
		return false;
	redis_begin(&cache->connection);
	return redis_send(&cache->connection, words, 1) &&
	       redis_receive_ok(&cache->connection, "PING", 1);
}

/* Returns whether Redis answers. A PING can fail although the server is up, because the connection
 * has ended. So the function opens a new connection before it reports a failure. */
static bool is_reachable(struct redis_cache *cache)
{
	if (answers_ping(cache))
		return true;
	redis_connection_close(&cache->connection);
	return reach(cache);
}

/* Returns whether the Sentinels have chosen another master. If no Sentinel answers, the current
 * master stays in use. */
static bool has_moved(struct redis_cache *cache)
{
	struct redis_place master;

	return has_sentinels(cache) && find_master(cache, &master) &&
	       (strcmp(master.host, cache->master.host) != 0 || master.port != cache->master.port);
}

/* Detects an outage, e.g. for /readyz, even if nothing calls the cache. Called while Redis is in
 * use. */
static void ping(struct redis_cache *cache, uint64_t moment)
{
	if (has_moved(cache))
		redis_cache_failed(cache, moment, "the Sentinels have chosen another master");
	else if (!is_reachable(cache))
		redis_cache_failed(cache, moment, cache->connection.why);
}

/* The caller holds the lock, which is released during the pause. */
static void pause_for(struct redis_cache *cache, int ms)
{
	int64_t until_ns = steady_in(ms * NS_PER_MS);

	while (!cache->stopping &&
		steady_wait_until(&cache->stop_requested, &cache->lock, until_ns))
		continue;
}

/*
 * The background thread. A failure does not wake it: the cache stays away for at least the rest of
 * the pause, so that a server that fails every other call does not fill the log.
 */
static void *probe(void *argument)
{
	struct redis_cache *cache = argument;

	pthread_setname_np(pthread_self(), "redis-prober");
	pthread_mutex_lock(&cache->lock);
	while (!cache->stopping) {
		uint64_t moment = redis_cache_moment(cache);

		pthread_mutex_unlock(&cache->lock);
		if (redis_phase_at(moment) == REDIS_IN_USE)
			ping(cache, moment);
		else
			try_to_come_back(cache);
		pthread_mutex_lock(&cache->lock);
		pause_for(cache, REDIS_PROBE_MS);
	}
	pthread_mutex_unlock(&cache->lock);
	redis_connection_close(&cache->connection);
	redis_connection_close(&cache->sentinel);
	return NULL;
}

/* ---- the port's functions ---------------------------------------------------------------- */

static bool start(struct cache *base, char *why, size_t size)
{
	struct redis_cache *cache = redis_cache_of(base);
	int failed;

	if (!redis_url_parse(&cache->url, slice_of(cache->url_text), why, size))
		return false;
	failed = pthread_create(&cache->prober, NULL, probe, cache);
	assert(!failed);
	cache->has_prober = true;
	return true;
}

static void announce(struct cache *base, const char *announcement)
{
	struct redis_waker *waker = atomic_load(&redis_cache_of(base)->waker);

	if (waker)
		redis_waker_announce(waker, announcement);
}

/* Starts the waker's thread when the first listener is added. */
static void listen_to(
	struct cache *base, const char *announcement, void (*heard)(void *context), void *context)
{
	struct redis_cache *cache = redis_cache_of(base);

	assert(cache->has_prober);
	listeners_add(&cache->listeners, announcement, heard, context);
	if (!atomic_load(&cache->waker))
		atomic_store(
			&cache->waker, redis_waker_start(cache, cache->url.db, &cache->listeners));
}

static void unlisten(struct cache *base, void *context)
{
	listeners_remove(&redis_cache_of(base)->listeners, context);
}

static bool is_up(struct cache *base)
{
	return phase_of(redis_cache_of(base)) == REDIS_IN_USE;
}

void redis_cache_session_opened(struct redis_cache *cache)
{
	atomic_fetch_add(&cache->sessions, 1);
}

void redis_cache_session_closed(struct redis_cache *cache)
{
	atomic_fetch_sub(&cache->sessions, 1);
}

static void free_cache(struct cache *base)
{
	struct redis_cache *cache = redis_cache_of(base);

	assert(atomic_load(&cache->sessions) == 0);
	if (atomic_load(&cache->waker))
		redis_waker_stop(atomic_load(&cache->waker));
	pthread_mutex_lock(&cache->lock);
	cache->stopping = true;
	pthread_cond_broadcast(&cache->stop_requested);
	pthread_mutex_unlock(&cache->lock);
	if (cache->has_prober)
		pthread_join(cache->prober, NULL);
	redis_drops_clear(cache->owed);
	redis_drops_clear(cache->making_up);
	free(cache->owed);
	free(cache->making_up);
	pthread_cond_destroy(&cache->stop_requested);
	pthread_mutex_destroy(&cache->lock);
	listeners_release(&cache->listeners);
	free(cache);
}

static const struct cache_ops cache_ops = {
	.start = start,
	.open_session = redis_session_open,
	.is_up = is_up,
	.announce = announce,
	.listen = listen_to,
	.unlisten = unlisten,
	.free = free_cache,
};

struct cache *redis_cache_new(const char *name, const char *url)
{
	struct redis_cache *cache = qp_calloc(1, sizeof(*cache));

	cache->base.ops = &cache_ops;
	cache->base.name = name;
	cache->base.engine = "redis";
	cache->url_text = url;
	cache->timeout_ms = REDIS_TIMEOUT_MS;
	cache->owed = qp_calloc(1, sizeof(*cache->owed));
	cache->making_up = qp_calloc(1, sizeof(*cache->making_up));
	listeners_init(&cache->listeners);
	pthread_mutex_init(&cache->lock, NULL);
	steady_cond_init(&cache->stop_requested);
	return &cache->base;
}
