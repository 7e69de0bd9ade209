/*
 * Draws coins from a pot at random, without replacement, every coin equally likely. Pure: dice in
 * the same state draw the same coins. The cost does not grow with the number of coins.
 */
#ifndef QUIPU_SERVICES_POTS_DRAW_H
#define QUIPU_SERVICES_POTS_DRAW_H

#include "base/random.h"
#include "ports/pot_repository.h"

/* Draws `count` of the coins. `coins` must contain at least `count` coins. */
struct coins pot_draw(const struct coins *coins, int64_t count, struct dice *dice);

/* Returns the number of coins of all kinds. */
int64_t coins_total(const struct coins *coins);

#endif
