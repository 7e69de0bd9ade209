/*
 * The small service of stream_fixture.h. Its "store" is a table of versions under a lock; its
 * "reader" is a thread that answers look-ups and that a test can hold, so that a change can be put
 * between the look-up and the answer.
 */
#include "stream_fixture.h"

#include <assert.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/text.h"
#include "inbound/input.h"
#include "waiting.h"

#define BATCH_MAX 64

/* ---- values ------------------------------------------------------------------------------ */

/* Called with the lock held. Keys that begin alike share a value if they are long, and all others
 * share one once there are FIXTURE_KEYS: a fuzzer asks for any key. */
static struct fixture_value *value_of(struct stream_fixture *fixture, struct slice key)
{
	uint64_t place = hash_bytes(key);
	struct fixture_value *value = &fixture->values[place % FIXTURE_KEYS];

	if (key.len >= sizeof(value->key))
		key.len = sizeof(value->key) - 1;
	for (size_t i = 0; i < FIXTURE_KEYS && !slice_is(key, value->key); i++) {
		if (!value->key[0]) {
			memcpy(value->key, key.data, key.len);
			return value;
		}
		value = &fixture->values[++place % FIXTURE_KEYS];
	}
	return value;
}

static struct slice render(struct arena *arena, const struct fixture_value *value)
{
	struct buffer out = buffer_make(arena, 64 + value->pad);

	buffer_format(&out, "{\"key\":\"%s\",\"version\":%lld,\"pad\":\"", value->key,
		(long long)value->version);
	for (size_t i = 0; i < value->pad; i++)
		buffer_char(&out, 'x');
	buffer_text(&out, "\"}");
	return buffer_slice(&out);
}

static struct fixture_value copy_value(struct stream_fixture *fixture, struct slice key)
{
	struct fixture_value copy;

	pthread_mutex_lock(&fixture->lock);
	copy = *value_of(fixture, key);
	pthread_mutex_unlock(&fixture->lock);
	return copy;
}

/* Publishes outside the lock, as a service does after a commit, so that two threads may publish in
 * any order. */
int64_t stream_fixture_change(struct stream_fixture *fixture, const char *key, size_t pad)
{
	struct fixture_value *value, copy;
	struct arena arena;

	pthread_mutex_lock(&fixture->lock);
	value = value_of(fixture, slice_of(key));
	value->version++;
	value->pad = pad;
	copy = *value;
	pthread_mutex_unlock(&fixture->lock);
	arena_init(&arena, 256 + pad);
	hub_publish(fixture->hub, slice_of(key), copy.version, render(&arena, &copy));
	arena_release(&arena);
	return copy.version;
}

/* ---- reads ------------------------------------------------------------------------------- */

struct fixture_read {
	struct command command;
	struct stream *stream;
	int64_t version;
	struct slice data;
};

static void look_up(struct stream_fixture *fixture, struct command *command)
{
	struct fixture_read *read = (struct fixture_read *)command;
	struct fixture_value copy = copy_value(fixture, command->key);
	bool fails;

	pthread_mutex_lock(&fixture->lock);
	fixture->reads_waiting++;
	while (fixture->reads_held)
		pthread_cond_wait(&fixture->changed, &fixture->lock);
	fixture->reads_waiting--;
	fails = fixture->reads_fail;
	pthread_mutex_unlock(&fixture->lock);
	read->version = copy.version;
	read->data = render(command->arena, &copy);
	command->answer = fails ? answer_failure(command->arena, STATUS_STORE_UNAVAILABLE)
				: answer_json(200, read->data);
}

static void *run_reader(void *argument)
{
	struct stream_fixture *fixture = argument;
	struct command_list taken = {0}, done = {0};

	while (lane_take(fixture->lane, &taken, BATCH_MAX, INT64_MAX)) {
		struct command *command;

		while ((command = command_list_pop(&taken))) {
			look_up(fixture, command);
			command_list_push(&done, command);
		}
		command_list_deliver(&done);
	}
	return NULL;
}

void stream_fixture_hold_reads(struct stream_fixture *fixture)
{
	pthread_mutex_lock(&fixture->lock);
	fixture->reads_held = true;
	pthread_mutex_unlock(&fixture->lock);
}

struct awaited_reads {
	struct stream_fixture *fixture;
	size_t count;
};

static bool have_looked_up(void *context)
{
	const struct awaited_reads *awaited = context;
	bool have;

	pthread_mutex_lock(&awaited->fixture->lock);
	have = awaited->fixture->reads_waiting >= awaited->count;
	pthread_mutex_unlock(&awaited->fixture->lock);
	return have;
}

void stream_fixture_wait_read(struct stream_fixture *fixture, size_t count)
{
	struct awaited_reads awaited = {fixture, count};

	wait_until(have_looked_up, &awaited, "reads that look up");
}

void stream_fixture_release_reads(struct stream_fixture *fixture)
{
	pthread_mutex_lock(&fixture->lock);
	fixture->reads_held = false;
	pthread_cond_broadcast(&fixture->changed);
	pthread_mutex_unlock(&fixture->lock);
}

void stream_fixture_fail_reads(struct stream_fixture *fixture)
{
	pthread_mutex_lock(&fixture->lock);
	fixture->reads_fail = true;
	pthread_mutex_unlock(&fixture->lock);
}

/* ---- routes ------------------------------------------------------------------------------ */

static struct fixture_read *new_read(struct request *request)
{
	struct fixture_read *read = arena_new(&request->arena, struct fixture_read);

	read->command.key = request->params[0];
	return read;
}

static void start_stream(struct request *request, struct command *command)
{
	struct fixture_read *read = (struct fixture_read *)command;

	if (command->answer.http_status != 200) {
		request_answer(request, command->answer);
		return;
	}
	stream_offer(read->stream, read->version, read->data);
	stream_start(read->stream);
}

static void get_stream(void *context, struct request *request)
{
	struct stream_fixture *fixture = context;
	struct fixture_read *read = new_read(request);

	read->stream = hub_subscribe(fixture->hub, request, request->params[0]);
	if (read->stream)
		request_submit_then(request, fixture->lane, &read->command, start_stream);
}

static void get_value(void *context, struct request *request)
{
	struct stream_fixture *fixture = context;

	request_submit(request, fixture->lane, &new_read(request)->command);
}

static int64_t number(struct request *request, const char *name, int64_t fallback)
{
	struct input input;
	int64_t value;

	input_init(&input, request);
	return text_to_int(input_query(&input, name), &value) ? value : fallback;
}

static void post_value(void *context, struct request *request)
{
	struct stream_fixture *fixture = context;
	struct slice key = arena_copy(&request->arena, request->params[0]);
	int64_t times = number(request, "times", 1);
	size_t pad = (size_t)number(request, "pad", 0);
	struct buffer body = buffer_make(&request->arena, 32);
	int64_t version = 0;

	for (int64_t i = 0; i < times; i++)
		version = stream_fixture_change(fixture, key.data, pad);
	buffer_int(&body, version);
	request_answer(request, answer_json(200, buffer_slice(&body)));
}

static void count_told(void *context, struct stream *stream)
{
	struct stream_fixture *fixture = context;

	(void)stream;
	atomic_fetch_add(&fixture->owners_told, 1);
}

static void get_owned(void *context, struct request *request)
{
	struct stream_owner owner = {.closed = count_told, .context = context};
	struct stream *stream = stream_open(request, owner);

	if (!stream)
		return;
	stream_offer(stream, 1, slice_of("two\nlines"));
	if (slice_is(request->path.query, "close"))
		stream_close(stream);
}

static void get_keys(void *context, struct request *request)
{
	struct stream_fixture *fixture = context;
	struct buffer body = buffer_make(&request->arena, 32);
	struct hub_key *keys;

	buffer_int(&body, (int64_t)hub_keys(fixture->hub, &request->arena, &keys));
	request_answer(request, answer_json(200, buffer_slice(&body)));
}

static void get_metrics(void *context, struct request *request)
{
	struct stream_fixture *fixture = context;
	struct buffer page = buffer_make(&request->arena, 1024);

	server_collect(fixture->server, &page);
	request_answer(request, answer_json(200, buffer_slice(&page)));
}

/* ---- life -------------------------------------------------------------------------------- */

static const char *const owned_parameters[] = {"close", NULL};
static const char *const value_parameters[] = {"times", "pad", NULL};

static struct router *make_router(struct stream_fixture *fixture)
{
	const struct route routes[] = {
		{"GET", "/streams/{key}", ACCESS_EXTERNAL, get_stream, fixture, 0, NULL, NULL},
		{"GET", "/owned", ACCESS_EXTERNAL, get_owned, fixture, 0, NULL, owned_parameters},
		{"GET", "/values/{key}", ACCESS_EXTERNAL, get_value, fixture, 0, NULL, NULL},
		{"POST", "/values/{key}", ACCESS_EXTERNAL, post_value, fixture, 0, NULL,
			value_parameters},
		{"GET", "/keys", ACCESS_EXTERNAL, get_keys, fixture, 0, NULL, NULL},
		{"GET", "/metrics", ACCESS_EXTERNAL, get_metrics, fixture, 0, NULL, NULL},
	};
	struct router *router = router_new();

	router_add_all(router, NULL, routes, sizeof(routes) / sizeof(routes[0]));
	return router;
}

/* Returns limits in which every timeout is `others_ns`, except for those of streams. */
static struct server_limits limits_of(int64_t others_ns, int64_t heartbeat_ns, int64_t stall_ns)
{
	return (struct server_limits){
		.exchanges_max = 256,
		.connections_max = 20000,
		.client_bytes_max = 64 * 1024 * 1024,
		.head_timeout_ns = others_ns,
		.body_timeout_ns = others_ns,
		.idle_timeout_ns = others_ns,
		.deadline_ns = others_ns,
		.heartbeat_ns = heartbeat_ns,
		.stream_stall_ns = stall_ns,
	};
}

/* Initialises everything except the server. */
static void init(struct stream_fixture *fixture)
{
	signal(SIGPIPE, SIG_IGN);
	memset(fixture, 0, sizeof(*fixture));
	pthread_mutex_init(&fixture->lock, NULL);
	pthread_cond_init(&fixture->changed, NULL);
	fixture->hub = hub_new(16);
	fixture->lane = lane_new("reads", 20000, 1 << 30);
	fixture->router = make_router(fixture);
	fixture->admission = (struct admission){.router = fixture->router, .guard_browser = true};
}

static void serve(struct stream_fixture *fixture)
{
	char why[256];

	if (!server_listen(fixture->server, "127.0.0.1:0", why, sizeof(why))) {
		fprintf(stderr, "%s\n", why);
		abort();
	}
	if (pthread_create(&fixture->reader, NULL, run_reader, fixture) != 0)
		abort();
	server_start(fixture->server);
}

void stream_fixture_start(
	struct stream_fixture *fixture, size_t loops, int64_t heartbeat_ms, int64_t stall_ms)
{
	struct server_limits limits =
		limits_of(HANG_NS, heartbeat_ms * NS_PER_MS, stall_ms * NS_PER_MS);

	init(fixture);
	fixture->server = server_new(loops, &limits, fixture->router, &fixture->admission);
	serve(fixture);
}

void stream_fixture_start_by_hand(struct stream_fixture *fixture, size_t loops)
{
	struct server_limits limits = limits_of(NS_PER_S, FIXTURE_HEARTBEAT_NS, FIXTURE_STALL_NS);

	init(fixture);
	manual_clock_init(&fixture->clock);
	fixture->server = server_new(loops, &limits, fixture->router, &fixture->admission);
	server_use_clock(fixture->server, &fixture->clock.base);
	serve(fixture);
}

bool stream_fixture_drain(struct stream_fixture *fixture, int64_t timeout_ms)
{
	server_drain(fixture->server);
	return server_wait_idle(
		fixture->server, clock_steady_ns(&clock_system) + timeout_ms * NS_PER_MS);
}

void stream_fixture_end(struct stream_fixture *fixture)
{
	stream_fixture_release_reads(fixture);
	lane_close(fixture->lane);
	pthread_join(fixture->reader, NULL);
	server_free(fixture->server);
	fixture->server = NULL;
}

void stream_fixture_stop(struct stream_fixture *fixture)
{
	if (fixture->server)
		stream_fixture_end(fixture);
	hub_free(fixture->hub);
	lane_free(fixture->lane);
	router_free(fixture->router);
	pthread_cond_destroy(&fixture->changed);
	pthread_mutex_destroy(&fixture->lock);
}

int stream_fixture_port(const struct stream_fixture *fixture)
{
	return atoi(strrchr(server_address(fixture->server), ':') + 1);
}

int64_t stream_fixture_metric(const struct stream_fixture *fixture, const char *name)
{
	struct arena arena;
	struct buffer page;
	const char *line;
	int64_t value;

	arena_init(&arena, 4096);
	page = buffer_make(&arena, 4096);
	buffer_char(&page, '\n');
	server_collect(fixture->server, &page);
	buffer_char(&page, '\0');
	line = page.data;
	do {
		line = strstr(line + 1, name);
		assert(line);
	} while (line[-1] != '\n' || line[strlen(name)] != ' ');
	value = atoll(line + strlen(name));
	arena_release(&arena);
	return value;
}

struct awaited_metric {
	const struct stream_fixture *fixture;
	const char *name;
	int64_t value;
};

static bool has_value(void *context)
{
	const struct awaited_metric *awaited = context;

	return stream_fixture_metric(awaited->fixture, awaited->name) == awaited->value;
}

void stream_fixture_wait_metric(
	const struct stream_fixture *fixture, const char *name, int64_t value)
{
	struct awaited_metric awaited = {fixture, name, value};
	char what[128];

	snprintf(what, sizeof(what), "%s %lld", name, (long long)value);
	wait_until(has_value, &awaited, what);
}

/* Any thread may call it, not only the main one. */
void stream_fixture_follow(
	const struct stream_fixture *fixture, struct stream_client *client, const char *target)
{
	client_connect(client, stream_fixture_port(fixture), 0);
	client_get(client, target, "");
	if (strstr(client->head, "HTTP/1.1 200 OK\r\n") == NULL) {
		fprintf(stderr, "no stream: %s\n", client->head);
		abort();
	}
}
