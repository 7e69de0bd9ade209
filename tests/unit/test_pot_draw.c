/*
 * Compares draws with the exact distribution, the multivariate hypergeometric one: chi-squared
 * tests with fixed seeds, so that every run draws the same coins and no run fails by chance. With
 * the limit at one in 10,000, a quick run notices odds that are wrong by 5 % on average, a full run
 * by 1 %.
 */
#include "check.h"

#include <math.h>
#include <stdlib.h>

#include "effort.h"
#include "services/pots/pot_draw.h"

#define BILLION 1000000000

struct pot {
	struct coins coins;
	int64_t count;
};

static long double log_choose(int64_t n, int64_t k)
{
	return lgammal((long double)n + 1) - lgammal((long double)k + 1) -
	       lgammal((long double)(n - k) + 1);
}

/* Returns the value that chi-squared exceeds by chance once in 10,000 times (Wilson and
 * Hilferty). */
static double chi_limit(double freedom)
{
	double third = 2 / (9 * freedom);

	return freedom * pow(1 - third + 3.719 * sqrt(third), 3);
}

/* The expectation of each cell, and how often it was seen. Small cells are joined. */
struct tally {
	double chi, rest_expected, rest_seen;
	double freedom;
};

static void tally_cell(struct tally *tally, double expected, double seen)
{
	if (expected < 8) {
		tally->rest_expected += expected;
		tally->rest_seen += seen;
		return;
	}
	tally->chi += (seen - expected) * (seen - expected) / expected;
	tally->freedom++;
}

static void assert_fits(struct tally *tally)
{
	double expected = tally->rest_expected;
	double off = tally->rest_seen - expected;

	if (expected >= 1) {
		tally->chi += off * off / expected;
		tally->freedom++;
	} else {
		assert_true(tally->rest_seen <= 8);
	}
	if (tally->chi > chi_limit(tally->freedom - 1))
		fail_msg("chi-squared is %.1f, freedom %.0f, limit %.1f", tally->chi,
			tally->freedom - 1, chi_limit(tally->freedom - 1));
}

/* ---- all kinds together ------------------------------------------------------------------ */

#define SIDE 512

static void check_joint(const struct pot *pot, uint64_t seed)
{
	static int seen[SIDE][SIDE];
	const int32_t *of = pot->coins.of;
	int64_t all = coins_total(&pot->coins);
	size_t draws = effort(50000, 1000000);
	struct dice dice = {.state = seed};
	struct tally tally = {0};

	seed_begin(seed);
	assert_true(of[0] < SIDE && of[1] < SIDE);
	memset(seen, 0, sizeof(seen));
	for (size_t i = 0; i < draws; i++) {
		struct coins drawn = pot_draw(&pot->coins, pot->count, &dice);

		assert_true(coins_total(&drawn) == pot->count);
		seen[drawn.of[0]][drawn.of[1]]++;
	}
	for (int64_t a = 0; a <= of[0]; a++) {
		for (int64_t b = 0; b <= of[1]; b++) {
			int64_t c = pot->count - a - b;

			if (c < 0 || c > of[2]) {
				assert_int_equal(seen[a][b], 0);
				continue;
			}
			tally_cell(&tally,
				(double)expl(log_choose(of[0], a) + log_choose(of[1], b) +
					     log_choose(of[2], c) - log_choose(all, pot->count)) *
					(double)draws,
				seen[a][b]);
		}
	}
	assert_fits(&tally);
}

static void test_all_kinds_together_follow_the_exact_law(void **unused)
{
	static const struct pot pots[] = {
		{{{5, 4, 3}}, 1},
		{{{5, 4, 3}}, 6},
		{{{5, 4, 3}}, 11},
		{{{1, 1, 1000}}, 500},      /* two single coins among many */
		{{{30, 20, 100}}, 64},      /* the largest sample that is drawn one by one */
		{{{300, 200, 100}}, 65},    /* drawn by rejection */
		{{{300, 200, 100}}, 300},   /* half of all */
		{{{300, 200, 100}}, 520},   /* the coins that stay are drawn instead */
		{{{70, 400, 9000}}, 4000},  /* few of one kind */
		{{{400, 70, 100000}}, 900}, /* a very asymmetric distribution */
		{{{0, 300, 300}}, 200},
		{{{500, 0, 500}}, 400},
	};

	(void)unused;
	for (size_t i = 0; i < COUNT_OF(pots); i++)
		check_joint(&pots[i], 1000 + i);
	seeds_end();
}

/* ---- one kind at a time, for numbers of any size ----------------------------------------- */

#define BINS 64

/* The distribution of one kind from `first` on: hypergeometric, within 12 standard deviations. */
struct law {
	int64_t first;
	size_t count;
	double *odds;
};

static struct law law_of(int64_t all, int64_t marked, int64_t count)
{
	double share = (double)marked / (double)all;
	double mean = (double)count * share;
	double spread = sqrt((double)count * share * (1 - share) * (double)(all - count) /
			     (double)(all > 1 ? all - 1 : 1));
	int64_t least = count + marked > all ? count + marked - all : 0;
	int64_t most = count < marked ? count : marked;
	int64_t first = (int64_t)(mean - 12 * spread) - 1;
	int64_t last = (int64_t)(mean + 12 * spread) + 1;
	struct law law;

	law.first = first > least ? first : least;
	last = last < most ? last : most;
	law.count = (size_t)(last - law.first + 1);
	law.odds = calloc(law.count, sizeof(*law.odds));
	assert_non_null(law.odds);
	for (size_t i = 0; i < law.count; i++) {
		int64_t k = law.first + (int64_t)i;

		law.odds[i] =
			(double)expl(log_choose(marked, k) + log_choose(all - marked, count - k) -
				     log_choose(all, count));
	}
	return law;
}

/* Compares one kind, in bins of about the same probability. */
static void check_kind(const struct pot *pot, size_t kind, const struct coins *drawn, size_t draws)
{
	struct law law = law_of(coins_total(&pot->coins), pot->coins.of[kind], pot->count);
	size_t *bin_of = calloc(law.count, sizeof(*bin_of));
	double expected[BINS + 1] = {0}, seen[BINS + 1] = {0}, before = 0;
	struct tally tally = {0};

	assert_non_null(bin_of);
	for (size_t i = 0; i < law.count; i++) {
		bin_of[i] = (size_t)(before * BINS);
		bin_of[i] = bin_of[i] < BINS ? bin_of[i] : BINS - 1;
		expected[bin_of[i]] += law.odds[i] * (double)draws;
		before += law.odds[i];
	}
	assert_true(fabs(before - 1) < 1e-6);
	for (size_t i = 0; i < draws; i++) {
		int64_t place = drawn[i].of[kind] - law.first;

		assert_true(place >= 0 && (size_t)place < law.count);
		seen[bin_of[place]]++;
	}
	for (size_t i = 0; i < BINS; i++)
		tally_cell(&tally, expected[i], seen[i]);
	if (law.count > 1)
		assert_fits(&tally);
	free(bin_of);
	free(law.odds);
}

static void check_kinds(const struct pot *pot, uint64_t seed)
{
	size_t draws = effort(25000, 500000);
	struct coins *drawn = calloc(draws, sizeof(*drawn));
	struct dice dice = {.state = seed};

	seed_begin(seed);
	assert_non_null(drawn);
	for (size_t i = 0; i < draws; i++) {
		drawn[i] = pot_draw(&pot->coins, pot->count, &dice);
		assert_true(coins_total(&drawn[i]) == pot->count);
	}
	for (size_t kind = 0; kind < COIN_KINDS; kind++)
		check_kind(pot, kind, drawn, draws);
	free(drawn);
}

static void test_every_kind_follows_its_law_whatever_the_numbers(void **unused)
{
	static const struct pot pots[] = {
		{{{10000, 10000, 10000}}, 15000},
		{{{1000000, 2000000, 3000000}}, 100},
		{{{1000000, 2000000, 3000000}}, 5000000},
		{{{BILLION, BILLION, 147483647}}, BILLION},
		{{{700000000, 65, 1447483000}}, 1500000000},
		{{{2147483647, 0, 0}}, 1234567890},
		{{{100, 1000, 1000000000}}, 20000000},
	};

	(void)unused;
	for (size_t i = 0; i < COUNT_OF(pots); i++)
		check_kinds(&pots[i], 2000 + i);
	seeds_end();
}

/* ---- edges and cost ---------------------------------------------------------------------- */

static void test_none_and_all(void **unused)
{
	struct coins coins = {{7, 0, 2147483640}};
	struct dice dice = {.state = 1};
	struct coins none = pot_draw(&coins, 0, &dice);
	struct coins all = pot_draw(&coins, coins_total(&coins), &dice);
	struct coins empty = {0};

	(void)unused;
	assert_int_equal(coins_total(&none), 0);
	assert_memory_equal(&all, &coins, sizeof(coins));
	empty = pot_draw(&empty, 0, &dice);
	assert_int_equal(coins_total(&empty), 0);
}

static void test_the_same_dice_give_the_same_coins(void **unused)
{
	struct coins coins = {{12345, 54321, 99999}};
	struct dice first = {.state = 42}, second = {.state = 42};
	struct coins a = pot_draw(&coins, 5000, &first);
	struct coins b = pot_draw(&coins, 5000, &second);

	(void)unused;
	assert_memory_equal(&a, &b, sizeof(a));
}

/* Returns the cost of a draw: how often it throws the dice. */
static double throws_of(const struct pot *pot)
{
	const uint64_t step = 0x9e3779b97f4a7c15; /* how much each throw adds to the state */
	struct dice dice = {.state = 0};
	const int draws = 2000;
	uint64_t throws = 0, state = 0;

	for (int i = 0; i < draws; i++)
		pot_draw(&pot->coins, pot->count, &dice);
	for (; state != dice.state; state += step)
		throws++;
	return (double)throws / draws;
}

static void test_the_cost_does_not_grow_with_the_coins(void **unused)
{
	(void)unused;
	for (int64_t size = 1000; size <= BILLION / 2; size *= 10) {
		struct pot pot = {{{(int32_t)size, (int32_t)size, (int32_t)size}}, size};

		assert_true(throws_of(&pot) < 10);
		pot.count = 10;
		assert_true(throws_of(&pot) <= 30);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_random_test(test_all_kinds_together_follow_the_exact_law),
		cmocka_random_test(test_every_kind_follows_its_law_whatever_the_numbers),
		cmocka_unit_test(test_none_and_all),
		cmocka_unit_test(test_the_same_dice_give_the_same_coins),
		cmocka_unit_test(test_the_cost_does_not_grow_with_the_coins),
	};

	return cmocka_run_group_tests_name("pot draw", tests, NULL, NULL);
}
