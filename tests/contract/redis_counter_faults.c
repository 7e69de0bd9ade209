/*
 * Counters in a Redis that dies, hangs, forgets, refuses and lies: a change that could not be told
 * to it is made up for before anybody in this process is served again. Each test has a server of
 * its own.
 */
#include "redis_server.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/log.h"
#include "counter_fixture.h"
#include "counter_scene.h"
#include "waiting.h"

#define SKIPPED 77

/* ---- refreshes that fail ----------------------------------------------------------------- */

static void what_was_refreshed_while_away_is_gone_when_it_is_back(void **state)
{
	struct scene *scene = *state;
	struct slice kept = cache_fixture_user(&scene->fixture, "kept");
	struct cached_counter counter;

	counter_scene_know(scene, scene->user);
	counter_scene_know(scene, kept);
	redis_server_tell("SAVE");
	counter_scene_go_away(scene);
	assert_int_equal(counter_scene_try_refresh(scene, scene->user, 2), STATUS_CACHE_AWAY);
	assert_int_equal(counter_scene_try_refresh(scene, scene->user, 3), STATUS_CACHE_AWAY);
	counter_scene_come_back(scene);
	assert_false(counter_scene_has_keys(scene, scene->user));
	counter = counter_fixture_get(scene->reader, kept); /* so it was not lost with the server */
	assert_true(counter_fixture_is(&counter, 1));
	counter = counter_fixture_get_list(scene->reader, kept);
	assert_true(counter_fixture_is(&counter, 1));
}

/* The refresh itself finds out that Redis is gone. */
static void a_refresh_that_fails_is_made_up_for(void **state)
{
	struct scene *scene = *state;

	counter_scene_know(scene, scene->user);
	redis_server_tell("SAVE");
	redis_server_kill();
	assert_int_equal(counter_scene_try_refresh(scene, scene->user, 2), STATUS_CACHE_AWAY);
	counter_scene_come_back(scene);
	assert_false(counter_scene_has_keys(scene, scene->user));
}

/* The reader has its lease from before, and Redis has saved it. */
static void a_reader_does_not_fill_over_a_refresh_that_failed(void **state)
{
	struct scene *scene = *state;
	struct cached_counter missed = counter_fixture_get(scene->reader, scene->user);

	assert_true(missed.lease != 0);
	redis_server_tell("SAVE");
	counter_scene_go_away(scene);
	assert_int_equal(counter_scene_try_refresh(scene, scene->user, 2), STATUS_CACHE_AWAY);
	counter_scene_come_back(scene);
	counter_fixture_fill(scene->reader, &missed, 1);
	assert_false(counter_scene_has_keys(scene, scene->user));
}

/* So the one before was refused because of the refresh. */
static void a_reader_fills_after_an_outage_without_changes(void **state)
{
	struct scene *scene = *state;
	struct cached_counter missed = counter_fixture_get(scene->reader, scene->user);

	redis_server_tell("SAVE");
	counter_scene_go_away(scene);
	counter_scene_come_back(scene);
	counter_fixture_fill(scene->reader, &missed, 1);
	missed = counter_fixture_get(scene->reader, scene->user);
	assert_true(counter_fixture_is(&missed, 1));
}

static void nobody_is_served_before_it_is_made_up_for(void **state)
{
	struct scene *scene = *state;
	struct cached_counter counter = {.user_id = scene->user, .version = 77};
	enum status status;

	counter_scene_know(scene, scene->user);
	redis_server_tell("SAVE");
	redis_server_kill();
	assert_int_equal(counter_scene_try_refresh(scene, scene->user, 2), STATUS_CACHE_AWAY);
	redis_server_start();
	do {
		assert_true(!counter.hit && counter.version == 77);
		status = scene->reader->ops->counter_get(scene->reader, &counter, 1);
	} while (status == STATUS_CACHE_AWAY);
	assert_int_equal(status, STATUS_OK);
	assert_true(!counter.hit && counter.lease != 0);
}

/* Nobody knows whether it was done. */
static void a_refresh_that_is_not_answered_is_made_up_for(void **state)
{
	struct scene *scene = *state;
	struct cached_counter counter;

	counter_scene_know(scene, scene->user);
	redis_server_freeze();
	assert_int_equal(counter_scene_try_refresh(scene, scene->user, 2), STATUS_CACHE_AWAY);
	redis_server_thaw();
	cache_fixture_wait_until_up(scene->fixture.cache);
	assert_false(counter_scene_has_keys(scene, scene->user));
	counter = counter_fixture_get(scene->reader, scene->user);
	assert_true(!counter.hit && counter.lease != 0);
}

static void a_refresh_that_is_refused_is_made_up_for(void **state)
{
	struct scene *scene = *state;

	counter_scene_know(scene, scene->user);
	redis_server_tell("CONFIG SET min-replicas-to-write 1");
	assert_int_equal(counter_scene_try_refresh(scene, scene->user, 2), STATUS_CACHE_AWAY);
	redis_server_tell("CONFIG SET min-replicas-to-write 0");
	cache_fixture_wait_until_up(scene->fixture.cache);
	assert_false(counter_scene_has_keys(scene, scene->user));
	counter_fixture_refresh(scene->writer, scene->user, 3);
}

/* ---- more than can be remembered --------------------------------------------------------- */

/* Few enough that a busy machine answers in time. */
#define PORTION 100

static void know_portion(struct scene *scene, int first)
{
	struct cached_counter counters[PORTION];
	const struct cache_session_ops *ops = scene->reader->ops;

	for (int i = 0; i < PORTION; i++)
		counters[i] = counter_fixture_value(counter_scene_numbered(scene, first + i), 1);
	assert_int_equal(ops->counter_get(scene->reader, counters, PORTION), STATUS_OK);
	assert_int_equal(ops->counter_fill(scene->reader, counters, PORTION), STATUS_OK);
}

static void save_all_kinds_and_go_away(struct scene *scene)
{
	for (int i = 0; i < 1000; i += PORTION)
		know_portion(scene, i);
	counter_scene_know(scene, scene->user);
	cache_fixture_fill(&scene->fixture, scene->user, 5, 0);
	redis_server_tell("SET counter:x:Followers 1");
	redis_server_tell("SET countersOf:x 1");
	redis_server_tell("SAVE");
	counter_scene_go_away(scene);
}

static void many_refreshes_that_fail_are_made_up_for(void **state)
{
	struct scene *scene = *state;

	save_all_kinds_and_go_away(scene);
	for (int i = 0; i < 999; i++)
		assert_int_equal(
			counter_scene_try_refresh(scene, counter_scene_numbered(scene, i), 2),
			STATUS_CACHE_AWAY);
	counter_scene_come_back(scene);
	assert_true(redis_server_tell("DBSIZE") == 1 + 2 + 1 + 2);
}

static void more_than_can_be_remembered_drops_all_counters_and_no_limits(void **state)
{
	struct scene *scene = *state;

	save_all_kinds_and_go_away(scene);
	for (int i = 1000; i < 10000; i++)
		assert_int_equal(
			counter_scene_try_refresh(scene, counter_scene_numbered(scene, i), 2),
			STATUS_CACHE_AWAY);
	counter_scene_come_back(scene);
	assert_true(redis_server_tell("DBSIZE") == 1 + 2);
	assert_true(cache_fixture_has(&scene->fixture, scene->user));
}

static void more_limits_than_can_be_remembered_drop_no_counters(void **state)
{
	struct scene *scene = *state;

	save_all_kinds_and_go_away(scene);
	for (int i = 1000; i < 10000; i++) {
		struct slice user = counter_scene_numbered(scene, i);

		assert_int_equal(
			scene->writer->ops->limit_drop(scene->writer, &user, 1), STATUS_CACHE_AWAY);
	}
	counter_scene_come_back(scene);
	assert_true(redis_server_tell("DBSIZE") == 1000 + 2 + 2);
	assert_false(cache_fixture_has(&scene->fixture, scene->user));
}

/* ---- readers ----------------------------------------------------------------------------- */

static void a_reader_that_is_not_answered_keeps_its_entries(void **state)
{
	struct scene *scene = *state;
	struct cached_counter counter = {
		.user_id = scene->user, .hit = true, .lease = 77, .version = 5};

	counter_scene_know(scene, scene->user);
	redis_server_freeze();
	assert_int_equal(
		scene->reader->ops->counter_get(scene->reader, &counter, 1), STATUS_CACHE_AWAY);
	assert_true(counter.hit && counter.lease == 77 && counter.version == 5);
	assert_int_equal(
		scene->reader->ops->counter_fill(scene->reader, &counter, 1), STATUS_CACHE_AWAY);
	redis_server_thaw();
	cache_fixture_wait_until_up(scene->fixture.cache);
	counter = counter_fixture_get(scene->reader, scene->user);
	assert_true(counter_fixture_is(&counter, 1));
}

#define SOME 300

/* Three runs, all of which come too late for the server's memory of scripts. */
static void scripts_that_are_flushed_are_sent_again_in_the_same_call(void **state)
{
	struct scene *scene = *state;
	struct cached_counter counters[SOME];
	const struct cache_session_ops *ops = scene->reader->ops;

	for (int i = 0; i < SOME; i++)
		counters[i] = counter_fixture_value(counter_scene_numbered(scene, i), i);
	redis_server_tell("SCRIPT FLUSH");
	assert_int_equal(ops->counter_get(scene->reader, counters, SOME), STATUS_OK);
	for (int i = 0; i < SOME; i++)
		assert_true(!counters[i].hit && counters[i].lease != 0);
	redis_server_tell("SCRIPT FLUSH");
	assert_int_equal(ops->counter_fill(scene->reader, counters, SOME), STATUS_OK);
	assert_int_equal(ops->counter_get(scene->reader, counters, SOME), STATUS_OK);
	for (int i = 0; i < SOME; i++) {
		assert_true(counter_fixture_is(&counters[i], i));
		counters[i] = counter_fixture_value(counters[i].user_id, i + 1);
	}
	redis_server_tell("SCRIPT FLUSH");
	assert_int_equal(ops->counter_refresh(scene->writer, counters, SOME), STATUS_OK);
	assert_int_equal(ops->counter_get(scene->reader, counters, SOME), STATUS_OK);
	for (int i = 0; i < SOME; i++)
		assert_true(counter_fixture_is(&counters[i], i + 1));
}

static void a_connection_that_redis_has_ended_is_made_anew(void **state)
{
	struct scene *scene = *state;

	counter_fixture_know(scene->reader, scene->user, 0);
	for (int i = 1; i <= 30; i++) {
		struct cached_counter counter;

		redis_server_end_sessions();
		counter_fixture_refresh(scene->writer, scene->user, i);
		counter = counter_fixture_get(scene->reader, scene->user);
		assert_true(counter_fixture_is(&counter, i));
	}
}

/* The rule of counter_fixture.h, through it all. */
static void a_crowd_is_told_nothing_old_through_outages(void **state)
{
	struct scene *scene = *state;
	struct cache *cache = scene->fixture.cache;
	struct counter_crowd crowd;

	counter_crowd_start(&crowd, &scene->fixture);
	for (int i = 0; i < 2; i++) {
		nap_ms(50);
		redis_server_tell("SAVE");
		redis_server_kill();
		cache_fixture_wait_until_away(cache);
		redis_server_start();
		cache_fixture_wait_until_up(cache);
		nap_ms(50);
		redis_server_freeze();
		cache_fixture_wait_until_away(cache);
		redis_server_thaw();
		cache_fixture_wait_until_up(cache);
		redis_server_tell("FLUSHALL");
	}
	counter_crowd_stop(&crowd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		FAULT_TEST(what_was_refreshed_while_away_is_gone_when_it_is_back),
		FAULT_TEST(a_refresh_that_fails_is_made_up_for),
		FAULT_TEST(a_reader_does_not_fill_over_a_refresh_that_failed),
		FAULT_TEST(a_reader_fills_after_an_outage_without_changes),
		FAULT_TEST(nobody_is_served_before_it_is_made_up_for),
		HANGING_TEST(a_refresh_that_is_not_answered_is_made_up_for),
		FAULT_TEST(a_refresh_that_is_refused_is_made_up_for),
		FAULT_TEST(many_refreshes_that_fail_are_made_up_for),
		FAULT_TEST(more_than_can_be_remembered_drops_all_counters_and_no_limits),
		FAULT_TEST(more_limits_than_can_be_remembered_drop_no_counters),
		HANGING_TEST(a_reader_that_is_not_answered_keeps_its_entries),
		FAULT_TEST(scripts_that_are_flushed_are_sent_again_in_the_same_call),
		FAULT_TEST(a_connection_that_redis_has_ended_is_made_anew),
		HANGING_TEST(a_crowd_is_told_nothing_old_through_outages),
	};

	if (!redis_server_exists()) {
		fputs("skipped: Redis is not installed\n", stderr);
		return SKIPPED;
	}
	log_configure(LOG_ERROR, LOG_TEXT);
	hash_seed();
	return cmocka_run_group_tests_name("redis_counter_faults", tests, NULL, NULL) +
	       redis_foreign_counter_tests();
}
