/*
 * Clients of counts. Items come in classes, so that the checks know what to expect of each:
 *
 *   class  what is asked                                     keys
 *   i      increases only: values only grow                  yes
 *   m      increases and decreases                           yes
 *   r      increases, and now and then a reset               yes
 *   b      both, between the bounds 0 and BOUND              yes
 *   t      transfers from one item to another, atomically    yes; no item below 0
 *   u      increases only                                    no: an unknown one stays unknown
 *
 * With --previous there are no bounds, transfers and batches: version 0.1.0 had none. Increases and
 * decreases take their place.
 *
 * Amounts are large and random. So two different histories hardly ever lead to the same value, and
 * the values that clients got tell in which order the changes happened.
 */
#include <inttypes.h>

#include "load.h"

enum { CLASSES = 6, CLASS_MIXED = 1, BATCH_MAX = 8, TRANSFER_ITEMS = 40 };

static const int64_t BOUND = 1000000000000;
static const int64_t AMOUNT_MAX = 1099511627776; /* 2^40 */

struct class
{
	char letter;
	uint32_t items;
	uint32_t share; /* percent of the operations; batches have what is left */
	bool bounded;
};

static const struct class classes[CLASSES] = {
	{'i', 40, 25, false},
	{'m', 40, 20, false},
	{'r', 20, 10, false},
	{'b', 12, 13, true},
	{'t', TRANSFER_ITEMS, 9, true},
	{'u', 300, 12, false},
};

static uint32_t items_created;

static void item_name(const struct load *load, uint32_t class, uint32_t number, char name[])
{
	snprintf(name, NAME_MAX_LENGTH, "%s%c%u", load->prefix, classes[class].letter, number);
}

/* Whether the class needs bounds or transfers, which the previous release lacks. */
static bool left_out(const struct load *load, uint32_t class)
{
	return load->options.previous && classes[class].bounded;
}

static bool counts_set_up(struct load *load, struct operation *o)
{
	uint32_t number = items_created;
	uint32_t class = 0;
	char item[NAME_MAX_LENGTH];
	char body[256];
	int64_t initial = 0;

	while (class < CLASSES && number >= classes[class].items)
		number -= classes[class ++].items;
	if (class == CLASSES)
		return false;
	if (left_out(load, class)) {
		items_created += classes[class].items;
		return counts_set_up(load, o);
	}
	items_created++;
	item_name(load, class, number, item);
	if (classes[class].bounded)
		initial = BOUND / 2;
	if (classes[class].letter == 'b')
		snprintf(body, sizeof(body),
			"{\"itemId\":\"%s\",\"initialValue\":%" PRId64
			",\"minValue\":0,\"maxValue\":%" PRId64 "}",
			item, initial, BOUND);
	else if (classes[class].bounded)
		snprintf(body, sizeof(body),
			"{\"itemId\":\"%s\",\"initialValue\":%" PRId64 ",\"minValue\":0}", item,
			initial);
	else
		snprintf(body, sizeof(body), "{\"itemId\":\"%s\"}", item);
	operation_describe(o, "create %s %" PRId64 " %s %s", item, initial,
		classes[class].bounded ? "0" : "-",
		classes[class].letter == 'b' ? "1000000000000" : "-");
	operation_request(load, o, "POST", "/api/v1/internal/counts", NULL, body);
	return true;
}

static int64_t random_amount(struct load *load, bool bounded)
{
	uint64_t range = (uint64_t)(bounded ? BOUND / 3 : AMOUNT_MAX);

	return (int64_t)(1 + random_next(&load->random) % range);
}

static void change(
	struct load *load, struct operation *o, const char *verb, const char *item, int64_t amount)
{
	char path[128];
	char body[64];

	snprintf(path, sizeof(path), "/api/v1/counts/%s/%s", item, verb);
	snprintf(body, sizeof(body), "{\"amount\":%" PRId64 "}", amount);
	operation_describe(o, "%s %s %" PRId64, verb, item, amount);
	operation_request(load, o, "POST", path, NULL, body);
}

static void reset(struct load *load, struct operation *o, const char *item)
{
	char path[128];

	snprintf(path, sizeof(path), "/api/v1/counts/%s/reset", item);
	operation_describe(o, "reset %s", item);
	operation_request(load, o, "POST", path, NULL, NULL);
}

static void get(struct load *load, struct operation *o, const char *item)
{
	char path[128];

	snprintf(path, sizeof(path), "/api/v1/internal/counts/%s", item);
	o->keyed = false;
	operation_describe(o, "get %s", item);
	operation_request(load, o, "GET", path, NULL, NULL);
}

/* Changes of several items, each under a key of its own, so that the batch may be sent again. */
static void batch(struct load *load, struct operation *o)
{
	uint32_t count = 2 + random_below(&load->random, BATCH_MAX - 1);
	char body[2048] = "{\"changes\":[";
	char what[WHAT_MAX] = "";
	size_t size = strlen(body);
	size_t length = 0;

	o->keep_trying = true;
	for (uint32_t i = 0; i < count; i++) {
		uint32_t class = random_below(&load->random, 3);
		bool down = classes[class].letter == 'm' && random_below(&load->random, 2) == 0;
		const char *verb = down ? "decrease" : "increase";
		int64_t amount = random_amount(load, false);
		char item[NAME_MAX_LENGTH];

		item_name(load, class, random_below(&load->random, classes[class].items), item);
		size += (size_t)snprintf(body + size, sizeof(body) - size,
			"%s{\"itemId\":\"%s\",\"verb\":\"%s\",\"amount\":%" PRId64
			",\"idempotencyKey\":\"%s-o%" PRIu64 ".%u\"}",
			i ? "," : "", item, verb, amount, load->prefix, o->id, i);
		length += (size_t)snprintf(what + length, sizeof(what) - length, "%s%s:%s:%" PRId64,
			i ? "," : "", verb, item, amount);
	}
	snprintf(body + size, sizeof(body) - size, "]}");
	operation_describe(o, "batch %s", what);
	operation_request(load, o, "POST", "/api/v1/counts/batch", NULL, body);
}

static void transfer(struct load *load, struct operation *o)
{
	uint32_t from = random_below(&load->random, TRANSFER_ITEMS);
	uint32_t to = (from + 1 + random_below(&load->random, TRANSFER_ITEMS - 1)) % TRANSFER_ITEMS;
	int64_t amount = random_amount(load, true);
	char body[512];

	snprintf(body, sizeof(body),
		"{\"atomic\":true,\"changes\":["
		"{\"itemId\":\"%st%u\",\"verb\":\"increase\",\"amount\":%" PRId64 "},"
		"{\"itemId\":\"%st%u\",\"verb\":\"decrease\",\"amount\":%" PRId64 "}]}",
		load->prefix, to, amount, load->prefix, from, amount);
	operation_describe(o, "atomic increase:%st%u:%" PRId64 ",decrease:%st%u:%" PRId64,
		load->prefix, to, amount, load->prefix, from, amount);
	operation_request(load, o, "POST", "/api/v1/counts/batch", NULL, body);
}

static void one_change(struct load *load, struct operation *o, uint32_t class)
{
	char letter = classes[class].letter;
	bool both = letter == 'm' || letter == 'b';
	char item[NAME_MAX_LENGTH];
	uint32_t dice = random_below(&load->random, 100);

	item_name(load, class, random_below(&load->random, classes[class].items), item);
	o->keyed = letter != 'u';
	if (dice < 3)
		get(load, o, item);
	else if (letter == 'r' && dice < 6)
		reset(load, o, item);
	else if (both && dice % 2 == 0)
		change(load, o, "decrease", item, random_amount(load, letter == 'b'));
	else
		change(load, o, "increase", item, random_amount(load, letter == 'b'));
}

static bool counts_next(struct load *load, struct operation *o)
{
	uint32_t dice = random_below(&load->random, 100);

	for (uint32_t class = 0; class < CLASSES; class ++) {
		if (dice < classes[class].share) {
			if (left_out(load, class))
				break;
			if (classes[class].letter == 't')
				transfer(load, o);
			else
				one_change(load, o, class);
			return true;
		}
		dice -= classes[class].share;
	}
	if (load->options.previous)
		one_change(load, o, CLASS_MIXED);
	else
		batch(load, o);
	return true;
}

const struct role_play counts_play = {
	.name = "counts",
	.share = 50,
	.set_up = counts_set_up,
	.next = counts_next,
};
