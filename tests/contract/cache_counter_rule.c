/*
 * The rule of counters in ports/cache.h: a value older than the last refreshed one is never served.
 * Random sequences of steps around one user: a store with up to five versions, readers that stop
 * between their steps, refreshes that overtake each other, and keys that vanish.
 */
#include "cache_contract.h"

#include <stdio.h>

#include "base/random.h"
#include "counter_fixture.h"

#define SEQUENCES 250
#define VERSIONS 5
#define READERS 3

/* One sequence of steps around one user. */
struct play {
	struct cache_fixture *fixture;
	struct cache_session **sessions; /* of the readers; the writer's is behind them */
	struct dice *dice;
	struct slice user;
	int64_t stored;    /* the version in the store */
	int64_t refreshed; /* the latest version that was refreshed */
	bool is_waiting[VERSIONS + 1];
	bool has_vanished; /* the counter, and nobody has tried to fill it since */

	struct {
		struct cached_counter missed; /* lease 0: does nothing */
		int64_t read;                 /* 0: has not read the store yet */
	} readers[READERS];
};

/* What the sequences were about: a test of nothing would pass too. */
static struct {
	int hits, stale_fills, good_fills, late_refreshes, late_refreshes_of_none;
} seen;

static void check_hit(struct play *play, const struct cached_counter *counter)
{
	seen.hits++;
	assert_true(counter_fixture_is(counter, counter->version));
	assert_true(counter->version >= play->refreshed);
	assert_true(counter->version <= play->stored);
}

static void reader_gets(struct play *play, size_t i)
{
	struct cached_counter counter =
		dice_below(play->dice, 3) == 0
			? counter_fixture_get_list(play->sessions[i], play->user)
			: counter_fixture_get(play->sessions[i], play->user);

	if (counter.hit)
		check_hit(play, &counter);
	play->readers[i].missed = counter;
	play->readers[i].read = 0;
}

static void reader_fills(struct play *play, size_t i)
{
	if (play->readers[i].read < play->refreshed)
		seen.stale_fills++;
	else
		seen.good_fills++;
	counter_fixture_fill(play->sessions[i], &play->readers[i].missed, play->readers[i].read);
	play->readers[i].missed.lease = 0;
	if (!play->readers[i].missed.is_list)
		play->has_vanished = false;
}

/* The next of: get, read the store, fill. It dawdles before the last. */
static void reader_steps(struct play *play, size_t i)
{
	if (play->readers[i].missed.lease == 0)
		reader_gets(play, i);
	else if (play->readers[i].read == 0)
		play->readers[i].read = play->stored;
	else if (dice_below(play->dice, 2) == 0)
		reader_fills(play, i);
}

static void commit(struct play *play)
{
	if (play->stored == VERSIONS)
		return;
	play->stored++;
	play->is_waiting[play->stored] = true;
}

/* One that waits, or, where all are done, the last once more: a redelivery. */
static int64_t choose_refresh(struct play *play)
{
	int64_t first = play->stored;

	for (int64_t i = VERSIONS; i >= 1; i--) {
		if (play->is_waiting[i])
			first = i;
	}
	for (int64_t i = play->stored; i > first; i--) {
		if (play->is_waiting[i] && dice_below(play->dice, 2) == 0)
			return i;
	}
	return first;
}

static void writer_refreshes(struct play *play)
{
	int64_t version = choose_refresh(play);

	counter_fixture_refresh(play->sessions[READERS], play->user, version);
	play->is_waiting[version] = false;
	if (version >= play->refreshed) {
		play->refreshed = version;
		return;
	}
	seen.late_refreshes++;
	if (play->has_vanished)
		seen.late_refreshes_of_none++;
}

/* All of them end, or the lease alone. */
static void time_passes(struct play *play)
{
	bool all = dice_below(play->dice, 2) == 0;

	counter_fixture_pass_s(
		play->fixture, play->user, all ? CACHE_COUNTER_TTL_S : CACHE_LEASE_TTL_S);
	play->has_vanished |= all;
}

static void something_vanishes(struct play *play)
{
	static const enum counter_key keys[] = {LEASE_KEY, COUNTER_KEY, LIST_KEY};
	enum counter_key key;

	if (cache_fixture_is_memory() || dice_below(play->dice, 2) == 0) {
		time_passes(play);
		return;
	}
	key = keys[dice_below(play->dice, 3)];
	(void)counter_fixture_delete(play->fixture, key, play->user);
	play->has_vanished |= key == COUNTER_KEY;
}

static void run_play(struct play *play)
{
	for (size_t steps = 20 + dice_below(play->dice, 40); steps > 0; steps--) {
		uint64_t throw = dice_below(play->dice, 20);

		if (throw < 14)
			reader_steps(play, dice_below(play->dice, READERS));
		else if (throw < 16)
			commit(play);
		else if (throw < 19)
			writer_refreshes(play);
		else
			something_vanishes(play);
	}
	reader_gets(play, 0);
}

static struct cache_session *sessions[READERS + 1];

static int setup(void **state)
{
	struct cache *cache;

	cache_fixture_setup(state);
	cache = ((struct cache_fixture *)*state)->cache;
	for (int i = 0; i <= READERS; i++)
		sessions[i] = cache->ops->open_session(cache);
	return 0;
}

static int teardown(void **state)
{
	for (int i = 0; i <= READERS; i++)
		sessions[i]->ops->close(sessions[i]);
	return cache_fixture_teardown(state);
}

static void random_sequences_never_serve_an_older_value(void **state)
{
	struct cache_fixture *fixture = *state;
	struct dice dice = {.state = 20260004};

	for (int i = 0; i < SEQUENCES; i++) {
		char name[16];
		struct play play = {.fixture = fixture, .sessions = sessions, .dice = &dice};

		snprintf(name, sizeof(name), "%d", i);
		play.user = cache_fixture_user(fixture, name);
		commit(&play);
		run_play(&play);
	}
	assert_true(seen.hits > SEQUENCES && seen.good_fills > SEQUENCES / 2);
	assert_true(seen.stale_fills > SEQUENCES / 20 && seen.late_refreshes > SEQUENCES / 20);
	assert_true(seen.late_refreshes_of_none > SEQUENCES / 40);
}

int cache_counter_rule_tests(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			random_sequences_never_serve_an_older_value, setup, teardown),
	};

	return cmocka_run_group_tests_name("cache_counter_rule", tests, NULL, NULL);
}
