/* Which requests with the same Idempotency-Key count as the same request. */
#include "check.h"

#include "base/digest.h"
#include "http/router.h"
#include "inbound/fingerprint.h"

struct typed {
	const char *method;
	const char *template;
	const char *target;
	const char *type; /* the Content-Type, or NULL */
	const char *body;
	const char *param;
};

static const struct typed increase = {
	"POST", "/counts/{itemId}/increase", "/counts/a/increase", NULL, "{\"amount\":5}", "a"};

static void read_target(struct request *request, const struct typed *typed)
{
	const char *why = "";

	request->target = slice_of(typed->target);
	assert_int_equal(
		path_parse(&request->arena, request->target, &request->path, &why), STATUS_OK);
	assert_int_equal(query_parse(&request->arena, request->path.query, &request->query, &why),
		STATUS_OK);
	request->params[0] = slice_of(typed->param);
}

/* Fills `record` as a JSON handler does, or as a Twirp handler, which does not read the body
 * through `input`. */
static void fingerprint(const struct typed *typed, bool is_twirp, struct idempotency_record *record)
{
	static const char *const members[] = {"amount", "userId", NULL};
	struct route route = {.method = typed->method, .path = typed->template, .members = members};
	struct request request = {.route = &route, .method = slice_of(typed->method)};
	struct input input;

	arena_init(&request.arena, 1024);
	read_target(&request, typed);
	request.body = slice_of(typed->body);
	if (typed->type) {
		request.headers[0].name = slice_of("Content-Type");
		request.headers[0].value = slice_of(typed->type);
		request.header_count = 1;
	}
	input_init(&input, &request);
	if (!is_twirp)
		input_read_body(&input);
	fingerprint_request(&input, record);
	assert_false(input_refuse(&input));
	arena_release(&request.arena);
}

static bool are_same(const struct typed *a, const struct typed *b, bool is_twirp)
{
	struct idempotency_record first = {0}, second = {0};

	fingerprint(a, is_twirp, &first);
	fingerprint(b, is_twirp, &second);
	return idempotency_is_same(&second, slice_make(first.fingerprint, FINGERPRINT_SIZE));
}

static struct typed with_body(const char *body)
{
	struct typed typed = increase;

	typed.body = body;
	return typed;
}

static void another_spelling_is_the_same_request(void **state)
{
	static const char *const bodies[] = {"{\"amount\":5}", " { \"amount\" : 5 } ",
		"{\"\\u0061mount\":5}", "{\n\"amount\":\n5}\n"};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(bodies); i++) {
		struct typed typed = with_body(bodies[i]);

		assert_true(are_same(&increase, &typed, false));
		assert_true(are_same(&increase, &typed, true));
	}
}

static void an_id_that_is_encoded_otherwise_is_the_same(void **state)
{
	struct typed encoded = increase;

	(void)state;
	encoded.target = "/counts/%61/increase";
	assert_true(are_same(&increase, &encoded, false));
}

static void parameters_in_another_order_are_the_same_but_not_other_values(void **state)
{
	static const char *const targets[] = {"/counts/a/increase?x=1&y=2&x=3",
		"/counts/a/increase?y=%32&x=1&x=3", "/counts/a/increase?x=3&y=2&x=1"};
	struct typed typed[3];

	(void)state;
	for (size_t i = 0; i < 3; i++) {
		typed[i] = increase;
		typed[i].target = targets[i];
	}
	assert_true(are_same(&typed[0], &typed[1], false));
	assert_false(are_same(&typed[0], &typed[2], false));
	assert_false(are_same(&typed[0], &increase, false));
}

static void what_asks_for_something_else_is_another_request(void **state)
{
	static const char *const bodies[] = {
		"{\"amount\":6}", "{\"amount\":\"5\"}", "{}", "", "{\"amount\":5,\"userId\":1}"};
	struct typed others[3] = {increase, increase, increase};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(bodies); i++) {
		struct typed typed = with_body(bodies[i]);

		assert_false(are_same(&increase, &typed, false));
	}
	others[0].method = "PUT";
	others[1].template = "/counts/{itemId}/decrease";
	others[2].param = "b";
	for (size_t i = 0; i < COUNT_OF(others); i++)
		assert_false(are_same(&increase, &others[i], false));
}

static void an_absent_body_differs_from_the_default_in_writing(void **state)
{
	struct typed absent = with_body(""), empty = with_body("{}");
	struct typed written = with_body("{\"amount\":1}");

	(void)state;
	assert_false(are_same(&absent, &empty, false));
	assert_false(are_same(&absent, &written, false));
	assert_false(are_same(&empty, &written, false));
}

static void protobuf_is_compared_byte_by_byte(void **state)
{
	struct typed one = with_body("\x08\x01\x10\x02"), other = with_body("\x10\x02\x08\x01");

	(void)state;
	one.type = other.type = "application/protobuf";
	assert_true(are_same(&one, &one, true));
	assert_false(are_same(&one, &other, true));
}

/* The first version stored SHA-256 of method, path and body with their lengths. */
static void a_record_of_the_first_version_is_recognised(void **state)
{
	struct slice typed[3] = {
		SLICE("POST"), SLICE("/counts/a/increase"), SLICE("{\"amount\":5}")};
	unsigned char stored[FINGERPRINT_SIZE_1];
	struct idempotency_record record = {0};

	(void)state;
	digest_parts(typed, 3, stored);
	memcpy(record.typed, typed, sizeof(typed));
	assert_true(idempotency_is_same(&record, slice_make(stored, sizeof(stored))));
	record.typed[2] = slice_of("{\"amount\":6}");
	assert_false(idempotency_is_same(&record, slice_make(stored, sizeof(stored))));
	assert_false(idempotency_is_same(&record, slice_make(stored, sizeof(stored) - 1)));
	assert_false(idempotency_is_same(&record, (struct slice){0}));
}

static void a_fingerprint_begins_with_its_version(void **state)
{
	struct idempotency_record record = {0};

	(void)state;
	fingerprint(&increase, false, &record);
	assert_int_equal(record.fingerprint[0], 2);
	assert_slice(record.typed[0], "POST");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(another_spelling_is_the_same_request),
		cmocka_unit_test(an_id_that_is_encoded_otherwise_is_the_same),
		cmocka_unit_test(parameters_in_another_order_are_the_same_but_not_other_values),
		cmocka_unit_test(what_asks_for_something_else_is_another_request),
		cmocka_unit_test(an_absent_body_differs_from_the_default_in_writing),
		cmocka_unit_test(protobuf_is_compared_byte_by_byte),
		cmocka_unit_test(a_record_of_the_first_version_is_recognised),
		cmocka_unit_test(a_fingerprint_begins_with_its_version),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
