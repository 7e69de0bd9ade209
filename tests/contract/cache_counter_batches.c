/* What ports/cache.h promises of counters: how long they stay, lists, and calls for many. */
#include "cache_contract.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "cache_scene.h"
#include "counter_fixture.h"
#include "waiting.h"

/* ---- ends -------------------------------------------------------------------------------- */

static void a_counter_ends_after_five_minutes(void **state)
{
	struct scene *scene = *state;

	cache_scene_know(scene, 1);
	cache_scene_pass_s(scene, CACHE_COUNTER_TTL_S - 1);
	cache_scene_assert_version(scene, 1);
	cache_scene_pass_s(scene, 1);
	cache_scene_know(scene, 1);
	cache_scene_refresh(scene, 2);
	cache_scene_pass_s(scene, CACHE_COUNTER_TTL_S - 1);
	cache_scene_assert_version(scene, 2);
	cache_scene_pass_s(scene, 1);
	cache_scene_miss(scene);
}

static void a_refresh_prolongs_unless_it_is_late(void **state)
{
	struct scene *scene = *state;

	cache_scene_know(scene, 2);
	cache_scene_pass_s(scene, 200);
	cache_scene_refresh(scene, 2);
	cache_scene_pass_s(scene, 200);
	cache_scene_assert_version(scene, 2);
	cache_scene_refresh(scene, 1);
	cache_scene_pass_s(scene, 100);
	cache_scene_miss(scene);
}

static void to_get_does_not_prolong(void **state)
{
	struct scene *scene = *state;

	cache_scene_know(scene, 2);
	for (int i = 0; i < 29; i++) {
		cache_scene_pass_s(scene, 10);
		cache_scene_assert_version(scene, 2);
	}
	cache_scene_pass_s(scene, 10);
	cache_scene_miss(scene);
}

/* ---- the list ---------------------------------------------------------------------------- */

static void the_list_is_an_entry_of_its_own(void **state)
{
	struct scene *scene = *state;
	struct cached_counter missed;

	cache_scene_know(scene, 1);
	missed = cache_scene_miss_list(scene);
	counter_fixture_fill(scene->a, &missed, 1);
	cache_scene_assert_list_version(scene, 1);
	cache_scene_pass_s(scene, CACHE_COUNTER_TTL_S);
	missed = cache_scene_miss_list(scene);
	counter_fixture_fill(scene->a, &missed, 2);
	cache_scene_assert_list_version(scene, 2);
	cache_scene_miss(scene); /* it does not serve as the counter */
}

static void a_change_deletes_the_list(void **state)
{
	struct scene *scene = *state;
	struct cached_counter missed;

	cache_scene_know(scene, 1);
	missed = cache_scene_miss_list(scene);
	counter_fixture_fill(scene->a, &missed, 1);
	cache_scene_refresh(scene, 2);
	missed = cache_scene_miss_list(scene);
	counter_fixture_fill(scene->a, &missed, 2);
	cache_scene_assert_list_version(scene, 2);
	cache_scene_assert_version(scene, 2);
}

static void a_change_overtakes_a_reader_of_the_list(void **state)
{
	struct scene *scene = *state;
	struct cached_counter missed;

	cache_scene_know(scene, 1);
	missed = cache_scene_miss_list(scene);
	cache_scene_refresh(scene, 2);
	counter_fixture_fill(scene->a, &missed, 1);
	cache_scene_miss_list(scene);
	cache_scene_assert_version(scene, 2);
}

static void the_lease_is_one_for_the_counter_and_the_list(void **state)
{
	struct scene *scene = *state;
	struct cached_counter missed = cache_scene_miss(scene), list;

	list = counter_fixture_get_list(scene->b, scene->user);
	assert_true(!list.hit && list.lease == 0);
	counter_fixture_fill(scene->a, &missed, 1);
	list = counter_fixture_get_list(scene->b, scene->user);
	assert_true(!list.hit && list.lease != 0);
}

/* ---- many -------------------------------------------------------------------------------- */

static void one_call_is_for_many(void **state)
{
	struct scene *scene = *state;
	struct slice other = cache_fixture_user(&scene->fixture, "b");
	struct cached_counter counters[] = {{.user_id = scene->user},
		{.user_id = other, .is_list = true}, {.user_id = other}, {.user_id = scene->user}};
	const struct cache_session_ops *ops = scene->a->ops;

	cache_scene_know(scene, 5);
	assert_int_equal(ops->counter_get(scene->a, counters, 4), STATUS_OK);
	assert_true(counter_fixture_is(&counters[0], 5) && counter_fixture_is(&counters[3], 5));
	assert_true(!counters[1].hit && counters[1].lease != 0);
	assert_true(!counters[2].hit && counters[2].lease == 0); /* the same user's, given */
	for (int i = 1; i <= 2; i++) {
		int64_t lease = counters[i].lease;

		counters[i] = counter_fixture_value(other, 9);
		counters[i].lease = lease;
		counters[i].is_list = i == 1;
	}
	assert_int_equal(ops->counter_fill(scene->a, counters, 4), STATUS_OK);
	assert_int_equal(ops->counter_get(scene->a, counters, 4), STATUS_OK);
	assert_true(counter_fixture_is(&counters[1], 9));
	assert_false(counters[2].hit);
}

static void of_several_refreshes_in_a_call_the_latest_counts(void **state)
{
	struct scene *scene = *state;
	const struct cached_counter counters[] = {counter_fixture_value(scene->user, 2),
		counter_fixture_value(scene->user, 3), counter_fixture_value(scene->user, 1)};

	cache_scene_know(scene, 1);
	assert_int_equal(
		scene->writer->ops->counter_refresh(scene->writer, counters, 3), STATUS_OK);
	cache_scene_assert_version(scene, 3);
}

static void a_call_for_nobody_is_fine(void **state)
{
	struct scene *scene = *state;
	struct cached_counter none = {.user_id = SLICE("x")};
	const struct cache_session_ops *ops = scene->a->ops;

	assert_int_equal(ops->counter_get(scene->a, &none, 0), STATUS_OK);
	assert_int_equal(ops->counter_fill(scene->a, &none, 0), STATUS_OK);
	assert_int_equal(ops->counter_fill(scene->a, &none, 1), STATUS_OK); /* has no lease */
	assert_int_equal(ops->counter_refresh(scene->a, &none, 0), STATUS_OK);
}

#define MANY 2000

static void assert_all(struct scene *scene, struct cached_counter *counters, int64_t added)
{
	assert_int_equal(scene->a->ops->counter_get(scene->a, counters, MANY), STATUS_OK);
	for (int i = 0; i < MANY; i++)
		assert_true(counter_fixture_is(&counters[i], i + added));
}

static void a_large_batch_is_one_call(void **state)
{
	struct scene *scene = *state;
	struct cached_counter *counters = qp_calloc(MANY, sizeof(*counters));
	const struct cache_session_ops *ops = scene->a->ops;

	for (int i = 0; i < MANY; i++) {
		char name[16];

		snprintf(name, sizeof(name), "%d", i);
		counters[i] = counter_fixture_value(cache_fixture_user(&scene->fixture, name), i);
	}
	assert_int_equal(ops->counter_get(scene->a, counters, MANY), STATUS_OK);
	for (int i = 0; i < MANY; i++)
		assert_true(!counters[i].hit && counters[i].lease != 0);
	assert_int_equal(ops->counter_fill(scene->a, counters, MANY), STATUS_OK);
	assert_all(scene, counters, 0);
	for (int i = 0; i < MANY; i++)
		counters[i] = counter_fixture_value(counters[i].user_id, i + 1);
	assert_int_equal(ops->counter_refresh(scene->a, counters, MANY), STATUS_OK);
	assert_all(scene, counters, 1);
	free(counters);
}

static void any_user_id_is_a_user_of_its_own(void **state)
{
	static const char *const names[] = {"a", "a b", "a:UnreadMessages",
		"a:UnreadMessages:lease", ":UnreadMessages", "{a}", "*", "Ünïcödé", "👍",
		"\"quoted\\\"", "%s%n", "counter:a", "s:a"};
	struct scene *scene = *state;
	const int count = sizeof(names) / sizeof(names[0]);

	for (int i = 0; i < count; i++) {
		struct slice user = cache_fixture_user(&scene->fixture, names[i]);
		struct cached_counter list;

		counter_fixture_know(scene->a, user, i);
		counter_fixture_refresh(scene->a, user, 100 + i);
		list = counter_fixture_get_list(scene->a, user);
		assert_true(!list.hit && list.lease != 0);
		counter_fixture_fill(scene->a, &list, 200 + i);
	}
	for (int i = 0; i < count; i++) {
		struct slice user = cache_fixture_user(&scene->fixture, names[i]);
		struct cached_counter counter = counter_fixture_get(scene->a, user),
				      list = counter_fixture_get_list(scene->a, user);

		assert_true(counter_fixture_is(&counter, 100 + i));
		assert_true(counter_fixture_is(&list, 200 + i));
	}
}

static void a_user_id_may_be_long(void **state)
{
	struct scene *scene = *state;
	char longest[256];
	struct cached_counter counters[200];
	const struct cache_session_ops *ops = scene->a->ops;

	memset(longest, 'x', sizeof(longest));
	memcpy(longest, scene->fixture.prefix, strlen(scene->fixture.prefix));
	for (size_t i = 0; i < 200; i++)
		counters[i] = counter_fixture_value(slice_make(longest, 256 - i), (int64_t)i);
	assert_int_equal(ops->counter_get(scene->a, counters, 200), STATUS_OK);
	assert_int_equal(ops->counter_fill(scene->a, counters, 200), STATUS_OK);
	for (int i = 0; i < 200; i++)
		counters[i] = counter_fixture_value(counters[i].user_id, i + 1);
	assert_int_equal(ops->counter_refresh(scene->a, counters, 200), STATUS_OK);
	assert_int_equal(ops->counter_get(scene->a, counters, 200), STATUS_OK);
	for (int i = 0; i < 200; i++)
		assert_true(counter_fixture_is(&counters[i], i + 1));
}

static void counters_and_limits_of_a_user_are_apart(void **state)
{
	struct scene *scene = *state;

	cache_fixture_fill(&scene->fixture, scene->user, 5, 0);
	cache_scene_know(scene, 3);
	cache_fixture_drop(&scene->fixture, scene->user);
	cache_scene_assert_version(scene, 3);
	cache_fixture_fill(&scene->fixture, scene->user, 5, 0);
	cache_scene_refresh(scene, 4);
	assert_true(cache_fixture_has(&scene->fixture, scene->user));
}

int cache_counter_batch_tests(void)
{
	const struct CMUnitTest tests[] = {
		COUNTER_TEST(a_counter_ends_after_five_minutes),
		COUNTER_TEST(a_refresh_prolongs_unless_it_is_late),
		COUNTER_TEST(to_get_does_not_prolong),
		COUNTER_TEST(the_list_is_an_entry_of_its_own),
		COUNTER_TEST(a_change_deletes_the_list),
		COUNTER_TEST(a_change_overtakes_a_reader_of_the_list),
		COUNTER_TEST(the_lease_is_one_for_the_counter_and_the_list),
		COUNTER_TEST(one_call_is_for_many),
		COUNTER_TEST(of_several_refreshes_in_a_call_the_latest_counts),
		COUNTER_TEST(a_call_for_nobody_is_fine),
		COUNTER_TEST(a_large_batch_is_one_call),
		COUNTER_TEST(any_user_id_is_a_user_of_its_own),
		COUNTER_TEST(a_user_id_may_be_long),
		COUNTER_TEST(counters_and_limits_of_a_user_are_apart),
	};

	return cmocka_run_group_tests_name("cache_counter_batches", tests, NULL, NULL);
}
