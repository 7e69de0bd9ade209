/*
 * Turns Twirp calls into commands and lookups of pots. http/twirp has already parsed the message;
 * this file checks what the specification (seed 003) requires. Runs on the loops and never blocks.
 */
#include "services/pots/pots.h"

#include <coin.pb-c.h>
#include <pot.pb-c.h>

#include "http/twirp.h"
#include "inbound/input.h"
#include "inbound/submit.h"
#include "services/pots/pot_batch.h"

#define POT_BYTES_MAX 512 /* the longest JSON of a pot in a list */

/* ---- reading messages -------------------------------------------------------------------- */

/* Copies a string of a message into the request's arena, because the message is freed when the call
 * returns. */
static struct slice keep_text(struct input *input, const char *text)
{
	return arena_copy(&input->request->arena, slice_of(text));
}

static void check_pot_id(struct input *input, int32_t pot_id)
{
	if (pot_id <= 0)
		input_error(input, "pot_id", "is required and must be greater than 0");
}

static const char *element_field(struct input *input, size_t index, const char *field)
{
	struct buffer name = buffer_make(&input->request->arena, 32);

	buffer_format(&name, "coins[%zu].%s", index, field);
	buffer_char(&name, '\0');
	return name.data;
}

/* Adds up the coins of a list, which may name a kind more than once. */
static struct asked_coins read_coins(
	struct input *input, Pyggpot__Coin__Coins *const *list, size_t count)
{
	struct asked_coins asked = {0};

	for (size_t i = 0; i < count && input->error_count < INPUT_ERRORS_MAX; i++) {
		size_t kind = coin_kind_of((int32_t)list[i]->kind);

		if (kind == COIN_KINDS)
			input_error(input, element_field(input, i, "kind"),
				"must be BRONZE, SILVER or GOLD");
		if (list[i]->count <= 0)
			input_error(
				input, element_field(input, i, "count"), "must be greater than 0");
		else if (kind < COIN_KINDS)
			asked.of[kind] += list[i]->count;
	}
	return asked;
}

/* ---- changes ----------------------------------------------------------------------------- */

static struct pot_command *new_command(const struct twirp_call *call, enum pot_verb verb)
{
	struct pot_command *command = pot_command_new(&call->request->arena);

	command->verb = verb;
	command->encoding = call->encoding;
	return command;
}

static void create_pot(void *context, const struct twirp_call *call)
{
	const Pyggpot__Pot__CreatePotRequest *asked = (const void *)call->message;
	const struct pots *pots = context;
	struct pot_command *command = new_command(call, POT_CREATE);
	struct input input;

	input_init(&input, call->request);
	command->name = keep_text(&input, asked->pot_name);
	command->max_coins = asked->max_coins;
	if (!pot_name_is_valid(command->name))
		input_error(&input, "pot_name",
			"must be 3 to 128 characters: two letters or digits, then letters or "
			"digits "
			"with at most one space, _ or - between them");
	if (command->max_coins < POT_MAX_COINS_LEAST)
		input_error(&input, "max_coins", "must be greater than 5");
	command->write.command.key = pot_name_key(&call->request->arena, command->name);
	submit_write(&input, pots->lanes, &command->write);
}

static void submit_coins(const struct pots *pots, struct input *input, struct pot_command *command)
{
	check_pot_id(input, command->pot_id);
	command->write.command.key = pot_id_key(&input->request->arena, command->pot_id);
	submit_write(input, pots->lanes, &command->write);
}

static void add_coins(void *context, const struct twirp_call *call)
{
	const Pyggpot__Coin__AddCoinsRequest *asked = (const void *)call->message;
	struct pot_command *command = new_command(call, POT_ADD);
	struct input input;

	input_init(&input, call->request);
	command->pot_id = asked->pot_id;
	command->coins = read_coins(&input, asked->coins, asked->n_coins);
	if (asked->n_coins == 0)
		input_error(&input, "coins", "must not be empty");
	submit_coins(context, &input, command);
}

static void remove_coins(void *context, const struct twirp_call *call)
{
	const Pyggpot__Coin__RemoveCoinsRequest *asked = (const void *)call->message;
	struct pot_command *command =
		new_command(call, asked->n_coins > 0 ? POT_REMOVE : POT_REMOVE_ANY);
	struct input input;

	input_init(&input, call->request);
	command->pot_id = asked->pot_id;
	command->count = asked->count;
	command->coins = read_coins(&input, asked->coins, asked->n_coins);
	if (asked->n_coins == 0 && asked->count <= 0)
		input_error(&input, "count", "must be greater than 0 if coins is empty");
	submit_coins(context, &input, command);
}

/* ---- lookups ----------------------------------------------------------------------------- */

static struct pot_lookup *new_lookup(
	struct input *input, const struct twirp_call *call, enum pot_look look)
{
	struct pot_lookup *lookup = pot_lookup_new(&call->request->arena);

	input_init(input, call->request);
	lookup->look = look;
	lookup->encoding = call->encoding;
	return lookup;
}

static void submit_lookup(void *context, struct input *input, struct pot_lookup *lookup)
{
	const struct pots *pots = context;

	submit_read(input, pots->lanes, &lookup->read);
}

static void view_pot(void *context, const struct twirp_call *call)
{
	const Pyggpot__Pot__ViewPotRequest *asked = (const void *)call->message;
	struct input input;
	struct pot_lookup *lookup = new_lookup(&input, call, LOOK_POT);

	lookup->pot_id = asked->pot_id;
	check_pot_id(&input, lookup->pot_id);
	submit_lookup(context, &input, lookup);
}

static void view_pot_by_name(void *context, const struct twirp_call *call)
{
	const Pyggpot__Pot__ViewPotByNameRequest *asked = (const void *)call->message;
	struct input input;
	struct pot_lookup *lookup = new_lookup(&input, call, LOOK_NAME);

	lookup->name = keep_text(&input, asked->pot_name);
	if (lookup->name.len == 0)
		input_error(&input, "pot_name", "is required");
	submit_lookup(context, &input, lookup);
}

static void list_pots(void *context, const struct twirp_call *call)
{
	const Pyggpot__Pot__ListPotsRequest *asked = (const void *)call->message;
	struct input input;
	struct pot_lookup *lookup = new_lookup(&input, call, LOOK_LIST);

	lookup->page = asked->page;
	lookup->limit = asked->limit;
	if (lookup->page < 1)
		input_error(&input, "page", "is required and must be at least 1");
	if (lookup->limit < 0 || lookup->limit > POT_PAGE_MOST)
		input_error(&input, "limit", "must be 1 to 100, or 0 for the default of 25");
	lookup->read.command.answer_max = answer_list_max(POT_PAGE_MOST, POT_BYTES_MAX);
	submit_lookup(context, &input, lookup);
}

static void list_coins(void *context, const struct twirp_call *call)
{
	const Pyggpot__Coin__ListCoinsRequest *asked = (const void *)call->message;
	struct input input;
	struct pot_lookup *lookup = new_lookup(&input, call, LOOK_COINS);

	lookup->pot_id = asked->pot_id;
	check_pot_id(&input, lookup->pot_id);
	submit_lookup(context, &input, lookup);
}

/* ---- routes ------------------------------------------------------------------------------ */

void pots_add_routes(struct pots *pots, struct router *router, struct arena *arena)
{
	static const struct twirp_method pot_methods[] = {
		{"CreatePot", create_pot},
		{"ViewPot", view_pot},
		{"ViewPotByName", view_pot_by_name},
		{"ListPots", list_pots},
	};
	static const struct twirp_method coin_methods[] = {
		{"AddCoins", add_coins},
		{"RemoveCoins", remove_coins},
		{"ListCoins", list_coins},
	};

	twirp_add_service(router, "pots", arena, &pyggpot__pot__pot__descriptor, pot_methods, pots);
	twirp_add_service(
		router, "pots", arena, &pyggpot__coin__coin__descriptor, coin_methods, pots);
}
