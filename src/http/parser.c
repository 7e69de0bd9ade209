/*
 * Implements the callbacks of llhttp. llhttp accepts some bytes that another server or proxy might
 * read as a different request. An attacker could use such a difference to hide a request from a
 * proxy (request smuggling). So the callbacks refuse these bytes: folded headers, two spaces before
 * the target, any transfer coding but "chunked".
 *
 * A callback refuses by setting `refusal` and returning HPE_USER; parser_feed() then makes the
 * refusal the answer of the request. HPE_PAUSED means either "request complete" or "the client
 * waits for 100 Continue"; `stage` distinguishes the two.
 */
#include "http/parser.h"

#include <assert.h>

#include "base/clock.h"

static struct parser *parser_of(llhttp_t *llhttp)
{
	return llhttp->data;
}

/* Appends to `text`. This is cheap, because `text` is usually the newest block of the arena and can
 * then grow in place. */
static void append(struct arena *arena, struct slice *text, const char *data, size_t len)
{
	char *grown = arena_grow(arena, (char *)(uintptr_t)text->data, text->len, text->len + len);

	memcpy(grown + text->len, data, len);
	*text = slice_make(grown, text->len + len);
}

static int refuse(struct parser *parser, enum status status, const char *why)
{
	parser->refusal = answer_problem(&parser->request->arena, status, "%s", why);
	return HPE_USER;
}

/* Returns the byte that is `back` (1 or 2) bytes before `at`, even if that byte came with an
 * earlier input. */
static char byte_before(const struct parser *parser, const char *at, size_t back)
{
	size_t here = (size_t)(at - parser->input);

	return back <= here ? *(at - back) : parser->tail[2 - (back - here)];
}

static int on_message_begin(llhttp_t *llhttp)
{
	struct parser *parser = parser_of(llhttp);

	if (parser->has_stand_in)
		return 0;
	assert(!parser->request);
	parser->request = parser->make(parser->context);
	parser->stage = STAGE_HEAD;
	parser->header_bytes = 0;
	parser->in_trailers = false;
	parser->body = (struct buffer){.arena = &parser->request->arena};
	return 0;
}

static int on_url(llhttp_t *llhttp, const char *at, size_t len)
{
	struct parser *parser = parser_of(llhttp);
	struct request *request = parser->request;

	if (request->target.len + len > TARGET_MAX)
		return refuse(
			parser, STATUS_URI_TOO_LONG, "the request target is longer than 64 KiB");
	if (request->target.len == 0 && byte_before(parser, at, 2) == ' ')
		return refuse(parser, STATUS_BAD_REQUEST,
			"exactly one space must precede the request target");
	append(&request->arena, &request->target, at, len);
	return 0;
}

static int count_header_bytes(struct parser *parser, size_t len)
{
	parser->header_bytes += len;
	if (parser->header_bytes > HEADER_BYTES_MAX)
		return refuse(
			parser, STATUS_HEADERS_TOO_LARGE, "the headers are longer than 16 KiB");
	return 0;
}

static int on_header_field(llhttp_t *llhttp, const char *at, size_t len)
{
	struct parser *parser = parser_of(llhttp);
	struct request *request = parser->request;
	int refused = count_header_bytes(parser, len);

	if (refused || parser->in_trailers)
		return refused;
	if (request->header_count == REQUEST_HEADERS_MAX)
		return refuse(parser, STATUS_HEADERS_TOO_LARGE, "there are more than 64 headers");
	append(&request->arena, &request->headers[request->header_count].name, at, len);
	return 0;
}

static int on_header_value(llhttp_t *llhttp, const char *at, size_t len)
{
	struct parser *parser = parser_of(llhttp);
	struct request *request = parser->request;
	int refused = count_header_bytes(parser, len);

	if (refused || parser->in_trailers)
		return refused;
	/* llhttp joins the lines of a folded header; other servers may read two headers. */
	if (len > 0 && byte_before(parser, at, 1) == '\n')
		return refuse(parser, STATUS_BAD_REQUEST, "a header is folded over two lines");
	append(&request->arena, &request->headers[request->header_count].value, at, len);
	return 0;
}

static int on_header_value_complete(llhttp_t *llhttp)
{
	struct parser *parser = parser_of(llhttp);
	struct request *request = parser->request;
	struct header *header;

	if (parser->in_trailers)
		return 0;
	header = &request->headers[request->header_count++];
	header->value = slice_trim(header->value);
	if (header->name.len == 0)
		return refuse(parser, STATUS_BAD_REQUEST, "a header has no name");
	return 0;
}

/* Returns whether the request has a Transfer-Encoding other than a single "chunked". llhttp accepts
 * others, such as "gzip, chunked", but does not decode them. */
static bool has_other_coding(const struct request *request)
{
	struct slice coding = request_header(request, "Transfer-Encoding");

	return coding.data && (request_header_count(request, "Transfer-Encoding") > 1 ||
				      !slice_is_nocase(coding, "chunked"));
}

static int on_headers_complete(llhttp_t *llhttp)
{
	struct parser *parser = parser_of(llhttp);
	struct request *request = parser->request;
	bool has_body = llhttp->flags & F_CHUNKED || llhttp->content_length > 0;
	bool waits;

	parser->in_trailers = true;
	parser->stage = STAGE_BODY;
	parser->head_done_ns = clock_steady_ns(parser->clock);
	if (!parser->has_stand_in)
		request->method = slice_of(llhttp_method_name((llhttp_method_t)llhttp->method));
	request->safe = llhttp->method == HTTP_GET || llhttp->method == HTTP_HEAD;
	request->head_only = llhttp->method == HTTP_HEAD;
	admission_decide(parser->admission, request, llhttp->http_major, llhttp->http_minor);
	parser->body_max = request->route ? request->route->body_max : BODY_MAX_DEFAULT;
	parser->body_bytes = 0;
	if (has_other_coding(request))
		return refuse(parser, STATUS_BAD_REQUEST,
			"the only supported Transfer-Encoding is chunked");
	if (llhttp->content_length > parser->body_max && !(llhttp->flags & F_CHUNKED))
		return refuse(
			parser, STATUS_BODY_TOO_LARGE, "the body is too large for this route");
	waits = has_body && llhttp->http_minor > 0 && admission_wants_continue(request);
	if (waits && request->answer.http_status != 0) {
		parser->refusal = request->answer; /* answer now, because the body may never come */
		return HPE_USER;
	}
	return waits ? HPE_PAUSED : 0;
}

static int on_body(llhttp_t *llhttp, const char *at, size_t len)
{
	struct parser *parser = parser_of(llhttp);

	parser->body_bytes += len;
	if (parser->body_bytes > parser->body_max)
		return refuse(
			parser, STATUS_BODY_TOO_LARGE, "the body is too large for this route");
	if (parser->request->answer.http_status == 0) /* a refused request needs no body */
		buffer_bytes(&parser->body, at, len);
	return 0;
}

static int on_message_complete(llhttp_t *llhttp)
{
	struct parser *parser = parser_of(llhttp);
	struct request *request = parser->request;

	request->body = buffer_slice(&parser->body);
	/* The connection ends after CONNECT, even if the request has a Content-Length, because the
	 * bytes that follow are meant for a tunnel. */
	request->keep_alive = llhttp->http_minor > 0 && llhttp_should_keep_alive(llhttp) &&
			      llhttp->method != HTTP_CONNECT && !request->is_guess;
	parser->stage = STAGE_IDLE;
	return HPE_PAUSED;
}

static const llhttp_settings_t *settings(void)
{
	static const llhttp_settings_t all = {
		.on_message_begin = on_message_begin,
		.on_url = on_url,
		.on_header_field = on_header_field,
		.on_header_value = on_header_value,
		.on_header_value_complete = on_header_value_complete,
		.on_headers_complete = on_headers_complete,
		.on_body = on_body,
		.on_message_complete = on_message_complete,
	};

	return &all;
}

void parser_init(struct parser *parser, const struct clock *clock,
	const struct admission *admission, struct request *(*make)(void *context), void *context)
{
	memset(parser, 0, sizeof(*parser));
	llhttp_init(&parser->llhttp, HTTP_REQUEST, settings());
	parser->llhttp.data = parser;
	parser->clock = clock;
	parser->admission = admission;
	parser->make = make;
	parser->context = context;
}

static enum parse_event broken(struct parser *parser)
{
	struct request *request = parser->request;

	if (!request)
		request = parser->request = parser->make(parser->context);
	request->keep_alive = false;
	if (parser->refusal.http_status != 0)
		request->answer = parser->refusal;
	else
		request->answer = answer_problem(&request->arena, STATUS_BAD_REQUEST,
			"the request is not valid HTTP/1.1: %s",
			llhttp_get_error_reason(&parser->llhttp));
	parser->stage = STAGE_IDLE;
	return PARSE_BROKEN;
}

static void keep_tail(struct parser *parser, struct slice input)
{
	if (input.len > 1)
		parser->tail[0] = input.data[input.len - 2];
	else
		parser->tail[0] = parser->tail[1];
	parser->tail[1] = input.data[input.len - 1];
}

static bool is_token_char(char c)
{
	return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
	       (c != '\0' && strchr("!#$%&'*+-.^_`|~", c));
}

/*
 * Returns whether llhttp stopped only because it does not know the method. That is the case if
 * `at`, the byte at which llhttp stopped, belongs to a method or is the space behind a method. The
 * space counts only if a byte of the method stands in front of it: in this input or, if
 * `has_begun`, in an earlier input.
 */
static bool is_unknown_method(
	const struct parser *parser, llhttp_errno_t result, const char *at, bool has_begun)
{
	if (result != HPE_INVALID_METHOD || parser->has_stand_in || parser->request->target.len > 0)
		return false;
	if (*at == ' ')
		return at > parser->input ? is_token_char(at[-1]) : has_begun;
	return is_token_char(*at);
}

/* Makes llhttp parse the rest of the request as if the request had the method SEARCH, which llhttp
 * knows and no route serves. */
static void feed_stand_in(struct parser *parser)
{
	static const char method[] = "SEARCH ";

	parser->has_stand_in = true;
	parser->request->method = slice_of("UNKNOWN");
	llhttp_reset(&parser->llhttp);
	parser->input = method;
	llhttp_execute(&parser->llhttp, method, sizeof(method) - 1);
	keep_tail(parser, slice_of(method));
}

/*
 * llhttp cannot go on after a method that it does not know. But the client should get a 405 with
 * the list of methods that the path allows, so this function skips the method. Returns true if the
 * input has more bytes that can be parsed; otherwise parser_feed() must return `*event`.
 */
static bool skip_method(struct parser *parser, struct slice *input, enum parse_event *event)
{
	while (input->len > 0 && is_token_char(input->data[0]) &&
		parser->skipped < METHOD_BYTES_MAX) {
		*input = slice_make(input->data + 1, input->len - 1);
		parser->skipped++;
	}
	*event = PARSE_MORE;
	if (input->len == 0)
		return false;
	parser->skips_method = false;
	if (input->data[0] != ' ') {
		*input = slice_make(input->data + input->len, 0);
		*event = broken(parser);
		return false;
	}
	*input = slice_make(input->data + 1, input->len - 1);
	feed_stand_in(parser);
	return input->len > 0;
}

enum parse_event parser_feed(struct parser *parser, struct slice *input)
{
	bool has_begun = parser->request;
	enum parse_event event;
	llhttp_errno_t result;
	const char *used_to;

	assert(input->len > 0);
	if (parser->skips_method && !skip_method(parser, input, &event))
		return event;
	parser->input = input->data;
	result = llhttp_execute(&parser->llhttp, input->data, input->len);
	used_to = llhttp_get_error_pos(&parser->llhttp);
	if (result == HPE_OK) {
		keep_tail(parser, *input);
		*input = slice_make(input->data + input->len, 0);
		return PARSE_MORE;
	}
	if (is_unknown_method(parser, result, used_to, has_begun)) {
		*input = slice_make(used_to, input->len - (size_t)(used_to - input->data));
		parser->skips_method = true;
		parser->skipped = 0;
		return parser_feed(parser, input);
	}
	if (result != HPE_PAUSED && result != HPE_PAUSED_UPGRADE) {
		*input = slice_make(input->data + input->len, 0);
		return broken(parser);
	}
	input->len -= (size_t)(used_to - input->data);
	input->data = used_to;
	if (result == HPE_PAUSED_UPGRADE) {
		/* The server never upgrades a connection: it answers in plain HTTP/1.1. */
		llhttp_resume_after_upgrade(&parser->llhttp);
		return PARSE_MORE;
	}
	llhttp_resume(&parser->llhttp);
	return parser->stage == STAGE_BODY ? PARSE_CONTINUE : PARSE_REQUEST;
}

struct request *parser_take(struct parser *parser)
{
	struct request *request = parser->request;

	assert(request);
	parser->request = NULL;
	parser->has_stand_in = false;
	return request;
}

struct request *parser_time_out(struct parser *parser)
{
	assert(parser->request);
	parser->refusal = answer_problem(&parser->request->arena, STATUS_REQUEST_TIMEOUT,
		parser->stage == STAGE_HEAD ? "the head of the request did not arrive in time"
					    : "the body of the request did not arrive in time");
	broken(parser);
	return parser_take(parser);
}
