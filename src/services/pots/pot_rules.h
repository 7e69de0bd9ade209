/*
 * The rules of pots and coins, pure: what a command does to what is in a pot. Nothing here knows a
 * store, a request or the time of day.
 */
#ifndef QUIPU_SERVICES_POTS_RULES_H
#define QUIPU_SERVICES_POTS_RULES_H

#include "services/pots/pot_draw.h"

#define POT_NAME_MAX 128
#define POT_MAX_COINS_LEAST 6

/* ^[A-Za-z0-9]{2}(?:[ _-]?[A-Za-z0-9])+$, at most POT_NAME_MAX characters. */
bool pot_name_is_valid(struct slice name);

/* What is in a pot, and what fits. */
struct pot_state {
	int32_t max_coins;
	struct coins coins;
};

/* Coins as they are asked for: a request may name a kind again, and more than a pot can hold. */
struct asked_coins {
	int64_t of[COIN_KINDS];
};

/* OK: `added` is what was asked. POT_FULL: together they are more than max_coins; nothing changed.
 */
QP_MUST_CHECK enum status pot_add(
	struct pot_state *pot, const struct asked_coins *asked, struct coins *added);

/* Takes of each kind what is asked, at most what is there; returns what came out. */
struct coins pot_remove(struct pot_state *pot, const struct asked_coins *asked);

/* Draws `count` coins, at most all of them; returns what came out. */
struct coins pot_remove_any(struct pot_state *pot, int64_t count, struct dice *dice);

#endif
