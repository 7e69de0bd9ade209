/*
 * The number of coins of each kind in a draw follows the multivariate hypergeometric distribution.
 * The numbers are drawn kind by kind: how many coins of the first kind are in the draw
 * (hypergeometric), then how many of the second kind are in the rest of the draw, and so on.
 *
 * Each of these numbers is found by drawing coin by coin if few coins are drawn, otherwise by
 * rejection with HRUA (E. Stadlober, "The ratio of uniforms approach for generating discrete random
 * variates", J. Comput. Appl. Math. 31, 1990). HRUA needs between one and two attempts on average,
 * however many coins there are. In the code, a ball is a coin of any kind, a marked ball is a coin
 * of the kind whose number is being drawn, and the sample is the set of drawn coins. Even in the
 * largest pot, the logarithms of factorials are at most about 4e10, so with long double the
 * probability of any outcome is exact to about 1e-8.
 */
#include "services/pots/pot_draw.h"

#include <assert.h>
#include <math.h>

#define ONE_BY_ONE_MAX 64

/* 2 sqrt(2 / e) and 3 - 2 sqrt(3 / e): the constants of HRUA's hat function, which covers every
 * hypergeometric distribution. */
#define HAT_SLOPE 1.7155277699214135
#define HAT_SHIFT 0.8989161620588988

/* Outcomes more than TAIL * `spread` above the mean (see draw_by_rejection()) are never drawn: the
 * probability of all of them together is below 2^-60. */
#define TAIL 16

/* An urn with marked and other balls. A sample is drawn from it, and the question is how many balls
 * of the sample are marked. */
struct urn {
	int64_t marked;
	int64_t others;
	int64_t sample;
};

/* Returns a number between 0 and 1, both excluded. */
static double uniform(struct dice *dice)
{
	return ((double)(dice_next(dice) >> 11) + 0.5) * 0x1p-53;
}

static int64_t draw_one_by_one(struct urn urn, struct dice *dice)
{
	int64_t found = 0;

	for (; urn.sample > 0; urn.sample--) {
		uint64_t all = (uint64_t)(urn.marked + urn.others);
		bool is_marked = dice_below(dice, all) < (uint64_t)urn.marked;

		found += is_marked;
		urn.marked -= is_marked;
		urn.others -= !is_marked;
	}
	return found;
}

static long double log_factorial(int64_t n)
{
	int sign;

	return lgammal_r((long double)n + 1, &sign);
}

/* Returns the negative logarithm of the probability of `found`, up to a constant. */
static long double log_weight(const struct urn *urn, int64_t found)
{
	return log_factorial(found) + log_factorial(urn->marked - found) +
	       log_factorial(urn->sample - found) +
	       log_factorial(urn->others - urn->sample + found);
}

/* Accepts or rejects a candidate. `log_odds` is the logarithm of the candidate's probability
 * divided by the probability of the likeliest outcome. The first two tests are cheap and decide
 * most cases. */
static bool is_accepted(double u, double log_odds)
{
	if (u * (4 - u) - 3 <= log_odds)
		return true;
	if (u * (u - log_odds) >= 1)
		return false;
	return 2 * log(u) <= log_odds;
}

/* Draws with HRUA. Requires marked <= others and a sample of at most half of all balls. */
static int64_t draw_by_rejection(const struct urn *urn, struct dice *dice)
{
	double all = (double)(urn->marked + urn->others);
	double sample = (double)urn->sample;
	double share = (double)urn->marked / all;
	double centre = sample * share + 0.5;
	double variance = (all - sample) * sample * share * (1 - share) / (all - 1);
	double spread = sqrt(variance + 0.5);
	double width = HAT_SLOPE * spread + HAT_SHIFT;
	double most = (double)(urn->sample < urn->marked ? urn->sample : urn->marked) + 1;
	double end = fmin(most, floor(centre + TAIL * spread));
	int64_t mode = (int64_t)floor((sample + 1) * ((double)urn->marked + 1) / (all + 2));
	long double best = log_weight(urn, mode);

	for (;;) {
		double u = uniform(dice);
		double x = centre + width * (uniform(dice) - 0.5) / u;
		int64_t found;

		if (x < 0 || x >= end)
			continue;
		found = (int64_t)x;
		if (is_accepted(u, (double)(best - log_weight(urn, found))))
			return found;
	}
}

static int64_t draw_marked(struct urn urn, struct dice *dice)
{
	int64_t all = urn.marked + urn.others;

	if (urn.sample > all - urn.sample) { /* draw the balls that stay in the urn */
		urn.sample = all - urn.sample;
		return urn.marked - draw_marked(urn, dice);
	}
	if (urn.marked > urn.others) { /* count the unmarked balls, which are fewer */
		struct urn other = {urn.others, urn.marked, urn.sample};

		return urn.sample - draw_marked(other, dice);
	}
	if (urn.sample <= ONE_BY_ONE_MAX)
		return draw_one_by_one(urn, dice);
	if (urn.marked <= ONE_BY_ONE_MAX) { /* swap the roles of sample and marked */
		struct urn turned = {urn.sample, all - urn.sample, urn.marked};

		return draw_one_by_one(turned, dice);
	}
	return draw_by_rejection(&urn, dice);
}

int64_t coins_total(const struct coins *coins)
{
	int64_t total = 0;

	for (size_t kind = 0; kind < COIN_KINDS; kind++)
		total += coins->of[kind];
	return total;
}

struct coins pot_draw(const struct coins *coins, int64_t count, struct dice *dice)
{
	int64_t rest = coins_total(coins);
	struct coins drawn = {0};

	assert(count >= 0 && count <= rest);
	for (size_t kind = 0; kind < COIN_KINDS && count > 0; kind++) {
		struct urn urn = {coins->of[kind], rest - coins->of[kind], count};

		drawn.of[kind] = (int32_t)draw_marked(urn, dice);
		assert(drawn.of[kind] >= 0 && drawn.of[kind] <= coins->of[kind]);
		rest -= coins->of[kind];
		count -= drawn.of[kind];
	}
	assert(count == 0);
	return drawn;
}
