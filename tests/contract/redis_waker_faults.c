/*
 * What ports/cache.h promises of announcements, on Redis. Two caches stand for two processes. Each
 * test has a server of its own.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "adapters/cache/redis/redis_cache.h"
#include "base/hash.h"
#include "base/log.h"
#include "cache_fixture.h"
#include "captured_log.h"
#include "redis_server.h"
#include "waiting.h"

#define SKIPPED 77

/* After which a Redis that hangs is given up; one that answers is faster. */
#define TIMEOUT_MS 3000
#define TOLD "carries no announcements"

struct ear {
	_Atomic int heard;
};

struct pair {
	struct cache_fixture here;
	struct cache_fixture there;
	struct ear ear_here;
	struct ear ear_there;
	struct ear marks_here; /* what settle() announces */
	struct ear marks_there;
};

static void hear(void *context)
{
	((struct ear *)context)->heard++;
}

static void listen_to(struct cache *cache, const char *announcement, struct ear *ear)
{
	cache->ops->listen(cache, announcement, hear, ear);
}

static void announce(struct cache *cache, const char *announcement)
{
	cache->ops->announce(cache, announcement);
}

/* Announces until it is heard: a call can get lost, above all before both are connected. */
static void announce_until_heard(struct cache *cache, const char *announcement, struct ear *ear)
{
	int64_t deadline_ns = hang_deadline_ns();
	int before = ear->heard;

	while (ear->heard == before) {
		announce(cache, announcement);
		for (int i = 0; i < 10 && ear->heard == before; i++)
			wait_on(deadline_ns, "an announcement is heard");
	}
}

/*
 * Returns when nothing that was announced before is on its way any more: announcements stay in
 * order, but those that wait for their turn together.
 */
static void settle(struct pair *pair)
{
	for (int i = 0; i < 2; i++) {
		announce_until_heard(pair->here.cache, "marks", &pair->marks_there);
		announce_until_heard(pair->there.cache, "marks", &pair->marks_here);
	}
}

static void forget_what_was_heard(struct pair *pair)
{
	pair->ear_here.heard = pair->ear_there.heard = 0;
}

/* With a state, for a Redis that is to hang. */
static int setup(void **state)
{
	struct pair *pair = qp_calloc(1, sizeof(*pair));

	captured_log_begin();
	redis_server_start();
	cache_fixture_set_timeout_ms(*state ? TIMEOUT_MS : HANG_MS);
	cache_fixture_open(&pair->here, redis_server_url());
	cache_fixture_open(&pair->there, redis_server_url());
	listen_to(pair->here.cache, "counters", &pair->ear_here);
	listen_to(pair->there.cache, "counters", &pair->ear_there);
	listen_to(pair->here.cache, "marks", &pair->marks_here);
	listen_to(pair->there.cache, "marks", &pair->marks_there);
	settle(pair);
	forget_what_was_heard(pair);
	*state = pair;
	return 0;
}

static int teardown(void **state)
{
	struct pair *pair = *state;

	cache_fixture_close(&pair->here);
	cache_fixture_close(&pair->there);
	free(pair);
	redis_server_remove();
	captured_log_end();
	return 0;
}

/* ---- what is promised -------------------------------------------------------------------- */

static void other_processes_hear_it_and_nobody_hears_himself(void **state)
{
	struct pair *pair = *state;

	announce(pair->here.cache, "counters");
	WAIT_UNTIL(pair->ear_there.heard > 0);
	settle(pair);
	assert_int_equal(pair->ear_there.heard, 1);
	assert_int_equal(pair->ear_here.heard, 0);
}

static void only_those_who_listen_to_a_topic_are_called(void **state)
{
	struct pair *pair = *state;
	struct ear other = {0};

	listen_to(pair->there.cache, "other", &other);
	announce(pair->here.cache, "other");
	WAIT_UNTIL(other.heard > 0);
	settle(pair);
	assert_int_equal(pair->ear_there.heard, 0);
	pair->there.cache->ops->unlisten(pair->there.cache, &other);
	other.heard = 0;
	announce(pair->here.cache, "other");
	settle(pair);
	assert_int_equal(other.heard, 0);
}

static void many_announcements_are_told_as_few(void **state)
{
	struct pair *pair = *state;
	int64_t began_ms = steady_ms();
	int heard;

	for (int i = 0; i < 20000; i++)
		announce(pair->here.cache, "counters");
	WAIT_UNTIL(pair->ear_there.heard > 0);
	settle(pair);
	heard = pair->ear_there.heard;
	assert_in_range(heard, 1, (steady_ms() - began_ms) / 20 + 1);
}

static void databases_are_apart(void **state)
{
	struct pair *pair = *state;
	struct cache_fixture third;
	struct ear ear = {0};
	char url[64];

	snprintf(url, sizeof(url), "%s/3", redis_server_url());
	cache_fixture_open(&third, url);
	listen_to(third.cache, "counters", &ear);
	WAIT_UNTIL(ear.heard > 0); /* it may have missed something before */
	ear.heard = 0;
	announce(pair->here.cache, "counters");
	WAIT_UNTIL(pair->ear_there.heard > 0);
	settle(pair);
	assert_int_equal(ear.heard, 0);
	cache_fixture_close(&third);
}

/* ---- faults ------------------------------------------------------------------------------ */

static void after_an_outage_everybody_is_called_and_it_goes_on(void **state)
{
	struct pair *pair = *state;

	redis_server_kill();
	cache_fixture_wait_until_away(pair->there.cache);
	announce(pair->here.cache, "counters");
	assert_int_equal(pair->ear_there.heard, 0);
	redis_server_start();
	WAIT_UNTIL(pair->ear_there.heard > 0);
	WAIT_UNTIL(pair->ear_here.heard > 0);
	announce_until_heard(pair->here.cache, "counters", &pair->ear_there);
	announce_until_heard(pair->there.cache, "counters", &pair->ear_here);
}

static void connections_that_redis_ends_are_made_anew(void **state)
{
	struct pair *pair = *state;

	redis_server_tell("CLIENT KILL TYPE pubsub");
	WAIT_UNTIL(pair->ear_there.heard > 0);
	redis_server_tell("CLIENT KILL TYPE normal SKIPME yes");
	announce_until_heard(pair->here.cache, "counters", &pair->ear_there);
}

static void announcing_never_blocks_on_a_redis_that_hangs(void **state)
{
	struct pair *pair = *state;

	redis_server_freeze();
	for (int i = 0; i < 1000;
		i++) /* with a timeout each it would last for a quarter of an hour */
		announce(pair->here.cache, "counters");
	cache_fixture_wait_until_away(pair->here.cache);
	redis_server_thaw();
	announce_until_heard(pair->here.cache, "counters", &pair->ear_there);
}

static void what_strangers_publish_does_no_harm(void **state)
{
	struct pair *pair = *state;

	redis_server_tell("PUBLISH quipu:0 garbage");
	settle(pair);
	assert_int_equal(pair->ear_there.heard, 0);
	announce(pair->here.cache, "counters");
	WAIT_UNTIL(pair->ear_there.heard > 0);
}

/* A user of Redis 7 may use no channel unless that is said. */
static void a_user_who_may_use_no_channel_is_told_once_and_has_a_cache(void **state)
{
	struct cache_fixture limited;
	struct ear ear = {0};
	char url[96];

	(void)state;
	redis_server_tell("ACL SETUSER u on >p +@all ~* resetchannels");
	snprintf(url, sizeof(url), "redis://u:p@127.0.0.1:%d", redis_server_port());
	cache_fixture_open(&limited, url);
	listen_to(limited.cache, "counters", &ear);
	WAIT_UNTIL(captured_log_count(TOLD) > 0);
	nap_ms(600); /* it is tried every 200 ms */
	announce(limited.cache, "counters");
	assert_int_equal(captured_log_count(TOLD), 1);
	assert_true(limited.cache->ops->is_up(limited.cache));
	redis_server_tell("ACL SETUSER u allchannels");
	WAIT_UNTIL(ear.heard > 0);
	cache_fixture_close(&limited);
}

static void *announce_many(void *argument)
{
	for (int i = 0; i < 5000; i++)
		announce(argument, i % 2 ? "counters" : "other");
	return NULL;
}

static void any_thread_may_announce(void **state)
{
	struct pair *pair = *state;
	pthread_t threads[4];

	for (int i = 0; i < 4; i++)
		assert_int_equal(
			pthread_create(&threads[i], NULL, announce_many, pair->here.cache), 0);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	WAIT_UNTIL(pair->ear_there.heard > 0);
}

#define WAKER_TEST(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
#define HANGING_TEST(test)                                                                         \
	cmocka_unit_test_prestate_setup_teardown(test, setup, teardown, &(bool){true})

int main(void)
{
	const struct CMUnitTest tests[] = {
		WAKER_TEST(other_processes_hear_it_and_nobody_hears_himself),
		WAKER_TEST(only_those_who_listen_to_a_topic_are_called),
		WAKER_TEST(many_announcements_are_told_as_few),
		WAKER_TEST(databases_are_apart),
		WAKER_TEST(after_an_outage_everybody_is_called_and_it_goes_on),
		WAKER_TEST(connections_that_redis_ends_are_made_anew),
		HANGING_TEST(announcing_never_blocks_on_a_redis_that_hangs),
		WAKER_TEST(what_strangers_publish_does_no_harm),
		WAKER_TEST(a_user_who_may_use_no_channel_is_told_once_and_has_a_cache),
		WAKER_TEST(any_thread_may_announce),
	};

	if (!redis_server_exists()) {
		fputs("skipped: Redis is not installed\n", stderr);
		return SKIPPED;
	}
	log_configure(LOG_INFO, LOG_TEXT);
	hash_seed();
	return cmocka_run_group_tests_name("redis_waker_faults", tests, NULL, NULL);
}
