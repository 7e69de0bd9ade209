/*
 * The cost of viewers is bounded. However many viewers there are, the server takes one snapshot per
 * second, and one more when the first viewer arrives. The hub keeps one copy for all viewers, and a
 * viewer who reads too slowly misses snapshots (http/stream.h).
 *
 * The files are served with a strict Content-Security-Policy: the browser loads only files from
 * this server, runs no inline scripts, and does not show the console in a frame of another page.
 * There are no cookies, so a foreign page cannot send requests in the viewer's name.
 */
#include "admin/console.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>

#include "admin/console_files.h"
#include "admin/console_snapshot.h"
#include "base/clock.h"
#include "runtime/bell.h"

#define PERIOD_NS NS_PER_S
#define ARENA_SIZE (256 * 1024)
#define KEY slice_of("console")

#define FILE_HEADERS                                                                               \
	"Content-Security-Policy: default-src 'self'; frame-ancestors 'none'; base-uri 'none'; "   \
	"form-action 'none'\r\n"                                                                   \
	"Referrer-Policy: no-referrer\r\n"                                                         \
	"Cache-Control: no-cache\r\n"

struct console {
	struct console_config config;
	struct hub *hub;
	struct bell bell;
	pthread_t thread;
	bool has_thread;
	int64_t version; /* the version of the last snapshot */
};

/* ---- files ------------------------------------------------------------------------------- */

static const struct console_file *find_file(struct slice name)
{
	for (size_t i = 0; i < console_file_count; i++) {
		if (slice_is(name, console_files[i].name))
			return &console_files[i];
	}
	return NULL;
}

static void answer_file(struct request *request, struct slice name)
{
	const struct console_file *file = find_file(name);

	if (!file) {
		request_answer(request,
			answer_problem(&request->arena, STATUS_ROUTE_NOT_FOUND,
				"the console has no such file; its first page is /console"));
		return;
	}
	request_answer(request, (struct answer){
					.http_status = 200,
					.content_type = slice_of(file->type),
					.headers = SLICE(FILE_HEADERS),
					.body = {(const char *)file->data, file->len},
				});
}

static void get_page(void *context, struct request *request)
{
	(void)context;
	answer_file(request, slice_of("index.html"));
}

static void get_file(void *context, struct request *request)
{
	(void)context;
	answer_file(request, request->params[0]);
}

static void get_root(void *context, struct request *request)
{
	(void)context;
	request_answer(request, (struct answer){
					.http_status = 302,
					.location = SLICE("/console"),
					.content_type = SLICE("text/plain; charset=utf-8"),
					.body = SLICE("The console is at /console.\n"),
				});
}

/* ---- access ------------------------------------------------------------------------------ */

/* Lists every route that the caller may call, so that the console offers only these routes. If API
 * keys are checked, a caller without an API key gets the public routes. */
static void get_access(void *context, struct request *request)
{
	const struct console *console = context;
	const struct router *router = console->config.router;
	struct guard *guard = *console->config.guard;
	struct buffer routes = buffer_make(&request->arena, 4096);
	struct buffer body = buffer_make(&request->arena, 4096);
	struct access_question question = {
		.authorization = request_header(request, "Authorization")};
	struct slice caller = {0}, name;

	for (size_t i = 0; i < router_count(router); i++) {
		const struct route *route = router_at(router, i);

		question.access = route->access;
		question.role = router_role(route);
		if (!guard_would_open(guard, &request->arena, &question, &name))
			continue;
		if (name.data)
			caller = name;
		buffer_format(&routes, "%s\"%s %s\"", routes.len == 0 ? "" : ",", route->method,
			route->path);
	}
	buffer_format(&body, "{\"checked\":%s,", guard ? "true" : "false");
	buffer_text(&body, "\"caller\":");
	if (caller.data)
		buffer_json_string(&body, caller);
	else
		buffer_text(&body, "null");
	buffer_text(&body, ",\"routes\":[");
	buffer_add(&body, buffer_slice(&routes));
	buffer_text(&body, "]}");
	request_answer(request, answer_json(200, buffer_slice(&body)));
}

/* ---- snapshots --------------------------------------------------------------------------- */

static void publish_snapshot(struct console *console, struct arena *arena)
{
	struct buffer page = buffer_make(arena, 128 * 1024), json = buffer_make(arena, 32 * 1024);
	int64_t now_us = clock_wall_us(&clock_system);

	metrics_write(console->config.metrics, &page);
	buffer_char(&json, '{');
	buffer_member(&json, "version", slice_of(QUIPU_VERSION));
	buffer_member(&json, "roles", slice_of(console->config.roles));
	buffer_member_time(&json, "at", now_us);
	console_snapshot_write(&json, buffer_slice(&page), console->config.router);
	buffer_char(&json, '}');
	hub_publish(console->hub, KEY, ++console->version, buffer_slice(&json));
}

static void *console_main(void *argument)
{
	struct console *console = argument;
	struct arena arena;

	pthread_setname_np(pthread_self(), "console");
	arena_init(&arena, ARENA_SIZE);
	/* Versions begin at the current time, so that they are greater than all versions of the
	 * previous process. A browser that reconnects names the version of the last snapshot that
	 * it has received, and gets only snapshots with greater versions. */
	console->version = clock_wall_us(&clock_system);
	while (!bell_is_stopping(&console->bell)) {
		if (hub_wants(console->hub, KEY)) {
			publish_snapshot(console, &arena);
			arena_reset(&arena);
		}
		bell_wait(&console->bell, PERIOD_NS);
	}
	arena_release(&arena);
	return NULL;
}

/* The hub sends its last snapshot to a new viewer at once. When the first viewer arrives, the hub
 * has no snapshot yet, so this function wakes the thread that takes snapshots. */
static void get_stream(void *context, struct request *request)
{
	struct console *console = context;
	bool is_first = !hub_wants(console->hub, KEY);
	struct stream *stream = hub_subscribe(console->hub, request, KEY);

	if (!stream)
		return;
	stream_start(stream);
	if (is_first)
		bell_ring(&console->bell);
}

/* ---- creating, starting, stopping -------------------------------------------------------- */

static void add_routes(struct console *console, struct router *router)
{
	const struct route routes[] = {
		{"GET", "/", ACCESS_PUBLIC, get_root, console, 0, NULL, names_any},
		{"GET", "/console", ACCESS_PUBLIC, get_page, console, 0, NULL, names_any},
		{"GET", "/console/{file}", ACCESS_PUBLIC, get_file, console, 0, NULL, names_any},
		{"GET", "/operator/console/access", ACCESS_PUBLIC, get_access, console, 0, NULL,
			NULL},
		{"GET", "/operator/console/stream", ACCESS_INTERNAL, get_stream, console, 0, NULL,
			NULL},
	};

	router_add_all(router, NULL, routes, sizeof(routes) / sizeof(routes[0]));
}

struct console *console_new(const struct console_config *config, struct router *router)
{
	struct console *console = qp_calloc(1, sizeof(*console));

	console->config = *config;
	console->hub = hub_new(SIZE_MAX);
	bell_init(&console->bell);
	add_routes(console, router);
	return console;
}

void console_start(struct console *console)
{
	int failed = pthread_create(&console->thread, NULL, console_main, console);

	assert(!failed);
	console->has_thread = true;
}

void console_stop(struct console *console)
{
	bell_stop(&console->bell);
	if (console->has_thread)
		pthread_join(console->thread, NULL);
	console->has_thread = false;
}

void console_free(struct console *console)
{
	assert(!console->has_thread);
	hub_free(console->hub);
	bell_release(&console->bell);
	free(console);
}
