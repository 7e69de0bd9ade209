/* Twirp without a server: routes, both encodings, and every refusal below /twirp/. */
#include "check.h"

#include <every_type.pb-c.h>
#include <jansson.h>

#include "http/twirp.h"
#include "inbound/input.h"

#define SAME "/twirp/quipu.test.Echo/Same"
#define REFUSE "/twirp/quipu.test.Echo/Refuse"

struct fixture {
	struct arena arena;
	struct router *router;
	struct request request;
	int handled;
};

static void same(void *context, const struct twirp_call *call)
{
	struct fixture *fixture = context;

	fixture->handled++;
	request_answer(
		call->request, twirp_answer(&call->request->arena, call->encoding, call->message));
}

/* Refuses with the status that `text` names. */
static void refuse(void *context, const struct twirp_call *call)
{
	const Quipu__Test__Inner *message = (const void *)call->message;
	struct request *request = call->request;
	enum status status = (enum status)message->small_number;
	struct input input;

	(void)context;
	input_init(&input, request);
	if (strcmp(message->text, "fields") == 0) {
		input_error(&input, "first", "is \"wrong\"");
		input_error(&input, "second", "too");
		assert_true(input_refuse(&input));
	} else if (strcmp(message->text, "final") == 0) {
		request_answer(request, twirp_problem(&request->arena, status, "no %d", 5));
	} else if (strcmp(message->text, "failure") == 0) {
		request_answer(request, answer_failure(&request->arena, status));
	} else {
		request_answer(request, answer_problem(&request->arena, status, "no"));
	}
}

static int set_up(void **state)
{
	static const struct twirp_method methods[] = {{"Same", same}, {"Refuse", refuse}};
	static struct fixture fixture;

	memset(&fixture, 0, sizeof(fixture));
	arena_init(&fixture.arena, 4096);
	arena_init(&fixture.request.arena, 4096);
	fixture.router = router_new();
	twirp_add_service(fixture.router, NULL, &fixture.arena, &quipu__test__echo__descriptor,
		methods, &fixture);
	*state = &fixture;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *fixture = *state;

	router_free(fixture->router);
	arena_release(&fixture->request.arena);
	arena_release(&fixture->arena);
	return 0;
}

/* Does what a connection does with a request, without a connection. */
static const struct answer *ask(
	struct fixture *fixture, const char *path, const char *type, struct slice body)
{
	struct request *request = &fixture->request;
	struct arena arena = request->arena;
	const char *why;
	struct route_match match;
	enum status status;

	arena_reset(&arena);
	memset(request, 0, sizeof(*request));
	request->arena = arena;
	request->method = slice_of("POST");
	request->target = slice_of(path);
	request->body = body;
	if (type) {
		request->headers[0].name = slice_of("Content-Type");
		request->headers[0].value = slice_of(type);
		request->header_count = 1;
	}
	assert_int_equal(
		path_parse(&request->arena, request->target, &request->path, &why), STATUS_OK);
	status = router_find(
		fixture->router, &request->arena, request->method, &request->path, &match);
	if (status == STATUS_OK) {
		request->route = match.route;
		request->route->handle(request->route->context, request);
	} else {
		request->answer = answer_problem(&request->arena, status, "nothing there");
	}
	router_apply_style(fixture->router, request);
	return &request->answer;
}

static const struct answer *ask_json(struct fixture *fixture, const char *path, const char *body)
{
	return ask(fixture, path, "application/json", slice_of(body));
}

static void assert_error(const struct answer *answer, int http_status, const char *code)
{
	json_t *error = json_loadb(answer->body.data, answer->body.len, 0, NULL);

	assert_non_null(error);
	assert_slice(answer->content_type, "application/json");
	assert_string_equal(json_string_value(json_object_get(error, "code")), code);
	assert_true(json_string_length(json_object_get(error, "msg")) > 0);
	assert_true(json_is_object(json_object_get(error, "meta")));
	assert_int_equal(answer->http_status, http_status);
	json_decref(error);
}

static void test_an_answer_comes_in_the_encoding_of_its_request(void **state)
{
	struct fixture *fixture = *state;
	const struct answer *answer;

	answer = ask(fixture, SAME, "application/protobuf", slice_make("\x08\x05", 2));
	assert_int_equal(answer->http_status, 200);
	assert_slice(answer->content_type, "application/protobuf");
	assert_slice(answer->body, "\x08\x05");
	answer = ask_json(fixture, SAME, "{\"aInt32\":5}");
	assert_int_equal(answer->http_status, 200);
	assert_slice(answer->content_type, "application/json");
	assert_contains(answer->body, "{\"a_int32\":5,");
	assert_int_equal(fixture->handled, 2);
}

static void test_types_of_content(void **state)
{
	static const char *const json[] = {"application/json", "APPLICATION/JSON",
		"application/json; charset=utf-8", " application/json ;x", NULL};
	static const char *const others[] = {"", "text/json", "application/x-protobuf",
		"application/jsonx", "application/grpc", "application/x-www-form-urlencoded"};
	struct fixture *fixture = *state;

	for (size_t i = 0; i < COUNT_OF(json); i++)
		assert_int_equal(ask(fixture, SAME, json[i], slice_of("{}"))->http_status, 200);
	for (size_t i = 0; i < COUNT_OF(others); i++)
		assert_error(ask(fixture, SAME, others[i], slice_of("{}")), 404, "bad_route");
	assert_int_equal(fixture->handled, COUNT_OF(json));
}

static void test_a_body_that_is_no_message_is_malformed(void **state)
{
	struct fixture *fixture = *state;

	assert_error(ask_json(fixture, SAME, ""), 400, "malformed");
	assert_error(ask_json(fixture, SAME, "{"), 400, "malformed");
	assert_error(ask_json(fixture, SAME, "{\"a_int32\":\"x\"}"), 400, "malformed");
	assert_contains(fixture->request.answer.body, "a_int32 must be a 32-bit integer");
	assert_error(
		ask(fixture, SAME, "application/protobuf", slice_of("\x08")), 400, "malformed");
	assert_error(ask_json(fixture, SAME, "{\"a_colour\":\"PINK\"}"), 400, "invalid_argument");
	assert_contains(fixture->request.answer.body, "\"argument\":\"a_colour\"");
	assert_int_equal(fixture->handled, 0);
	assert_int_equal(
		ask(fixture, SAME, "application/protobuf", slice_of(""))->http_status, 200);
}

static void test_paths_that_are_no_method(void **state)
{
	struct fixture *fixture = *state;

	assert_error(ask_json(fixture, "/twirp/quipu.test.Echo/Other", "{}"), 404, "bad_route");
	assert_error(ask_json(fixture, "/twirp/quipu.test.Echo", "{}"), 404, "bad_route");
	assert_error(ask_json(fixture, "/twirp/", "{}"), 404, "bad_route");
	assert_slice(ask_json(fixture, "/other", "{}")->content_type, "application/problem+json");
	assert_slice(ask_json(fixture, "/twirp", "{}")->content_type, "application/problem+json");
}

static void test_fields_that_are_wrong_are_told_together(void **state)
{
	struct fixture *fixture = *state;

	assert_error(ask_json(fixture, REFUSE, "{\"text\":\"fields\"}"), 400, "invalid_argument");
	assert_slice(fixture->request.answer.body,
		"{\"code\":\"invalid_argument\",\"msg\":\"first is \\\"wrong\\\"; second too\","
		"\"meta\":{\"reason\":\"BAD_REQUEST\",\"argument\":\"first\"}}");
}

static const struct {
	enum status status;
	int http;
	const char *code;
} refusals[] = {
	{STATUS_BAD_REQUEST, 400, "malformed"},
	{STATUS_FORBIDDEN_HOST, 403, "permission_denied"},
	{STATUS_FORBIDDEN_ORIGIN, 403, "permission_denied"},
	{STATUS_ROUTE_NOT_FOUND, 404, "bad_route"},
	{STATUS_METHOD_NOT_ALLOWED, 404, "bad_route"},
	{STATUS_UNSUPPORTED_MEDIA_TYPE, 404, "bad_route"},
	{STATUS_POT_NOT_FOUND, 404, "not_found"},
	{STATUS_REQUEST_TIMEOUT, 408, "deadline_exceeded"},
	{STATUS_IDEMPOTENCY_KEY_CONFLICT, 409, "already_exists"},
	{STATUS_POT_EXISTS, 409, "already_exists"},
	{STATUS_POT_LOCKED, 409, "aborted"},
	{STATUS_POT_FULL, 412, "failed_precondition"},
	{STATUS_BODY_TOO_LARGE, 400, "malformed"},
	{STATUS_URI_TOO_LONG, 400, "malformed"},
	{STATUS_HEADERS_TOO_LARGE, 400, "malformed"},
	{STATUS_EXPECTATION_FAILED, 400, "malformed"},
	{STATUS_RATE_LIMIT_EXCEEDED, 429, "resource_exhausted"},
	{STATUS_INTERNAL, 500, "internal"},
	{STATUS_OVERLOADED, 503, "unavailable"},
	{STATUS_STORE_UNAVAILABLE, 503, "unavailable"},
	{STATUS_OUTCOME_UNKNOWN, 503, "unavailable"},
};

static const struct answer *ask_refusal(
	struct fixture *fixture, const char *how, enum status status)
{
	struct buffer body = buffer_make(&fixture->arena, 64);

	buffer_format(&body, "{\"text\":\"%s\",\"small_number\":%d}", how, (int)status);
	return ask(fixture, REFUSE, "application/json", buffer_slice(&body));
}

static void test_every_status_has_its_code_and_says_its_reason(void **state)
{
	struct fixture *fixture = *state;

	for (size_t i = 0; i < COUNT_OF(refusals); i++) {
		char reason[64];

		snprintf(reason, sizeof(reason), "\"reason\":\"%s\"",
			status_code(refusals[i].status));
		assert_error(ask_refusal(fixture, "problem", refusals[i].status), refusals[i].http,
			refusals[i].code);
		assert_contains(fixture->request.answer.body, reason);
		assert_error(ask_refusal(fixture, "final", refusals[i].status), refusals[i].http,
			refusals[i].code);
		assert_contains(fixture->request.answer.body, "\"msg\":\"no 5\"");
		assert_null(fixture->request.answer.problem);
	}
}

static void test_what_may_be_tried_again_says_when(void **state)
{
	struct fixture *fixture = *state;

	ask_refusal(fixture, "failure", STATUS_OVERLOADED);
	assert_slice(fixture->request.answer.headers, "Retry-After: 1\r\n");
	ask_refusal(fixture, "failure", STATUS_INTERNAL);
	assert_int_equal(fixture->request.answer.headers.len, 0);
}

static void test_routes_are_posts_with_room_for_large_messages(void **state)
{
	struct fixture *fixture = *state;

	assert_int_equal(router_count(fixture->router), 2);
	for (size_t i = 0; i < 2; i++) {
		assert_string_equal(router_at(fixture->router, i)->method, "POST");
		assert_int_equal(router_at(fixture->router, i)->body_max, 1024 * 1024);
	}
	assert_string_equal(router_at(fixture->router, 0)->path, SAME);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_an_answer_comes_in_the_encoding_of_its_request),
		TEST(test_types_of_content),
		TEST(test_a_body_that_is_no_message_is_malformed),
		TEST(test_paths_that_are_no_method),
		TEST(test_fields_that_are_wrong_are_told_together),
		TEST(test_every_status_has_its_code_and_says_its_reason),
		TEST(test_what_may_be_tried_again_says_when),
		TEST(test_routes_are_posts_with_room_for_large_messages),
	};

	return cmocka_run_group_tests_name("twirp", tests, NULL, NULL);
}
