/*
 * Draws coins from a pot at random, without replacement, every coin equally likely. Pure: the same
 * dice give the same coins. What it costs does not grow with the number of coins.
 */
#ifndef QUIPU_SERVICES_POTS_DRAW_H
#define QUIPU_SERVICES_POTS_DRAW_H

#include "base/random.h"
#include "ports/pot_repository.h"

/* `count` coins out of `coins`, which has at least as many. */
struct coins pot_draw(const struct coins *coins, int64_t count, struct dice *dice);

/* How many coins there are in all. */
int64_t coins_total(const struct coins *coins);

#endif
