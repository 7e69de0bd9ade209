/*
 * The waker: one thread with two connections. One connection receives the announcements of other
 * processes; the other publishes, because a connection that has subscribed cannot publish. Both are
 * open only while the cache is in use. An announcement made while Redis is away is published when
 * Redis is back. The waker then also calls all listeners, because this process may have missed
 * announcements of other processes.
 *
 *   state           event                                                 next
 *   not connected   the cache is in use, and a retry is due               connected
 *   connected       a connection fails or is refused, or Redis was away   not connected
 */
#include <assert.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include "adapters/cache/redis/redis_internal.h"
#include "adapters/shared/announcements.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/uuid.h"

#define RETRY_NS (200 * NS_PER_MS)

/* The longest wait before the thread checks again whether the cache is still in use. */
#define PATIENCE_NS NS_PER_S

struct redis_waker {
	struct redis_cache *cache;
	struct listeners *listeners;
	/* identifies this process; precedes each announcement that it publishes */
	char id[UUID_SIZE];
	/* includes the database's number, because PUBLISH ignores databases */
	char redis_channel[24];
	pthread_t thread;
	struct announcements announcements;

	/* Only the waker's thread uses the members below. */
	struct redis_connection in;
	struct redis_connection out;
	uint64_t moment; /* redis_cache_moment() when the thread last tried to connect */
	int64_t retry_at_ns;
	bool has_warned;
};

static int64_t now_ns(void)
{
	return clock_steady_ns(&clock_system);
}

/* ---- the connections --------------------------------------------------------------------- */

/* Closes the connections and schedules a retry. Logs one warning per interruption, but none while
 * Redis is away, because the cache itself logs that Redis is away. */
static void lose(struct redis_waker *waker, const char *why)
{
	bool is_away = redis_phase_at(redis_cache_moment(waker->cache)) != REDIS_IN_USE;

	if (!is_away && !waker->has_warned) {
		log_line(LOG_WARN, "cache",
			"Redis carries no announcements between processes for now: %s; retrying",
			why);
		waker->has_warned = true;
	}
	redis_connection_close(&waker->in);
	redis_connection_close(&waker->out);
	waker->retry_at_ns = now_ns() + RETRY_NS;
}

static bool subscribe(struct redis_waker *waker)
{
	const struct slice words[] = {SLICE("SUBSCRIBE"), slice_of(waker->redis_channel)};

	redis_begin(&waker->in);
	return redis_send(&waker->in, words, 2) && redis_receive_ok(&waker->in, "SUBSCRIBE", 1);
}

/* Connects, and calls all listeners: they may have missed announcements while there was no
 * connection. */
static void reconnect(struct redis_waker *waker)
{
	waker->moment = redis_cache_moment(waker->cache);
	waker->retry_at_ns = now_ns() + RETRY_NS;
	if (redis_phase_at(waker->moment) != REDIS_IN_USE)
		return;
	if (!redis_cache_connect(waker->cache, &waker->in) || !subscribe(waker)) {
		lose(waker, waker->in.why);
		return;
	}
	redisEnableKeepAlive(waker->in.context);
	if (waker->has_warned)
		log_line(LOG_INFO, "cache", "Redis carries announcements between processes again");
	waker->has_warned = false;
	listeners_call(waker->listeners, NULL);
}

/* ---- receiving --------------------------------------------------------------------------- */

static bool is_text(const redisReply *reply)
{
	return reply->type == REDIS_REPLY_STRING;
}

/*
 * Handles a reply that consists of "message", the Redis channel and "<id> <announcement>". Ignores
 * other replies, and announcements of this process.
 */
static void take(struct redis_waker *waker, const redisReply *reply)
{
	const char *announcement;

	if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 3 ||
		!is_text(reply->element[0]) || strcmp(reply->element[0]->str, "message") != 0 ||
		!is_text(reply->element[2]))
		return;
	announcement = strchr(reply->element[2]->str, ' ');
	if (announcement && strncmp(reply->element[2]->str, waker->id, strlen(waker->id)) != 0)
		listeners_call(waker->listeners, announcement + 1);
}

static void receive(struct redis_waker *waker)
{
	redisContext *context = waker->in.context;
	int rc = redisBufferRead(context);
	void *reply = NULL;

	while (rc == REDIS_OK) {
		rc = redisGetReplyFromReader(context, &reply);
		if (rc != REDIS_OK || !reply)
			break;
		take(waker, reply);
		freeReplyObject(reply);
	}
	if (rc != REDIS_OK)
		lose(waker, context->errstr);
}

/* ---- publishing -------------------------------------------------------------------------- */

static bool publish(struct redis_waker *waker, const char *announcement)
{
	char text[UUID_SIZE + 64];
	int len = snprintf(text, sizeof(text), "%s %s", waker->id, announcement);
	const struct slice words[] = {
		SLICE("PUBLISH"), slice_of(waker->redis_channel), slice_make(text, (size_t)len)};

	assert((size_t)len < sizeof(text));
	if (!redis_connection_is_quiet(&waker->out)) {
		redis_connection_close(&waker->out);
		if (!redis_cache_connect(waker->cache, &waker->out))
			return false;
	}
	redis_begin(&waker->out);
	return redis_send(&waker->out, words, 3) && redis_receive_ok(&waker->out, "PUBLISH", 1);
}

static void publish_due(struct redis_waker *waker)
{
	int64_t due_ns;
	const char *announcement = announcements_next(&waker->announcements, &due_ns);

	if (!announcement || due_ns > now_ns())
		return;
	announcements_tell(&waker->announcements, announcement, now_ns());
	if (!publish(waker, announcement))
		lose(waker, waker->out.why);
}

/* ---- the thread -------------------------------------------------------------------------- */

/* Returns true if there is something to read, or the connection has ended. */
static bool wait_for_something(struct redis_waker *waker)
{
	int64_t until_ns = now_ns() + PATIENCE_NS;
	int64_t due_ns;

	if (!waker->in.context)
		return announcements_wait(&waker->announcements, -1, 0, waker->retry_at_ns);
	if (announcements_next(&waker->announcements, &due_ns) && due_ns < until_ns)
		until_ns = due_ns;
	return announcements_wait(&waker->announcements, waker->in.context->fd, POLLIN, until_ns);
}

static void step(struct redis_waker *waker, bool is_readable)
{
	if (is_readable)
		receive(waker);
	if (waker->in.context &&
		!redis_is_same_round(waker->moment, redis_cache_moment(waker->cache)))
		lose(waker, "Redis was away");
	if (waker->in.context)
		publish_due(waker);
	else if (now_ns() >= waker->retry_at_ns)
		reconnect(waker);
}

static void *run(void *argument)
{
	struct redis_waker *waker = argument;

	pthread_setname_np(pthread_self(), "redis-waker");
	while (!waker->announcements.is_stopping)
		step(waker, wait_for_something(waker));
	redis_connection_close(&waker->in);
	redis_connection_close(&waker->out);
	return NULL;
}

struct redis_waker *redis_waker_start(
	struct redis_cache *cache, const char *db, struct listeners *listeners)
{
	struct redis_waker *waker = qp_calloc(1, sizeof(*waker));
	int failed;

	waker->cache = cache;
	waker->listeners = listeners;
	uuid_random(waker->id);
	snprintf(waker->redis_channel, sizeof(waker->redis_channel), "quipu:%s", db[0] ? db : "0");
	announcements_init(&waker->announcements);
	failed = pthread_create(&waker->thread, NULL, run, waker);
	assert(!failed);
	return waker;
}

void redis_waker_announce(struct redis_waker *waker, const char *announcement)
{
	announcements_add(&waker->announcements, announcement);
}

void redis_waker_stop(struct redis_waker *waker)
{
	announcements_stop(&waker->announcements);
	pthread_join(waker->thread, NULL);
	announcements_release(&waker->announcements);
	free(waker);
}
