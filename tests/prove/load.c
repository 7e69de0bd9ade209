/*
 * prove-load: options, phases and the loop. See load.h for the whole.
 */
#define _GNU_SOURCE 1
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "load.h"

enum {
	EVENTS_MAX = 256,
	WAIT_MS = 5,
	CHECK_US = 10000,
	SECOND_US = 1000000,
	DRAIN_MAX_US = 120 * SECOND_US,
	BUDGET_MAX = 256,
	CONNECTIONS = 1536, /* to all targets together */
	CONNECTIONS_MAX = 4096,
};

static const char *const role_names[ROLES] = {
	"counts", "gateway", "entitlements", "pots", "dialogs", "counters"};
static const char *const phase_names[] = {"setup", "running", "draining", "quiet"};

static volatile sig_atomic_t stops_asked;

void die(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	fputs("prove-load: ", stderr);
	vfprintf(stderr, format, arguments);
	fputc('\n', stderr);
	va_end(arguments);
	exit(2);
}

void *allocate(size_t count, size_t size)
{
	void *memory = calloc(count, size);

	if (!memory)
		die("out of memory");
	return memory;
}

/* Microseconds since 1970 as they were at the start, plus the time since: they never go back. */
uint64_t time_us(void)
{
	static uint64_t offset_us;
	struct timespec t;
	uint64_t steady_us;

	clock_gettime(CLOCK_MONOTONIC, &t);
	steady_us = (uint64_t)t.tv_sec * SECOND_US + (uint64_t)t.tv_nsec / 1000;
	if (offset_us == 0) {
		clock_gettime(CLOCK_REALTIME, &t);
		offset_us = (uint64_t)t.tv_sec * SECOND_US + (uint64_t)t.tv_nsec / 1000 - steady_us;
	}
	return steady_us + offset_us;
}

/* -- options -- */

static void parse_target(struct options *options, char *text)
{
	struct sockaddr_in *address = &options->targets[options->target_count];
	char *colon = strrchr(text, ':');

	if (options->target_count == TARGETS_MAX)
		die("more than %d targets", TARGETS_MAX);
	if (!colon)
		die("%s is not HOST:PORT", text);
	*colon = '\0';
	address->sin_family = AF_INET;
	address->sin_port = htons((uint16_t)atoi(colon + 1));
	if (inet_pton(AF_INET, text, &address->sin_addr) != 1 ||
		(ntohl(address->sin_addr.s_addr) >> 24) != 127)
		die("%s is not a loopback address: this is a test, not a weapon", text);
	options->target_count++;
}

static void parse_role(struct options *options, const char *text)
{
	for (int role = 0; role < ROLES; role++) {
		if (strcmp(text, role_names[role]) == 0) {
			options->roles[role] = true;
			return;
		}
	}
	die("no role has the name %s", text);
}

static void read_key(struct options *options, const char *path)
{
	FILE *file = fopen(path, "r");
	char key[400];

	if (!file || !fgets(key, sizeof(key), file))
		die("cannot read %s: %s", path, strerror(errno));
	fclose(file);
	key[strcspn(key, "\r\n")] = '\0';
	snprintf(options->authorization, sizeof(options->authorization),
		"Authorization: Bearer %s\r\n", key);
}

static uint64_t parse_number(const char *text)
{
	char *end;
	unsigned long long value = strtoull(text, &end, 10);

	if (*text < '0' || *text > '9' || *end)
		die("%s is not a number", text);
	return value;
}

static const struct option option_table[] = {
	{"targets", required_argument, NULL, 't'},
	{"roles", required_argument, NULL, 'r'},
	{"seed", required_argument, NULL, 's'},
	{"seconds", required_argument, NULL, 'n'},
	{"log", required_argument, NULL, 'l'},
	{"connections", required_argument, NULL, 'c'},
	{"rate", required_argument, NULL, 'a'},
	{"key-file", required_argument, NULL, 'k'},
	{"timeout-ms", required_argument, NULL, 'w'},
	{"linger", required_argument, NULL, 'g'},
	{"previous", no_argument, NULL, 'p'},
	{NULL, 0, NULL, 0},
};

static void parse_option(struct options *options, int letter, char *value)
{
	switch (letter) {
	case 't':
		for (char *word = strtok(value, ","); word; word = strtok(NULL, ","))
			parse_target(options, word);
		break;
	case 'r':
		for (char *word = strtok(value, ","); word; word = strtok(NULL, ","))
			parse_role(options, word);
		break;
	case 's':
		options->seed = parse_number(value);
		break;
	case 'n':
		options->seconds = parse_number(value);
		break;
	case 'l':
		options->log = value;
		break;
	case 'c':
		options->connections = parse_number(value);
		break;
	case 'a':
		options->rate = parse_number(value);
		break;
	case 'k':
		read_key(options, value);
		break;
	case 'w':
		options->timeout_ms = parse_number(value);
		break;
	case 'g':
		options->linger = parse_number(value);
		break;
	case 'p':
		options->previous = true;
		break;
	default:
		die("usage: prove-load --targets A,B --roles R,S --seed N --seconds N --log DIR");
	}
}

static void parse_options(struct options *options, int argc, char **argv)
{
	int letter;

	options->timeout_ms = 6000;
	while ((letter = getopt_long(argc, argv, "", option_table, NULL)) != -1)
		parse_option(options, letter, optarg);
	if (options->target_count == 0 || !options->log || options->seconds == 0 || optind < argc)
		die("usage: prove-load --targets A,B --roles R,S --seed N --seconds N --log DIR");
	if (options->connections == 0)
		options->connections = 1 + (CONNECTIONS - 1) / options->target_count;
	if (options->connections > CONNECTIONS_MAX)
		die("--connections must be at most %d", CONNECTIONS_MAX);
	if (options->roles[COUNTERS] && !options->roles[DIALOGS])
		die("the role counters needs dialogs");
}

/* -- progress -- */

static void print_progress(const struct load *load)
{
	const struct errors *e = &load->errors;
	const char *comma = "";

	printf("{\"t\":%" PRIu64 ",\"phase\":\"%s\",\"acked\":{", load->now_us,
		phase_names[load->phase]);
	for (int role = 0; role < ROLES; role++) {
		if (!load->options.roles[role])
			continue;
		printf("%s\"%s\":%" PRIu64, comma, role_names[role], load->acked[role]);
		comma = ",";
	}
	printf("},\"errors\":{\"lost\":%" PRIu64 ",\"timeout\":%" PRIu64 ",\"unknown\":%" PRIu64
	       ",\"refused\":%" PRIu64 ",\"connect\":%" PRIu64 ",\"bad\":%" PRIu64 "}",
		e->lost, e->timeout, e->unknown, e->refused, e->connect, e->bad);
	printf(",\"waiting\":%u,\"unknown\":%" PRIu64 "}\n", load->waiting_count, load->unknown);
	fflush(stdout);
}

/* -- phases -- */

static void enter(struct load *load, enum phase phase)
{
	load->phase = phase;
	load->phase_us = load->now_us;
	print_progress(load);
}

/* Each phase ends by itself; the first SIGTERM ends the first two, the second one ends it all. */
static bool phase_advance(struct load *load)
{
	uint64_t age_us = load->now_us - load->phase_us;
	bool all_known = load->open_count == 0;

	switch (load->phase) {
	case PHASE_SETUP:
		if (stops_asked || (all_known && load->setup_asked))
			enter(load, stops_asked ? PHASE_DRAINING : PHASE_RUNNING);
		return true;
	case PHASE_RUNNING:
		if (stops_asked || age_us >= load->options.seconds * SECOND_US)
			enter(load, PHASE_DRAINING);
		return true;
	case PHASE_DRAINING:
		if (!all_known && age_us < DRAIN_MAX_US)
			return true;
		operations_give_up(load);
		stops_asked = 0;
		enter(load, PHASE_QUIET);
		return true;
	case PHASE_QUIET:
		return !stops_asked && age_us < load->options.linger * SECOND_US;
	}
	return false;
}

static void budget_grow(struct load *load, uint64_t before_us)
{
	if (load->options.rate == 0) {
		load->budget = BUDGET_MAX;
		return;
	}
	load->budget += (double)(load->now_us - before_us) * (double)load->options.rate / SECOND_US;
	if (load->budget > BUDGET_MAX)
		load->budget = BUDGET_MAX;
}

static void wait_for_events(struct load *load)
{
	struct epoll_event events[EVENTS_MAX];
	int count = epoll_wait(load->epoll, events, EVENTS_MAX, WAIT_MS);

	if (count < 0 && errno != EINTR)
		die("epoll_wait: %s", strerror(errno));
	load->now_us = time_us();
	for (int i = 0; i < count; i++) {
		uint32_t number = events[i].data.u32;

		if (number >= STREAM_MARK)
			stream_event(load, number - STREAM_MARK);
		else
			connection_event(load, number, events[i].events);
	}
}

static void loop(struct load *load)
{
	uint64_t checked_us = load->now_us;
	uint64_t printed_us = load->now_us;

	do {
		uint64_t before_us = load->now_us;

		connections_dispatch(load);
		wait_for_events(load);
		budget_grow(load, before_us);
		if (load->now_us - checked_us >= CHECK_US) {
			checked_us = load->now_us;
			connections_check(load);
			streams_check(load);
			operations_wake(load);
		}
		if (load->now_us - printed_us >= SECOND_US) {
			printed_us = load->now_us;
			print_progress(load);
		}
	} while (phase_advance(load));
	logs_flush(load);
	print_progress(load);
}

static void on_stop(int number)
{
	stops_asked = stops_asked + 1;
}

int main(int argc, char **argv)
{
	struct load *load = allocate(1, sizeof(*load));
	struct sigaction stop = {.sa_handler = on_stop};

	parse_options(&load->options, argc, argv);
	sigaction(SIGTERM, &stop, NULL);
	sigaction(SIGINT, &stop, NULL);
	load->now_us = load->phase_us = time_us();
	load->random.state = load->options.seed;
	snprintf(load->prefix, sizeof(load->prefix), "s%" PRIu64, load->options.seed);
	load->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (load->epoll < 0)
		die("epoll_create1: %s", strerror(errno));
	logs_open(load);
	connections_open(load);
	operations_open(load);
	streams_open(load);
	loop(load);
	return 0;
}
