/*
 * openloop: offers increases to a count service, grants of entitlements, messages to dialogs, or
 * texts to the gateway, on a schedule and records what became of each.
 *
 * A closed-loop tool such as wrk waits for an answer before it sends the next request, so a server
 * that stalls is asked less and its stall hardly shows (coordinated omission). Here every request
 * has a time at which it is due, fixed beforehand, and its latency runs from that time: a request
 * that found no free connection, or that this program was too busy to send, counts as slow.
 *
 * The tool also keeps the books: per item, how many increases were acknowledged and how many may or
 * may not have happened. The caller compares them with the sums in the database:
 * acknowledged <= difference in the database <= acknowledged + unknown.
 *
 * It shares the machine with what it measures, hence: requests are formatted once, one thread, one
 * send and one recv a request, and of an answer only what is needed is looked at. The queue of
 * requests that are due takes no memory: it is the part of the schedule between the next request to
 * be sent and now. One request is outstanding on a connection, so a send never finds a full buffer.
 *
 * Grants cannot be formatted beforehand: each is for a user of its own, with a key of its own.
 * There is one text, into which the number of the request is written where it is sent.
 *
 * A connection's states:
 *
 *   state       event                          next        function
 *   CLOSED      every REVIVE_NS                CONNECTING  connection_revive
 *   CONNECTING  connected                      FREE        connection_connected
 *   FREE        a request is due               BUSY        connection_send
 *   BUSY        a whole answer                 FREE        connection_receive
 *   any         error, end of file, bad bytes  CLOSED      connection_close
 *
 * Only loopback addresses are accepted: this is a bench, not a weapon.
 */
#define _GNU_SOURCE 1 /* memmem, epoll_pwait2 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/queue.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "histogram.h"
#include "options.h"
#include "random.h"
#include "response.h"

enum {
	EVENTS_MAX = 256,
	SOCKET_TIMEOUT_S = 10,
	NUMBER_DIGITS = 9,
	NUMBER_PLACES = 2,
};

static const uint64_t SECOND_NS = 1000000000;
static const uint64_t REVIVE_NS = 50000000;
static const uint64_t TICK_NS = 200000; /* the shortest sleep: late by that much, but cheap */

static volatile sig_atomic_t stop_asked;

/* -- small helpers -- */

__attribute__((noreturn, format(printf, 1, 2))) static void die(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	fputs("openloop: ", stderr);
	vfprintf(stderr, format, arguments);
	fputc('\n', stderr);
	va_end(arguments);
	exit(1);
}

static void *allocate(size_t count, size_t size)
{
	void *memory = calloc(count, size);

	if (!memory)
		die("out of memory");
	return memory;
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * SECOND_NS + (uint64_t)t.tv_nsec;
}

static uint64_t seconds_to_ns(double seconds)
{
	return (uint64_t)(seconds * (double)SECOND_NS);
}

static double ns_to_seconds(uint64_t ns)
{
	return (double)ns / (double)SECOND_NS;
}

/* -- the run and its parts -- */

enum connection_state {
	CONNECTION_CLOSED,
	CONNECTION_CONNECTING,
	CONNECTION_FREE,
	CONNECTION_BUSY
};

struct connection {
	enum connection_state state;
	int fd;
	uint32_t item;
	uint32_t partial_length;
	uint64_t due_ns;
	uint64_t sent_ns;
	char *partial; /* an answer that came in pieces; NULL until that happens */
	TAILQ_ENTRY(connection) link;
};

/* next_ns is when the next request that was not yet sent is due; past end_ns nothing is due. */
struct schedule {
	struct random random;
	bool poisson;
	double gap_ns;
	double next_ns;
	uint64_t end_ns;
	uint64_t left;
};

struct request {
	uint32_t offset;
	uint32_t length;
};

struct book {
	uint32_t acked;
	uint32_t unknown;
};

struct tally {
	uint64_t sent;
	uint64_t unsent;      /* due, but given up before a connection was free */
	uint64_t send_failed; /* refused by the local kernel: certainly not applied */
	uint64_t ok;
	uint64_t overloaded;
	uint64_t outcome_unknown;
	uint64_t lost; /* the connection, with a request on it */
	uint64_t other;
	uint64_t closed_idle;
	uint64_t connect_failed;
	uint64_t window_sent;
	uint64_t window_ok;
	uint64_t window_overloaded;
	uint32_t in_flight_max;
	int first_other_status;
	struct histogram accepted;         /* from the time the request was due */
	struct histogram accepted_service; /* from the time it was sent */
	struct histogram refused;
	struct histogram refused_service;
};

struct run {
	struct options options;
	int epoll;
	struct connection *connections;
	uint32_t connection_count;
	uint32_t item_count;
	TAILQ_HEAD(, connection) free; /* first in, first out: none idles into a timeout */
	uint32_t busy;
	uint32_t closed;
	struct schedule schedule;
	struct random item_random;
	char *requests_text;
	struct request *requests;
	struct book *books;
	uint32_t number_places[NUMBER_PLACES]; /* of grants: where in the text the number stands */
	uint64_t start_ns;
	uint64_t window_ns; /* measuring begins here, after the warm-up */
	uint64_t end_ns;
	uint64_t revive_ns;
	struct tally tally;
	char input[RESPONSE_MAX + 1];
};

/* -- schedule -- */

static void schedule_advance(struct schedule *s)
{
	s->next_ns += s->gap_ns * (s->poisson ? random_exponential(&s->random) : 1.0);
	s->left--;
}

static bool schedule_exhausted(const struct schedule *s)
{
	return s->left == 0 || s->next_ns >= (double)s->end_ns;
}

static bool schedule_due(const struct schedule *s, uint64_t now)
{
	return !schedule_exhausted(s) && s->next_ns <= (double)now;
}

/* What has waited too long for a connection is dropped, as a client with a timeout would. */
static void schedule_give_up(struct run *r, uint64_t now)
{
	uint64_t limit_ns = seconds_to_ns(r->options.give_up_ms / 1e3);

	if (limit_ns == 0 || now < limit_ns || r->options.closed)
		return;
	while (schedule_due(&r->schedule, now - limit_ns)) {
		schedule_advance(&r->schedule);
		r->tally.unsent++;
	}
}

/* -- answers -- */

/* Only requests that were due after the warm-up go into the histograms. */
static void tally_latency(struct run *r, const struct connection *c, uint64_t now, bool accepted)
{
	struct tally *t = &r->tally;

	if (c->due_ns < r->window_ns)
		return;
	histogram_add(accepted ? &t->accepted : &t->refused, now - c->due_ns);
	histogram_add(accepted ? &t->accepted_service : &t->refused_service, now - c->sent_ns);
}

static void tally_response(
	struct run *r, const struct connection *c, const struct response *response, uint64_t now)
{
	struct tally *t = &r->tally;
	bool in_window = now >= r->window_ns && now < r->end_ns;

	if (response->status == 200) {
		t->ok++;
		t->window_ok += in_window;
		r->books[c->item].acked++;
		tally_latency(r, c, now, true);
	} else if (response->status == 503 && response_mentions(response, "\"OVERLOADED\"")) {
		t->overloaded++;
		t->window_overloaded += in_window;
		tally_latency(r, c, now, false);
	} else if (response->status == 503 && response_mentions(response, "\"OUTCOME_UNKNOWN\"")) {
		t->outcome_unknown++;
		r->books[c->item].unknown++;
	} else {
		t->other++;
		if (!t->first_other_status)
			t->first_other_status = response->status;
	}
}

/* -- connections -- */

static int socket_new(int flags)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);
	int one = 1;
	struct timeval timeout = {.tv_sec = SOCKET_TIMEOUT_S};

	if (fd < 0)
		die("socket: %s", strerror(errno));
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
	return fd;
}

/* Waits for the connection: at start there is time, and a flood would overflow the backlog. */
static int socket_connect(const struct sockaddr_in *address)
{
	int fd = socket_new(0);

	if (connect(fd, (const struct sockaddr *)address, sizeof(*address)) != 0)
		die("cannot connect to port %u: %s", ntohs(address->sin_port), strerror(errno));
	return fd;
}

static void connection_watch(struct run *r, struct connection *c, int operation, uint32_t events)
{
	struct epoll_event event = {
		.events = events,
		.data = {.u32 = (uint32_t)(c - r->connections)},
	};

	if (epoll_ctl(r->epoll, operation, c->fd, &event) != 0)
		die("epoll_ctl: %s", strerror(errno));
}

static void connection_free(struct run *r, struct connection *c)
{
	c->state = CONNECTION_FREE;
	TAILQ_INSERT_TAIL(&r->free, c, link);
}

static void connection_close(struct run *r, struct connection *c)
{
	switch (c->state) {
	case CONNECTION_BUSY:
		r->tally.lost++;
		r->books[c->item].unknown++;
		r->busy--;
		break;
	case CONNECTION_CONNECTING:
		r->tally.connect_failed++;
		break;
	case CONNECTION_FREE:
		r->tally.closed_idle++;
		TAILQ_REMOVE(&r->free, c, link);
		break;
	case CONNECTION_CLOSED:
		return;
	}
	close(c->fd);
	c->fd = -1;
	c->partial_length = 0;
	c->state = CONNECTION_CLOSED;
	r->closed++;
}

/* The text of grants becomes that of the next one. */
static void grant_write_number(struct run *r)
{
	uint64_t number = r->tally.sent + r->tally.send_failed;

	for (int digit = NUMBER_DIGITS - 1; digit >= 0; digit--) {
		for (int i = 0; i < NUMBER_PLACES; i++)
			r->requests_text[r->number_places[i] + (uint32_t)digit] =
				(char)('0' + number % 10);
		number /= 10;
	}
}

/* Takes the next request from the schedule and sends it. */
static void connection_send(struct run *r, struct connection *c, uint64_t now)
{
	uint32_t item = random_below(&r->item_random, r->item_count);
	const struct request *request = &r->requests[item];
	ssize_t sent;

	assert(c->state == CONNECTION_FREE);
	c->item = item;
	c->due_ns = r->options.closed ? now : (uint64_t)r->schedule.next_ns;
	c->sent_ns = now;
	schedule_advance(&r->schedule);
	if (r->options.grants)
		grant_write_number(r);
	sent = send(c->fd, r->requests_text + request->offset, request->length, MSG_NOSIGNAL);
	if (sent < 0) {
		r->tally.send_failed++;
		connection_close(r, c);
		return;
	}
	TAILQ_REMOVE(&r->free, c, link);
	c->state = CONNECTION_BUSY;
	r->busy++;
	r->tally.sent++;
	r->tally.window_sent += now >= r->window_ns && now < r->end_ns;
	if (r->busy > r->tally.in_flight_max)
		r->tally.in_flight_max = r->busy;
	if ((size_t)sent != request->length)
		connection_close(r, c);
}

/* Sends what is due, as far as there are free connections. */
static void dispatch(struct run *r, uint64_t now)
{
	struct connection *c;

	schedule_give_up(r, now);
	while (schedule_due(&r->schedule, now) && (c = TAILQ_FIRST(&r->free)) != NULL)
		connection_send(r, c, now);
}

/* An answer nearly always comes whole; only a rest is copied, and joined with what follows. */
static const char *connection_join(struct run *r, struct connection *c, size_t *length)
{
	if (c->partial_length == 0)
		return r->input;
	memcpy(c->partial + c->partial_length, r->input, *length);
	*length += c->partial_length;
	c->partial[*length] = '\0';
	return c->partial;
}

static void connection_keep(struct run *r, struct connection *c, const char *text, size_t length)
{
	if (!c->partial)
		c->partial = allocate(1, sizeof(r->input));
	if (text != c->partial)
		memcpy(c->partial, text, length);
	c->partial_length = (uint32_t)length;
}

static void connection_receive(struct run *r, struct connection *c)
{
	ssize_t got = recv(c->fd, r->input, RESPONSE_MAX - c->partial_length, 0);
	uint64_t now = now_ns();
	struct response response;
	const char *text;
	size_t length;

	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (got <= 0 || c->state != CONNECTION_BUSY) {
		connection_close(r, c);
		return;
	}
	length = (size_t)got;
	r->input[length] = '\0';
	text = connection_join(r, c, &length);
	switch (response_parse(&response, text, length)) {
	case PARSE_MORE:
		connection_keep(r, c, text, length);
		return;
	case PARSE_BAD:
		connection_close(r, c);
		return;
	case PARSE_DONE:
		break;
	}
	tally_response(r, c, &response, now);
	r->busy--;
	c->partial_length = 0;
	connection_free(r, c);
	if (response.close)
		connection_close(r, c);
	dispatch(r, now);
}

static void connection_connected(struct run *r, struct connection *c)
{
	int error = 0;
	socklen_t size = sizeof(error);

	if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0 || error != 0) {
		connection_close(r, c);
		return;
	}
	connection_watch(r, c, EPOLL_CTL_MOD, EPOLLIN);
	connection_free(r, c);
}

static void connection_revive(struct run *r, struct connection *c)
{
	const struct sockaddr_in *address = &r->options.address;
	int result;

	assert(c->state == CONNECTION_CLOSED);
	c->fd = socket_new(SOCK_NONBLOCK);
	c->state = CONNECTION_CONNECTING;
	r->closed--;
	result = connect(c->fd, (const struct sockaddr *)address, sizeof(*address));
	if (result != 0 && errno != EINPROGRESS)
		connection_close(r, c);
	else
		connection_watch(r, c, EPOLL_CTL_ADD, EPOLLOUT);
}

static void connections_revive(struct run *r, uint64_t now)
{
	if (r->closed == 0 || now < r->revive_ns)
		return;
	r->revive_ns = now + REVIVE_NS;
	for (uint32_t i = 0; i < r->connection_count; i++) {
		if (r->connections[i].state == CONNECTION_CLOSED)
			connection_revive(r, &r->connections[i]);
	}
}

static void connections_open(struct run *r)
{
	r->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (r->epoll < 0)
		die("epoll_create1: %s", strerror(errno));
	TAILQ_INIT(&r->free);
	r->connections = allocate(r->connection_count, sizeof(*r->connections));
	for (uint32_t i = 0; i < r->connection_count; i++) {
		struct connection *c = &r->connections[i];

		c->fd = socket_connect(&r->options.address);
		if (fcntl(c->fd, F_SETFL, O_NONBLOCK) != 0)
			die("fcntl: %s", strerror(errno));
		connection_watch(r, c, EPOLL_CTL_ADD, EPOLLIN);
		connection_free(r, c);
	}
}

/* -- the loop -- */

/* One item, one text; the number is in its key and in its user's name. */
static void run_prepare_grants(struct run *r)
{
	static const char number[] = "000000000";
	const struct options *o = &r->options;
	const size_t room = 512 + 2 * PREFIX_MAX;
	char body[256];
	char *place;
	int length;

	r->connection_count = (uint32_t)o->connections;
	r->item_count = 1;
	r->requests = allocate(1, sizeof(*r->requests));
	r->books = allocate(1, sizeof(*r->books));
	r->requests_text = allocate(1, room);
	snprintf(body, sizeof(body),
		"{\"user_id\":\"%s%s\",\"stock_keeping_unit\":\"item1\",\"reason\":\"purchase\","
		"\"purchase_id\":\"p_456\"}",
		o->prefix, number);
	length = snprintf(r->requests_text, room,
		"POST /v1/entitlements/grants HTTP/1.1\r\nHost: 127.0.0.1:%u\r\n"
		"Content-Type: application/json\r\nIdempotency-Key: %s%s\r\n"
		"Content-Length: %zu\r\n\r\n%s",
		ntohs(o->address.sin_port), o->prefix, number, strlen(body), body);
	assert(length > 0 && (size_t)length < room);
	r->requests[0] = (struct request){0, (uint32_t)length};
	place = r->requests_text;
	for (int i = 0; i < NUMBER_PLACES; i++) {
		place = strstr(place, number);
		assert(place);
		r->number_places[i] = (uint32_t)(place - r->requests_text);
		place += NUMBER_DIGITS;
	}
}

/* An increase of an item. Returns its length. */
static int format_increase(char *text, size_t room, const struct options *o, uint32_t item)
{
	const char *body = o->no_body ? "" : "{\"amount\":1}";
	const char *type = o->no_body ? "" : "Content-Type: application/json\r\n";

	return snprintf(text, room,
		"POST /api/v1/counts/%s%u/increase HTTP/1.1\r\nHost: 127.0.0.1:%u\r\n"
		"%sContent-Length: %zu\r\n\r\n%s",
		o->prefix, item, ntohs(o->address.sin_port), type, strlen(body), body);
}

/* A message to an item, which is a user. Returns its length. */
static int format_message(char *text, size_t room, const struct options *o, uint32_t item)
{
	char body[PREFIX_MAX + 64];
	int length = snprintf(body, sizeof(body), "{\"receiverId\":\"%s%u\",\"text\":\"Hello!\"}",
		o->prefix, item);

	return snprintf(text, room,
		"POST /dialogs/send HTTP/1.1\r\nHost: 127.0.0.1:%u\r\nX-User-Id: bench\r\n"
		"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		ntohs(o->address.sin_port), length, body);
}

/* A text of an item, which is a user of the gateway. Returns its length. */
static int format_send(char *text, size_t room, const struct options *o, uint32_t item)
{
	char body[PREFIX_MAX + 64];
	int length = snprintf(body, sizeof(body), "{\"userId\":\"%s%u\",\"message\":\"Hello!\"}",
		o->prefix, item);

	return snprintf(text, room,
		"POST /api/send HTTP/1.1\r\nHost: 127.0.0.1:%u\r\n"
		"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		ntohs(o->address.sin_port), length, body);
}

/* The request for an item. Returns its length. */
static int format_request(char *text, size_t room, const struct options *o, uint32_t item)
{
	if (o->messages)
		return format_message(text, room, o, item);
	return o->sends ? format_send(text, room, o, item) : format_increase(text, room, o, item);
}

static void run_prepare(struct run *r)
{
	const struct options *o = &r->options;
	const size_t room = 256 + PREFIX_MAX;
	size_t used = 0;

	r->connection_count = (uint32_t)o->connections;
	r->item_count = (uint32_t)o->items;
	r->requests_text = allocate(r->item_count, room);
	r->requests = allocate(r->item_count, sizeof(*r->requests));
	r->books = allocate(r->item_count, sizeof(*r->books));
	for (uint32_t i = 0; i < r->item_count; i++) {
		char *text = r->requests_text + used;
		int length = format_request(text, room, o, i + 1);

		assert(length > 0 && (size_t)length < room);
		r->requests[i] = (struct request){(uint32_t)used, (uint32_t)length};
		used += (size_t)length;
	}
}

static void run_start(struct run *r)
{
	const struct options *o = &r->options;

	r->start_ns = now_ns();
	r->window_ns = r->start_ns + seconds_to_ns(o->warmup_s);
	r->end_ns = r->window_ns + seconds_to_ns(o->seconds);
	r->item_random.state = (uint64_t)o->seed;
	r->schedule = (struct schedule){
		.random = {~(uint64_t)o->seed},
		.poisson = o->poisson,
		.gap_ns = o->closed ? 0 : (double)SECOND_NS / o->rate,
		.next_ns = (double)r->start_ns,
		.end_ns = r->end_ns,
		.left = (uint64_t)o->count,
	};
}

/* How long to sleep: until the next request is due, but not while one waits for a connection. */
static uint64_t run_sleep_ns(const struct run *r, uint64_t now)
{
	uint64_t limit = r->closed > 0 ? REVIVE_NS : SECOND_NS / 10;
	double gap;

	if (schedule_exhausted(&r->schedule) || TAILQ_EMPTY(&r->free))
		return limit;
	gap = r->schedule.next_ns - (double)now;
	if (gap <= 0)
		return 0;
	if (gap < (double)TICK_NS)
		return TICK_NS;
	return gap < (double)limit ? (uint64_t)gap : limit;
}

static void run_wait(struct run *r)
{
	struct epoll_event events[EVENTS_MAX];
	uint64_t sleep_ns = run_sleep_ns(r, now_ns());
	struct timespec timeout = {.tv_nsec = (long)sleep_ns};
	int count = epoll_pwait2(r->epoll, events, EVENTS_MAX, &timeout, NULL);

	if (count < 0 && errno != EINTR)
		die("epoll_pwait2: %s", strerror(errno));
	for (int i = 0; i < count; i++) {
		struct connection *c = &r->connections[events[i].data.u32];

		if (c->state == CONNECTION_CONNECTING)
			connection_connected(r, c);
		else if (c->state != CONNECTION_CLOSED)
			connection_receive(r, c);
	}
}

/* In closed mode the schedule has no gaps, so time alone ends it. */
static bool run_finished(struct run *r, uint64_t now)
{
	if (stop_asked && r->schedule.end_ns > now)
		r->schedule.end_ns = r->end_ns = now;
	if (r->options.closed && now >= r->end_ns)
		r->schedule.left = 0;
	if (schedule_exhausted(&r->schedule) && r->busy == 0)
		return true;
	return now >= r->end_ns + seconds_to_ns(r->options.drain_s);
}

/* What was due and never sent, and what was sent and never answered, is told apart. */
static void run_settle(struct run *r)
{
	while (!r->options.closed && !schedule_exhausted(&r->schedule)) {
		schedule_advance(&r->schedule);
		r->tally.unsent++;
	}
	for (uint32_t i = 0; i < r->connection_count; i++) {
		if (r->connections[i].state == CONNECTION_BUSY)
			connection_close(r, &r->connections[i]);
	}
}

static void run_all(struct run *r)
{
	run_start(r);
	for (uint64_t now = now_ns(); !run_finished(r, now); now = now_ns()) {
		connections_revive(r, now);
		dispatch(r, now);
		run_wait(r);
	}
	run_settle(r);
}

/* -- results -- */

static double cpu_seconds(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
	       (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static void print_number(const char *name, uint64_t value)
{
	printf("\"%s\":%llu,", name, (unsigned long long)value);
}

static void print_tally(const struct tally *t)
{
	print_number("sent", t->sent);
	print_number("unsent", t->unsent);
	print_number("send_failed", t->send_failed);
	print_number("ok", t->ok);
	print_number("overloaded", t->overloaded);
	print_number("outcome_unknown", t->outcome_unknown);
	print_number("lost", t->lost);
	print_number("other", t->other);
	print_number("first_other_status", (uint64_t)t->first_other_status);
	print_number("closed_idle", t->closed_idle);
	print_number("connect_failed", t->connect_failed);
	print_number("in_flight_max", t->in_flight_max);
	histogram_print("accepted", &t->accepted);
	histogram_print("accepted_service", &t->accepted_service);
	histogram_print("refused", &t->refused);
	histogram_print("refused_service", &t->refused_service);
}

static void run_print(const struct run *r)
{
	const struct options *o = &r->options;
	double window_s = ns_to_seconds(r->end_ns - r->window_ns);

	if (r->end_ns <= r->window_ns)
		window_s = 1; /* stopped during the warm-up: the counts of the window are zero */
	printf("{\"mode\":\"%s\",", o->closed ? "closed" : o->poisson ? "poisson" : "constant");
	print_number("connections", r->connection_count);
	print_number("items", r->item_count);
	print_tally(&r->tally);
	printf("\"rate_asked\":%.1f,", o->closed ? 0.0 : o->rate);
	printf("\"sent_per_s\":%.1f,", (double)r->tally.window_sent / window_s);
	printf("\"goodput_per_s\":%.1f,", (double)r->tally.window_ok / window_s);
	printf("\"refused_per_s\":%.1f,", (double)r->tally.window_overloaded / window_s);
	printf("\"window_s\":%.3f,\"elapsed_s\":%.3f,\"cpu_s\":%.3f}\n", window_s,
		ns_to_seconds(now_ns() - r->start_ns), cpu_seconds());
}

static void run_write_books(const struct run *r)
{
	FILE *file = fopen(r->options.acks_path, "w");

	if (!file)
		die("%s: %s", r->options.acks_path, strerror(errno));
	for (uint32_t i = 0; i < r->item_count; i++)
		fprintf(file, "%s%u %u %u\n", r->options.prefix, i + 1, r->books[i].acked,
			r->books[i].unknown);
	if (fclose(file) != 0)
		die("%s: %s", r->options.acks_path, strerror(errno));
}

/* -- idle connections -- */

/* One request and its answer: a used connection, with whatever memory that left behind. */
static void idle_greet(const struct options *o, int fd)
{
	char text[RESPONSE_MAX + 1];
	struct response response;
	enum parse_result result = PARSE_MORE;
	size_t used = 0;
	int length = snprintf(text, sizeof(text), "GET %s HTTP/1.1\r\nHost: 127.0.0.1:%u\r\n\r\n",
		o->idle_path, ntohs(o->address.sin_port));

	if (length >= RESPONSE_MAX || send(fd, text, (size_t)length, MSG_NOSIGNAL) != length)
		die("cannot send on an idle connection");
	while (result == PARSE_MORE) {
		ssize_t got = recv(fd, text + used, RESPONSE_MAX - used, 0);

		if (got <= 0)
			die("no answer on an idle connection");
		used += (size_t)got;
		text[used] = '\0';
		result = response_parse(&response, text, used);
	}
	if (result == PARSE_BAD)
		die("bad answer on an idle connection");
}

static uint32_t idle_count_open(const int *fds, uint32_t count)
{
	uint32_t open = 0;
	char byte;

	for (uint32_t i = 0; i < count; i++) {
		ssize_t got = recv(fds[i], &byte, 1, MSG_PEEK | MSG_DONTWAIT);

		open += got < 0 && errno == EAGAIN;
	}
	return open;
}

static void idle_wait(uint64_t limit_ns)
{
	struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
	uint64_t end_ns = now_ns() + limit_ns;
	char byte;

	while (!stop_asked && now_ns() < end_ns) {
		if (poll(&input, 1, 100) > 0 && read(STDIN_FILENO, &byte, 1) <= 0)
			break;
	}
}

/* Reports once all are open, holds them until standard input ends or the time is over. */
static int idle_hold(const struct options *o)
{
	uint32_t count = (uint32_t)o->idle;
	int *fds = allocate(count, sizeof(*fds));
	uint32_t open;

	for (uint32_t i = 0; i < count; i++) {
		fds[i] = socket_connect(&o->address);
		if (o->idle_path)
			idle_greet(o, fds[i]);
	}
	printf("{\"mode\":\"idle\",\"connected\":%u}\n", count);
	fflush(stdout);
	idle_wait(seconds_to_ns(o->seconds));
	open = idle_count_open(fds, count);
	if (open != count)
		fprintf(stderr, "openloop: only %u of %u are still open\n", open, count);
	return open == count ? 0 : 1;
}

/* -- start -- */

/* As far as the hard limit, or past it where this process may. */
static void raise_file_limit(rlim_t wanted)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted)
		return;
	if (limit.rlim_max < wanted)
		limit.rlim_max = wanted;
	limit.rlim_cur = wanted;
	if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
		die("%llu open files are needed: raise the limit (ulimit -n)",
			(unsigned long long)wanted);
}

static void stop_on_signal(int signal_number)
{
	(void)signal_number;
	stop_asked = 1;
}

int main(int argc, char **argv)
{
	static struct run run;
	struct options *o = &run.options;
	struct sigaction action = {.sa_handler = stop_on_signal};

	options_parse(o, argc, argv);
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	raise_file_limit((rlim_t)(o->idle > 0 ? o->idle : o->connections) + 64);
	if (o->idle > 0)
		return idle_hold(o);
	if (o->grants)
		run_prepare_grants(&run);
	else
		run_prepare(&run);
	connections_open(&run);
	run_all(&run);
	run_print(&run);
	if (o->acks_path)
		run_write_books(&run);
	return 0;
}
