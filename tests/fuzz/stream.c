/*
 * Feeds bytes to a parser piece by piece and writes down what came out of it as one line of text,
 * which two runs can compare. Each piece lives in memory of its own that is freed before the next,
 * so that a sanitizer notices a pointer into it.
 */
#include "stream.h"

#include <stdlib.h>

#define REQUEST_ARENA_SIZE 512 /* small, so that text has to move while it grows */

struct writing {
	struct arena *arena;
	struct buffer summary;
	struct buffer full;
	struct stream_record *record;
	bool ended;
};

struct router *stream_router_new(void)
{
	static const char *const item_parameters[] = {"x", NULL};
	static const struct route routes[] = {
		{"GET", "/a", ACCESS_EXTERNAL, NULL, NULL, 0, NULL, names_any},
		{"POST", "/a", ACCESS_EXTERNAL, NULL, NULL, 0, NULL, NULL},
		{"GET", "/items/{id}", ACCESS_EXTERNAL, NULL, NULL, 0, NULL, item_parameters},
		{"POST", "/items/{id}/{verb}", ACCESS_EXTERNAL, NULL, NULL, 0, NULL, NULL},
		{"POST", "/small", ACCESS_EXTERNAL, NULL, NULL, 8, NULL, NULL},
	};
	struct router *router = router_new();

	router_add_all(router, NULL, routes, sizeof(routes) / sizeof(routes[0]));
	return router;
}

struct admission stream_admission(const struct router *router)
{
	return (struct admission){
		.router = router,
		.guard_browser = true,
		.allowed_hosts = SLICE("example.com"),
	};
}

static struct request *make_request(void *context)
{
	struct request *request = qp_calloc(1, sizeof(*request));

	(void)context;
	arena_init(&request->arena, REQUEST_ARENA_SIZE);
	return request;
}

static void free_request(struct request *request)
{
	arena_release(&request->arena);
	free(request);
}

static void add_part(struct buffer *out, const char *name, struct slice value)
{
	buffer_format(out, "  %s %zu ", name, value.len);
	buffer_add(out, value);
	buffer_char(out, '\n');
}

static void write_full(struct buffer *out, const struct request *request)
{
	add_part(out, "method", request->method);
	add_part(out, "target", request->target);
	add_part(out, "path", request->path.raw);
	add_part(out, "query", request->path.query);
	for (size_t i = 0; i < request->header_count; i++) {
		add_part(out, "name", request->headers[i].name);
		add_part(out, "value", request->headers[i].value);
	}
	for (size_t i = 0; i < REQUEST_PARAMS_MAX; i++)
		add_part(out, "param", request->params[i]);
	add_part(out, "id", request->id);
	add_part(out, "body", request->body);
	add_part(out, "route", slice_of(request->route ? request->route->path : "none"));
	add_part(out, "answer", request->answer.body);
	add_part(out, "answer headers", request->answer.headers);
	buffer_format(out, "  %d %d %d %d\n", request->answer.http_status, request->safe,
		request->head_only, request->keep_alive);
}

static void begin_event(struct writing *writing)
{
	if (writing->summary.len > 0)
		buffer_text(&writing->summary, "; ");
}

static void write_request(struct writing *writing, const struct request *request)
{
	struct buffer *out = &writing->summary;

	begin_event(writing);
	buffer_add(out, request->method);
	buffer_char(out, ' ');
	buffer_add(out, request->target);
	if (request->body.len > 0) {
		buffer_text(out, " {");
		buffer_add(out, request->body);
		buffer_char(out, '}');
	}
	if (request->answer.http_status != 0)
		buffer_format(out, " %d", request->answer.http_status);
	if (!request->keep_alive)
		buffer_text(out, " close");
	buffer_text(&writing->full, "request\n");
	write_full(&writing->full, request);
}

static void write_broken(struct writing *writing, const struct request *request)
{
	begin_event(writing);
	buffer_format(&writing->summary, "BROKEN %d", request->answer.http_status);
	writing->record->refusal = request->answer;
	writing->record->refusal.body = arena_copy(writing->arena, request->answer.body);
}

static void on_event(struct writing *writing, struct parser *parser, enum parse_event event)
{
	struct request *request;

	if (event == PARSE_MORE)
		return;
	if (event == PARSE_CONTINUE) {
		begin_event(writing);
		buffer_text(&writing->summary, "CONTINUE");
		buffer_text(&writing->full, "continue\n");
		return;
	}
	request = parser_take(parser);
	if (event == PARSE_BROKEN)
		write_broken(writing, request);
	else
		write_request(writing, request);
	writing->ended = event == PARSE_BROKEN || !request->keep_alive;
	free_request(request);
}

static void feed_piece(struct writing *writing, struct parser *parser, struct slice piece)
{
	char *copy = qp_malloc(piece.len);
	struct slice input = {.data = copy, .len = piece.len};

	memcpy(copy, piece.data, piece.len);
	while (input.len > 0 && !writing->ended)
		on_event(writing, parser, parser_feed(parser, &input));
	free(copy);
}

/* What is read of a request when the bytes end must not depend on the cuts either. */
static void write_end(struct writing *writing, struct parser *parser)
{
	struct request *request = parser->request;

	if (!request)
		return;
	begin_event(writing);
	buffer_text(&writing->summary, parser->stage == STAGE_HEAD ? "in head" : "in body");
	buffer_text(&writing->full, "unfinished\n");
	request->body = buffer_slice(&parser->body);
	write_full(&writing->full, request);
	free_request(parser_take(parser));
}

struct stream_record stream_run(struct arena *arena, const struct admission *admission,
	struct slice bytes, struct stream_cuts *cuts)
{
	struct stream_record record = {0};
	struct writing writing = {.arena = arena, .record = &record};
	struct parser parser;

	writing.summary = buffer_make(arena, 256);
	writing.full = buffer_make(arena, 1024);
	parser_init(&parser, &clock_system, admission, make_request, NULL);
	while (bytes.len > 0 && !writing.ended) {
		size_t len = cuts ? cuts->next(cuts, bytes.len) : bytes.len;

		feed_piece(&writing, &parser, slice_make(bytes.data, len));
		bytes = slice_make(bytes.data + len, bytes.len - len);
	}
	write_end(&writing, &parser);
	record.summary = buffer_slice(&writing.summary);
	record.full = buffer_slice(&writing.full);
	return record;
}

static bool is_fault_of_head(int http_status)
{
	return http_status == 400 || http_status == 414 || http_status == 431;
}

bool stream_same(const struct stream_record *a, const struct stream_record *b)
{
	int first = a->refusal.http_status;
	int second = b->refusal.http_status;

	if (!slice_equal(a->full, b->full))
		return false;
	if (is_fault_of_head(first) && is_fault_of_head(second))
		return true;
	return first == second && slice_equal(a->refusal.body, b->refusal.body) &&
	       slice_equal(a->summary, b->summary);
}
