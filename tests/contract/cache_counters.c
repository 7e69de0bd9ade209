/*
 * What ports/cache.h promises of counters. Races are made certain: two sessions of one thread take
 * their steps in the order that the test wants.
 */
#include "cache_contract.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "counter_fixture.h"
#include "waiting.h"

#define NUMBER_MAX 999999999999999LL

/* Two readers and a writer, and the user that they care about. */
struct scene {
	struct cache_fixture fixture;
	struct slice user;
	struct cache_session *a, *b, *writer;
};

static int setup(void **state)
{
	struct scene *scene = qp_calloc(1, sizeof(*scene));
	struct cache *cache;

	cache_fixture_open(&scene->fixture, cache_fixture_url());
	cache = scene->fixture.cache;
	scene->user = cache_fixture_user(&scene->fixture, "a");
	scene->a = cache->ops->open_session(cache);
	scene->b = cache->ops->open_session(cache);
	scene->writer = cache->ops->open_session(cache);
	*state = scene;
	return 0;
}

static int teardown(void **state)
{
	struct scene *scene = *state;

	scene->a->ops->close(scene->a);
	scene->b->ops->close(scene->b);
	scene->writer->ops->close(scene->writer);
	cache_fixture_close(&scene->fixture);
	free(scene);
	return 0;
}

static void assert_version(struct scene *scene, int64_t version)
{
	struct cached_counter counter = counter_fixture_get(scene->a, scene->user);

	assert_true(counter_fixture_is(&counter, version));
}

static void assert_list_version(struct scene *scene, int64_t version)
{
	struct cached_counter list = counter_fixture_get_list(scene->a, scene->user);

	assert_true(counter_fixture_is(&list, version));
}

/* Reader `a` misses, and gets the lease. */
static struct cached_counter miss(struct scene *scene)
{
	struct cached_counter missed = counter_fixture_get(scene->a, scene->user);

	assert_true(!missed.hit && missed.lease != 0);
	return missed;
}

static struct cached_counter miss_list(struct scene *scene)
{
	struct cached_counter missed = counter_fixture_get_list(scene->a, scene->user);

	assert_true(!missed.hit && missed.lease != 0);
	return missed;
}

/* Reader `b` makes it. */
static void know(struct scene *scene, int64_t version)
{
	counter_fixture_know(scene->b, scene->user, version);
}

static void refresh(struct scene *scene, int64_t version)
{
	counter_fixture_refresh(scene->writer, scene->user, version);
}

static void pass_s(struct scene *scene, int64_t seconds)
{
	counter_fixture_pass_s(&scene->fixture, scene->user, seconds);
}

/* ---- hit and miss ------------------------------------------------------------------------ */

static void of_those_who_miss_one_gets_the_lease(void **state)
{
	struct scene *scene = *state;
	struct cached_counter other;

	miss(scene);
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
	struct cached_counter missed = miss(scene), counter;

	counter_fixture_fill(scene->a, &missed, 7);
	assert_version(scene, 7);
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
	missed = miss(scene);
	counter_fixture_fill(scene->b, &none, 7);
	counter_fixture_fill(scene->b, &guessed, 7);
	assert_false(counter_fixture_get(scene->b, scene->user).hit);
	counter_fixture_fill(scene->a, &missed, 8);
	assert_version(scene, 8);
}

static void a_lease_is_good_for_one_fill(void **state)
{
	struct scene *scene = *state;
	struct cached_counter missed = miss(scene);

	counter_fixture_fill(scene->a, &missed, 7);
	counter_fixture_fill(scene->a, &missed, 8);
	assert_version(scene, 7);
}

static void a_refresh_replaces_what_is_there(void **state)
{
	struct scene *scene = *state;

	know(scene, 1);
	refresh(scene, 2);
	assert_version(scene, 2);
	refresh(scene, 3);
	assert_version(scene, 3);
}

static void a_refresh_makes_nothing_that_is_not_there(void **state)
{
	struct scene *scene = *state;

	refresh(scene, 1);
	know(scene, 1);
	pass_s(scene, CACHE_COUNTER_TTL_S);
	refresh(scene, 2);
	miss(scene);
	refresh(scene, 2); /* and it ends the lease there too */
	know(scene, 2);
	assert_version(scene, 2);
}

static void all_numbers_and_times_come_back(void **state)
{
	static const struct cached_counter values[] = {{.updated_us = 0}, {.updated_us = 1},
		{.count = 1, .version = 2, .updated_us = 1767855000000000LL},
		{.count = 12, .version = NUMBER_MAX - 1, .updated_us = 1767855000123000LL},
		{.count = NUMBER_MAX, .version = NUMBER_MAX, .updated_us = 1767855000123456LL},
		{.version = NUMBER_MAX, .updated_us = 253402300799999999LL}};
	struct scene *scene = *state;

	know(scene, 0);
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
	struct cached_counter missed = miss(scene);

	refresh(scene, 2);
	counter_fixture_fill(scene->a, &missed, 1);
	know(scene, 2);
	counter_fixture_fill(scene->a, &missed, 1);
	assert_version(scene, 2);
}

static void a_change_overtakes_a_reader_and_has_ended_by_then(void **state)
{
	struct scene *scene = *state;
	struct cached_counter missed = miss(scene);

	refresh(scene, 2);
	know(scene, 2);
	pass_s(scene, CACHE_COUNTER_TTL_S);
	counter_fixture_fill(scene->a, &missed, 1);
	missed = miss(scene);
	counter_fixture_fill(scene->a, &missed, 2);
	assert_version(scene, 2);
}

static void a_change_overtakes_a_reader_and_another_reads_since(void **state)
{
	struct scene *scene = *state;
	struct cached_counter missed = miss(scene), later;

	refresh(scene, 2);
	later = counter_fixture_get(scene->b, scene->user);
	assert_true(later.lease != 0 && later.lease != missed.lease);
	counter_fixture_fill(scene->a, &missed, 1);
	assert_false(counter_fixture_get(scene->a, scene->user).hit);
	counter_fixture_fill(scene->b, &later, 2);
	counter_fixture_fill(scene->a, &missed, 1);
	assert_version(scene, 2);
}

static void a_lease_that_has_ended_fills_nothing(void **state)
{
	struct scene *scene = *state;
	struct cached_counter missed = miss(scene);

	pass_s(scene, CACHE_LEASE_TTL_S - 1);
	assert_true(counter_fixture_get(scene->b, scene->user).lease == 0);
	pass_s(scene, 1);
	counter_fixture_fill(scene->a, &missed, 1);
	assert_true(counter_fixture_get(scene->b, scene->user).lease != 0);
}

static void a_lease_just_before_its_end_is_good(void **state)
{
	struct scene *scene = *state;
	struct cached_counter missed = miss(scene);

	pass_s(scene, CACHE_LEASE_TTL_S - 2);
	counter_fixture_fill(scene->a, &missed, 1);
	assert_version(scene, 1);
}

static void a_lease_has_ended_and_is_another_readers(void **state)
{
	struct scene *scene = *state;
	struct cached_counter missed = miss(scene), later;

	pass_s(scene, CACHE_LEASE_TTL_S);
	later = counter_fixture_get(scene->b, scene->user);
	assert_true(later.lease != 0 && later.lease != missed.lease);
	counter_fixture_fill(scene->a, &missed, 1);
	assert_false(counter_fixture_get(scene->a, scene->user).hit);
	counter_fixture_fill(scene->b, &later, 2); /* and the first has not ended it */
	assert_version(scene, 2);
	counter_fixture_fill(scene->a, &missed, 1);
	assert_version(scene, 2);
}

static void a_late_refresh_does_not_replace_a_later_version(void **state)
{
	struct scene *scene = *state;

	know(scene, 1);
	refresh(scene, 3);
	refresh(scene, 2);
	assert_version(scene, 3);
	refresh(scene, 3);
	assert_version(scene, 3);
}

static void a_late_refresh_does_not_take_the_place_of_one_that_has_ended(void **state)
{
	struct scene *scene = *state;

	know(scene, 1);
	refresh(scene, 3);
	pass_s(scene, CACHE_COUNTER_TTL_S);
	refresh(scene, 2);
	miss(scene);
}

/* A redelivery of what the reader has filled, or of something older. */
static void a_late_refresh_does_not_replace_what_was_filled(void **state)
{
	struct scene *scene = *state;
	struct cached_counter missed = miss(scene);

	counter_fixture_fill(scene->a, &missed, 3);
	refresh(scene, 2);
	assert_version(scene, 3);
}

/* It cannot know whether the reader has read before or after it committed. */
static void a_late_refresh_still_ends_the_lease_and_the_list(void **state)
{
	struct scene *scene = *state;
	struct cached_counter missed;

	know(scene, 3);
	missed = miss_list(scene);
	counter_fixture_fill(scene->a, &missed, 3);
	refresh(scene, 2);
	missed = miss_list(scene);
	refresh(scene, 2);
	counter_fixture_fill(scene->a, &missed, 3);
	miss_list(scene);
	assert_version(scene, 3);
}

/* ---- ends -------------------------------------------------------------------------------- */

static void a_counter_ends_after_five_minutes(void **state)
{
	struct scene *scene = *state;

	know(scene, 1);
	pass_s(scene, CACHE_COUNTER_TTL_S - 1);
	assert_version(scene, 1);
	pass_s(scene, 1);
	know(scene, 1);
	refresh(scene, 2);
	pass_s(scene, CACHE_COUNTER_TTL_S - 1);
	assert_version(scene, 2);
	pass_s(scene, 1);
	miss(scene);
}

static void a_refresh_prolongs_unless_it_is_late(void **state)
{
	struct scene *scene = *state;

	know(scene, 2);
	pass_s(scene, 200);
	refresh(scene, 2);
	pass_s(scene, 200);
	assert_version(scene, 2);
	refresh(scene, 1);
	pass_s(scene, 100);
	miss(scene);
}

static void to_get_does_not_prolong(void **state)
{
	struct scene *scene = *state;

	know(scene, 2);
	for (int i = 0; i < 29; i++) {
		pass_s(scene, 10);
		assert_version(scene, 2);
	}
	pass_s(scene, 10);
	miss(scene);
}

/* ---- the list ---------------------------------------------------------------------------- */

static void the_list_is_an_entry_of_its_own(void **state)
{
	struct scene *scene = *state;
	struct cached_counter missed;

	know(scene, 1);
	missed = miss_list(scene);
	counter_fixture_fill(scene->a, &missed, 1);
	assert_list_version(scene, 1);
	pass_s(scene, CACHE_COUNTER_TTL_S);
	missed = miss_list(scene);
	counter_fixture_fill(scene->a, &missed, 2);
	assert_list_version(scene, 2);
	miss(scene); /* it does not serve as the counter */
}

static void a_change_deletes_the_list(void **state)
{
	struct scene *scene = *state;
	struct cached_counter missed;

	know(scene, 1);
	missed = miss_list(scene);
	counter_fixture_fill(scene->a, &missed, 1);
	refresh(scene, 2);
	missed = miss_list(scene);
	counter_fixture_fill(scene->a, &missed, 2);
	assert_list_version(scene, 2);
	assert_version(scene, 2);
}

static void a_change_overtakes_a_reader_of_the_list(void **state)
{
	struct scene *scene = *state;
	struct cached_counter missed;

	know(scene, 1);
	missed = miss_list(scene);
	refresh(scene, 2);
	counter_fixture_fill(scene->a, &missed, 1);
	miss_list(scene);
	assert_version(scene, 2);
}

static void the_lease_is_one_for_the_counter_and_the_list(void **state)
{
	struct scene *scene = *state;
	struct cached_counter missed = miss(scene), list;

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

	know(scene, 5);
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

	know(scene, 1);
	assert_int_equal(
		scene->writer->ops->counter_refresh(scene->writer, counters, 3), STATUS_OK);
	assert_version(scene, 3);
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
	know(scene, 3);
	cache_fixture_drop(&scene->fixture, scene->user);
	assert_version(scene, 3);
	cache_fixture_fill(&scene->fixture, scene->user, 5, 0);
	refresh(scene, 4);
	assert_true(cache_fixture_has(&scene->fixture, scene->user));
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
	struct cached_counter missed = miss(scene), later;

	refresh(scene, 2);
	know(scene, 2);
	assert_true(counter_fixture_delete(&scene->fixture, COUNTER_KEY, scene->user));
	counter_fixture_fill(scene->a, &missed, 1);
	later = miss(scene);
	counter_fixture_fill(scene->b, &missed, 1);
	assert_false(counter_fixture_get(scene->b, scene->user).hit);
	counter_fixture_fill(scene->a, &later, 2);
	assert_version(scene, 2);
}

static void a_fill_does_not_replace_a_later_version(void **state)
{
	struct scene *scene = *state;
	struct cached_counter missed = miss(scene);

	counter_fixture_plant(&scene->fixture, COUNTER_KEY, scene->user,
		"{\"count\":3,\"version\":3,\"lastUpdated\":\"2026-01-08T06:50:00.123459Z\"}", 60);
	counter_fixture_fill(scene->a, &missed, 2);
	assert_version(scene, 3);
	assert_string_equal(counter_fixture_text(&scene->fixture, LEASE_KEY, scene->user), "");
}

static void the_keys_hold_the_json_of_the_contract(void **state)
{
	struct scene *scene = *state;
	struct cached_counter list;
	char token[24];

	know(scene, 6);
	refresh(scene, 7);
	assert_string_equal(counter_fixture_text(&scene->fixture, COUNTER_KEY, scene->user),
		"{\"count\":7,\"version\":7,\"lastUpdated\":\"2026-01-08T06:50:00.123463Z\"}");
	assert_in_range(
		counter_fixture_ttl_ms(&scene->fixture, COUNTER_KEY, scene->user), 290000, 300000);
	list = miss_list(scene);
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
	struct cached_counter missed = miss(scene);

	refresh(scene, 2);
	know(scene, 2);
	crowd_out(scene);
	counter_fixture_fill(scene->a, &missed, 1);
	missed = miss(scene);
	crowd_out(scene); /* the lease too: then nobody fills */
	counter_fixture_fill(scene->a, &missed, 2);
	miss(scene);
}

#define COUNTER_TEST(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

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
	int failed = cmocka_run_group_tests_name("cache_counters", tests, NULL, NULL);

	if (cache_fixture_is_memory())
		failed += cmocka_run_group_tests_name(
			"cache_counters_memory", memory_tests, NULL, NULL);
	else
		failed += cmocka_run_group_tests_name(
			"cache_counters_redis", redis_tests, NULL, NULL);
	return failed;
}
