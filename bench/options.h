/*
 * The command line of openloop: one table says what each option is, where it goes and what bounds
 * it has, so that nothing the tool does is unlimited in count, time or reach. A header, included
 * once, so that `cc bench/openloop.c` builds the whole tool.
 */
#ifndef BENCH_OPTIONS_H
#define BENCH_OPTIONS_H

#include <arpa/inet.h>
#include <getopt.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	CONNECTIONS_MAX = 20000,
	ITEMS_MAX = 1000000,
	SECONDS_MAX = 3600,
	RATE_MAX = 1000000,
	COUNT_MAX = 1000000000,
	PREFIX_MAX = 64,
};

struct options {
	const char *target;
	struct sockaddr_in address; /* the target, parsed */
	double rate;
	double seconds;
	double warmup_s;
	double drain_s;
	double give_up_ms; /* 0: never */
	double count;
	double seed;
	double connections;
	double items;
	double idle;
	const char *prefix;
	const char *acks_path;
	const char *idle_path;
	bool closed;
	bool poisson;
	bool no_body;
	bool grants;
	bool messages;
	bool sends;
};

static const struct options OPTIONS_DEFAULT = {
	.rate = 1000,
	.seconds = 10,
	.drain_s = 10,
	.count = COUNT_MAX,
	.seed = 1,
	.connections = 256,
	.items = 1,
	.prefix = "item-",
};

static const char USAGE[] =
	"usage: openloop --target 127.0.0.1:PORT [--rate N | --closed | --idle N] [options]\n"
	"  --rate N          requests a second, on schedule (default 1000)\n"
	"  --poisson         exponential gaps instead of equal ones\n"
	"  --closed          no schedule: each connection sends its next at once\n"
	"  --idle N          open N connections, hold them until standard input ends\n"
	"  --idle-path PATH  GET this once on each of them\n"
	"  --seconds S       how long to measure (default 10)\n"
	"  --warmup S        before that, not measured (default 0)\n"
	"  --drain S         after that, wait for answers (default 10)\n"
	"  --give-up-ms N    drop what waited that long for a free connection (default never)\n"
	"  --count N         stop after that many requests\n"
	"  --connections N   default 256\n"
	"  --items N         default 1\n"
	"  --prefix TEXT     items are named TEXT1 to TEXTn (default item-)\n"
	"  --no-body         send no {\"amount\":1}\n"
	"  --grants          not increases but grants, to users TEXT000000000 and on\n"
	"  --messages        send messages to the items as users, instead of increases\n"
	"  --sends           texts by the items as users of the gateway, instead of increases\n"
	"  --seed N          of arrivals and items (default 1)\n"
	"  --acks FILE       write `item acked unknown` lines\n";

__attribute__((noreturn)) static inline void usage(const char *why)
{
	fprintf(stderr, "openloop: %s\n%s", why, USAGE);
	exit(2);
}

static inline double parse_number(const char *text, double low, double high, const char *name)
{
	char *end;
	double value = strtod(text, &end);

	if (end == text || *end != '\0' || !(value >= low && value <= high)) {
		fprintf(stderr, "openloop: %s must be from %g to %g\n", name, low, high);
		exit(2);
	}
	return value;
}

static inline void parse_target(struct options *o)
{
	char host[32];
	const char *colon = strchr(o->target, ':');
	size_t length = colon ? (size_t)(colon - o->target) : 0;

	if (!colon || length >= sizeof(host))
		usage("--target wants 127.0.0.1:PORT");
	memcpy(host, o->target, length);
	host[length] = '\0';
	o->address.sin_family = AF_INET;
	o->address.sin_port = htons((uint16_t)parse_number(colon + 1, 1, 65535, "target's port"));
	if (inet_pton(AF_INET, host, &o->address.sin_addr) != 1)
		usage("--target wants an IPv4 address");
	if (ntohl(o->address.sin_addr.s_addr) >> 24 != 127)
		usage("only loopback addresses are allowed");
}

/* The prefix goes into paths and files as it is, so it may hold nothing that needs escaping. */
static inline void check_prefix(const char *text)
{
	static const char allowed[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.~";

	if (strlen(text) > PREFIX_MAX || text[strspn(text, allowed)] != '\0')
		usage("--prefix may hold letters, digits and -_.~ only");
}

enum option_kind { OPTION_NUMBER, OPTION_TEXT, OPTION_FLAG };

/* Numbers are doubles in `struct options`, whatever they count: exact far past their limits. */
static const struct option_rule {
	const char *name;
	enum option_kind kind;
	size_t offset;
	double low;
	double high;
} OPTION_RULES[] = {
	{"target", OPTION_TEXT, offsetof(struct options, target), 0, 0},
	{"rate", OPTION_NUMBER, offsetof(struct options, rate), 0.1, RATE_MAX},
	{"poisson", OPTION_FLAG, offsetof(struct options, poisson), 0, 0},
	{"closed", OPTION_FLAG, offsetof(struct options, closed), 0, 0},
	{"idle", OPTION_NUMBER, offsetof(struct options, idle), 1, CONNECTIONS_MAX},
	{"idle-path", OPTION_TEXT, offsetof(struct options, idle_path), 0, 0},
	{"seconds", OPTION_NUMBER, offsetof(struct options, seconds), 0.01, SECONDS_MAX},
	{"warmup", OPTION_NUMBER, offsetof(struct options, warmup_s), 0, SECONDS_MAX},
	{"drain", OPTION_NUMBER, offsetof(struct options, drain_s), 0, SECONDS_MAX},
	{"give-up-ms", OPTION_NUMBER, offsetof(struct options, give_up_ms), 0, 1e6},
	{"count", OPTION_NUMBER, offsetof(struct options, count), 1, COUNT_MAX},
	{"connections", OPTION_NUMBER, offsetof(struct options, connections), 1, CONNECTIONS_MAX},
	{"items", OPTION_NUMBER, offsetof(struct options, items), 1, ITEMS_MAX},
	{"prefix", OPTION_TEXT, offsetof(struct options, prefix), 0, 0},
	{"no-body", OPTION_FLAG, offsetof(struct options, no_body), 0, 0},
	{"grants", OPTION_FLAG, offsetof(struct options, grants), 0, 0},
	{"messages", OPTION_FLAG, offsetof(struct options, messages), 0, 0},
	{"sends", OPTION_FLAG, offsetof(struct options, sends), 0, 0},
	{"seed", OPTION_NUMBER, offsetof(struct options, seed), 0, 1e15},
	{"acks", OPTION_TEXT, offsetof(struct options, acks_path), 0, 0},
};

enum { OPTION_COUNT = sizeof(OPTION_RULES) / sizeof(OPTION_RULES[0]) };

static inline void option_set(struct options *o, const struct option_rule *rule, const char *value)
{
	char *field = (char *)o + rule->offset;

	switch (rule->kind) {
	case OPTION_NUMBER:
		*(double *)(void *)field = parse_number(value, rule->low, rule->high, rule->name);
		break;
	case OPTION_TEXT:
		*(const char **)(void *)field = value;
		break;
	case OPTION_FLAG:
		*(bool *)(void *)field = true;
		break;
	}
}

static inline void options_parse(struct options *o, int argc, char **argv)
{
	struct option table[OPTION_COUNT + 1] = {0};
	int index;
	int found;

	*o = OPTIONS_DEFAULT;
	for (size_t i = 0; i < OPTION_COUNT; i++) {
		table[i].name = OPTION_RULES[i].name;
		table[i].has_arg =
			OPTION_RULES[i].kind == OPTION_FLAG ? no_argument : required_argument;
	}
	while ((found = getopt_long(argc, argv, "", table, &index)) == 0)
		option_set(o, &OPTION_RULES[index], optarg);
	if (found != -1 || optind != argc)
		usage("unknown option or argument");
	if (!o->target)
		usage("--target is missing");
	parse_target(o);
	check_prefix(o->prefix);
}

#endif
