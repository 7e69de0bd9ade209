/* Targets, queries and hosts: what is accepted and how it is decoded, and what is refused. */
#include "arena_fixture.h"

#include "base/buffer.h"
#include "http/path.h"

/* ---- paths ------------------------------------------------------------------------------- */

struct path_case {
	const char *target;
	size_t count;
	const char *segments[4];
	const char *query; /* NULL for none */
};

static void assert_path(struct arena *arena, const struct path_case *expected)
{
	struct path path;
	const char *why = "";

	if (path_parse(arena, slice_of(expected->target), &path, &why) != STATUS_OK)
		fail_msg("\"%s\" is refused: %s", expected->target, why);
	if (path.count != expected->count)
		fail_msg("\"%s\" has %zu segments", expected->target, path.count);
	for (size_t i = 0; i < expected->count; i++)
		assert_slice(path.segments[i], expected->segments[i]);
	assert_int_equal(path.query.data != NULL, expected->query != NULL);
	if (expected->query)
		assert_slice(path.query, expected->query);
}

static void a_path_is_split_on_slashes_and_each_segment_decoded_once(void **state)
{
	static const struct path_case cases[] = {
		{"/", 0, {0}, NULL},
		{"/?", 0, {0}, ""},
		{"/a", 1, {"a"}, NULL},
		{"/a/b/c", 3, {"a", "b", "c"}, NULL},
		{"/a/", 2, {"a", ""}, NULL},
		{"//", 2, {"", ""}, NULL},
		{"//a", 2, {"", "a"}, NULL},
		{"/a//b", 3, {"a", "", "b"}, NULL},
		{"/a?x=1&y=2", 1, {"a"}, "x=1&y=2"},
		{"/a?x=/b?c", 1, {"a"}, "x=/b?c"},
		{"/a%20b", 1, {"a b"}, NULL},
		{"/a+b", 1, {"a+b"}, NULL},
		{"/%41%62", 1, {"Ab"}, NULL},
		{"/%c3%a4/%E2%82%AC", 2, {"\xc3\xa4", "\xe2\x82\xac"}, NULL},
		{"/%252e", 1, {"%2e"}, NULL},
		{"/%2541", 1, {"%41"}, NULL},
		{"/%3f?q", 1, {"?"}, "q"},
		{"/%23", 1, {"#"}, NULL},
		{"/...", 1, {"..."}, NULL},
		{"/.a/a.", 2, {".a", "a."}, NULL},
		{"/%01", 1, {"\x01"}, NULL},
		{"/{itemId}", 1, {"{itemId}"}, NULL},
	};

	for (size_t i = 0; i < COUNT_OF(cases); i++)
		assert_path(*state, &cases[i]);
}

static void an_absolute_target_reads_like_its_path(void **state)
{
	static const struct path_case cases[] = {
		{"http://localhost:8080/a/b?x", 2, {"a", "b"}, "x"},
		{"https://localhost/a", 1, {"a"}, NULL},
		{"http://localhost", 0, {0}, NULL},
		{"http://localhost/", 0, {0}, NULL},
		{"http://localhost?x=1", 0, {0}, "x=1"},
		{"http://localhost?x=/a", 0, {0}, "x=/a"},
		{"http://localhost//a", 2, {"", "a"}, NULL},
	};

	for (size_t i = 0; i < COUNT_OF(cases); i++)
		assert_path(*state, &cases[i]);
}

static void what_could_be_read_in_two_ways_is_refused(void **state)
{
	static const char *const cases[] = {"", "a", "*", "localhost:80", "?x", "ftp://localhost/a",
		"http:/a", "/%", "/%4", "/%zz", "/%4g", "/%g4", "/a/%", "/%2f", "/a%2Fb", "/%00",
		"/a%00b", "/.", "/..", "/a/../b", "/a/./b", "/%2e", "/%2e%2e", "/.%2e", "/a/..",
		"/..?x", "/%80", "/%c3", "/%c3%28", "/%ed%a0%80", "/%c0%af", "/%f5%80%80%80",
		"/\xff", "/a#b", "/#", "/a?x#y", "http://localhost#/a", "http://localhost/%2e%2e"};

	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct path path;
		const char *why = NULL;

		if (path_parse(*state, slice_of(cases[i]), &path, &why) != STATUS_BAD_REQUEST)
			fail_msg("\"%s\" is accepted", cases[i]);
		assert_non_null(why);
	}
}

static void an_escape_that_is_cut_off_is_not_completed_from_what_lies_behind(void **state)
{
	struct path path;
	const char *why;

	for (size_t len = 2; len < 4; len++) {
		struct slice target = slice_make("/%41", len);

		assert_int_equal(path_parse(*state, target, &path, &why), STATUS_BAD_REQUEST);
	}
}

static void more_segments_than_any_route_has_are_counted_no_further(void **state)
{
	static const char twelve[] = "/1/2/3/4/5/6/7/8/9/10/11/12";
	static const char thirteen[] = "/1/2/3/4/5/6/7/8/9/10/11/12/13";
	static const char twenty[] = "/1/2/3/4/5/6/7/8/9/10/11/12/13/14/15/16/17/18/19/20";
	static const char broken[] = "/1/2/3/4/5/6/7/8/9/10/11/12/13/14/%00";
	struct path path;
	const char *why;

	assert_int_equal(path_parse(*state, slice_of(twelve), &path, &why), STATUS_OK);
	assert_int_equal(path.count, PATH_SEGMENTS_MAX);
	assert_slice(path.segments[PATH_SEGMENTS_MAX - 1], "12");
	assert_int_equal(path_parse(*state, slice_of(thirteen), &path, &why), STATUS_OK);
	assert_int_equal(path.count, PATH_SEGMENTS_MAX + 1);
	assert_int_equal(path_parse(*state, slice_of(twenty), &path, &why), STATUS_OK);
	assert_int_equal(path.count, PATH_SEGMENTS_MAX + 1);
	assert_int_equal(path_parse(*state, slice_of(broken), &path, &why), STATUS_BAD_REQUEST);
}

/* ---- queries ----------------------------------------------------------------------------- */

struct query_case {
	const char *query;
	size_t count;
	struct {
		const char *name;
		const char *value;
	} pairs[3];
};

static struct query parse_query(struct arena *arena, struct slice raw)
{
	struct query query = {0};
	const char *why = "";

	if (query_parse(arena, raw, &query, &why) != STATUS_OK)
		fail_msg("\"%.*s\" is refused: %s", (int)raw.len, raw.data, why);
	return query;
}

static void assert_query_refused(struct arena *arena, struct slice raw, const char *reason)
{
	struct query query;
	const char *why = "";

	if (query_parse(arena, raw, &query, &why) != STATUS_BAD_REQUEST)
		fail_msg("\"%.*s\" is accepted", (int)raw.len, raw.data);
	assert_non_null(strstr(why, reason));
}

static void a_query_gives_its_pairs_in_order(void **state)
{
	static const struct query_case cases[] = {
		{"", 0, {{0}}},
		{"&&", 0, {{0}}},
		{"=", 0, {{0}}},
		{"a=1", 1, {{"a", "1"}}},
		{"a", 1, {{"a", ""}}},
		{"=1", 1, {{"", "1"}}},
		{"a=1&a=2&b=3", 3, {{"a", "1"}, {"a", "2"}, {"b", "3"}}},
		{"&a=1&&b=2&", 2, {{"a", "1"}, {"b", "2"}}},
		{"a=b=c", 1, {{"a", "b=c"}}},
		{"a+b=c+d", 1, {{"a b", "c d"}}},
		{"a%2bb=%26%3D", 1, {{"a+b", "&="}}},
		{"itemIds%5B%5D=x%2Fy", 1, {{"itemIds[]", "x/y"}}},
		{"x=%c3%a4", 1, {{"x", "\xc3\xa4"}}},
		{"x=%2541", 1, {{"x", "%41"}}},
		{"x=..", 1, {{"x", ".."}}},
	};

	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct query query = parse_query(*state, slice_of(cases[i].query));

		assert_int_equal(query.count, cases[i].count);
		for (size_t at = 0; at < cases[i].count; at++) {
			assert_slice(query.pairs[at].name, cases[i].pairs[at].name);
			assert_slice(query.pairs[at].value, cases[i].pairs[at].value);
		}
	}
}

static void the_last_of_several_values_counts(void **state)
{
	struct query query = parse_query(*state, slice_of("a=1&b=2&a=3&empty="));

	assert_slice(query_value(&query, "a"), "3");
	assert_slice(query_value(&query, "b"), "2");
	assert_slice(query_value(&query, "empty"), "");
	assert_non_null(query_value(&query, "empty").data);
	assert_null(query_value(&query, "c").data);
}

/* Returns "a&a&…&a" with `count` pairs, and some empty ones, which do not count. */
static struct slice many_pairs(struct arena *arena, size_t count)
{
	struct buffer text = buffer_make(arena, 4 * count);

	for (size_t i = 0; i < count; i++)
		buffer_text(&text, i % 2 == 0 ? "a&" : "a&&");
	return buffer_slice(&text);
}

static void a_query_has_at_most_1100_pairs(void **state)
{
	struct query query = parse_query(*state, many_pairs(*state, QUERY_PAIRS_MAX));

	assert_int_equal(query.count, 1100);
	assert_query_refused(*state, many_pairs(*state, QUERY_PAIRS_MAX + 1), "more than 1100");
	assert_query_refused(*state, many_pairs(*state, 30000), "more than 1100");
}

static void a_broken_query_is_refused(void **state)
{
	static const char *const cases[] = {"a=1&%", "a=1&b=%4", "a=1&%zz=2", "a=1&b=%00",
		"a=1&%ff=2", "a=1&b=%c3", "a=1&b=\xff"};

	for (size_t i = 0; i < COUNT_OF(cases); i++)
		assert_query_refused(*state, slice_of(cases[i]), "not UTF-8");
}

static void an_absent_query_has_no_pairs(void **state)
{
	assert_int_equal(parse_query(*state, (struct slice){0}).count, 0);
}

/* ---- hosts ------------------------------------------------------------------------------- */

static void loopback_names_are_told_from_all_others(void **state)
{
	static const struct {
		const char *host;
		bool expected;
	} cases[] = {
		{"localhost", true},
		{"LocalHost:8080", true},
		{"127.0.0.1", true},
		{"127.0.0.1:8080", true},
		{"127.255.255.254", true},
		{"[::1]", true},
		{"[::1]:8080", true},
		{"", false},
		{":8080", false},
		{"localhost.example.com", false},
		{"notlocalhost", false},
		{"localhos", false},
		{"128.0.0.1", false},
		{"10.0.0.1", false},
		{"0.0.0.0", false},
		{"127.0.0.1.example.com", false},
		{"127.0.0.1.nip.io:80", false},
		{"127.1", false},
		{"2130706433", false},
		{"0177.0.0.1", false},
		{"127.0.0.256", false},
		{"[::2]", false},
		{"[::1", false},
		{"::1", false},
		{"[::ffff:10.0.0.1]", false},
		{"example.com", false},
		{"example.com:127", false},
		{" localhost", false},
		{"localhost:80@evil.com", false},
		{"[::1]evil.com", false},
		{"localhost:evil.com", false},
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		if (host_is_loopback(slice_of(cases[i].host)) != cases[i].expected)
			fail_msg("\"%s\"", cases[i].host);
	}
}

static void a_host_loses_its_port_and_nothing_else(void **state)
{
	static const char *const cases[][2] = {
		{"example.com:80", "example.com"},
		{"example.com", "example.com"},
		{"127.0.0.1:8080", "127.0.0.1"},
		{"[::1]:8080", "[::1]"},
		{"[::1]", "[::1]"},
		{"[::1", ""},
		{"example.com:", "example.com"},
		{"localhost:80@evil.com", ""},
		{"localhost:80:80", ""},
		{"localhost:+80", ""},
		{"localhost:123456", ""},
		{"[::1]evil.com", ""},
		{"[::1]:80@evil.com", ""},
		{":80", ""},
		{"", ""},
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(cases); i++)
		assert_slice(host_without_port(slice_of(cases[i][0])), cases[i][1]);
	assert_int_equal(host_without_port((struct slice){0}).len, 0);
}

#define TEST(name) cmocka_arena_test(name)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_path_is_split_on_slashes_and_each_segment_decoded_once),
		TEST(an_absolute_target_reads_like_its_path),
		TEST(what_could_be_read_in_two_ways_is_refused),
		TEST(an_escape_that_is_cut_off_is_not_completed_from_what_lies_behind),
		TEST(more_segments_than_any_route_has_are_counted_no_further),
		TEST(a_query_gives_its_pairs_in_order),
		TEST(the_last_of_several_values_counts),
		TEST(a_query_has_at_most_1100_pairs),
		TEST(a_broken_query_is_refused),
		TEST(an_absent_query_has_no_pairs),
		TEST(loopback_names_are_told_from_all_others),
		TEST(a_host_loses_its_port_and_nothing_else),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
