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
#include "waiting.h"

#define SKIPPED 77

/* After which a Redis that does not answer is given up; one that answers is faster. */
#define TIMEOUT_MS 1000

struct scene {
	struct cache_fixture fixture;
	struct slice user;
	struct cache_session *reader, *writer;
};

static int setup(void **state)
{
	struct scene *scene = qp_calloc(1, sizeof(*scene));
	struct cache *cache;

	redis_server_start();
	cache_fixture_set_timeout_ms(TIMEOUT_MS);
	cache_fixture_open(&scene->fixture, redis_server_url());
	cache = scene->fixture.cache;
	scene->user = cache_fixture_user(&scene->fixture, "a");
	scene->reader = cache->ops->open_session(cache);
	scene->writer = cache->ops->open_session(cache);
	*state = scene;
	return 0;
}

static int teardown(void **state)
{
	struct scene *scene = *state;

	scene->reader->ops->close(scene->reader);
	scene->writer->ops->close(scene->writer);
	cache_fixture_close(&scene->fixture);
	free(scene);
	redis_server_remove();
	return 0;
}

static void come_back(struct scene *scene)
{
	redis_server_start();
	cache_fixture_wait_until_up(scene->fixture.cache);
}

static void go_away(struct scene *scene)
{
	redis_server_kill();
	cache_fixture_wait_until_away(scene->fixture.cache);
}

/* Has a counter and a list of version 1. */
static void know(struct scene *scene, struct slice user)
{
	struct cached_counter list;

	counter_fixture_know(scene->reader, user, 1);
	list = counter_fixture_get_list(scene->reader, user);
	assert_true(list.lease != 0);
	counter_fixture_fill(scene->reader, &list, 1);
}

static bool has_keys(struct scene *scene, struct slice user)
{
	struct cache_fixture *fixture = &scene->fixture;

	return counter_fixture_ttl_ms(fixture, COUNTER_KEY, user) != -2 ||
	       counter_fixture_ttl_ms(fixture, LEASE_KEY, user) != -2 ||
	       counter_fixture_ttl_ms(fixture, LIST_KEY, user) != -2;
}

static enum status try_refresh(struct scene *scene, struct slice user, int64_t version)
{
	struct cached_counter counter = counter_fixture_value(user, version);

	return scene->writer->ops->counter_refresh(scene->writer, &counter, 1);
}

/* ---- refreshes that fail ----------------------------------------------------------------- */

static void what_was_refreshed_while_away_is_gone_when_it_is_back(void **state)
{
	struct scene *scene = *state;
	struct slice kept = cache_fixture_user(&scene->fixture, "kept");
	struct cached_counter counter;

	know(scene, scene->user);
	know(scene, kept);
	redis_server_tell("SAVE");
	go_away(scene);
	assert_int_equal(try_refresh(scene, scene->user, 2), STATUS_CACHE_AWAY);
	assert_int_equal(try_refresh(scene, scene->user, 3), STATUS_CACHE_AWAY);
	come_back(scene);
	assert_false(has_keys(scene, scene->user));
	counter = counter_fixture_get(scene->reader, kept); /* so it was not lost with the server */
	assert_true(counter_fixture_is(&counter, 1));
	counter = counter_fixture_get_list(scene->reader, kept);
	assert_true(counter_fixture_is(&counter, 1));
}

/* The refresh itself finds out that Redis is gone. */
static void a_refresh_that_fails_is_made_up_for(void **state)
{
	struct scene *scene = *state;

	know(scene, scene->user);
	redis_server_tell("SAVE");
	redis_server_kill();
	assert_int_equal(try_refresh(scene, scene->user, 2), STATUS_CACHE_AWAY);
	come_back(scene);
	assert_false(has_keys(scene, scene->user));
}

/* The reader has its lease from before, and Redis has saved it. */
static void a_reader_does_not_fill_over_a_refresh_that_failed(void **state)
{
	struct scene *scene = *state;
	struct cached_counter missed = counter_fixture_get(scene->reader, scene->user);

	assert_true(missed.lease != 0);
	redis_server_tell("SAVE");
	go_away(scene);
	assert_int_equal(try_refresh(scene, scene->user, 2), STATUS_CACHE_AWAY);
	come_back(scene);
	counter_fixture_fill(scene->reader, &missed, 1);
	assert_false(has_keys(scene, scene->user));
}

/* So the one before was refused because of the refresh. */
static void a_reader_fills_after_an_outage_without_changes(void **state)
{
	struct scene *scene = *state;
	struct cached_counter missed = counter_fixture_get(scene->reader, scene->user);

	redis_server_tell("SAVE");
	go_away(scene);
	come_back(scene);
	counter_fixture_fill(scene->reader, &missed, 1);
	missed = counter_fixture_get(scene->reader, scene->user);
	assert_true(counter_fixture_is(&missed, 1));
}

static void nobody_is_served_before_it_is_made_up_for(void **state)
{
	struct scene *scene = *state;
	struct cached_counter counter = {.user_id = scene->user, .version = 77};
	enum status status;

	know(scene, scene->user);
	redis_server_tell("SAVE");
	redis_server_kill();
	assert_int_equal(try_refresh(scene, scene->user, 2), STATUS_CACHE_AWAY);
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

	know(scene, scene->user);
	redis_server_freeze();
	assert_int_equal(try_refresh(scene, scene->user, 2), STATUS_CACHE_AWAY);
	redis_server_thaw();
	cache_fixture_wait_until_up(scene->fixture.cache);
	assert_false(has_keys(scene, scene->user));
	counter = counter_fixture_get(scene->reader, scene->user);
	assert_true(!counter.hit && counter.lease != 0);
}

static void a_refresh_that_is_refused_is_made_up_for(void **state)
{
	struct scene *scene = *state;

	know(scene, scene->user);
	redis_server_tell("CONFIG SET min-replicas-to-write 1");
	assert_int_equal(try_refresh(scene, scene->user, 2), STATUS_CACHE_AWAY);
	redis_server_tell("CONFIG SET min-replicas-to-write 0");
	cache_fixture_wait_until_up(scene->fixture.cache);
	assert_false(has_keys(scene, scene->user));
	counter_fixture_refresh(scene->writer, scene->user, 3);
}

/* ---- more than can be remembered --------------------------------------------------------- */

static struct slice numbered(struct scene *scene, int i)
{
	char name[16];

	snprintf(name, sizeof(name), "%d", i);
	return cache_fixture_user(&scene->fixture, name);
}

/* Few enough that a busy machine answers in time. */
#define PORTION 100

static void know_portion(struct scene *scene, int first)
{
	struct cached_counter counters[PORTION];
	const struct cache_session_ops *ops = scene->reader->ops;

	for (int i = 0; i < PORTION; i++)
		counters[i] = counter_fixture_value(numbered(scene, first + i), 1);
	assert_int_equal(ops->counter_get(scene->reader, counters, PORTION), STATUS_OK);
	assert_int_equal(ops->counter_fill(scene->reader, counters, PORTION), STATUS_OK);
}

static void save_all_kinds_and_go_away(struct scene *scene)
{
	for (int i = 0; i < 1000; i += PORTION)
		know_portion(scene, i);
	know(scene, scene->user);
	cache_fixture_fill(&scene->fixture, scene->user, 5, 0);
	redis_server_tell("SET counter:x:Followers 1");
	redis_server_tell("SET countersOf:x 1");
	redis_server_tell("SAVE");
	go_away(scene);
}

static void many_refreshes_that_fail_are_made_up_for(void **state)
{
	struct scene *scene = *state;

	save_all_kinds_and_go_away(scene);
	for (int i = 0; i < 999; i++)
		assert_int_equal(try_refresh(scene, numbered(scene, i), 2), STATUS_CACHE_AWAY);
	come_back(scene);
	assert_true(redis_server_tell("DBSIZE") == 1 + 2 + 1 + 2);
}

static void more_than_can_be_remembered_drops_all_counters_and_no_limits(void **state)
{
	struct scene *scene = *state;

	save_all_kinds_and_go_away(scene);
	for (int i = 1000; i < 10000; i++)
		assert_int_equal(try_refresh(scene, numbered(scene, i), 2), STATUS_CACHE_AWAY);
	come_back(scene);
	assert_true(redis_server_tell("DBSIZE") == 1 + 2);
	assert_true(cache_fixture_has(&scene->fixture, scene->user));
}

static void more_limits_than_can_be_remembered_drop_no_counters(void **state)
{
	struct scene *scene = *state;

	save_all_kinds_and_go_away(scene);
	for (int i = 1000; i < 10000; i++) {
		struct slice user = numbered(scene, i);

		assert_int_equal(
			scene->writer->ops->limit_drop(scene->writer, &user, 1), STATUS_CACHE_AWAY);
	}
	come_back(scene);
	assert_true(redis_server_tell("DBSIZE") == 1000 + 2 + 2);
	assert_false(cache_fixture_has(&scene->fixture, scene->user));
}

/* ---- readers ----------------------------------------------------------------------------- */

static void a_reader_that_is_not_answered_keeps_its_entries(void **state)
{
	struct scene *scene = *state;
	struct cached_counter counter = {
		.user_id = scene->user, .hit = true, .lease = 77, .version = 5};

	know(scene, scene->user);
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
		counters[i] = counter_fixture_value(numbered(scene, i), i);
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

		redis_server_tell("CLIENT KILL TYPE normal SKIPME yes");
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

/* ---- what is not of ours ----------------------------------------------------------------- */

#define TIME "\"lastUpdated\":\"2026-01-08T06:50:00Z\""

static const char *const foreign[] = {
	"",
	"3",
	"text",
	"null",
	"true",
	"\"text\"",
	"[]",
	"{}",
	"{",
	"[[]]",
	"[null]",
	"{\"count\":3}",
	"{\"count\":3,\"version\":7}",
	"{\"count\":3," TIME "}",
	"{\"version\":7," TIME "}",
	"{\"Count\":3,\"Version\":7," TIME "}",
	"{\"count\":\"3\",\"version\":7," TIME "}",
	"{\"count\":3,\"version\":\"7\"," TIME "}",
	"{\"count\":-1,\"version\":7," TIME "}",
	"{\"count\":1.5,\"version\":7," TIME "}",
	"{\"count\":3,\"version\":7.5," TIME "}",
	"{\"count\":3,\"version\":1e15," TIME "}",
	"{\"count\":1e400,\"version\":7," TIME "}",
	"{\"count\":nan,\"version\":7," TIME "}",
	"{\"count\":inf,\"version\":7," TIME "}",
	"{\"count\":null,\"version\":7," TIME "}",
	"{\"count\":{},\"version\":[]," TIME "}",
	"{\"count\":3,\"version\":7,\"lastUpdated\":1767855000}",
	"{\"count\":3,\"version\":7,\"lastUpdated\":null}",
	"{\"count\":3,\"version\":7,\"lastUpdated\":\"yesterday\"}",
	"{\"count\":3,\"version\":7,\"lastUpdated\":\"\"}",
	"{\"count\":3,\"version\":7," TIME "} {}",
};

static void assert_free_and_leased(struct scene *scene, enum counter_key key)
{
	struct cached_counter missed =
		key == LIST_KEY ? counter_fixture_get_list(scene->reader, scene->user)
				: counter_fixture_get(scene->reader, scene->user);

	assert_true(!missed.hit && missed.lease != 0);
	assert_true(counter_fixture_ttl_ms(&scene->fixture, key, scene->user) == -2);
	assert_true(counter_fixture_delete(&scene->fixture, LEASE_KEY, scene->user));
}

static void what_we_did_not_write_is_a_miss_and_deleted(void **state)
{
	struct scene *scene = *state;

	for (size_t i = 0; i < sizeof(foreign) / sizeof(foreign[0]); i++) {
		counter_fixture_plant(&scene->fixture, COUNTER_KEY, scene->user, foreign[i], 60);
		assert_free_and_leased(scene, COUNTER_KEY);
		counter_fixture_plant(&scene->fixture, LIST_KEY, scene->user, foreign[i], 60);
		assert_free_and_leased(scene, LIST_KEY);
	}
	counter_fixture_plant_hash(&scene->fixture, COUNTER_KEY, scene->user, 60);
	assert_free_and_leased(scene, COUNTER_KEY);
	counter_fixture_plant_hash(&scene->fixture, LIST_KEY, scene->user, 60);
	assert_free_and_leased(scene, LIST_KEY);
}

/* A counter under the key of a list, a list under that of a counter, a list of something else. */
static void what_belongs_under_another_key_is_a_miss(void **state)
{
	static const char counter[] = "{\"count\":3,\"version\":7," TIME "}",
			  other[] = "[{\"type\":\"Followers\",\"count\":3,\"version\":7," TIME "}]",
			  two[] = "[{\"type\":\"UnreadMessages\",\"count\":3,\"version\":7," TIME
				  "},{\"type\":\"Followers\"}]";
	struct scene *scene = *state;

	counter_fixture_plant(&scene->fixture, LIST_KEY, scene->user, counter, 60);
	assert_free_and_leased(scene, LIST_KEY);
	counter_fixture_plant(&scene->fixture, LIST_KEY, scene->user, other, 60);
	assert_free_and_leased(scene, LIST_KEY);
	counter_fixture_plant(&scene->fixture, LIST_KEY, scene->user, two, 60);
	assert_free_and_leased(scene, LIST_KEY);
	counter_fixture_plant(&scene->fixture, COUNTER_KEY, scene->user, other, 60);
	assert_free_and_leased(scene, COUNTER_KEY);
}

static void a_large_text_is_a_miss(void **state)
{
	struct scene *scene = *state;
	char *text = qp_calloc(1, 1000001);

	memset(text, '[', 1000000);
	counter_fixture_plant(&scene->fixture, COUNTER_KEY, scene->user, text, 60);
	assert_free_and_leased(scene, COUNTER_KEY);
	text[500] = '\0'; /* few enough to be looked at, and deep */
	counter_fixture_plant(&scene->fixture, COUNTER_KEY, scene->user, text, 60);
	assert_free_and_leased(scene, COUNTER_KEY);
	free(text);
}

/* It would stay for ever, and keep the versions below it out. */
static void what_has_no_end_is_a_miss(void **state)
{
	static const char counter[] = "{\"count\":3,\"version\":999," TIME "}";
	struct scene *scene = *state;

	counter_fixture_plant(&scene->fixture, COUNTER_KEY, scene->user, counter, 0);
	assert_free_and_leased(scene, COUNTER_KEY);
	counter_fixture_plant(&scene->fixture, COUNTER_KEY, scene->user, counter, 0);
	counter_fixture_refresh(scene->writer, scene->user, 2);
	assert_false(has_keys(scene, scene->user));
}

static void the_same_json_in_other_words_is_a_hit(void **state)
{
	static const char *const texts[] = {
		"{\"count\":3,\"version\":7," TIME "}",
		" { \"version\" : 7 , \"count\" : 3 , " TIME " } ",
		"{\"count\":3,\"version\":7,\"lastUpdated\":\"2026-01-08T08:50:00.000+02:00\"}",
		"{\"count\":3,\"version\":7," TIME ",\"more\":[1,{}]}",
		"{\"count\":3.0,\"version\":70e-1," TIME "}",
	};
	struct scene *scene = *state;

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		struct cached_counter counter;

		counter_fixture_plant(&scene->fixture, COUNTER_KEY, scene->user, texts[i], 60);
		counter = counter_fixture_get(scene->reader, scene->user);
		assert_true(counter.hit && counter.count == 3 && counter.version == 7);
		assert_true(counter.updated_us == 1767855000000000LL);
	}
}

static void a_date_that_does_not_exist_is_a_miss(void **state)
{
	static const char text[] =
		"{\"count\":3,\"version\":7,\"lastUpdated\":\"2026-02-31T00:00:00Z\"}";
	struct scene *scene = *state;
	struct cached_counter counter;

	counter_fixture_plant(&scene->fixture, COUNTER_KEY, scene->user, text, 60);
	counter = counter_fixture_get(scene->reader, scene->user);
	assert_true(!counter.hit && counter.lease == 0);
	counter_fixture_refresh(scene->writer, scene->user, 8);
	counter = counter_fixture_get(scene->reader, scene->user);
	assert_true(counter_fixture_is(&counter, 8));
}

static void what_we_did_not_write_is_overwritten_or_deleted(void **state)
{
	struct scene *scene = *state;
	struct cached_counter missed, counter;

	for (size_t i = 0; i < sizeof(foreign) / sizeof(foreign[0]); i++) {
		struct slice user = numbered(scene, (int)i);

		missed = counter_fixture_get(scene->reader, user);
		counter_fixture_plant(&scene->fixture, COUNTER_KEY, user, foreign[i], 60);
		counter_fixture_fill(scene->reader, &missed, 1);
		counter = counter_fixture_get(scene->reader, user);
		assert_true(counter_fixture_is(&counter, 1));
		counter_fixture_plant(&scene->fixture, COUNTER_KEY, user, foreign[i], 60);
		counter_fixture_refresh(scene->writer, user, 2);
		assert_false(has_keys(scene, user));
	}
	counter_fixture_plant_hash(&scene->fixture, COUNTER_KEY, scene->user, 0);
	counter_fixture_plant_hash(&scene->fixture, LEASE_KEY, scene->user, 0);
	counter_fixture_plant_hash(&scene->fixture, LIST_KEY, scene->user, 0);
	counter_fixture_refresh(scene->writer, scene->user, 3);
	assert_false(has_keys(scene, scene->user));
}

/* Somebody else's lease with an end is waited for; one without is taken. */
static void a_foreign_lease_does_not_stay_for_ever(void **state)
{
	struct scene *scene = *state;
	struct cached_counter missed;

	counter_fixture_plant(&scene->fixture, LEASE_KEY, scene->user, "somebody", 60);
	missed = counter_fixture_get(scene->reader, scene->user);
	assert_true(!missed.hit && missed.lease == 0);
	counter_fixture_plant_hash(&scene->fixture, LEASE_KEY, scene->user, 60);
	missed = counter_fixture_get(scene->reader, scene->user);
	assert_true(!missed.hit && missed.lease == 0);
	missed.lease = 5;
	counter_fixture_fill(scene->reader, &missed, 1);
	counter_fixture_plant(&scene->fixture, LEASE_KEY, scene->user, "somebody", 0);
	assert_free_and_leased(scene, COUNTER_KEY);
	counter_fixture_plant_hash(&scene->fixture, LEASE_KEY, scene->user, 0);
	assert_free_and_leased(scene, COUNTER_KEY);
}

/* ---- what we must be allowed ------------------------------------------------------------- */

static void the_keys_of_counters_are_all_that_they_need(void **state)
{
	char url[96];
	struct cache_fixture other;
	struct slice user;
	struct cached_counter list;

	(void)state;
	redis_server_tell("ACL SETUSER quipu on >pass +@all ~counter:* ~counters:*");
	snprintf(url, sizeof(url), "redis://quipu:pass@127.0.0.1:%d", redis_server_port());
	cache_fixture_open(&other, url);
	user = cache_fixture_user(&other, "a");
	counter_fixture_know(other.session, user, 0);
	counter_fixture_refresh(other.session, user, 1);
	list = counter_fixture_get_list(other.session, user);
	counter_fixture_fill(other.session, &list, 1);
	list = counter_fixture_get_list(other.session, user);
	assert_true(counter_fixture_is(&list, 1));
	cache_fixture_close(&other);
}

#define FAULT_TEST(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		FAULT_TEST(what_was_refreshed_while_away_is_gone_when_it_is_back),
		FAULT_TEST(a_refresh_that_fails_is_made_up_for),
		FAULT_TEST(a_reader_does_not_fill_over_a_refresh_that_failed),
		FAULT_TEST(a_reader_fills_after_an_outage_without_changes),
		FAULT_TEST(nobody_is_served_before_it_is_made_up_for),
		FAULT_TEST(a_refresh_that_is_not_answered_is_made_up_for),
		FAULT_TEST(a_refresh_that_is_refused_is_made_up_for),
		FAULT_TEST(many_refreshes_that_fail_are_made_up_for),
		FAULT_TEST(more_than_can_be_remembered_drops_all_counters_and_no_limits),
		FAULT_TEST(more_limits_than_can_be_remembered_drop_no_counters),
		FAULT_TEST(a_reader_that_is_not_answered_keeps_its_entries),
		FAULT_TEST(scripts_that_are_flushed_are_sent_again_in_the_same_call),
		FAULT_TEST(a_connection_that_redis_has_ended_is_made_anew),
		FAULT_TEST(a_crowd_is_told_nothing_old_through_outages),
		FAULT_TEST(what_we_did_not_write_is_a_miss_and_deleted),
		FAULT_TEST(what_belongs_under_another_key_is_a_miss),
		FAULT_TEST(a_large_text_is_a_miss),
		FAULT_TEST(what_has_no_end_is_a_miss),
		FAULT_TEST(the_same_json_in_other_words_is_a_hit),
		FAULT_TEST(a_date_that_does_not_exist_is_a_miss),
		FAULT_TEST(what_we_did_not_write_is_overwritten_or_deleted),
		FAULT_TEST(a_foreign_lease_does_not_stay_for_ever),
		FAULT_TEST(the_keys_of_counters_are_all_that_they_need),
	};

	if (!redis_server_exists()) {
		fputs("skipped: Redis is not installed\n", stderr);
		return SKIPPED;
	}
	log_configure(LOG_ERROR, LOG_TEXT);
	hash_seed();
	return cmocka_run_group_tests_name("redis_counter_faults", tests, NULL, NULL);
}
