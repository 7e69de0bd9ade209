/*
 * Clients of pots: coins are added, removed by kind, drawn at random, and listed. Every fourth pot
 * is small, so that it is full at times.
 */
#include <inttypes.h>

#include "load.h"

enum { POT_COUNT = 120, SMALL_MAX = 400, LARGE_MAX = 100000000 };

static int64_t pots[POT_COUNT]; /* ids */
static uint32_t pots_asked;

static bool pots_set_up(struct load *load, struct operation *o)
{
	uint32_t max = pots_asked % 4 == 0 ? SMALL_MAX : LARGE_MAX;
	char body[256];

	if (pots_asked == POT_COUNT)
		return false;
	o->subject = pots_asked++;
	o->kind = 1;
	snprintf(body, sizeof(body), "{\"pot_name\":\"%spot%u\",\"max_coins\":%u}", load->prefix,
		o->subject, max);
	operation_describe(o, "create %spot%u %u", load->prefix, o->subject, max);
	operation_request(load, o, "POST", "/twirp/pyggpot.pot.Pot/CreatePot", NULL, body);
	return true;
}

static void pots_answered(
	struct load *load, const struct operation *o, const struct response *response)
{
	if (o->kind == 1 && !response_integer(response, "pot_id", &pots[o->subject]))
		die("a pot was not created: %.*s", (int)response->body_length, response->body);
}

static void change_kinds(struct load *load, struct operation *o, int64_t pot, const char *verb)
{
	static const char *const kinds[] = {"BRONZE", "SILVER", "GOLD"};
	uint32_t counts[3];
	char path[64];
	char body[512];
	size_t size;
	bool first = true;

	for (int i = 0; i < 3; i++)
		counts[i] = random_below(&load->random, 2) ? random_below(&load->random, 40) : 0;
	if (counts[0] + counts[1] + counts[2] == 0)
		counts[0] = 1;
	size = (size_t)snprintf(body, sizeof(body), "{\"pot_id\":%" PRId64 ",\"coins\":[", pot);
	for (int i = 0; i < 3; i++) {
		if (counts[i] == 0)
			continue;
		size += (size_t)snprintf(body + size, sizeof(body) - size,
			"%s{\"kind\":\"%s\",\"count\":%u}", first ? "" : ",", kinds[i], counts[i]);
		first = false;
	}
	snprintf(body + size, sizeof(body) - size, "]}");
	snprintf(path, sizeof(path), "/twirp/pyggpot.coin.Coin/%sCoins",
		verb[0] == 'a' ? "Add" : "Remove");
	operation_describe(
		o, "%s %" PRId64 " %u,%u,%u", verb, pot, counts[0], counts[1], counts[2]);
	operation_request(load, o, "POST", path, NULL, body);
}

static void draw(struct load *load, struct operation *o, int64_t pot)
{
	uint32_t count = 1 + random_below(&load->random, 50);
	char body[128];

	snprintf(body, sizeof(body), "{\"pot_id\":%" PRId64 ",\"count\":%u}", pot, count);
	operation_describe(o, "draw %" PRId64 " %u", pot, count);
	operation_request(load, o, "POST", "/twirp/pyggpot.coin.Coin/RemoveCoins", NULL, body);
}

static void list(struct load *load, struct operation *o, int64_t pot)
{
	char body[64];

	o->keyed = false;
	snprintf(body, sizeof(body), "{\"pot_id\":%" PRId64 "}", pot);
	operation_describe(o, "list %" PRId64, pot);
	operation_request(load, o, "POST", "/twirp/pyggpot.coin.Coin/ListCoins", NULL, body);
}

static bool pots_next(struct load *load, struct operation *o)
{
	int64_t pot = pots[random_below(&load->random, POT_COUNT)];
	uint32_t dice = random_below(&load->random, 100);

	o->kind = 0;
	if (pot == 0)
		return false;
	if (dice < 45)
		change_kinds(load, o, pot, "add");
	else if (dice < 65)
		change_kinds(load, o, pot, "remove");
	else if (dice < 92)
		draw(load, o, pot);
	else
		list(load, o, pot);
	return true;
}

const struct role_play pots_play = {
	.name = "pots",
	.share = 10,
	.set_up = pots_set_up,
	.next = pots_next,
	.answered = pots_answered,
};
