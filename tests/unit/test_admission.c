/*
 * Which requests are admitted: Host, Origin and Sec-Fetch-Site on loopback, versions, routes,
 * request ids, and callers with keys.
 */
#include "check.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <every_type.pb-c.h>

#include "http/admission.h"
#include "http/twirp.h"

struct fixture {
	struct router *router;
	struct admission admission;
	struct request request;
};

static const char *const list_parameters[] = {"after", "limit", NULL};

static const struct route routes[] = {
	{"GET", "/a", ACCESS_EXTERNAL, NULL, NULL, 0, NULL, NULL},
	{"POST", "/a", ACCESS_EXTERNAL, NULL, NULL, 0, NULL, NULL},
	{"GET", "/admin", ACCESS_ADMIN, NULL, NULL, 0, NULL, NULL},
	{"GET", "/public", ACCESS_PUBLIC, NULL, NULL, 0, NULL, NULL},
	{"GET", "/list", ACCESS_EXTERNAL, NULL, NULL, 0, NULL, list_parameters},
	{"GET", "/probe", ACCESS_PUBLIC, NULL, NULL, 0, NULL, names_any},
};

static int set_up(void **state)
{
	static struct fixture fixture;

	memset(&fixture, 0, sizeof(fixture));
	fixture.router = router_new();
	router_add_all(fixture.router, NULL, routes, COUNT_OF(routes));
	fixture.admission.router = fixture.router;
	fixture.admission.guard_browser = true;
	fixture.admission.allowed_hosts = slice_of("quipu.example, ,Counts.Internal");
	arena_init(&fixture.request.arena, 1024);
	*state = &fixture;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *fixture = *state;

	arena_release(&fixture->request.arena);
	router_free(fixture->router);
	return 0;
}

/* Starts a new request `method` `target` without headers. */
static void begin(struct fixture *fixture, const char *method, const char *target)
{
	struct arena arena = fixture->request.arena;

	arena_reset(&arena);
	memset(&fixture->request, 0, sizeof(fixture->request));
	fixture->request.arena = arena;
	fixture->request.method = slice_of(method);
	fixture->request.target = slice_of(target);
	fixture->request.safe = strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0;
}

static void add_header(struct fixture *fixture, const char *name, const char *value)
{
	struct request *request = &fixture->request;

	if (!value)
		return;
	request->headers[request->header_count].name = slice_of(name);
	request->headers[request->header_count].value = slice_of(value);
	request->header_count++;
}

/* Returns the HTTP status of the refusal, or 0 if the request is admitted. */
static int decide(struct fixture *fixture)
{
	admission_decide(&fixture->admission, &fixture->request, 1, 1);
	return fixture->request.answer.http_status;
}

static int decide_host(struct fixture *fixture, const char *host)
{
	begin(fixture, "GET", "/a");
	add_header(fixture, "Host", host);
	return decide(fixture);
}

static const char *const own_hosts[] = {"localhost", "localhost:8080", "LOCALHOST", "127.0.0.1",
	"127.0.0.1:8080", "127.1.2.3", "[::1]", "[::1]:8080", "quipu.example", "QUIPU.example:8080",
	"counts.internal"};

static const char *const foreign_hosts[] = {"", "evil.org", "localhost.evil.org",
	"127.0.0.1.evil.org", "10.0.0.1", "[::2]", "quipu.example.evil.org", "xquipu.example",
	"quipu", "quipu.example, Counts.Internal", ":8080", "*"};

static void a_host_of_this_server_is_let_in(void **state)
{
	for (size_t i = 0; i < COUNT_OF(own_hosts); i++) {
		if (decide_host(*state, own_hosts[i]) != 0)
			fail_msg("\"%s\" is refused", own_hosts[i]);
	}
}

static void a_foreign_host_is_refused_for_every_method(void **state)
{
	struct fixture *fixture = *state;

	for (size_t i = 0; i < COUNT_OF(foreign_hosts); i++) {
		if (decide_host(fixture, foreign_hosts[i]) != 403)
			fail_msg("\"%s\" is let in", foreign_hosts[i]);
		begin(fixture, "POST", "/a");
		add_header(fixture, "Host", foreign_hosts[i]);
		assert_int_equal(decide(fixture), 403);
		assert_contains(fixture->request.answer.body, "FORBIDDEN_HOST");
		assert_null(fixture->request.route);
	}
}

static void without_the_guard_any_host_is_let_in(void **state)
{
	struct fixture *fixture = *state;

	fixture->admission.guard_browser = false;
	for (size_t i = 0; i < COUNT_OF(foreign_hosts); i++)
		assert_int_equal(decide_host(fixture, foreign_hosts[i]), 0);
}

static int decide_change(struct fixture *fixture, const char *origin, const char *site)
{
	begin(fixture, "POST", "/a");
	add_header(fixture, "Host", "localhost:8080");
	add_header(fixture, "Origin", origin);
	add_header(fixture, "Sec-Fetch-Site", site);
	return decide(fixture);
}

struct page_case {
	const char *origin;
	const char *site;
};

static void a_change_from_an_own_page_or_from_no_page_is_let_in(void **state)
{
	static const struct page_case cases[] = {
		{NULL, NULL},
		{NULL, "same-origin"},
		{NULL, "none"},
		{NULL, "same-site"},
		{"http://localhost", NULL},
		{"http://localhost:3000", "same-site"},
		{"https://127.0.0.1:8443", NULL},
		{"http://[::1]:8080", "same-origin"},
		{"https://quipu.example", NULL},
	};

	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		if (decide_change(*state, cases[i].origin, cases[i].site) != 0)
			fail_msg("row %zu is refused", i);
	}
}

static void a_change_from_a_foreign_page_is_refused(void **state)
{
	static const struct page_case cases[] = {
		{"http://evil.org", NULL},
		{"https://evil.org:8080", "cross-site"},
		{"http://localhost.evil.org", NULL},
		{"null", NULL},
		{"", NULL},
		{"localhost", NULL},
		{"file://localhost", NULL},
		{"chrome-extension://abc", NULL},
		{"http://", NULL},
		{"http://evil.org/localhost", NULL},
		{"http://localhost", "cross-site"},
		{NULL, "cross-site"},
		{NULL, "Cross-Site"},
	};
	struct fixture *fixture = *state;

	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		if (decide_change(fixture, cases[i].origin, cases[i].site) != 403)
			fail_msg("row %zu is let in", i);
		assert_contains(fixture->request.answer.body, "FORBIDDEN_ORIGIN");
	}
}

static void a_look_from_a_foreign_page_is_let_in_as_browsers_hide_the_answer(void **state)
{
	struct fixture *fixture = *state;

	begin(fixture, "GET", "/a");
	add_header(fixture, "Host", "localhost");
	add_header(fixture, "Origin", "http://evil.org");
	add_header(fixture, "Sec-Fetch-Site", "cross-site");
	assert_int_equal(decide(fixture), 0);
}

static void exactly_one_host_is_required_by_http_1_1(void **state)
{
	struct fixture *fixture = *state;

	assert_int_equal(decide_host(fixture, NULL), 400);
	begin(fixture, "GET", "/a");
	add_header(fixture, "Host", "localhost");
	add_header(fixture, "host", "localhost");
	assert_int_equal(decide(fixture), 400);
	begin(fixture, "GET", "/a");
	admission_decide(&fixture->admission, &fixture->request, 1, 0);
	assert_int_equal(fixture->request.answer.http_status, 0);
}

static void other_versions_are_refused(void **state)
{
	static const int versions[][2] = {{0, 9}, {2, 0}, {1, 2}, {3, 0}};
	struct fixture *fixture = *state;

	for (size_t i = 0; i < COUNT_OF(versions); i++) {
		begin(fixture, "GET", "/a");
		add_header(fixture, "Host", "localhost");
		admission_decide(
			&fixture->admission, &fixture->request, versions[i][0], versions[i][1]);
		assert_int_equal(fixture->request.answer.http_status, 400);
	}
}

static void only_100_continue_can_be_expected(void **state)
{
	struct fixture *fixture = *state;

	begin(fixture, "POST", "/a");
	add_header(fixture, "Host", "localhost");
	add_header(fixture, "Expect", "a miracle");
	assert_int_equal(decide(fixture), 417);
	begin(fixture, "POST", "/a");
	add_header(fixture, "Host", "localhost");
	assert_false(admission_wants_continue(&fixture->request));
	add_header(fixture, "Expect", "100-Continue");
	assert_int_equal(decide(fixture), 0);
	assert_true(admission_wants_continue(&fixture->request));
}

static void a_request_finds_its_route(void **state)
{
	struct fixture *fixture = *state;

	begin(fixture, "GET", "/list?limit=1");
	add_header(fixture, "Host", "localhost");
	assert_int_equal(decide(fixture), 0);
	assert_ptr_equal(fixture->request.route, router_at(fixture->router, 4));
	assert_slice(fixture->request.path.query, "limit=1");
}

static int decide_target(struct fixture *fixture, const char *method, const char *target)
{
	begin(fixture, method, target);
	add_header(fixture, "Host", "localhost");
	return decide(fixture);
}

static void what_is_not_served_is_told_apart(void **state)
{
	struct fixture *fixture = *state;

	assert_int_equal(decide_target(fixture, "GET", "/nowhere"), 404);
	assert_int_equal(decide_target(fixture, "GET", "/%00"), 400);
	assert_int_equal(decide_target(fixture, "OPTIONS", "*"), 400);
	assert_int_equal(decide_target(fixture, "DELETE", "/a"), 405);
	assert_slice(fixture->request.answer.headers, "Allow: GET, HEAD, POST\r\n");
}

static void a_request_id_is_taken_over_only_where_it_is_harmless(void **state)
{
	struct fixture *fixture = *state;
	char id[130];

	memset(id, 'x', sizeof(id));
	id[128] = '\0';
	begin(fixture, "GET", "/a");
	add_header(fixture, "X-Request-Id", id);
	decide(fixture);
	assert_slice(fixture->request.id, id);
	id[128] = 'x';
	id[129] = '\0';
	begin(fixture, "GET", "/a");
	add_header(fixture, "X-Request-Id", id);
	decide(fixture);
	assert_int_equal(fixture->request.id.len, 0);
	begin(fixture, "GET", "/a");
	add_header(fixture, "X-Request-Id", "a\tb");
	decide(fixture);
	assert_int_equal(fixture->request.id.len, 0);
	begin(fixture, "GET", "/a");
	add_header(fixture, "X-Request-Id", "\xff");
	decide(fixture);
	assert_int_equal(fixture->request.id.len, 0);
}

/* ---- callers ---- */

/* Returns a guard with one key: qk_shop_secret, external. */
static struct guard *make_guard(void)
{
	static char file[sizeof("/tmp/quipu-admission-XXXXXX")]; /* must outlive the guard */
	char why[GUARD_WHY_SIZE];
	struct guard_config config = {.keys_file = file,
		.tokens = {.key_file = "", .algorithm = "", .issuer = "", .audience = ""}};
	struct guard *guard;
	int fd;

	strcpy(file, "/tmp/quipu-admission-XXXXXX");
	fd = mkstemp(file);
	assert_true(fd >= 0);
	assert_true(
		dprintf(fd, "shop 2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b "
			    "external\n") > 0);
	close(fd);
	guard = guard_new(&config, why);
	unlink(file);
	assert_non_null(guard);
	return guard;
}

static int set_up_guarded(void **state)
{
	struct fixture *fixture;

	set_up(state);
	fixture = *state;
	fixture->admission.guard = make_guard();
	fixture->admission.guard_browser = false;
	return 0;
}

static int tear_down_guarded(void **state)
{
	struct fixture *fixture = *state;

	guard_free(fixture->admission.guard);
	return tear_down(state);
}

/* `shown` is NULL for a request without the header. */
static int decide_caller(
	struct fixture *fixture, const char *method, const char *target, const char *shown)
{
	begin(fixture, method, target);
	add_header(fixture, "Host", "anywhere.example");
	add_header(fixture, "Authorization", shown);
	return decide(fixture);
}

static void who_shows_a_key_is_known_by_its_id(void **state)
{
	struct fixture *fixture = *state;

	assert_int_equal(decide_caller(fixture, "POST", "/a", "Bearer qk_shop_secret"), 0);
	assert_int_equal(fixture->request.caller.kind, CALLER_KEY);
	assert_slice(fixture->request.caller.name, "shop");
	assert_int_equal(decide_caller(fixture, "HEAD", "/a", "Bearer qk_shop_secret"), 0);
}

static void who_shows_nothing_right_gets_401_and_is_told_how(void **state)
{
	static const char *const shown[] = {NULL, "", "Bearer", "Bearer qk_shop_wrong",
		"Basic c2hvcDpzZWNyZXQ=", "qk_shop_secret"};
	struct fixture *fixture = *state;

	for (size_t i = 0; i < COUNT_OF(shown); i++) {
		assert_int_equal(decide_caller(fixture, "POST", "/a", shown[i]), 401);
		assert_slice(fixture->request.answer.headers, "WWW-Authenticate: Bearer\r\n");
		assert_contains(fixture->request.answer.body, "UNAUTHENTICATED");
		assert_int_equal(fixture->request.caller.kind, CALLER_ANYONE);
	}
	assert_int_equal(decide_caller(fixture, "HEAD", "/a", NULL), 401);
}

static void a_key_without_the_scope_gets_403_and_no_challenge(void **state)
{
	struct fixture *fixture = *state;

	assert_int_equal(decide_caller(fixture, "GET", "/admin", "Bearer qk_shop_secret"), 403);
	assert_contains(fixture->request.answer.body, "\"FORBIDDEN\"");
	assert_int_equal(fixture->request.answer.headers.len, 0);
	assert_int_equal(fixture->request.caller.kind, CALLER_ANYONE);
}

static void a_public_route_asks_nobody(void **state)
{
	assert_int_equal(decide_caller(*state, "GET", "/public", NULL), 0);
	assert_int_equal(decide_caller(*state, "GET", "/public", "Bearer qk_shop_wrong"), 0);
}

static void what_is_not_there_is_told_before_anybody_is_asked(void **state)
{
	assert_int_equal(decide_caller(*state, "GET", "/nowhere", NULL), 404);
	assert_int_equal(decide_caller(*state, "DELETE", "/a", NULL), 405);
}

static void two_authorization_headers_are_refused_even_if_one_is_right(void **state)
{
	struct fixture *fixture = *state;

	begin(fixture, "POST", "/a");
	add_header(fixture, "Host", "localhost");
	add_header(fixture, "Authorization", "Bearer qk_shop_secret");
	add_header(fixture, "authorization", "Bearer qk_shop_secret");
	assert_int_equal(decide(fixture), 400);
	assert_int_equal(fixture->request.caller.kind, CALLER_ANYONE);
}

static void below_twirp_a_refusal_is_one_of_twirp_with_the_challenge(void **state)
{
	struct fixture *fixture = *state;
	static const struct twirp_method methods[] = {{"Same", NULL}, {"Refuse", NULL}};
	struct request *request = &fixture->request;
	struct arena arena;

	arena_init(&arena, 1024);
	twirp_add_service(
		fixture->router, NULL, &arena, &quipu__test__echo__descriptor, methods, NULL);
	assert_int_equal(decide_caller(fixture, "POST", "/twirp/quipu.test.Echo/Same", NULL), 401);
	router_apply_style(fixture->router, request);
	arena_release(&arena);
	assert_int_equal(request->answer.http_status, 401);
	assert_contains(request->answer.body, "{\"code\":\"unauthenticated\"");
	assert_slice(request->answer.headers, "WWW-Authenticate: Bearer\r\n");
}

#define GUARDED(name) cmocka_unit_test_setup_teardown(name, set_up_guarded, tear_down_guarded)
/* ---- the query --------------------------------------------------------------------------- */

static int decide_query(struct fixture *fixture, const char *target)
{
	begin(fixture, "GET", target);
	add_header(fixture, "Host", "localhost");
	return decide(fixture);
}

static void parameters_that_the_route_lists_are_let_in(void **state)
{
	struct fixture *fixture = *state;

	assert_int_equal(decide_query(fixture, "/list?limit=%31&after=a+b&limit=2"), 0);
	assert_int_equal(fixture->request.query.count, 3);
	assert_slice(query_value(&fixture->request.query, "after"), "a b");
	assert_slice(query_value(&fixture->request.query, "limit"), "2");
	assert_int_equal(decide_query(fixture, "/a?"), 0);
	assert_int_equal(decide_query(fixture, "/a?&&"), 0);
}

static void other_parameters_are_refused(void **state)
{
	struct fixture *fixture = *state;

	assert_int_equal(decide_query(fixture, "/list?limt=1"), 400);
	assert_contains(fixture->request.answer.body, "UNKNOWN_PARAMETER");
	assert_contains(fixture->request.answer.body, "did you mean \\\"limit\\\"?");
	assert_int_equal(decide_query(fixture, "/list?Limit=1"), 400);
	assert_int_equal(decide_query(fixture, "/a?limit=1"), 400);
	assert_contains(fixture->request.answer.body, "UNKNOWN_PARAMETER");
}

static void a_query_that_cannot_be_read_is_refused(void **state)
{
	struct fixture *fixture = *state;

	assert_int_equal(decide_query(fixture, "/list?limit=%zz"), 400);
	assert_contains(fixture->request.answer.body, "BAD_REQUEST");
}

static void a_probe_may_send_any_query(void **state)
{
	struct fixture *fixture = *state;

	assert_int_equal(decide_query(fixture, "/probe?x=1"), 0);
	assert_int_equal(decide_query(fixture, "/probe?%zz"), 0);
	assert_int_equal(fixture->request.query.count, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_host_of_this_server_is_let_in),
		TEST(a_foreign_host_is_refused_for_every_method),
		TEST(without_the_guard_any_host_is_let_in),
		TEST(a_change_from_an_own_page_or_from_no_page_is_let_in),
		TEST(a_change_from_a_foreign_page_is_refused),
		TEST(a_look_from_a_foreign_page_is_let_in_as_browsers_hide_the_answer),
		TEST(exactly_one_host_is_required_by_http_1_1),
		TEST(other_versions_are_refused),
		TEST(only_100_continue_can_be_expected),
		TEST(a_request_finds_its_route),
		TEST(what_is_not_served_is_told_apart),
		TEST(a_request_id_is_taken_over_only_where_it_is_harmless),
		TEST(parameters_that_the_route_lists_are_let_in),
		TEST(other_parameters_are_refused),
		TEST(a_query_that_cannot_be_read_is_refused),
		TEST(a_probe_may_send_any_query),
		GUARDED(who_shows_a_key_is_known_by_its_id),
		GUARDED(who_shows_nothing_right_gets_401_and_is_told_how),
		GUARDED(a_key_without_the_scope_gets_403_and_no_challenge),
		GUARDED(a_public_route_asks_nobody),
		GUARDED(what_is_not_there_is_told_before_anybody_is_asked),
		GUARDED(two_authorization_headers_are_refused_even_if_one_is_right),
		GUARDED(below_twirp_a_refusal_is_one_of_twirp_with_the_challenge),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
