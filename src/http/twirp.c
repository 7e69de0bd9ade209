/*
 * Serves the routes of Twirp and renders its errors. Any part of the program (parser, admission,
 * lanes, committer, services) can refuse a request, and creates the refusal as a problem. When the
 * answer is written, the router calls render_refusal(), which translates the problem into a Twirp
 * error. But a refusal that a service stores under an Idempotency-Key is stored byte for byte, so
 * twirp_problem() creates such a refusal as a Twirp error from the start.
 */
#include "http/twirp.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>

#define PREFIX "/twirp/"
#define SCRATCH_SIZE 2048

/* ---- errors ------------------------------------------------------------------------------ */

struct twirp_code {
	const char *name;
	int http;
};

static struct twirp_code code_of_http(int http, bool retry_helps)
{
	switch (http) {
	case 401:
		return (struct twirp_code){"unauthenticated", 401};
	case 403:
		return (struct twirp_code){"permission_denied", 403};
	case 404:
		return (struct twirp_code){"not_found", 404};
	case 408:
		return (struct twirp_code){"deadline_exceeded", 408};
	case 409:
		return (struct twirp_code){retry_helps ? "aborted" : "already_exists", 409};
	case 412:
		return (struct twirp_code){"failed_precondition", 412};
	case 429:
		return (struct twirp_code){"resource_exhausted", 429};
	case 503:
		return (struct twirp_code){"unavailable", 503};
	}
	return http < 500 ? (struct twirp_code){"malformed", 400}
			  : (struct twirp_code){"internal", 500};
}

static struct twirp_code code_of(const struct problem *problem)
{
	switch (problem->status) {
	case STATUS_ROUTE_NOT_FOUND:
	case STATUS_METHOD_NOT_ALLOWED:
	case STATUS_UNSUPPORTED_MEDIA_TYPE:
		return (struct twirp_code){"bad_route", 404};
	default:
		break;
	}
	if (problem->error_count > 0)
		return (struct twirp_code){"invalid_argument", 400};
	return code_of_http(status_http(problem->status), status_retry_helps(problem->status));
}

/* Returns the details of the problem as one text, such as "pot_id must be greater than 0; coins
 * must not be empty". */
static struct slice message_of(struct arena *arena, const struct problem *problem)
{
	struct buffer text = buffer_make(arena, 128);

	if (problem->error_count == 0)
		return problem->detail;
	for (size_t i = 0; i < problem->error_count; i++)
		buffer_format(&text, "%s%s %s", i > 0 ? "; " : "", problem->errors[i].field,
			problem->errors[i].message);
	return buffer_slice(&text);
}

static struct answer render(struct arena *arena, const struct problem *problem)
{
	struct twirp_code code = code_of(problem);
	struct buffer body = buffer_make(arena, 128 + problem->detail.len);

	buffer_format(&body, "{\"code\":\"%s\",\"msg\":", code.name);
	buffer_json_string(&body, message_of(arena, problem));
	buffer_format(&body, ",\"meta\":{\"reason\":\"%s\"", status_code(problem->status));
	if (problem->error_count > 0) {
		buffer_text(&body, ",\"argument\":");
		buffer_json_string(&body, slice_of(problem->errors[0].field));
	}
	buffer_text(&body, "}}");
	return answer_json(code.http, buffer_slice(&body));
}

/* Renders a refusal as a Twirp error. Keeps the headers of a 503 (Retry-After) and of a 401
 * (WWW-Authenticate, which HTTP requires). */
static struct answer render_refusal(struct arena *arena, const struct answer *refusal)
{
	struct answer answer = render(arena, refusal->problem);

	if (refusal->http_status == 503 || refusal->http_status == 401)
		answer.headers = refusal->headers;
	return answer;
}

struct answer twirp_problem(struct arena *arena, enum status status, const char *detail, ...)
{
	char text[512];
	va_list args;

	va_start(args, detail);
	vsnprintf(text, sizeof(text), detail, args);
	va_end(args);
	return render(arena, &(struct problem){.status = status, .detail = slice_of(text)});
}

/* ---- messages ---------------------------------------------------------------------------- */

static const char *const media_types[] = {
	[PROTO_JSON] = "application/json",
	[PROTO_BINARY] = "application/protobuf",
};

struct answer twirp_answer(
	struct arena *arena, enum proto_encoding encoding, const ProtobufCMessage *message)
{
	return (struct answer){
		.http_status = 200,
		.content_type = slice_of(media_types[encoding]),
		.body = proto_write(message, encoding, arena),
	};
}

/* Sets `*encoding` according to the Content-Type. Returns false if the Content-Type is neither JSON
 * nor protobuf. A body without a Content-Type counts as JSON, as in all services. */
static bool find_encoding(const struct request *request, enum proto_encoding *encoding)
{
	struct slice type = request_header(request, "Content-Type");
	struct slice name = slice_trim(slice_cut(&type, ';'));

	if (!name.data || slice_is_nocase(name, media_types[PROTO_JSON]))
		*encoding = PROTO_JSON;
	else if (slice_is_nocase(name, media_types[PROTO_BINARY]))
		*encoding = PROTO_BINARY;
	else
		return false;
	return true;
}

static struct answer refuse_message(struct arena *arena, const struct proto_error *error)
{
	struct field_error wrong = {
		.field = arena_copy(arena, slice_of(error->where)).data,
		.message = arena_copy(arena, slice_of(error->why)).data,
	};

	if (error->is_argument)
		return answer_invalid(arena, &wrong, 1);
	return answer_problem(arena, STATUS_BAD_REQUEST, "%s%s%s", wrong.field,
		*wrong.field ? " " : "", wrong.message);
}

/* ---- routes ------------------------------------------------------------------------------ */

struct twirp_route {
	const ProtobufCMessageDescriptor *input;
	const struct twirp_method *method;
	void *context;
};

/* Decodes the message, calls the method's handler and frees the message. The message does not stay
 * in the request's arena, because it can be much larger in memory than on the wire, and the request
 * may live much longer than this call. */
static void read_and_handle(const struct twirp_route *route, struct twirp_call *call)
{
	struct arena *arena = &call->request->arena;
	struct proto_error error;
	struct arena scratch;

	arena_init(&scratch, SCRATCH_SIZE);
	call->message =
		proto_read(route->input, call->encoding, call->request->body, &scratch, &error);
	if (call->message)
		route->method->handle(route->context, call);
	else
		request_answer(call->request, refuse_message(arena, &error));
	arena_release(&scratch);
}

static void handle(void *context, struct request *request)
{
	struct twirp_call call = {.request = request};

	if (find_encoding(request, &call.encoding))
		read_and_handle(context, &call);
	else
		request_answer(
			request, answer_problem(&request->arena, STATUS_UNSUPPORTED_MEDIA_TYPE,
					 "the Content-Type must be application/json or "
					 "application/protobuf"));
}

static void add_method(struct router *router, const char *role, struct arena *arena,
	const ProtobufCServiceDescriptor *service, unsigned index, const struct twirp_route *made)
{
	struct twirp_route *context = arena_new(arena, struct twirp_route);
	struct buffer path = buffer_make(arena, 64);
	struct route route = {
		.method = "POST",
		.handle = handle,
		.context = context,
		.body_max = TWIRP_BODY_MAX,
		.parameters = names_any,
	};

	assert(strcmp(service->methods[index].name, made->method->name) == 0);
	proto_check(service->methods[index].input);
	proto_check(service->methods[index].output);
	*context = *made;
	context->input = service->methods[index].input;
	buffer_format(&path, PREFIX "%s/%s", service->name, made->method->name);
	buffer_char(&path, '\0');
	route.path = path.data;
	router_add_all(router, role, &route, 1);
}

void twirp_add_service(struct router *router, const char *role, struct arena *arena,
	const ProtobufCServiceDescriptor *service, const struct twirp_method *methods,
	void *context)
{
	static const struct route_style style = {.prefix = PREFIX, .render = render_refusal};

	for (unsigned i = 0; i < service->n_methods; i++)
		add_method(router, role, arena, service, i,
			&(struct twirp_route){.method = &methods[i], .context = context});
	router_add_style(router, &style);
}
