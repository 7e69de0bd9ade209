/* The buffer that writes every answer body: numbers, JSON strings and times, byte for byte. */
#include "check.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>

#include "base/buffer.h"

static int set_up(void **state)
{
	static struct arena arena;

	arena_init(&arena, 256);
	*state = &arena;
	return 0;
}

static int tear_down(void **state)
{
	arena_release(*state);
	return 0;
}

static void an_empty_buffer_is_an_empty_slice(void **state)
{
	struct buffer buffer = buffer_make(*state, 0);
	struct buffer bare = {.arena = *state};

	assert_slice(buffer_slice(&buffer), "");
	assert_slice(buffer_slice(&bare), "");
	buffer_text(&bare, "");
	buffer_add(&bare, (struct slice){0});
	assert_slice(buffer_slice(&bare), "");
}

static void every_append_lands_behind_the_one_before(void **state)
{
	struct buffer buffer = buffer_make(*state, 4);

	buffer_text(&buffer, "one ");
	buffer_char(&buffer, '2');
	buffer_bytes(&buffer, "\0x", 2);
	buffer_add(&buffer, slice_of(" three "));
	buffer_format(&buffer, "%d-%s", 4, "five");
	assert_int_equal(buffer.len, 20);
	assert_memory_equal(buffer.data, "one 2\0x three 4-five", 20);
}

static void a_buffer_grows_without_losing_a_byte(void **state)
{
	struct buffer buffer = buffer_make(*state, 0);
	struct buffer other = buffer_make(*state, 0);

	for (size_t i = 0; i < 20000; i++) {
		buffer_char(&buffer, (char)('a' + i % 26));
		if (i % 7 == 0)
			/* so that the first buffer cannot always grow in place */
			buffer_char(&other, '.');
	}
	assert_int_equal(buffer.len, 20000);
	for (size_t i = 0; i < 20000; i++)
		assert_int_equal(buffer.data[i], 'a' + i % 26);
	for (size_t i = 0; i < other.len; i++)
		assert_int_equal(other.data[i], '.');
}

static void a_format_that_does_not_fit_makes_room_first(void **state)
{
	struct buffer buffer = buffer_make(*state, 1);
	char expected[301];

	memset(expected, 'x', 300);
	expected[300] = '\0';
	buffer_format(&buffer, "%s", expected);
	assert_slice(buffer_slice(&buffer), expected);
}

static void integers_are_written_as_printf_writes_them(void **state)
{
	static const int64_t cases[] = {0, 1, -1, 9, 10, -10, 99, 100, 1234567890, INT32_MAX,
		INT32_MIN, INT64_MAX, INT64_MAX - 1, INT64_MIN, INT64_MIN + 1};

	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct buffer buffer = buffer_make(*state, 0);
		char expected[32];

		snprintf(expected, sizeof(expected), "%" PRId64, cases[i]);
		buffer_int(&buffer, cases[i]);
		assert_slice(buffer_slice(&buffer), expected);
	}
}

static void one_thing_is_counted_in_the_singular(void **state)
{
	static const struct {
		int64_t count;
		const char *plural;
		const char *text;
	} cases[] = {
		{0, "limits", "0 limits"},
		{1, "limits", "1 limit"},
		{2, "limits", "2 limits"},
		{1, "messages sent", "1 message sent"},
		{1, "audit lines", "1 audit line"},
		{1, "events to the persons", "1 event to the persons"},
		{21, "messages sent", "21 messages sent"},
		{1, "sheep", "1 sheep"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct buffer buffer = buffer_make(*state, 0);

		buffer_counted(&buffer, cases[i].count, slice_of(cases[i].plural));
		assert_true(slice_is(buffer_slice(&buffer), cases[i].text));
	}
}

static void json_strings_escape_what_json_forbids(void **state)
{
	static const struct {
		const char *text;
		const char *expected;
	} cases[] = {
		{"", "\"\""},
		{"plain", "\"plain\""},
		{"say \"x\"", "\"say \\\"x\\\"\""},
		{"a\\b", "\"a\\\\b\""},
		{"\n\r\t", "\"\\n\\r\\t\""},
		{"\x01\x1f\x7f", "\"\\u0001\\u001f\\u007f\""},
		{"/", "\"/\""},
		{"\xc3\xa4\xf0\x9f\x98\x80", "\"\xc3\xa4\xf0\x9f\x98\x80\""},
		{"\"", "\"\\\"\""},
		{"x\b", "\"x\\u0008\""},
	};

	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct buffer buffer = buffer_make(*state, 0);

		buffer_json_string(&buffer, slice_of(cases[i].text));
		assert_slice(buffer_slice(&buffer), cases[i].expected);
	}
}

static void a_json_string_is_read_back_as_it_was(void **state)
{
	struct buffer buffer = buffer_make(*state, 0);
	char text[128];
	json_t *value;

	for (int i = 1; i < 128; i++)
		text[i - 1] = (char)i;
	text[127] = '\0';
	buffer_json_string(&buffer, slice_of(text));
	value = json_loadb(buffer.data, buffer.len, JSON_DECODE_ANY, NULL);
	assert_non_null(value);
	assert_string_equal(json_string_value(value), text);
	json_decref(value);
}

static void times_are_rfc_3339_with_the_fraction_that_is_there(void **state)
{
	static const struct {
		int64_t us;
		const char *expected;
	} cases[] = {
		{0, "1970-01-01T00:00:00Z"},
		{1, "1970-01-01T00:00:00.000001Z"},
		{1000, "1970-01-01T00:00:00.001Z"},
		{1100, "1970-01-01T00:00:00.001100Z"},
		{120000, "1970-01-01T00:00:00.120Z"},
		{999999, "1970-01-01T00:00:00.999999Z"},
		{-1, "1969-12-31T23:59:59.999999Z"},
		{-1000000, "1969-12-31T23:59:59Z"},
		{-1500000, "1969-12-31T23:59:58.500Z"},
		{1767856200000000, "2026-01-08T07:10:00Z"},
		{1709164800123456, "2024-02-29T00:00:00.123456Z"},
		{253402300799999999, "9999-12-31T23:59:59.999999Z"},
	};

	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct buffer buffer = buffer_make(*state, 0);

		buffer_time(&buffer, cases[i].us);
		assert_slice(buffer_slice(&buffer), cases[i].expected);
	}
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(an_empty_buffer_is_an_empty_slice),
		TEST(every_append_lands_behind_the_one_before),
		TEST(a_buffer_grows_without_losing_a_byte),
		TEST(a_format_that_does_not_fit_makes_room_first),
		TEST(integers_are_written_as_printf_writes_them),
		TEST(one_thing_is_counted_in_the_singular),
		TEST(json_strings_escape_what_json_forbids),
		TEST(a_json_string_is_read_back_as_it_was),
		TEST(times_are_rfc_3339_with_the_fraction_that_is_there),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
