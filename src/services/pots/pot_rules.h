/*
 * The rules of pots and coins: what a command does to the content of a pot. Pure: uses no store, no
 * request and no clock.
 */
#ifndef QUIPU_SERVICES_POTS_RULES_H
#define QUIPU_SERVICES_POTS_RULES_H

#include "services/pots/pot_draw.h"

#define POT_NAME_MAX 128
#define POT_MAX_COINS_LEAST 6

/* Returns true if the name matches ^[A-Za-z0-9]{2}(?:[ _-]?[A-Za-z0-9])+$ and has at most
 * POT_NAME_MAX characters. */
bool pot_name_is_valid(struct slice name);

/* The content of a pot and its capacity. */
struct pot_state {
	int32_t max_coins;
	struct coins coins;
};

/* The coins in a request. Their sum may be more than a pot can hold. */
struct asked_coins {
	int64_t of[COIN_KINDS];
};

/* Adds the coins and sets `added`. If they do not fit, returns POT_FULL and changes nothing. */
QP_MUST_CHECK enum status pot_add(
	struct pot_state *pot, const struct asked_coins *asked, struct coins *added);

/* Removes coins by kind, but not more than the pot has. Returns the removed coins. */
struct coins pot_remove(struct pot_state *pot, const struct asked_coins *asked);

/* Removes `count` coins at random, but not more than the pot has. Returns the removed coins. */
struct coins pot_remove_any(struct pot_state *pot, int64_t count, struct dice *dice);

#endif
