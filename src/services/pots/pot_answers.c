#include "services/pots/pot_answers.h"

#include <coin.pb-c.h>
#include <pot.pb-c.h>

#include "http/twirp.h"

/* ---- messages ---------------------------------------------------------------------------- */

struct answer pot_answer_coins(
	struct arena *arena, enum proto_encoding encoding, const struct coins *coins)
{
	Pyggpot__Coin__CoinsListResponse response = PYGGPOT__COIN__COINS_LIST_RESPONSE__INIT;
	Pyggpot__Coin__Coins entries[COIN_KINDS];
	Pyggpot__Coin__Coins *list[COIN_KINDS];

	response.coins = list;
	for (size_t kind = 0; kind < COIN_KINDS; kind++) {
		Pyggpot__Coin__Coins *entry = &entries[kind];

		if (coins->of[kind] == 0)
			continue;
		pyggpot__coin__coins__init(entry);
		entry->kind = (Pyggpot__Coin__Coins__Kind)coin_denominations[kind];
		entry->count = coins->of[kind];
		list[response.n_coins++] = entry;
	}
	return twirp_answer(arena, encoding, &response.base);
}

/* A PotResponse together with the timestamp that it points to. */
struct pot_message {
	Pyggpot__Pot__PotResponse pot;
	Google__Protobuf__Timestamp created;
};

static void fill_pot(struct pot_message *message, const struct pot_row *pot)
{
	int64_t fraction_us = pot->created_us % 1000000;

	google__protobuf__timestamp__init(&message->created);
	message->created.seconds = pot->created_us / 1000000;
	message->created.nanos = (int32_t)fraction_us * 1000;
	pyggpot__pot__pot_response__init(&message->pot);
	message->pot.pot_id = pot->pot_id;
	message->pot.pot_name = (char *)(uintptr_t)pot->name.data;
	message->pot.max_coins = pot->max_coins;
	message->pot.create_time = &message->created;
}

struct answer pot_answer_pot(
	struct arena *arena, enum proto_encoding encoding, const struct pot_row *pot)
{
	struct pot_message message;

	fill_pot(&message, pot);
	return twirp_answer(arena, encoding, &message.pot.base);
}

struct answer pot_answer_list(
	const struct pot_lookup *lookup, const struct pot_page *page, int64_t total)
{
	struct arena *arena = lookup->read.command.arena;
	Pyggpot__Pot__PotsListResponse response = PYGGPOT__POT__POTS_LIST_RESPONSE__INIT;
	Pyggpot__Pot__ListPotsRequest request = PYGGPOT__POT__LIST_POTS_REQUEST__INIT;
	struct pot_message *messages = arena_array(arena, struct pot_message, page->count);

	request.page = lookup->page;
	request.limit = lookup->limit;
	response.request = &request;
	response.total_pot_count = total < INT32_MAX ? (int32_t)total : INT32_MAX;
	response.pots = arena_array(arena, Pyggpot__Pot__PotResponse *, page->count);
	for (size_t i = 0; i < page->count; i++) {
		fill_pot(&messages[i], &page->pots[i]);
		response.pots[response.n_pots++] = &messages[i].pot;
	}
	return twirp_answer(arena, lookup->encoding, &response.base);
}

/* ---- refusals ---------------------------------------------------------------------------- */

struct answer pot_answer_no_pot(struct arena *arena, int32_t pot_id)
{
	return twirp_problem(arena, STATUS_POT_NOT_FOUND, "no pot has the id %d", pot_id);
}

struct answer pot_answer_no_name(struct arena *arena, struct slice name)
{
	if (name.len > POT_NAME_MAX)
		return twirp_problem(arena, STATUS_POT_NOT_FOUND, "no pot has this name");
	return twirp_problem(arena, STATUS_POT_NOT_FOUND, "no pot has the name \"%.*s\"",
		(int)name.len, name.data);
}

struct answer pot_answer_name_taken(struct arena *arena, struct slice name)
{
	return twirp_problem(arena, STATUS_POT_EXISTS,
		"a pot with the name \"%.*s\" exists already", (int)name.len, name.data);
}

struct answer pot_answer_full(struct arena *arena, int32_t pot_id, const struct pot_state *pot)
{
	return twirp_problem(arena, STATUS_POT_FULL,
		"pot %d holds %lld coins, and at most %d fit; nothing was added", pot_id,
		(long long)coins_total(&pot->coins), pot->max_coins);
}

struct answer pot_answer_locked(struct arena *arena, int32_t pot_id)
{
	return twirp_problem(arena, STATUS_POT_LOCKED,
		"another process has locked pot %d; nothing was changed; try again", pot_id);
}

struct answer pot_answer_name_locked(struct arena *arena, struct slice name)
{
	return twirp_problem(arena, STATUS_POT_LOCKED,
		"another process is creating a pot with the name \"%.*s\"; nothing was changed, "
		"try "
		"again",
		(int)name.len, name.data);
}
