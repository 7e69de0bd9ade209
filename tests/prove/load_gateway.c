/*
 * Clients of the gateway. Many users get a message now and then (class g), a few get more than
 * their limit all the time (h), and others only take of their quota (k). Some sends and takes have
 * no key, as those of a careless client. Now and then a limit is set anew, to another value. With
 * --previous, class k sends, too: version 0.1.0 had no takes.
 */
#include "load.h"

enum { CLASSES = 3, UNKEYED_PERCENT = 20, WINDOW_MAX = 4 };

struct class
{
	char letter;
	uint32_t users;
	uint32_t limit_min;
	uint32_t limit_range;
	uint32_t share; /* percent of the operations; settings of limits have what is left */
};

static const struct class classes[CLASSES] = {
	{'g', 2000, 1, 6, 45},
	{'h', 15, 3, 20, 27},
	{'k', 25, 8, 40, 26},
};

static uint32_t users_created;

static void user_name(const struct load *load, uint32_t class, uint32_t number, char name[])
{
	snprintf(name, NAME_MAX_LENGTH, "%s%c%u", load->prefix, classes[class].letter, number);
}

static void config(struct load *load, struct operation *o, uint32_t class, uint32_t number)
{
	uint32_t limit =
		classes[class].limit_min + random_below(&load->random, classes[class].limit_range);
	uint32_t window = 1 + random_below(&load->random, WINDOW_MAX);
	char user[NAME_MAX_LENGTH];
	char body[256];

	user_name(load, class, number, user);
	snprintf(body, sizeof(body), "{\"userId\":\"%s\",\"rateLimit\":%u,\"timeWindow\":%u}", user,
		limit, window);
	operation_describe(o, "config %s %u %u", user, limit, window);
	operation_request(load, o, "POST", "/api/config", NULL, body);
}

static bool gateway_set_up(struct load *load, struct operation *o)
{
	uint32_t number = users_created;
	uint32_t class = 0;

	while (class < CLASSES && number >= classes[class].users)
		number -= classes[class ++].users;
	if (class == CLASSES)
		return false;
	users_created++;
	config(load, o, class, number);
	return true;
}

static void send_message(struct load *load, struct operation *o, const char *user)
{
	char body[256];

	snprintf(body, sizeof(body), "{\"userId\":\"%s\",\"message\":\"m%llu\"}", user,
		(unsigned long long)o->id);
	operation_describe(o, "send %s m%llu", user, (unsigned long long)o->id);
	operation_request(load, o, "POST", "/api/send", NULL, body);
}

static void take(struct load *load, struct operation *o, const char *user)
{
	uint32_t amount = 1 + random_below(&load->random, 4);
	char path[128];
	char body[64];

	snprintf(path, sizeof(path), "/api/limits/%s/take", user);
	snprintf(body, sizeof(body), "{\"amount\":%u}", amount);
	operation_describe(o, "take %s %u", user, amount);
	operation_request(load, o, "POST", path, NULL, body);
}

static bool gateway_next(struct load *load, struct operation *o)
{
	uint32_t dice = random_below(&load->random, 100);
	uint32_t class = 0;
	char user[NAME_MAX_LENGTH];

	while (class < CLASSES && dice >= classes[class].share)
		dice -= classes[class ++].share;
	if (class == CLASSES) {
		class = random_below(&load->random, CLASSES);
		config(load, o, class, random_below(&load->random, classes[class].users));
		return true;
	}
	user_name(load, class, random_below(&load->random, classes[class].users), user);
	o->keyed = random_below(&load->random, 100) >= UNKEYED_PERCENT;
	if (classes[class].letter == 'k' && !load->options.previous)
		take(load, o, user);
	else
		send_message(load, o, user);
	return true;
}

const struct role_play gateway_play = {
	.name = "gateway",
	.share = 14,
	.set_up = gateway_set_up,
	.next = gateway_next,
};
