/*
 * What ports/cache.h promises of counters. Races are made certain: two sessions of one thread take
 * their steps in the order that the test wants.
 */
#include "cache_contract.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "cache_scene.h"
#include "counter_fixture.h"
#include "waiting.h"

/* ---- hit and miss ------------------------------------------------------------------------ */

static void of_those_who_miss_one_gets_the_lease(void **state)
{
	struct scene *scene = *state;
	struct cached_counter other;

	cache_scene_miss(scene);
	other = counter_fixture_get(scene->b, scene->user);
	assert_true(!other.hit && other.lease == 0);
	other = counter_fixture_get(scene->a, scene->user);
	assert_true(!other.hit && other.lease == 0);
	other = counter_fixture_get(scene->b, cache_fixture_user(&scene->fixture, "other"));
	assert_true(!other.hit && other.lease != 0);
}

static void what_is_filled_under_a_lease_is_a_hit_for_all(void **state)
{
	struct scene *scene = *state;
	struct cached_counter missed = cache_scene_miss(scene), counter;

	counter_fixture_fill(scene->a, &missed, 7);
	cache_scene_assert_version(scene, 7);
	counter = counter_fixture_get(scene->b, scene->user);
	assert_true(counter_fixture_is(&counter, 7));
}

static void without_the_lease_nothing_is_filled(void **state)
{
	struct scene *scene = *state;
	struct cached_counter none = {.user_id = scene->user}, guessed = none, missed;

	counter_fixture_fill(scene->b, &none, 7);
	guessed.lease = 12345;
	counter_fixture_fill(scene->b, &guessed, 7);
	missed = cache_scene_miss(scene);
	counter_fixture_fill(scene->b, &none, 7);
	counter_fixture_fill(scene->b, &guessed, 7);
	assert_false(counter_fixture_get(scene->b, scene->user).hit);
	counter_fixture_fill(scene->a, &missed, 8);
	cache_scene_assert_version(scene, 8);
}

static void a_lease_is_good_for_one_fill(void **state)
{
	struct scene *scene = *state;
	struct cached_counter missed = cache_scene_miss(scene);

	counter_fixture_fill(scene->a, &missed, 7);
	counter_fixture_fill(scene->a, &missed, 8);
	cache_scene_assert_version(scene, 7);
}

static void a_refresh_replaces_what_is_there(void **state)
{
	struct scene *scene = *state;

	cache_scene_know(scene, 1);
	cache_scene_refresh(scene, 2);
	cache_scene_assert_version(scene, 2);
	cache_scene_refresh(scene, 3);
	cache_scene_assert_version(scene, 3);
}

static void a_refresh_makes_nothing_that_is_not_there(void **state)
{
	struct scene *scene = *state;

	cache_scene_refresh(scene, 1);
	cache_scene_know(scene, 1);
	cache_scene_pass_s(scene, CACHE_COUNTER_TTL_S);
	cache_scene_refresh(scene, 2);
	cache_scene_miss(scene);
	cache_scene_refresh(scene, 2); /* and it ends the lease there too */
	cache_scene_know(scene, 2);
	cache_scene_assert_version(scene, 2);
}

static void all_numbers_and_times_come_back(void **state)
{
	static const struct cached_counter values[] = {{.updated_us = 0}, {.updated_us = 1},
		{.count = 1, .version = 2, .updated_us = 1767855000000000LL},
		{.count = 12, .version = NUMBER_MAX - 1, .updated_us = 1767855000123000LL},
		{.count = NUMBER_MAX, .version = NUMBER_MAX, .updated_us = 1767855000123456LL},
		{.version = NUMBER_MAX, .updated_us = 253402300799999999LL}};
	struct scene *scene = *state;

	cache_scene_know(scene, 0);
	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
		struct cached_counter counter = values[i], got;

		counter.user_id = scene->user;
		assert_int_equal(
			scene->writer->ops->counter_refresh(scene->writer, &counter, 1), STATUS_OK);
		got = counter_fixture_get(scene->a, scene->user);
		assert_true(got.hit && got.count == counter.count);
		assert_true(got.version == counter.version);
		assert_true(got.updated_us == counter.updated_us);
	}
}

/* ---- an old value never wins ------------------------------------------------------------- */

static void a_change_overtakes_a_reader(void **state)
{
	struct scene *scene = *state;
	struct cached_counter missed = cache_scene_miss(scene);

	cache_scene_refresh(scene, 2);
	counter_fixture_fill(scene->a, &missed, 1);
	cache_scene_know(scene, 2);
	counter_fixture_fill(scene->a, &missed, 1);
	cache_scene_assert_version(scene, 2);
}

static void a_change_overtakes_a_reader_and_has_ended_by_then(void **state)
{
	struct scene *scene = *state;
	struct cached_counter missed = cache_scene_miss(scene);

	cache_scene_refresh(scene, 2);
	cache_scene_know(scene, 2);
	cache_scene_pass_s(scene, CACHE_COUNTER_TTL_S);
	counter_fixture_fill(scene->a, &missed, 1);
	missed = cache_scene_miss(scene);
	counter_fixture_fill(scene->a, &missed, 2);
	cache_scene_assert_version(scene, 2);
}

static void a_change_overtakes_a_reader_and_another_reads_since(void **state)
{
	struct scene *scene = *state;
	struct cached_counter missed = cache_scene_miss(scene), later;

	cache_scene_refresh(scene, 2);
	later = counter_fixture_get(scene->b, scene->user);
	assert_true(later.lease != 0 && later.lease != missed.lease);
	counter_fixture_fill(scene->a, &missed, 1);
	assert_false(counter_fixture_get(scene->a, scene->user).hit);
	counter_fixture_fill(scene->b, &later, 2);
	counter_fixture_fill(scene->a, &missed, 1);
	cache_scene_assert_version(scene, 2);
}

static void a_lease_that_has_ended_fills_nothing(void **state)
{
	struct scene *scene = *state;
	struct cached_counter missed = cache_scene_miss(scene);

	cache_scene_pass_s(scene, CACHE_LEASE_TTL_S - 1);
	assert_true(counter_fixture_get(scene->b, scene->user).lease == 0);
	cache_scene_pass_s(scene, 1);
	counter_fixture_fill(scene->a, &missed, 1);
	assert_true(counter_fixture_get(scene->b, scene->user).lease != 0);
}

static void a_lease_just_before_its_end_is_good(void **state)
{
	struct scene *scene = *state;
	struct cached_counter missed = cache_scene_miss(scene);

	cache_scene_pass_s(scene, CACHE_LEASE_TTL_S - 2);
	counter_fixture_fill(scene->a, &missed, 1);
	cache_scene_assert_version(scene, 1);
}

static void a_lease_has_ended_and_is_another_readers(void **state)
{
	struct scene *scene = *state;
	struct cached_counter missed = cache_scene_miss(scene), later;

	cache_scene_pass_s(scene, CACHE_LEASE_TTL_S);
	later = counter_fixture_get(scene->b, scene->user);
	assert_true(later.lease != 0 && later.lease != missed.lease);
	counter_fixture_fill(scene->a, &missed, 1);
	assert_false(counter_fixture_get(scene->a, scene->user).hit);
	counter_fixture_fill(scene->b, &later, 2); /* and the first has not ended it */
	cache_scene_assert_version(scene, 2);
	counter_fixture_fill(scene->a, &missed, 1);
	cache_scene_assert_version(scene, 2);
}

static void a_late_refresh_does_not_replace_a_later_version(void **state)
{
	struct scene *scene = *state;

	cache_scene_know(scene, 1);
	cache_scene_refresh(scene, 3);
	cache_scene_refresh(scene, 2);
	cache_scene_assert_version(scene, 3);
	cache_scene_refresh(scene, 3);
	cache_scene_assert_version(scene, 3);
}

static void a_late_refresh_does_not_take_the_place_of_one_that_has_ended(void **state)
{
	struct scene *scene = *state;

	cache_scene_know(scene, 1);
	cache_scene_refresh(scene, 3);
	cache_scene_pass_s(scene, CACHE_COUNTER_TTL_S);
	cache_scene_refresh(scene, 2);
	cache_scene_miss(scene);
}

/* A redelivery of what the reader has filled, or of something older. */
static void a_late_refresh_does_not_replace_what_was_filled(void **state)
{
	struct scene *scene = *state;
	struct cached_counter missed = cache_scene_miss(scene);

	counter_fixture_fill(scene->a, &missed, 3);
	cache_scene_refresh(scene, 2);
	cache_scene_assert_version(scene, 3);
}

/* It cannot know whether the reader has read before or after it committed. */
static void a_late_refresh_still_ends_the_lease_and_the_list(void **state)
{
	struct scene *scene = *state;
	struct cached_counter missed;

	cache_scene_know(scene, 3);
	missed = cache_scene_miss_list(scene);
	counter_fixture_fill(scene->a, &missed, 3);
	cache_scene_refresh(scene, 2);
	missed = cache_scene_miss_list(scene);
	cache_scene_refresh(scene, 2);
	counter_fixture_fill(scene->a, &missed, 3);
	cache_scene_miss_list(scene);
	cache_scene_assert_version(scene, 3);
}

/* ---- several threads --------------------------------------------------------------------- */

static void threads_are_never_told_an_older_value(void **state)
{
	struct scene *scene = *state;
	struct counter_crowd crowd;

	counter_crowd_start(&crowd, &scene->fixture);
	for (int i = 0; i < 100; i++) {
		wait_a_moment();
		if (!cache_fixture_is_memory())
			(void)counter_fixture_delete(&scene->fixture, COUNTER_KEY, crowd.user_id);
	}
	counter_crowd_stop(&crowd);
}

/* ---- of Redis alone ---------------------------------------------------------------------- */

static void a_change_overtakes_a_reader_and_is_deleted_by_then(void **state)
{
	struct scene *scene = *state;
	struct cached_counter missed = cache_scene_miss(scene), later;

	cache_scene_refresh(scene, 2);
	cache_scene_know(scene, 2);
	assert_true(counter_fixture_delete(&scene->fixture, COUNTER_KEY, scene->user));
	counter_fixture_fill(scene->a, &missed, 1);
	later = cache_scene_miss(scene);
	counter_fixture_fill(scene->b, &missed, 1);
	assert_false(counter_fixture_get(scene->b, scene->user).hit);
	counter_fixture_fill(scene->a, &later, 2);
	cache_scene_assert_version(scene, 2);
}

static void a_fill_does_not_replace_a_later_version(void **state)
{
	struct scene *scene = *state;
	struct cached_counter missed = cache_scene_miss(scene);

	counter_fixture_plant(&scene->fixture, COUNTER_KEY, scene->user,
		"{\"count\":3,\"version\":3,\"lastUpdated\":\"2026-01-08T06:50:00.123459Z\"}", 60);
	counter_fixture_fill(scene->a, &missed, 2);
	cache_scene_assert_version(scene, 3);
	assert_string_equal(counter_fixture_text(&scene->fixture, LEASE_KEY, scene->user), "");
}

static void the_keys_hold_the_json_of_the_contract(void **state)
{
	struct scene *scene = *state;
	struct cached_counter list;
	char token[24];

	cache_scene_know(scene, 6);
	cache_scene_refresh(scene, 7);
	assert_string_equal(counter_fixture_text(&scene->fixture, COUNTER_KEY, scene->user),
		"{\"count\":7,\"version\":7,\"lastUpdated\":\"2026-01-08T06:50:00.123463Z\"}");
	assert_in_range(
		counter_fixture_ttl_ms(&scene->fixture, COUNTER_KEY, scene->user), 290000, 300000);
	list = cache_scene_miss_list(scene);
	snprintf(token, sizeof(token), "%lld", (long long)list.lease);
	assert_string_equal(counter_fixture_text(&scene->fixture, LEASE_KEY, scene->user), token);
	assert_in_range(
		counter_fixture_ttl_ms(&scene->fixture, LEASE_KEY, scene->user), 5000, 10000);
	counter_fixture_fill(scene->a, &list, 7);
	assert_string_equal(counter_fixture_text(&scene->fixture, LIST_KEY, scene->user),
		"[{\"type\":\"UnreadMessages\",\"count\":7,\"version\":7,"
		"\"lastUpdated\":\"2026-01-08T06:50:00.123463Z\"}]");
	assert_in_range(
		counter_fixture_ttl_ms(&scene->fixture, LIST_KEY, scene->user), 290000, 300000);
	assert_string_equal(counter_fixture_text(&scene->fixture, LEASE_KEY, scene->user), "");
}

/* ---- of the memory cache alone ----------------------------------------------------------- */

static void crowd_out(struct scene *scene)
{
	for (int i = 0; i < 100000; i++) {
		char name[16];

		snprintf(name, sizeof(name), "%d", i);
		cache_fixture_fill(&scene->fixture, slice_of(name), 1, 0);
	}
}

static void what_is_crowded_out_does_not_let_an_old_value_in(void **state)
{
	struct scene *scene = *state;
	struct cached_counter missed = cache_scene_miss(scene);

	cache_scene_refresh(scene, 2);
	cache_scene_know(scene, 2);
	crowd_out(scene);
	counter_fixture_fill(scene->a, &missed, 1);
	missed = cache_scene_miss(scene);
	crowd_out(scene); /* the lease too: then nobody fills */
	counter_fixture_fill(scene->a, &missed, 2);
	cache_scene_miss(scene);
}

int cache_counter_tests(void)
{
	const struct CMUnitTest tests[] = {
		COUNTER_TEST(of_those_who_miss_one_gets_the_lease),
		COUNTER_TEST(what_is_filled_under_a_lease_is_a_hit_for_all),
		COUNTER_TEST(without_the_lease_nothing_is_filled),
		COUNTER_TEST(a_lease_is_good_for_one_fill),
		COUNTER_TEST(a_refresh_replaces_what_is_there),
		COUNTER_TEST(a_refresh_makes_nothing_that_is_not_there),
		COUNTER_TEST(all_numbers_and_times_come_back),
		COUNTER_TEST(a_change_overtakes_a_reader),
		COUNTER_TEST(a_change_overtakes_a_reader_and_has_ended_by_then),
		COUNTER_TEST(a_change_overtakes_a_reader_and_another_reads_since),
		COUNTER_TEST(a_lease_that_has_ended_fills_nothing),
		COUNTER_TEST(a_lease_just_before_its_end_is_good),
		COUNTER_TEST(a_lease_has_ended_and_is_another_readers),
		COUNTER_TEST(a_late_refresh_does_not_replace_a_later_version),
		COUNTER_TEST(a_late_refresh_does_not_take_the_place_of_one_that_has_ended),
		COUNTER_TEST(a_late_refresh_does_not_replace_what_was_filled),
		COUNTER_TEST(a_late_refresh_still_ends_the_lease_and_the_list),
		COUNTER_TEST(threads_are_never_told_an_older_value),
	};
	const struct CMUnitTest redis_tests[] = {
		COUNTER_TEST(a_change_overtakes_a_reader_and_is_deleted_by_then),
		COUNTER_TEST(a_fill_does_not_replace_a_later_version),
		COUNTER_TEST(the_keys_hold_the_json_of_the_contract),
	};
	const struct CMUnitTest memory_tests[] = {
		COUNTER_TEST(what_is_crowded_out_does_not_let_an_old_value_in),
	};
	int failed = cmocka_run_group_tests_name("cache_counters", tests, NULL, NULL) +
		     cache_counter_batch_tests();

	if (cache_fixture_is_memory())
		failed += cmocka_run_group_tests_name(
			"cache_counters_memory", memory_tests, NULL, NULL);
	else
		failed += cmocka_run_group_tests_name(
			"cache_counters_redis", redis_tests, NULL, NULL);
	return failed;
}
