/* Which route answers which method and path, and how answers are counted. */
#include "check.h"

#include "http/router.h"

struct fixture {
	struct arena arena;
	struct router *router;
	struct route_match match;
};

static const struct route table[] = {
	{"GET", "/", ACCESS_EXTERNAL, NULL, NULL, 0, NULL, NULL},
	{"GET", "/things", ACCESS_EXTERNAL, NULL, NULL, 0, NULL, NULL},
	{"POST", "/things", ACCESS_EXTERNAL, NULL, NULL, 1000, NULL, NULL},
	{"GET", "/things/{id}", ACCESS_EXTERNAL, NULL, NULL, 0, NULL, NULL},
	{"DELETE", "/things/{id}", ACCESS_EXTERNAL, NULL, NULL, 0, NULL, NULL},
	{"POST", "/things/{id}/parts/{part}", ACCESS_EXTERNAL, NULL, NULL, 0, NULL, NULL},
	{"GET", "/things/{id}/all", ACCESS_EXTERNAL, NULL, NULL, 0, NULL, NULL},
	{"POST", "/only", ACCESS_EXTERNAL, NULL, NULL, 0, NULL, NULL},
};

static int set_up(void **state)
{
	static struct fixture fixture;

	memset(&fixture, 0, sizeof(fixture));
	arena_init(&fixture.arena, 1024);
	fixture.router = router_new();
	router_add_all(fixture.router, NULL, table, COUNT_OF(table));
	*state = &fixture;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *fixture = *state;

	router_free(fixture->router);
	arena_release(&fixture->arena);
	return 0;
}

static enum status find(struct fixture *fixture, const char *method, const char *target)
{
	struct path path;
	const char *why;

	assert_int_equal(path_parse(&fixture->arena, slice_of(target), &path, &why), STATUS_OK);
	fixture->match = (struct route_match){0};
	return router_find(
		fixture->router, &fixture->arena, slice_of(method), &path, &fixture->match);
}

static void a_route_is_found_by_method_and_path(void **state)
{
	static const struct {
		const char *method;
		const char *target;
		size_t index;
	} cases[] = {
		{"GET", "/", 0},
		{"GET", "/things", 1},
		{"POST", "/things", 2},
		{"GET", "/things?x=1", 1},
		{"GET", "/things/a", 3},
		{"DELETE", "/things/a", 4},
		{"POST", "/things/a/parts/b", 5},
		{"GET", "/things/a/all", 6},
		{"GET", "/%74hings", 1},
	};

	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct fixture *fixture = *state;

		assert_int_equal(find(fixture, cases[i].method, cases[i].target), STATUS_OK);
		assert_ptr_equal(fixture->match.route, router_at(fixture->router, cases[i].index));
	}
}

static void parameters_come_decoded_in_the_order_of_the_template(void **state)
{
	struct fixture *fixture = *state;

	assert_int_equal(find(fixture, "POST", "/things/a%20b/parts/%7Bx%7D"), STATUS_OK);
	assert_slice(fixture->match.params[0], "a b");
	assert_slice(fixture->match.params[1], "{x}");
	assert_int_equal(find(fixture, "GET", "/things/"), STATUS_OK);
	assert_slice(fixture->match.params[0], "");
}

static void get_answers_head_and_nothing_else_does(void **state)
{
	struct fixture *fixture = *state;

	assert_int_equal(find(fixture, "HEAD", "/things/a"), STATUS_OK);
	assert_string_equal(fixture->match.route->method, "GET");
	assert_int_equal(find(fixture, "HEAD", "/only"), STATUS_METHOD_NOT_ALLOWED);
}

static void a_known_path_with_another_method_says_which_are_allowed(void **state)
{
	struct fixture *fixture = *state;

	assert_int_equal(find(fixture, "PUT", "/things"), STATUS_METHOD_NOT_ALLOWED);
	assert_slice(fixture->match.allow, "GET, HEAD, POST");
	assert_int_equal(find(fixture, "POST", "/things/a"), STATUS_METHOD_NOT_ALLOWED);
	assert_slice(fixture->match.allow, "GET, HEAD, DELETE");
	assert_int_equal(find(fixture, "GET", "/only"), STATUS_METHOD_NOT_ALLOWED);
	assert_slice(fixture->match.allow, "POST");
	assert_int_equal(find(fixture, "post", "/only"), STATUS_METHOD_NOT_ALLOWED);
	assert_null(fixture->match.route);
}

static void an_unknown_path_is_not_found_whatever_the_method(void **state)
{
	static const char *const targets[] = {"/nothing", "/Things", "/things/a/b",
		"/things/a/all/", "/things/a/parts", "//things", "/only/", "//",
		"/things/a/parts/b/c", "/1/2/3/4/5/6/7/8/9/10/11/12/13"};

	for (size_t i = 0; i < COUNT_OF(targets); i++) {
		if (find(*state, "GET", targets[i]) != STATUS_ROUTE_NOT_FOUND)
			fail_msg("%s", targets[i]);
	}
}

static void a_body_limit_is_the_default_unless_given(void **state)
{
	struct fixture *fixture = *state;

	assert_int_equal(router_at(fixture->router, 1)->body_max, BODY_MAX_DEFAULT);
	assert_int_equal(router_at(fixture->router, 2)->body_max, 1000);
}

static void all_routes_are_listed_in_the_order_added(void **state)
{
	struct fixture *fixture = *state;

	assert_int_equal(router_count(fixture->router), COUNT_OF(table));
	for (size_t i = 0; i < COUNT_OF(table); i++) {
		assert_string_equal(router_at(fixture->router, i)->path, table[i].path);
		assert_string_equal(router_at(fixture->router, i)->method, table[i].method);
	}
}

static struct slice collect(struct fixture *fixture)
{
	struct buffer page = buffer_make(&fixture->arena, 4096);

	router_collect(fixture->router, &page);
	buffer_char(&page, '\0');
	return buffer_slice(&page);
}

static void answers_are_counted_by_route_and_code(void **state)
{
	struct fixture *fixture = *state;
	const struct route *things = router_at(fixture->router, 1);
	const char *page;

	router_count_answer(fixture->router, things, 200, 1000000);
	router_count_answer(fixture->router, things, 200, 3000000);
	router_count_answer(fixture->router, things, 503, 1);
	router_count_answer(fixture->router, things, 599, 1);
	router_count_answer(fixture->router, NULL, 404, 1);
	page = collect(fixture).data;
	assert_non_null(strstr(page, "quipu_http_requests_total{route=\"/things\",method=\"GET\","
				     "code=\"200\"} 2\n"));
	assert_non_null(strstr(page, "method=\"GET\",code=\"503\"} 1\n"));
	assert_non_null(strstr(page, "method=\"GET\",code=\"other\"} 1\n"));
	assert_non_null(strstr(page, "{route=\"unmatched\",method=\"any\",code=\"404\"} 1\n"));
	assert_non_null(strstr(page, "quipu_http_request_duration_seconds_count{"
				     "route=\"/things\",method=\"GET\"} 4\n"));
	assert_null(strstr(page, "code=\"201\""));
	assert_null(strstr(page, "} 0\nquipu_http_requests_total"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_route_is_found_by_method_and_path),
		TEST(parameters_come_decoded_in_the_order_of_the_template),
		TEST(get_answers_head_and_nothing_else_does),
		TEST(a_known_path_with_another_method_says_which_are_allowed),
		TEST(an_unknown_path_is_not_found_whatever_the_method),
		TEST(a_body_limit_is_the_default_unless_given),
		TEST(all_routes_are_listed_in_the_order_added),
		TEST(answers_are_counted_by_route_and_code),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
