/* Counters in Redis that somebody else has written or may not write. Part of
 * redis_counter_faults. */
#include "redis_server.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/log.h"
#include "counter_fixture.h"
#include "counter_scene.h"
#include "waiting.h"

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
	assert_false(counter_scene_has_keys(scene, scene->user));
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
		struct slice user = counter_scene_numbered(scene, (int)i);

		missed = counter_fixture_get(scene->reader, user);
		counter_fixture_plant(&scene->fixture, COUNTER_KEY, user, foreign[i], 60);
		counter_fixture_fill(scene->reader, &missed, 1);
		counter = counter_fixture_get(scene->reader, user);
		assert_true(counter_fixture_is(&counter, 1));
		counter_fixture_plant(&scene->fixture, COUNTER_KEY, user, foreign[i], 60);
		counter_fixture_refresh(scene->writer, user, 2);
		assert_false(counter_scene_has_keys(scene, user));
	}
	counter_fixture_plant_hash(&scene->fixture, COUNTER_KEY, scene->user, 0);
	counter_fixture_plant_hash(&scene->fixture, LEASE_KEY, scene->user, 0);
	counter_fixture_plant_hash(&scene->fixture, LIST_KEY, scene->user, 0);
	counter_fixture_refresh(scene->writer, scene->user, 3);
	assert_false(counter_scene_has_keys(scene, scene->user));
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

int redis_foreign_counter_tests(void)
{
	const struct CMUnitTest tests[] = {
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

	return cmocka_run_group_tests_name("redis_foreign_counters", tests, NULL, NULL);
}
