/*
 * A Redis that dies, hangs, forgets, refuses and lies. Each test has a server of its own, and reads
 * what the cache says in the log.
 */
#include "redis_server.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "adapters/cache/redis/redis_cache.h"
#include "adapters/cache/redis/redis_internal.h"
#include "base/hash.h"
#include "base/log.h"
#include "cache_fixture.h"
#include "captured_log.h"
#include "waiting.h"

#define SKIPPED 77

/* After which a Redis that hangs is given up; one that answers is faster. */
#define TIMEOUT_MS 3000
#define DOWN "REDIS DOWN \xe2\x80\x94 Falling back to Postgres"
#define BACK "Redis is in use"

/* ---- a server and a cache on it ---------------------------------------------------------- */

/* With a state, for a Redis that is to hang. */
static int setup(void **state)
{
	struct cache_fixture *fixture = qp_calloc(1, sizeof(*fixture));

	captured_log_begin();
	redis_server_start();
	cache_fixture_set_timeout_ms(*state ? TIMEOUT_MS : HANG_MS);
	cache_fixture_open(fixture, redis_server_url());
	*state = fixture;
	return 0;
}

static int teardown(void **state)
{
	cache_fixture_close(*state);
	free(*state);
	redis_server_remove();
	captured_log_end();
	return 0;
}

static enum status take_status(struct cache_fixture *fixture, struct slice user_id)
{
	struct cached_limit limit = {.user_id = user_id, .wanted = 1};

	return fixture->session->ops->limit_take(fixture->session, &limit, 1);
}

static enum status drop_status(struct cache_fixture *fixture, struct slice user_id)
{
	return fixture->session->ops->limit_drop(fixture->session, &user_id, 1);
}

/* Nobody asks Redis: thousands of timeouts would last for an hour. */
static void assert_away_at_once(struct cache_fixture *fixture, int calls)
{
	struct slice user = cache_fixture_user(fixture, "anybody");
	struct cached_limit limit = {.user_id = user, .rate_limit = 1, .ttl_us = SECOND_US};

	for (int i = 0; i < calls; i++) {
		assert_int_equal(take_status(fixture, user), STATUS_CACHE_AWAY);
		assert_int_equal(fixture->session->ops->limit_fill(fixture->session, &limit, 1),
			STATUS_CACHE_AWAY);
		assert_int_equal(drop_status(fixture, user), STATUS_CACHE_AWAY);
	}
}

/* A command on the key of the user "a": VERB key REST. */
static long long tell_of_a(struct cache_fixture *fixture, const char *verb, const char *rest)
{
	char command[256];

	snprintf(command, sizeof(command), "%s RateLimiterCache:%sa %s", verb, fixture->prefix,
		rest);
	return redis_server_tell(command);
}

/* ---- dead -------------------------------------------------------------------------------- */

static void a_dead_redis_is_away_and_comes_back_by_itself(void **state)
{
	struct cache_fixture *fixture = *state;
	struct slice user = cache_fixture_user(fixture, "a");

	cache_fixture_fill(fixture, user, 5, 0);
	redis_server_kill();
	assert_int_equal(take_status(fixture, user), STATUS_CACHE_AWAY);
	assert_false(fixture->cache->ops->is_up(fixture->cache));
	assert_away_at_once(fixture, 1000);
	captured_log_assert(DOWN, 1);
	redis_server_start();
	cache_fixture_wait_until_up(fixture->cache);
	assert_false(cache_fixture_has(fixture, user)); /* nothing was saved */
	cache_fixture_fill(fixture, user, 5, 0);
	assert_true(cache_fixture_take(fixture, user, 2).granted == 2);
	captured_log_assert(DOWN, 1);
	captured_log_assert(BACK, 2); /* the first was at start */
}

static void an_outage_is_noticed_without_calls(void **state)
{
	struct cache_fixture *fixture = *state;

	redis_server_kill();
	cache_fixture_wait_until_away(fixture->cache);
	captured_log_assert(DOWN, 1);
	redis_server_start();
	cache_fixture_wait_until_up(fixture->cache);
}

static void every_outage_is_told_once(void **state)
{
	struct cache_fixture *fixture = *state;

	for (int i = 1; i <= 3; i++) {
		redis_server_kill();
		cache_fixture_wait_until_away(fixture->cache);
		assert_away_at_once(fixture, 10);
		captured_log_assert(DOWN, i);
		redis_server_start();
		cache_fixture_wait_until_up(fixture->cache);
		captured_log_assert(BACK, i + 1);
	}
}

static void a_redis_that_is_not_there_at_start_is_told_and_found_later(void **state)
{
	struct cache *cache;
	char why[256];
	struct cache_session *session;
	struct cached_limit limit = {.user_id = SLICE("late"), .wanted = 1};

	redis_server_kill();
	cache_fixture_wait_until_away(((struct cache_fixture *)*state)->cache);
	cache = redis_cache_new("other", redis_server_url());
	redis_cache_set_timeout_ms(cache, HANG_MS);
	session = cache->ops->open_session(cache);
	assert_true(cache->ops->start(cache, why, sizeof(why)));
	assert_int_equal(session->ops->limit_take(session, &limit, 1), STATUS_CACHE_AWAY);
	redis_server_start();
	cache_fixture_wait_until_up(cache);
	assert_int_equal(session->ops->limit_take(session, &limit, 1), STATUS_OK);
	assert_false(limit.hit);
	session->ops->close(session);
	cache->ops->free(cache);
}

/* A server that ends idle connections, or an administrator, is no outage. */
static void a_connection_that_redis_has_ended_is_made_anew(void **state)
{
	struct cache_fixture *fixture = *state;
	struct slice user = cache_fixture_user(fixture, "a");

	cache_fixture_fill(fixture, user, 50, 0);
	for (int i = 1; i <= 50; i++) {
		redis_server_end_sessions();
		assert_true(cache_fixture_take(fixture, user, 1).current_count == i);
	}
	assert_int_equal(captured_log_count(DOWN), 0);
}

/* ---- owed deletions ---------------------------------------------------------------------- */

static void what_was_dropped_while_away_is_gone_when_it_is_back(void **state)
{
	struct cache_fixture *fixture = *state;
	struct slice dropped = cache_fixture_user(fixture, "dropped"),
		     kept = cache_fixture_user(fixture, "kept");

	cache_fixture_fill(fixture, dropped, 5, 5);
	cache_fixture_fill(fixture, kept, 5, 5);
	redis_server_tell("SAVE");
	redis_server_kill();
	cache_fixture_wait_until_away(fixture->cache);
	assert_int_equal(drop_status(fixture, dropped), STATUS_CACHE_AWAY);
	assert_int_equal(drop_status(fixture, dropped), STATUS_CACHE_AWAY);
	redis_server_start();
	cache_fixture_wait_until_up(fixture->cache);
	assert_false(cache_fixture_has(fixture, dropped));
	assert_true(cache_fixture_has(fixture, kept)); /* so it was not lost with the server */
}

/* The deletion itself finds out that Redis is gone. */
static void a_deletion_that_fails_is_made_up_for(void **state)
{
	struct cache_fixture *fixture = *state;
	struct slice user = cache_fixture_user(fixture, "a");

	cache_fixture_fill(fixture, user, 5, 5);
	redis_server_tell("SAVE");
	redis_server_kill();
	assert_int_equal(drop_status(fixture, user), STATUS_CACHE_AWAY);
	redis_server_start();
	cache_fixture_wait_until_up(fixture->cache);
	assert_false(cache_fixture_has(fixture, user));
	captured_log_assert(DOWN, 1);
}

static void drop_numbered(struct cache_fixture *fixture, int first, int count)
{
	for (int i = first; i < first + count; i++) {
		char name[16];

		snprintf(name, sizeof(name), "%d", i);
		assert_int_equal(
			drop_status(fixture, cache_fixture_user(fixture, name)), STATUS_CACHE_AWAY);
	}
}

/* Saves `count` numbered users and one that is not ours, and kills the server. */
static void save_numbered_and_kill(struct cache_fixture *fixture, int count)
{
	for (int i = 0; i < count; i++) {
		char name[16];

		snprintf(name, sizeof(name), "%d", i);
		cache_fixture_fill(fixture, cache_fixture_user(fixture, name), 5, 5);
	}
	redis_server_tell("SET RateLimiterCacheNot:ours 1");
	redis_server_tell("SAVE");
	redis_server_kill();
	cache_fixture_wait_until_away(fixture->cache);
}

static void many_deletions_are_made_up_for(void **state)
{
	struct cache_fixture *fixture = *state;

	save_numbered_and_kill(fixture, 2001);
	drop_numbered(fixture, 0, 2000);
	redis_server_start();
	cache_fixture_wait_until_up(fixture->cache);
	assert_true(redis_server_tell("DBSIZE") == 2);
	assert_true(cache_fixture_has(fixture, cache_fixture_user(fixture, "2000")));
}

static void more_than_can_be_remembered_drops_all_of_ours(void **state)
{
	struct cache_fixture *fixture = *state;

	save_numbered_and_kill(fixture, 1500);
	drop_numbered(fixture, 1500, 9000);
	redis_server_start();
	cache_fixture_wait_until_up(fixture->cache);
	assert_true(redis_server_tell("DBSIZE") == 1);
	assert_true(redis_server_tell("EXISTS RateLimiterCacheNot:ours") == 1);
	assert_false(cache_fixture_has(fixture, cache_fixture_user(fixture, "0")));
}

/* ---- hanging ----------------------------------------------------------------------------- */

static void a_hanging_redis_costs_one_timeout(void **state)
{
	struct cache_fixture *fixture = *state;
	struct slice user = cache_fixture_user(fixture, "a");
	struct cached_limit limit = {.user_id = user, .wanted = 1, .granted = 77, .hit = true};

	cache_fixture_fill(fixture, user, 5, 0);
	redis_server_freeze();
	assert_int_equal(
		fixture->session->ops->limit_take(fixture->session, &limit, 1), STATUS_CACHE_AWAY);
	assert_true(limit.granted == 77 && limit.hit); /* untouched */
	assert_away_at_once(fixture, 1000);
	captured_log_assert(DOWN, 1);
	redis_server_thaw();
	cache_fixture_wait_until_up(fixture->cache);
	assert_true(cache_fixture_has(fixture, user));
	captured_log_assert(DOWN, 1);
}

static void what_was_dropped_while_it_hung_is_gone(void **state)
{
	struct cache_fixture *fixture = *state;
	struct slice user = cache_fixture_user(fixture, "a");

	cache_fixture_fill(fixture, user, 5, 5);
	redis_server_freeze();
	assert_int_equal(take_status(fixture, user), STATUS_CACHE_AWAY);
	assert_int_equal(drop_status(fixture, user), STATUS_CACHE_AWAY);
	redis_server_thaw();
	cache_fixture_wait_until_up(fixture->cache);
	assert_false(cache_fixture_has(fixture, user));
}

/* ---- forgetful --------------------------------------------------------------------------- */

static void scripts_that_are_flushed_are_sent_again_in_the_same_call(void **state)
{
	struct cache_fixture *fixture = *state;
	struct slice user = cache_fixture_user(fixture, "a");
	struct cached_limit limits[3] = {{.user_id = user, .wanted = 1},
		{.user_id = user, .wanted = 1}, {.user_id = user, .wanted = 9}};

	redis_server_tell("SCRIPT FLUSH");
	cache_fixture_fill(fixture, user, 5, 0);
	redis_server_tell("SCRIPT FLUSH");
	assert_int_equal(fixture->session->ops->limit_take(fixture->session, limits, 3), STATUS_OK);
	assert_true(limits[0].granted == 1 && limits[1].granted == 1 && limits[2].granted == 3);
	assert_true(cache_fixture_take(fixture, user, 1).current_count == 5);
	assert_int_equal(captured_log_count(DOWN), 0);
}

static void after_flushall_all_are_misses(void **state)
{
	struct cache_fixture *fixture = *state;
	struct slice user = cache_fixture_user(fixture, "a");

	cache_fixture_fill(fixture, user, 5, 0);
	redis_server_tell("FLUSHALL");
	assert_false(cache_fixture_has(fixture, user));
	assert_int_equal(captured_log_count(DOWN), 0);
}

struct crowd {
	struct cache_fixture *fixture;
	struct slice user_id;
	atomic_bool stopping;
	_Atomic int wrong;
};

static void *take_in_a_crowd(void *context)
{
	struct crowd *crowd = context;
	struct cache *cache = crowd->fixture->cache;
	struct cache_session *session = cache->ops->open_session(cache);

	while (!crowd->stopping) {
		struct cached_limit limit = {.user_id = crowd->user_id,
			.rate_limit = 5,
			.ttl_us = 60 * SECOND_US,
			.wanted = 1};
		enum status status = session->ops->limit_take(session, &limit, 1);

		if (status == STATUS_OK && !limit.hit)
			status = session->ops->limit_fill(session, &limit, 1);
		if (status == STATUS_OK && limit.current_count > 5)
			crowd->wrong++;
		if (status != STATUS_OK)
			status = session->ops->limit_drop(session, &crowd->user_id, 1);
		if (status != STATUS_OK && status != STATUS_CACHE_AWAY)
			crowd->wrong++;
	}
	session->ops->close(session);
	return NULL;
}

/* For the thread sanitizer, and for the order of the log: down and back in turn. */
static void threads_go_through_outages_together(void **state)
{
	struct cache_fixture *fixture = *state;
	struct crowd crowd = {.fixture = fixture, .user_id = cache_fixture_user(fixture, "a")};
	pthread_t threads[4];

	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, take_in_a_crowd, &crowd), 0);
	for (int i = 0; i < 2; i++) {
		redis_server_kill();
		cache_fixture_wait_until_away(fixture->cache);
		redis_server_start();
		cache_fixture_wait_until_up(fixture->cache);
		redis_server_freeze();
		cache_fixture_wait_until_away(fixture->cache);
		redis_server_thaw();
		cache_fixture_wait_until_up(fixture->cache);
	}
	crowd.stopping = true;
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(crowd.wrong, 0);
	assert_in_range(captured_log_count(BACK) - captured_log_count(DOWN), 0, 1);
}

/* ---- lying ------------------------------------------------------------------------------- */

static void what_is_damaged_is_a_miss_and_deleted(void **state)
{
	static const char *const hashes[] = {
		"rateLimit 5",
		"rateLimit 5 windowStart 1 windowLength 60000000",
		"rateLimit 5 currentCount x",
		"currentCount 1 windowStart 1 windowLength 60000000",
		"rateLimit 5 currentCount x windowStart 1 windowLength 60000000",
		"rateLimit 5 currentCount -1 windowStart 1 windowLength 60000000",
		"rateLimit 5 currentCount 1.5 windowStart 1 windowLength 60000000",
		"rateLimit 5e3 currentCount 1 windowStart 1 windowLength 60000000",
		"rateLimit 0x5 currentCount 1 windowStart 1 windowLength 60000000",
		"rateLimit inf currentCount 1 windowStart 1 windowLength 60000000",
		"rateLimit 9999999999999999 currentCount 1 windowStart 1 windowLength 60000000",
		"rateLimit 5 currentCount 1 windowStart yesterday windowLength 60000000",
		"rateLimit 5 currentCount 1 windowStart 99999999999999999999 windowLength 60000000",
		"rateLimit 5 currentCount 1 windowStart 1",
		"rateLimit 5 currentCount 1 windowStart 1 windowLength -5",
	};
	struct cache_fixture *fixture = *state;
	struct slice user = cache_fixture_user(fixture, "a");

	for (size_t i = 0; i < sizeof(hashes) / sizeof(hashes[0]); i++) {
		tell_of_a(fixture, "HSET", hashes[i]);
		tell_of_a(fixture, "EXPIRE", "60");
		assert_false(cache_fixture_take(fixture, user, 1).hit);
		assert_true(tell_of_a(fixture, "EXISTS", "") == 0);
	}
	tell_of_a(fixture, "SETEX", "60 text");
	assert_false(cache_fixture_take(fixture, user, 1).hit);
	assert_true(tell_of_a(fixture, "EXISTS", "") == 0);
	assert_int_equal(captured_log_count(DOWN), 0);
}

static void a_hash_of_another_program_refuses_and_grants_nothing(void **state)
{
	struct cache_fixture *fixture = *state;
	struct slice user = cache_fixture_user(fixture, "a");
	struct cached_limit taken;

	tell_of_a(fixture, "HSET", "rateLimit 5 currentCount 4");
	tell_of_a(fixture, "EXPIRE", "60");
	assert_false(cache_fixture_take(fixture, user, 1).hit);
	tell_of_a(fixture, "HSET", "currentCount 5");
	taken = cache_fixture_take(fixture, user, 1);
	assert_true(taken.hit);
	assert_int_equal(taken.granted, 0);
	assert_int_equal(taken.rate_limit, 5);
	assert_in_range(taken.ttl_us, 1, 60 * 1000000LL);
	assert_true(tell_of_a(fixture, "HLEN", "") == 2);
}

static void a_hash_without_an_end_is_a_miss_and_deleted(void **state)
{
	struct cache_fixture *fixture = *state;

	tell_of_a(
		fixture, "HSET", "rateLimit 5 currentCount 1 windowStart 1 windowLength 60000000");
	assert_false(cache_fixture_has(fixture, cache_fixture_user(fixture, "a")));
	assert_true(tell_of_a(fixture, "EXISTS", "") == 0);
}

static void further_fields_do_not_matter(void **state)
{
	struct cache_fixture *fixture = *state;
	struct slice user = cache_fixture_user(fixture, "a");

	tell_of_a(fixture, "HSET",
		"rateLimit 5 currentCount 007 windowStart 1 windowLength 60000000 id a _class x");
	tell_of_a(fixture, "EXPIRE", "60");
	assert_true(cache_fixture_take(fixture, user, 1).current_count == 7);
	tell_of_a(fixture, "HSET", "currentCount 3");
	assert_true(cache_fixture_take(fixture, user, 1).current_count == 4);
	assert_true(tell_of_a(fixture, "HLEN", "") == 6);
}

/* ---- refusing ---------------------------------------------------------------------------- */

static void a_redis_that_cannot_write_is_away_until_it_can(void **state)
{
	struct cache_fixture *fixture = *state;
	struct slice user = cache_fixture_user(fixture, "a");
	struct cached_limit limit = {.user_id = user, .rate_limit = 5, .ttl_us = 60 * SECOND_US};

	redis_server_tell("CONFIG SET maxmemory 1");
	assert_int_equal(
		fixture->session->ops->limit_fill(fixture->session, &limit, 1), STATUS_CACHE_AWAY);
	nap_ms(600); /* three probes, which must not be taken in by PING */
	assert_false(fixture->cache->ops->is_up(fixture->cache));
	captured_log_assert(DOWN, 1);
	captured_log_assert("OOM", 1);
	redis_server_tell("CONFIG SET maxmemory 0");
	cache_fixture_wait_until_up(fixture->cache);
	cache_fixture_fill(fixture, user, 5, 0);
	assert_true(redis_server_tell("DBSIZE") == 1); /* the trial write has left nothing */
}

static void start_of(const char *url, char *why, size_t size, bool expected)
{
	struct cache *cache = redis_cache_new("cache", url);

	assert_true(cache->ops->start(cache, why, size) == expected);
	cache->ops->free(cache);
}

static void a_url_that_cannot_work_is_refused_without_repeating_it(void **state)
{
	static const char *const urls[] = {"", "redis", "redis:", "redis://", "redis:///1",
		"http://h:1", "rediss://u:s3cret@h:1", "redis://h:", "redis://h:0",
		"redis://h:65536", "redis://h:x", "redis://h:1/x", "redis://h:1/-1",
		"redis://h:1/1/2", "redis://s3cret@h:1", "redis://u:@h:1", "redis://u:s3cret%2@h:1",
		"redis://u:s3cret%zz@h:1", "redis://u:s3cret%00@h:1", "redis://[::1:1",
		"redis://[::1]x:1", "redis://[]:1"};
	char why[256];

	(void)state;
	for (size_t i = 0; i < sizeof(urls) / sizeof(urls[0]); i++) {
		why[0] = '\0';
		start_of(urls[i], why, sizeof(why), false);
		assert_true(strlen(why) > 20);
		assert_null(strstr(why, "s3cret"));
	}
}

static void a_url_that_may_work_is_taken(void **state)
{
	static const char *const urls[] = {"redis://localhost", "redis://h.invalid:1",
		"redis://127.0.0.1:1/3", "redis://:p@127.0.0.1:1/", "redis://u:p:q@127.0.0.1:1",
		"redis://u:a%40b%2Fc@127.0.0.1:1/15", "redis://[::1]:1", "redis://[::1]"};
	char why[256];

	(void)state;
	for (size_t i = 0; i < sizeof(urls) / sizeof(urls[0]); i++)
		start_of(urls[i], why, sizeof(why), true);
}

static void open_as(struct cache_fixture *fixture, const char *who, const char *rest)
{
	char url[128];

	snprintf(url, sizeof(url), "redis://%s@127.0.0.1:%d%s", who, redis_server_port(), rest);
	cache_fixture_open(fixture, url);
	cache_fixture_fill(fixture, cache_fixture_user(fixture, "a"), 5, 0);
	assert_true(cache_fixture_take(fixture, cache_fixture_user(fixture, "a"), 1).granted == 1);
	cache_fixture_close(fixture);
}

static void a_user_a_password_and_a_database_are_used(void **state)
{
	struct cache_fixture other;

	(void)state;
	redis_server_tell("ACL SETUSER quipu on >a@b/c +@all ~RateLimiterCache:*");
	open_as(&other, "quipu:a%40b%2fc", "/3");
	redis_server_tell("CONFIG SET requirepass p:w");
	open_as(&other, ":p:w", "/4");
	open_as(&other, "default:p%3Aw", "");
}

static void a_wrong_password_is_told_and_not_repeated(void **state)
{
	struct cache *cache;
	char url[96], why[256];

	(void)state;
	snprintf(url, sizeof(url), "redis://quipu:s3cret@127.0.0.1:%d", redis_server_port());
	cache = redis_cache_new("other", url);
	redis_cache_set_timeout_ms(cache, HANG_MS);
	assert_true(cache->ops->start(cache, why, sizeof(why)));
	WAIT_UNTIL(captured_log_count("WRONGPASS") == 1);
	assert_false(cache->ops->is_up(cache));
	cache->ops->free(cache);
	assert_int_equal(captured_log_count("s3cret"), 0);
	assert_int_equal(captured_log_count("redis://"), 0);
}

#define FAULT_TEST(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
#define HANGING_TEST(test)                                                                         \
	cmocka_unit_test_prestate_setup_teardown(test, setup, teardown, &(bool){true})

int main(void)
{
	const struct CMUnitTest tests[] = {
		FAULT_TEST(a_dead_redis_is_away_and_comes_back_by_itself),
		FAULT_TEST(an_outage_is_noticed_without_calls),
		FAULT_TEST(every_outage_is_told_once),
		FAULT_TEST(a_redis_that_is_not_there_at_start_is_told_and_found_later),
		FAULT_TEST(a_connection_that_redis_has_ended_is_made_anew),
		FAULT_TEST(what_was_dropped_while_away_is_gone_when_it_is_back),
		FAULT_TEST(a_deletion_that_fails_is_made_up_for),
		FAULT_TEST(many_deletions_are_made_up_for),
		FAULT_TEST(more_than_can_be_remembered_drops_all_of_ours),
		HANGING_TEST(a_hanging_redis_costs_one_timeout),
		HANGING_TEST(what_was_dropped_while_it_hung_is_gone),
		FAULT_TEST(scripts_that_are_flushed_are_sent_again_in_the_same_call),
		FAULT_TEST(after_flushall_all_are_misses),
		HANGING_TEST(threads_go_through_outages_together),
		FAULT_TEST(what_is_damaged_is_a_miss_and_deleted),
		FAULT_TEST(a_hash_of_another_program_refuses_and_grants_nothing),
		FAULT_TEST(a_hash_without_an_end_is_a_miss_and_deleted),
		FAULT_TEST(further_fields_do_not_matter),
		FAULT_TEST(a_redis_that_cannot_write_is_away_until_it_can),
		FAULT_TEST(a_url_that_cannot_work_is_refused_without_repeating_it),
		FAULT_TEST(a_url_that_may_work_is_taken),
		FAULT_TEST(a_user_a_password_and_a_database_are_used),
		FAULT_TEST(a_wrong_password_is_told_and_not_repeated),
	};

	if (!redis_server_exists()) {
		fputs("skipped: Redis is not installed\n", stderr);
		return SKIPPED;
	}
	log_configure(LOG_INFO, LOG_TEXT);
	hash_seed();
	return cmocka_run_group_tests_name("redis_faults", tests, NULL, NULL);
}
