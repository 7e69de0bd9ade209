/* Answers as the bytes of HTTP/1.1. */
#include "check.h"

#include "http/response.h"

#define DATE "Sun, 06 Nov 1994 08:49:37 GMT"

static int set_up(void **state)
{
	static struct request request;

	memset(&request, 0, sizeof(request));
	arena_init(&request.arena, 512);
	request.id = slice_of("r-1");
	*state = &request;
	return 0;
}

static int tear_down(void **state)
{
	struct request *request = *state;

	arena_release(&request->arena);
	return 0;
}

/* Renders an answer whose body is not large. */
static struct slice render(struct request *request, bool close_after)
{
	struct slice body;
	struct slice bytes = response_render(request, slice_of(DATE), close_after, &body);

	assert_int_equal(body.len, 0);
	return bytes;
}

static void a_large_body_is_not_copied(void **state)
{
	static char text[64 * 1024];
	struct request *request = *state;
	struct slice head, body;

	request->answer = answer_json(200, slice_make(text, sizeof(text)));
	head = response_render(request, slice_of(DATE), false, &body);
	assert_ptr_equal(body.data, text);
	assert_int_equal(body.len, sizeof(text));
	assert_true(head.len < 512);
	assert_contains(head, "Content-Length: 65536\r\n");
	assert_memory_equal(head.data + head.len - 4, "\r\n\r\n", 4);
	request->head_only = true;
	head = response_render(request, slice_of(DATE), false, &body);
	assert_true(head.len < 512);
	assert_int_equal(body.len, 0);
}

static void a_success_is_a_head_and_a_body(void **state)
{
	struct request *request = *state;

	request->answer = answer_json(200, slice_of("{\"value\":5}"));
	assert_slice(render(request, false), "HTTP/1.1 200 OK\r\n"
					     "Content-Type: application/json\r\n"
					     "Content-Length: 11\r\n"
					     "Date: " DATE "\r\n"
					     "X-Request-Id: r-1\r\n"
					     "\r\n"
					     "{\"value\":5}");
}

static void head_gets_the_length_and_not_the_body(void **state)
{
	struct request *request = *state;

	request->head_only = true;
	request->answer = answer_json(200, slice_of("{\"value\":5}"));
	assert_slice(render(request, false), "HTTP/1.1 200 OK\r\n"
					     "Content-Type: application/json\r\n"
					     "Content-Length: 11\r\n"
					     "Date: " DATE "\r\n"
					     "X-Request-Id: r-1\r\n"
					     "\r\n");
}

static void no_content_has_neither_type_nor_length(void **state)
{
	struct request *request = *state;

	request->answer = answer_empty();
	assert_slice(render(request, false), "HTTP/1.1 204 No Content\r\n"
					     "Date: " DATE "\r\n"
					     "X-Request-Id: r-1\r\n"
					     "\r\n");
}

static void everything_an_answer_can_carry_is_sent(void **state)
{
	struct request *request = *state;

	request->answer = answer_json(201, slice_of("{}"));
	request->answer.location = slice_of("/api/v1/internal/counts/a");
	request->answer.headers = slice_of("RateLimit: \"sms\";r=4\r\n");
	request->answer.replayed = true;
	assert_slice(render(request, true), "HTTP/1.1 201 Created\r\n"
					    "Content-Type: application/json\r\n"
					    "Content-Length: 2\r\n"
					    "Date: " DATE "\r\n"
					    "X-Request-Id: r-1\r\n"
					    "Location: /api/v1/internal/counts/a\r\n"
					    "Idempotent-Replayed: true\r\n"
					    "RateLimit: \"sms\";r=4\r\n"
					    "Connection: close\r\n"
					    "\r\n"
					    "{}");
}

static void an_empty_body_has_length_zero(void **state)
{
	struct request *request = *state;
	struct slice bytes;

	request->answer = (struct answer){.http_status = 200};
	request->id = (struct slice){0};
	bytes = render(request, false);
	assert_slice(bytes, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nDate: " DATE "\r\n\r\n");
}

static void a_body_may_hold_any_byte(void **state)
{
	struct request *request = *state;
	char body[1024];
	struct slice bytes;

	for (size_t i = 0; i < sizeof(body); i++)
		body[i] = (char)(i % 256);
	request->answer = answer_json(200, slice_make(body, sizeof(body)));
	bytes = render(request, false);
	assert_memory_equal(bytes.data + bytes.len - sizeof(body), body, sizeof(body));
	assert_contains(slice_make(bytes.data, 200), "Content-Length: 1024\r\n");
}

static void a_problem_says_what_how_and_when_to_retry(void **state)
{
	struct request *request = *state;
	struct slice bytes;

	request->answer = answer_failure(&request->arena, STATUS_OVERLOADED);
	bytes = render(request, false);
	assert_true(slice_starts_with(bytes, "HTTP/1.1 503 Service Unavailable\r\n"
					     "Content-Type: application/problem+json\r\n"));
	assert_contains(bytes, "\r\nRetry-After: 1\r\n");
	assert_contains(bytes, "\"code\":\"OVERLOADED\"");
	request->answer = answer_problem(&request->arena, STATUS_COUNT_NOT_FOUND, "no \"%s\"", "x");
	bytes = render(request, false);
	assert_false(has_text(bytes, "Retry-After"));
	assert_contains(bytes, "{\"type\":\"about:blank\",\"title\":\"Not Found\",\"status\":404,"
			       "\"code\":\"COUNT_NOT_FOUND\",\"detail\":\"no \\\"x\\\"\"}");
}

static void wrong_fields_are_listed(void **state)
{
	static const struct field_error errors[] = {{"amount", "must be an integer"}, {"b", "no"}};
	struct request *request = *state;

	request->answer = answer_invalid(&request->arena, errors, COUNT_OF(errors));
	assert_int_equal(request->answer.http_status, 400);
	assert_contains(request->answer.body,
		",\"errors\":[{\"field\":\"amount\",\"message\":\"must be an integer\"},"
		"{\"field\":\"b\",\"message\":\"no\"}]}");
}

static void dates_are_imf_fixdates(void **state)
{
	static const struct {
		int64_t time_s;
		const char *expected;
	} cases[] = {
		{784111777, DATE},
		{0, "Thu, 01 Jan 1970 00:00:00 GMT"},
		{1709164799, "Wed, 28 Feb 2024 23:59:59 GMT"},
		{1709164800, "Thu, 29 Feb 2024 00:00:00 GMT"},
		{1767225599, "Wed, 31 Dec 2025 23:59:59 GMT"},
		{253402300799, "Fri, 31 Dec 9999 23:59:59 GMT"},
	};
	char date[32];

	(void)state;
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		response_date(date, cases[i].time_s);
		assert_string_equal(date, cases[i].expected);
	}
}

static void every_status_that_is_sent_has_a_reason(void **state)
{
	(void)state;
	assert_string_equal(status_reason(200), "OK");
	assert_string_equal(status_reason(201), "Created");
	assert_string_equal(status_reason(204), "No Content");
	for (int i = 0; i < STATUS_COUNT; i++)
		assert_string_not_equal(status_reason(status_http((enum status)i)), "Unknown");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_success_is_a_head_and_a_body),
		TEST(a_large_body_is_not_copied),
		TEST(head_gets_the_length_and_not_the_body),
		TEST(no_content_has_neither_type_nor_length),
		TEST(everything_an_answer_can_carry_is_sent),
		TEST(an_empty_body_has_length_zero),
		TEST(a_body_may_hold_any_byte),
		TEST(a_problem_says_what_how_and_when_to_retry),
		TEST(wrong_fields_are_listed),
		TEST(dates_are_imf_fixdates),
		TEST(every_status_that_is_sent_has_a_reason),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
