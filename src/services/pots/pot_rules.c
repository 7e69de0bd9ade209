#include "services/pots/pot_rules.h"

static bool is_alphanumeric(char c)
{
	return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

static bool is_separator(char c)
{
	return c == ' ' || c == '_' || c == '-';
}

bool pot_name_is_valid(struct slice name)
{
	if (name.len < 3 || name.len > POT_NAME_MAX)
		return false;
	if (!is_alphanumeric(name.data[0]) || !is_alphanumeric(name.data[1]))
		return false;
	for (size_t i = 2; i < name.len; i++) {
		if (is_separator(name.data[i]))
			i++;
		if (i == name.len || !is_alphanumeric(name.data[i]))
			return false;
	}
	return true;
}

enum status pot_add(struct pot_state *pot, const struct asked_coins *asked, struct coins *added)
{
	int64_t total = coins_total(&pot->coins);

	for (size_t kind = 0; kind < COIN_KINDS; kind++) {
		if (__builtin_add_overflow(total, asked->of[kind], &total))
			return STATUS_POT_FULL;
	}
	if (total > pot->max_coins)
		return STATUS_POT_FULL;
	for (size_t kind = 0; kind < COIN_KINDS; kind++) {
		added->of[kind] = (int32_t)asked->of[kind];
		pot->coins.of[kind] += added->of[kind];
	}
	return STATUS_OK;
}

static void take_out(struct pot_state *pot, const struct coins *coins)
{
	for (size_t kind = 0; kind < COIN_KINDS; kind++)
		pot->coins.of[kind] -= coins->of[kind];
}

struct coins pot_remove(struct pot_state *pot, const struct asked_coins *asked)
{
	struct coins removed;

	for (size_t kind = 0; kind < COIN_KINDS; kind++) {
		int32_t there = pot->coins.of[kind];

		removed.of[kind] = asked->of[kind] < there ? (int32_t)asked->of[kind] : there;
	}
	take_out(pot, &removed);
	return removed;
}

struct coins pot_remove_any(struct pot_state *pot, int64_t count, struct dice *dice)
{
	int64_t total = coins_total(&pot->coins);
	struct coins removed = pot_draw(&pot->coins, count < total ? count : total, dice);

	take_out(pot, &removed);
	return removed;
}
