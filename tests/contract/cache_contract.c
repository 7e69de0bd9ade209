/* What ports/cache.h promises, on the engine that QUIPU_CONTRACT_CACHE names. */
#include "cache_contract.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/random.h"
#include "cache_fixture.h"
#include "waiting.h"

#define RATE_LIMIT_MAX 2147483647LL

static void assert_taken(const struct cached_limit *limit, int64_t granted, int64_t count)
{
	assert_true(limit->hit);
	assert_true(limit->granted == granted);
	assert_true(limit->current_count == count);
}

/* ---- hit and miss ------------------------------------------------------------------------ */

static void an_unknown_user_is_a_miss(void **state)
{
	struct cache_fixture *fixture = *state;
	struct slice user = cache_fixture_user(fixture, "nobody");
	struct cached_limit limit = cache_fixture_take(fixture, user, 3);

	assert_false(limit.hit);
	assert_true(limit.granted == 0);
	assert_false(cache_fixture_has(fixture, user)); /* and it has left nothing behind */
}

static void round_trips_are_timed(void **state)
{
	struct cache_fixture *fixture = *state;
	const struct latency *latency = &fixture->cache->latency;
	int64_t before = tally_read(&latency->count);

	cache_fixture_take(fixture, cache_fixture_user(fixture, "a"), 1);
	if (cache_fixture_is_memory()) {
		assert_int_equal(tally_read(&latency->count), 0); /* there are none */
		return;
	}
	assert_true(tally_read(&latency->count) > before);
	assert_true(tally_read(&latency->total_ns) > 0);
}

static void a_hit_tells_all_that_was_filled(void **state)
{
	struct cache_fixture *fixture = *state;
	struct slice user = cache_fixture_user(fixture, "a");
	struct cached_limit limit;

	cache_fixture_fill_for(fixture, user, 5, 2, 60 * SECOND_US);
	limit = cache_fixture_take(fixture, user, 1);
	assert_taken(&limit, 1, 3);
	assert_true(limit.rate_limit == 5);
	assert_true(limit.window_start_us == WINDOW_START_US);
	assert_true(limit.window_us == WINDOW_US);
	assert_in_range(limit.ttl_us, 1, 60 * SECOND_US);
	assert_true(slice_equal(limit.user_id, user));
}

static void a_window_may_start_before_1970(void **state)
{
	struct cache_fixture *fixture = *state;
	struct cached_limit limit = {.user_id = cache_fixture_user(fixture, "a"),
		.rate_limit = 1,
		.window_start_us = -1,
		.ttl_us = 60 * SECOND_US};

	assert_int_equal(fixture->session->ops->limit_fill(fixture->session, &limit, 1), STATUS_OK);
	limit = cache_fixture_take(fixture, limit.user_id, 0);
	assert_true(limit.hit && limit.window_start_us == -1);
}

static void a_fill_does_not_replace(void **state)
{
	struct cache_fixture *fixture = *state;
	struct slice user = cache_fixture_user(fixture, "a");
	struct cached_limit limit;

	cache_fixture_fill_for(fixture, user, 5, 2, 60 * SECOND_US);
	cache_fixture_fill_for(fixture, user, 50, 0, 6000 * SECOND_US);
	limit = cache_fixture_take(fixture, user, 0);
	assert_taken(&limit, 0, 2);
	assert_true(limit.rate_limit == 5);
	assert_in_range(limit.ttl_us, 1, 60 * SECOND_US);
}

static void what_is_dropped_is_gone_and_may_be_filled_anew(void **state)
{
	struct cache_fixture *fixture = *state;
	struct slice users[] = {cache_fixture_user(fixture, "a"), cache_fixture_user(fixture, "b"),
		cache_fixture_user(fixture, "never there"), cache_fixture_user(fixture, "kept")};

	cache_fixture_fill(fixture, users[0], 5, 5);
	cache_fixture_fill(fixture, users[1], 5, 5);
	cache_fixture_fill(fixture, users[3], 5, 5);
	assert_int_equal(fixture->session->ops->limit_drop(fixture->session, users, 3), STATUS_OK);
	for (int i = 0; i < 3; i++)
		assert_false(cache_fixture_has(fixture, users[i]));
	assert_true(cache_fixture_has(fixture, users[3]));
	cache_fixture_fill(fixture, users[0], 7, 0);
	assert_true(cache_fixture_take(fixture, users[0], 9).granted == 7);
}

/* ---- granting ---------------------------------------------------------------------------- */

static void who_wants_more_than_is_left_gets_the_rest(void **state)
{
	struct cache_fixture *fixture = *state;
	struct slice user = cache_fixture_user(fixture, "a");
	struct cached_limit limit;

	cache_fixture_fill(fixture, user, 10, 7);
	limit = cache_fixture_take(fixture, user, 5);
	assert_taken(&limit, 3, 10);
	limit = cache_fixture_take(fixture, user, 5);
	assert_taken(&limit, 0, 10);
}

static void to_want_nothing_is_to_look(void **state)
{
	struct cache_fixture *fixture = *state;
	struct slice user = cache_fixture_user(fixture, "a");

	cache_fixture_fill(fixture, user, 10, 7);
	for (int i = 0; i < 3; i++) {
		struct cached_limit limit = cache_fixture_take(fixture, user, 0);

		assert_taken(&limit, 0, 7);
	}
}

static void a_count_above_the_limit_grants_nothing_and_stays(void **state)
{
	struct cache_fixture *fixture = *state;
	struct slice user = cache_fixture_user(fixture, "a");
	struct cached_limit limit;

	cache_fixture_fill(fixture, user, 3, 8);
	limit = cache_fixture_take(fixture, user, 1);
	assert_taken(&limit, 0, 8);
}

static void large_numbers_are_exact(void **state)
{
	struct cache_fixture *fixture = *state;
	struct slice a = cache_fixture_user(fixture, "a"), b = cache_fixture_user(fixture, "b");
	struct cached_limit limit;

	cache_fixture_fill(fixture, a, RATE_LIMIT_MAX, RATE_LIMIT_MAX - 1);
	limit = cache_fixture_take(fixture, a, INT64_MAX);
	assert_taken(&limit, 1, RATE_LIMIT_MAX);
	cache_fixture_fill(fixture, b, 999999999999999LL, 1);
	limit = cache_fixture_take(fixture, b, 999999999999997LL);
	assert_taken(&limit, 999999999999997LL, 999999999999998LL);
	limit = cache_fixture_take(fixture, b, INT64_MAX);
	assert_taken(&limit, 1, 999999999999999LL);
}

static void one_call_takes_for_many(void **state)
{
	struct cache_fixture *fixture = *state;
	struct slice a = cache_fixture_user(fixture, "a"), b = cache_fixture_user(fixture, "b");
	struct cached_limit limits[] = {{.user_id = a, .wanted = 2},
		{.user_id = cache_fixture_user(fixture, "nobody"), .wanted = 1},
		{.user_id = b, .wanted = 9}, {.user_id = a, .wanted = 2}, {.user_id = a}};

	cache_fixture_fill(fixture, a, 3, 0);
	cache_fixture_fill(fixture, b, 5, 1);
	assert_int_equal(fixture->session->ops->limit_take(fixture->session, limits, 5), STATUS_OK);
	assert_taken(&limits[0], 2, 2);
	assert_false(limits[1].hit);
	assert_taken(&limits[2], 4, 5);
	assert_taken(&limits[3], 1, 3); /* the same user again: after the first */
	assert_taken(&limits[4], 0, 3);
}

static void one_call_fills_many_and_the_first_of_a_user_counts(void **state)
{
	struct cache_fixture *fixture = *state;
	struct slice a = cache_fixture_user(fixture, "a"), b = cache_fixture_user(fixture, "b");
	const struct cached_limit limits[] = {
		{.user_id = a, .rate_limit = 1, .ttl_us = 60 * SECOND_US},
		{.user_id = b, .rate_limit = 2, .ttl_us = 60 * SECOND_US},
		{.user_id = a, .rate_limit = 3, .ttl_us = 60 * SECOND_US}};

	assert_int_equal(fixture->session->ops->limit_fill(fixture->session, limits, 3), STATUS_OK);
	assert_true(cache_fixture_take(fixture, a, 0).rate_limit == 1);
	assert_true(cache_fixture_take(fixture, b, 0).rate_limit == 2);
}

static void a_call_for_nobody_is_fine(void **state)
{
	struct cache_fixture *fixture = *state;
	struct cached_limit none = {.user_id = SLICE("x")};
	const struct cache_session_ops *ops = fixture->session->ops;

	assert_int_equal(ops->limit_take(fixture->session, &none, 0), STATUS_OK);
	assert_int_equal(ops->limit_fill(fixture->session, &none, 0), STATUS_OK);
	assert_int_equal(ops->limit_drop(fixture->session, &none.user_id, 0), STATUS_OK);
}

#define MANY 2000

static void a_large_batch_is_one_call(void **state)
{
	struct cache_fixture *fixture = *state;
	struct cached_limit *limits = qp_calloc(MANY, sizeof(*limits));

	for (int i = 0; i < MANY; i++) {
		char name[16];

		snprintf(name, sizeof(name), "%d", i);
		limits[i] = (struct cached_limit){.user_id = cache_fixture_user(fixture, name),
			.wanted = 1,
			.rate_limit = i,
			.ttl_us = 60 * SECOND_US};
	}
	assert_int_equal(
		fixture->session->ops->limit_fill(fixture->session, limits, MANY), STATUS_OK);
	assert_int_equal(
		fixture->session->ops->limit_take(fixture->session, limits, MANY), STATUS_OK);
	for (int i = 0; i < MANY; i++)
		assert_taken(&limits[i], i > 0, i > 0);
	free(limits);
}

/* ---- names ------------------------------------------------------------------------------- */

static void any_user_id_is_a_user_of_its_own(void **state)
{
	static const char *const names[] = {"a", "a b", "a:b", "a::b", " a", "a ", "{a}", "a*", "*",
		"Ünïcödé", "日本語", "👍", "\"quoted\\\"", "%s%n", "$6", "a\tb"};
	struct cache_fixture *fixture = *state;
	const int count = sizeof(names) / sizeof(names[0]);

	for (int i = 0; i < count; i++)
		cache_fixture_fill(fixture, cache_fixture_user(fixture, names[i]), 100 + i, 0);
	for (int i = 0; i < count; i++) {
		struct slice user = cache_fixture_user(fixture, names[i]);

		assert_true(cache_fixture_take(fixture, user, 1).rate_limit == 100 + i);
	}
	cache_fixture_drop(fixture, cache_fixture_user(fixture, "*"));
	assert_true(cache_fixture_has(fixture, cache_fixture_user(fixture, "a")));
}

static void a_user_id_has_up_to_128_bytes(void **state)
{
	struct cache_fixture *fixture = *state;
	char longest[128], other[128];

	memset(longest, 'x', sizeof(longest));
	memcpy(longest, fixture->prefix, strlen(fixture->prefix));
	memcpy(other, longest, sizeof(other));
	other[127] = 'y';
	cache_fixture_fill(fixture, slice_make(longest, 128), 1, 0);
	assert_true(cache_fixture_has(fixture, slice_make(longest, 128)));
	assert_false(cache_fixture_has(fixture, slice_make(longest, 127)));
	assert_false(cache_fixture_has(fixture, slice_make(other, 128)));
}

/* ---- the end of a window ----------------------------------------------------------------- */

static void wait_for_the_end(struct cache_fixture *fixture, struct slice user_id, int64_t ttl_us)
{
	cache_fixture_advance_us(ttl_us);
	WAIT_UNTIL(!cache_fixture_has(fixture, user_id));
}

static void a_limit_ends_with_its_window(void **state)
{
	struct cache_fixture *fixture = *state;
	struct slice user = cache_fixture_user(fixture, "a");

	cache_fixture_fill_for(fixture, user, 5, 5, SECOND_US);
	wait_for_the_end(fixture, user, SECOND_US);
	cache_fixture_fill(fixture, user, 5, 0);
	assert_true(cache_fixture_take(fixture, user, 1).granted == 1);
}

static void to_take_does_not_prolong(void **state)
{
	struct cache_fixture *fixture = *state;
	struct slice user = cache_fixture_user(fixture, "a");
	int64_t last_us = 3600 * SECOND_US;

	cache_fixture_fill_for(fixture, user, 1000000, 0, last_us);
	for (int i = 0; i < 50; i++) {
		struct cached_limit limit = cache_fixture_take(fixture, user, 1);

		assert_true(limit.hit && limit.ttl_us <= last_us);
		last_us = limit.ttl_us;
		cache_fixture_advance_us(1000);
	}
}

/* The time that passes between filling and looking makes what is left less, and ends a second. */
static void a_ttl_is_rounded_up_to_a_second(void **state)
{
	static const struct {
		int64_t ttl_us, seconds;
	} cases[] = {{1, 1}, {0, 1}, {-5, 1}, {999999, 1}, {1000000, 1}, {1000001, 2},
		{59000001, 60}, {60000000, 60}, {525600LL * 60 * 1000000, 525600LL * 60}};
	struct cache_fixture *fixture = *state;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct slice user = cache_fixture_user(fixture, "a");
		int64_t began_us = clock_steady_ns(&clock_system) / NS_PER_US, passed_us;
		struct cached_limit limit;

		cache_fixture_fill_for(fixture, user, 5, 0, cases[i].ttl_us);
		limit = cache_fixture_take(fixture, user, 0);
		passed_us = clock_steady_ns(&clock_system) / NS_PER_US - began_us + 2000;
		assert_true(limit.hit || passed_us > cases[i].seconds * SECOND_US);
		if (limit.hit)
			assert_in_range(limit.ttl_us, cases[i].seconds * SECOND_US - passed_us,
				cases[i].seconds * SECOND_US);
		cache_fixture_drop(fixture, user);
	}
}

static void no_ttl_is_too_long(void **state)
{
	struct cache_fixture *fixture = *state;
	struct slice user = cache_fixture_user(fixture, "a");

	cache_fixture_fill_for(fixture, user, 5, 0, INT64_MAX);
	assert_true(cache_fixture_take(fixture, user, 1).granted == 1);
}

/* ---- the rule ---------------------------------------------------------------------------- */

/* Written once more, from the contract: nothing here is shared with an engine. */
static int64_t rule(int64_t rate_limit, int64_t current_count, int64_t wanted)
{
	int64_t left = rate_limit > current_count ? rate_limit - current_count : 0;

	return wanted < left ? wanted : left;
}

static int64_t draw(struct dice *dice)
{
	static const uint64_t bounds[] = {2, 5, 100, 100000, RATE_LIMIT_MAX + 1};

	return (int64_t)dice_below(dice, bounds[dice_below(dice, 5)]);
}

static void run_sequence(struct cache_fixture *fixture, struct dice *dice, struct slice user)
{
	int64_t rate_limit = draw(dice), count = draw(dice);
	struct cached_limit limits[8];
	size_t calls = 1 + dice_below(dice, 6);

	cache_fixture_fill(fixture, user, rate_limit, count);
	while (calls-- > 0) {
		size_t entries = 1 + dice_below(dice, 8);

		for (size_t i = 0; i < entries; i++)
			limits[i] = (struct cached_limit){.user_id = user, .wanted = draw(dice)};
		assert_int_equal(
			fixture->session->ops->limit_take(fixture->session, limits, entries),
			STATUS_OK);
		for (size_t i = 0; i < entries; i++) {
			int64_t granted = rule(rate_limit, count, limits[i].wanted);

			count += granted;
			assert_taken(&limits[i], granted, count);
			assert_true(limits[i].rate_limit == rate_limit);
			assert_true(limits[i].window_start_us == WINDOW_START_US);
		}
	}
	cache_fixture_drop(fixture, user);
}

static void random_sequences_follow_the_rule(void **state)
{
	struct cache_fixture *fixture = *state;
	struct dice dice = {.state = 20260108};
	struct slice user = cache_fixture_user(fixture, "a");

	for (int i = 0; i < 500; i++)
		run_sequence(fixture, &dice, user);
}

/* ---- several threads --------------------------------------------------------------------- */

#define THREADS 8
#define TAKES_PER_THREAD 300
#define SHARED_LIMIT 1500

struct taker {
	struct cache_fixture *fixture;
	struct slice user_id;
	uint64_t seed;
	int64_t granted;
	enum status status;
};

static void *take_often(void *context)
{
	struct taker *taker = context;
	struct cache *cache = taker->fixture->cache;
	struct cache_session *session = cache->ops->open_session(cache);
	struct dice dice = {.state = taker->seed};

	for (int i = 0; i < TAKES_PER_THREAD && taker->status == STATUS_OK; i++) {
		struct cached_limit limits[2] = {
			{.user_id = taker->user_id, .wanted = (int64_t)dice_below(&dice, 3)},
			{.user_id = taker->user_id, .wanted = 1}};

		taker->status = session->ops->limit_take(session, limits, 2);
		taker->granted += limits[0].granted + limits[1].granted;
	}
	session->ops->close(session);
	return NULL;
}

static void threads_together_get_exactly_the_limit(void **state)
{
	struct cache_fixture *fixture = *state;
	struct slice user = cache_fixture_user(fixture, "a");
	struct taker takers[THREADS];
	pthread_t threads[THREADS];
	int64_t granted = 0;

	cache_fixture_fill(fixture, user, SHARED_LIMIT, 0);
	for (int i = 0; i < THREADS; i++) {
		takers[i] = (struct taker){
			.fixture = fixture, .user_id = user, .seed = 1 + (uint64_t)i};
		assert_int_equal(pthread_create(&threads[i], NULL, take_often, &takers[i]), 0);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < THREADS; i++) {
		assert_int_equal(takers[i].status, STATUS_OK);
		granted += takers[i].granted;
	}
	assert_true(granted == SHARED_LIMIT);
	assert_true(cache_fixture_take(fixture, user, 1).current_count == SHARED_LIMIT);
}

static void *fill_once(void *context)
{
	struct taker *taker = context;
	struct cache *cache = taker->fixture->cache;
	struct cache_session *session = cache->ops->open_session(cache);
	struct cached_limit limit = {.user_id = taker->user_id,
		.rate_limit = 100,
		.ttl_us = 60 * SECOND_US,
		.wanted = 1};

	taker->status = session->ops->limit_fill(session, &limit, 1);
	if (taker->status == STATUS_OK)
		taker->status = session->ops->limit_take(session, &limit, 1);
	taker->granted = limit.granted;
	session->ops->close(session);
	return NULL;
}

/* A second fill that replaced the first would lose what was taken in between. */
static void of_many_fills_at_once_one_counts(void **state)
{
	struct cache_fixture *fixture = *state;
	struct slice user = cache_fixture_user(fixture, "a");
	struct taker takers[THREADS];
	pthread_t threads[THREADS];

	for (int i = 0; i < THREADS; i++) {
		takers[i] = (struct taker){.fixture = fixture, .user_id = user};
		assert_int_equal(pthread_create(&threads[i], NULL, fill_once, &takers[i]), 0);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < THREADS; i++) {
		assert_int_equal(takers[i].status, STATUS_OK);
		assert_true(takers[i].granted == 1);
	}
	assert_true(cache_fixture_take(fixture, user, 0).current_count == THREADS);
}

/* ---- its size ---------------------------------------------------------------------------- */

/* Of the memory cache alone: Redis is bounded by its own configuration. */
static void the_first_that_was_filled_goes_when_memory_is_full(void **state)
{
	struct cache_fixture *fixture = *state;

	for (int i = 0; i <= 100000; i++) {
		char name[16];

		snprintf(name, sizeof(name), "%d", i);
		cache_fixture_fill(fixture, slice_of(name), 1, 0);
	}
	assert_false(cache_fixture_has(fixture, slice_of("0")));
	assert_true(cache_fixture_has(fixture, slice_of("1")));
	assert_true(cache_fixture_has(fixture, slice_of("100000")));
}

#define CACHE_TEST(test)                                                                           \
	cmocka_unit_test_setup_teardown(test, cache_fixture_setup, cache_fixture_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CACHE_TEST(an_unknown_user_is_a_miss),
		CACHE_TEST(round_trips_are_timed),
		CACHE_TEST(a_hit_tells_all_that_was_filled),
		CACHE_TEST(a_window_may_start_before_1970),
		CACHE_TEST(a_fill_does_not_replace),
		CACHE_TEST(what_is_dropped_is_gone_and_may_be_filled_anew),
		CACHE_TEST(who_wants_more_than_is_left_gets_the_rest),
		CACHE_TEST(to_want_nothing_is_to_look),
		CACHE_TEST(a_count_above_the_limit_grants_nothing_and_stays),
		CACHE_TEST(large_numbers_are_exact),
		CACHE_TEST(one_call_takes_for_many),
		CACHE_TEST(one_call_fills_many_and_the_first_of_a_user_counts),
		CACHE_TEST(a_call_for_nobody_is_fine),
		CACHE_TEST(a_large_batch_is_one_call),
		CACHE_TEST(any_user_id_is_a_user_of_its_own),
		CACHE_TEST(a_user_id_has_up_to_128_bytes),
		CACHE_TEST(a_limit_ends_with_its_window),
		CACHE_TEST(to_take_does_not_prolong),
		CACHE_TEST(a_ttl_is_rounded_up_to_a_second),
		CACHE_TEST(no_ttl_is_too_long),
		CACHE_TEST(random_sequences_follow_the_rule),
		CACHE_TEST(threads_together_get_exactly_the_limit),
		CACHE_TEST(of_many_fills_at_once_one_counts),
	};
	const struct CMUnitTest memory_tests[] = {
		CACHE_TEST(the_first_that_was_filled_goes_when_memory_is_full),
	};
	int failed;

	log_configure(LOG_WARN, LOG_TEXT);
	hash_seed();
	failed = cmocka_run_group_tests_name("cache_contract", tests, NULL, NULL);
	if (cache_fixture_is_memory())
		failed += cmocka_run_group_tests_name("cache_memory", memory_tests, NULL, NULL);
	return failed + cache_counter_tests() + cache_counter_rule_tests();
}
