/*
 * An announcement says that some counter has changed, but not whose counter. If announcements named
 * users, every change would need an announcement of its own. Instead, the feed reads the counters
 * of all users who have a stream in this process, at most once every PAUSE_NS. The cost depends on
 * the number of streams, not on the number of changes.
 */
#include "services/counters/counter_feed.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/failpoint.h"
#include "runtime/bell.h"

#define LOOK_NS (5 * NS_PER_S) /* the longest time between two reads of the counters */
#define SELDOM_NS (3600 * NS_PER_S)
#define PAUSE_NS (20 * NS_PER_MS)  /* the shortest pause after a read of the counters */
#define RETRY_NS (200 * NS_PER_MS) /* how long to wait if the store did not answer a read */
#define CHUNK 1000

struct counter_feed {
	struct counters *counters;
	struct session *session;
	struct arena arena;
	struct bell bell;
	pthread_t thread;
};

/* True while this thread announces counters that it has itself published to the streams, so that
 * the feed of this process does not read these counters again. */
static _Thread_local bool is_own;

static struct slice write_row(struct arena *arena, const struct counter_row *row)
{
	struct buffer data = buffer_make(arena, row->user_id.len + 128);

	counter_write(&data, row);
	return buffer_slice(&data);
}

static void publish(struct hub *hub, struct arena *arena, const struct counter_row *row)
{
	hub_publish(hub, row->user_id, row->version, write_row(arena, row));
}

/* Shows 0 to the streams of a user who has no counter, because the user has been erased. */
static void retract(struct hub *hub, struct arena *arena, const struct hub_key *key)
{
	const struct counter_row absent = {.user_id = key->key};

	hub_retract(hub, key, write_row(arena, &absent));
}

void counter_feed_publish(struct counters *counters, struct arena *arena,
	const struct counter_row *rows, size_t count)
{
	struct store *store = counters->store;
	struct cache *cache = counters->cache;

	for (size_t i = 0; i < count; i++) {
		if (hub_wants(counters->hub, rows[i].user_id))
			publish(counters->hub, arena, &rows[i]);
	}
	is_own = true;
	store->ops->announce(store, COUNTERS_ANNOUNCEMENT);
	is_own = false;
	if (cache)
		cache->ops->announce(cache, COUNTERS_ANNOUNCEMENT);
}

/* ---- the thread -------------------------------------------------------------------------- */

static int compare_keys(const void *a, const void *b)
{
	const struct hub_key *left = a, *right = b;

	return slice_compare(left->key, right->key);
}

/* Reads and publishes the counters of at most CHUNK sorted users. Returns false if the store does
 * not answer. */
static bool look_up(struct counter_feed *feed, const struct hub_key *keys, size_t count)
{
	struct counter_row *rows = arena_array(&feed->arena, struct counter_row, count);

	for (size_t i = 0; i < count; i++)
		rows[i].user_id = keys[i].key;
	if (feed->counters->repository->ops->find(
		    feed->counters->repository, feed->session, rows, count) != STATUS_OK)
		return false;
	for (size_t i = 0; i < count; i++) {
		if (rows[i].exists)
			publish(feed->counters->hub, &feed->arena, &rows[i]);
		else
			retract(feed->counters->hub, &feed->arena, &keys[i]);
	}
	return true;
}

/* Reads and publishes the counters of all users with a stream. Returns false if the store does not
 * answer. */
static bool look_at_all(struct counter_feed *feed)
{
	struct hub_key *keys;
	size_t count;

	arena_reset(&feed->arena);
	count = hub_keys(feed->counters->hub, &feed->arena, &keys);
	qsort(keys, count, sizeof(*keys), compare_keys);
	for (size_t first = 0; first < count; first += CHUNK) {
		size_t left = count - first;

		if (!look_up(feed, keys + first, left < CHUNK ? left : CHUNK))
			return false;
	}
	return true;
}

static int64_t look_interval_ns(void)
{
	return IS_SWITCHED_OFF("counters.look") ? SELDOM_NS : LOOK_NS;
}

static void *feed_main(void *argument)
{
	struct counter_feed *feed = argument;

	pthread_setname_np(pthread_self(), "feed");
	while (!bell_is_stopping(&feed->bell)) {
		bool answered = look_at_all(feed);

		bell_pause(&feed->bell, answered ? PAUSE_NS : RETRY_NS);
		if (answered)
			bell_wait(&feed->bell, look_interval_ns());
	}
	return NULL;
}

static void hear(void *context)
{
	struct counter_feed *feed = context;

	if (!is_own)
		bell_ring(&feed->bell);
}

struct counter_feed *counter_feed_start(struct counters *counters)
{
	struct counter_feed *feed = qp_calloc(1, sizeof(*feed));
	struct store *store = counters->store;
	struct cache *cache = counters->cache;
	int failed;

	feed->counters = counters;
	feed->session = store->ops->open_session(store, SESSION_READ);
	arena_init(&feed->arena, 64 * 1024);
	bell_init(&feed->bell);
	store->ops->listen(store, COUNTERS_ANNOUNCEMENT, hear, feed);
	if (cache)
		cache->ops->listen(cache, COUNTERS_ANNOUNCEMENT, hear, feed);
	failed = pthread_create(&feed->thread, NULL, feed_main, feed);
	assert(!failed);
	return feed;
}

void counter_feed_stop(void *context)
{
	struct counter_feed *feed = context;
	struct store *store = feed->counters->store;
	struct cache *cache = feed->counters->cache;

	store->ops->unlisten(store, feed);
	if (cache)
		cache->ops->unlisten(cache, feed);
	bell_stop(&feed->bell);
	pthread_join(feed->thread, NULL);
	session_close(feed->session);
	bell_release(&feed->bell);
	arena_release(&feed->arena);
	free(feed);
}
