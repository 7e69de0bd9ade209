/* Slices and text: pure functions, tested with tables of inputs and outputs. */
#include "check.h"

#include "base/text.h"

/* A row whose bytes may contain NUL. */
struct text_case {
	struct slice text;
	bool expected;
};

#define ROW(literal, expected)                                                                     \
	{                                                                                          \
		SLICE(literal), expected                                                           \
	}

static void assert_all(const struct text_case *cases, size_t count, bool (*function)(struct slice))
{
	for (size_t i = 0; i < count; i++) {
		if (function(cases[i].text) != cases[i].expected)
			fail_msg("row %zu \"%s\"", i, cases[i].text.data);
	}
}

/* ---- slices ------------------------------------------------------------------------------ */

static void slices_order_by_bytes_and_the_shorter_first(void **state)
{
	static const char *const ascending[] = {
		"", "A", "AA", "AB", "B", "a", "a\x01", "ab", "\x7f", "\xc3\xa4", "\xff"};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(ascending); i++) {
		for (size_t j = 0; j < COUNT_OF(ascending); j++) {
			int order = slice_compare(slice_of(ascending[i]), slice_of(ascending[j]));

			assert_int_equal((order > 0) - (order < 0), (i > j) - (i < j));
		}
	}
}

static void slices_with_nul_differ_behind_it(void **state)
{
	struct slice a = SLICE("a\0b");
	struct slice b = SLICE("a\0c");

	(void)state;
	assert_false(slice_equal(a, b));
	assert_true(slice_compare(a, b) < 0);
	assert_true(slice_equal(a, slice_make("a\0b", 3)));
}

static void an_absent_slice_equals_an_empty_one(void **state)
{
	struct slice absent = {0};

	(void)state;
	assert_true(slice_equal(absent, slice_of("")));
	assert_true(slice_is_nocase(absent, ""));
	assert_int_equal(slice_compare(absent, slice_of("")), 0);
	assert_true(slice_compare(absent, slice_of("a")) < 0);
}

static void case_is_ignored_for_ascii_letters_alone(void **state)
{
	(void)state;
	assert_true(slice_is_nocase(slice_of("Content-TYPE"), "content-type"));
	assert_false(slice_is_nocase(slice_of("Content-Typ"), "content-type"));
	assert_false(slice_is_nocase(slice_of("a["), "a{"));
	assert_false(slice_is_nocase(slice_of("\xc3\xa4"), "\xc3\x84"));
}

static void a_prefix_is_told_from_what_is_shorter_or_different(void **state)
{
	(void)state;
	assert_true(slice_starts_with(slice_of("http://x"), "http://"));
	assert_true(slice_starts_with(slice_of("http://"), "http://"));
	assert_true(slice_starts_with(slice_of("x"), ""));
	assert_false(slice_starts_with(slice_of("http:/"), "http://"));
	assert_false(slice_starts_with(slice_of("HTTP://x"), "http://"));
}

static void trimming_takes_spaces_and_tabs_at_the_ends_only(void **state)
{
	(void)state;
	assert_slice(slice_trim(slice_of(" \t a b\t ")), "a b");
	assert_slice(slice_trim(slice_of("a")), "a");
	assert_slice(slice_trim(slice_of(" \t ")), "");
	assert_slice(slice_trim(slice_of("\na\r")), "\na\r");
	assert_slice(slice_trim((struct slice){0}), "");
}

static void cutting_gives_every_part_and_then_none(void **state)
{
	struct slice rest = SLICE("a,,bc,");

	(void)state;
	assert_slice(slice_cut(&rest, ','), "a");
	assert_slice(slice_cut(&rest, ','), "");
	assert_slice(slice_cut(&rest, ','), "bc");
	assert_non_null(rest.data);
	assert_slice(slice_cut(&rest, ','), "");
	assert_null(rest.data);
	assert_slice(slice_cut(&rest, ','), "");
	assert_null(rest.data);
}

/* ---- UTF-8 ------------------------------------------------------------------------------- */

static void utf8_is_accepted_and_everything_else_refused(void **state)
{
	static const struct text_case cases[] = {
		ROW("", true),
		ROW("plain", true),
		ROW("\x01\x7f", true),
		ROW("\xc2\x80", true),         /* U+0080, the first of two bytes */
		ROW("\xdf\xbf", true),         /* U+07FF, the last */
		ROW("\xe0\xa0\x80", true),     /* U+0800 */
		ROW("\xed\x9f\xbf", true),     /* U+D7FF, before the surrogates */
		ROW("\xee\x80\x80", true),     /* U+E000, after the surrogates */
		ROW("\xef\xbf\xbf", true),     /* U+FFFF */
		ROW("\xf0\x90\x80\x80", true), /* U+10000 */
		ROW("\xf4\x8f\xbf\xbf", true), /* U+10FFFF, the last of all */
		ROW("\0", false),
		ROW("a\0b", false),
		ROW("\x80", false), /* a continuation alone */
		ROW("\xbf", false),
		ROW("\xc0\x80", false), /* NUL in two bytes */
		ROW("\xc1\xbf", false),
		ROW("\xc2", false), /* cut off */
		ROW("\xc2 ", false),
		ROW("\xe0\x9f\xbf", false), /* overlong */
		ROW("\xe2\x82", false),
		ROW("\xe2\x82 ", false),
		ROW("\xed\xa0\x80", false), /* surrogates */
		ROW("\xed\xbf\xbf", false),
		ROW("\xf0\x8f\xbf\xbf", false), /* overlong */
		ROW("\xf0\x90\x80", false),
		ROW("\xf4\x90\x80\x80", false), /* above U+10FFFF */
		ROW("\xf5\x80\x80\x80", false),
		ROW("\xff", false),
		ROW("good \xc3\xa4 then \xc3(", false),
	};

	(void)state;
	assert_all(cases, COUNT_OF(cases), text_is_utf8);
}

static void utf8_never_reads_behind_the_end(void **state)
{
	static const char whole[] = "\xf0\x9f\x98\x80";

	(void)state;
	for (size_t len = 1; len < 4; len++)
		assert_false(text_is_utf8(slice_make(whole, len)));
	assert_true(text_is_utf8(slice_make(whole, 4)));
}

static void control_characters_are_c0_del_and_c1(void **state)
{
	static const struct text_case cases[] = {
		ROW("", false),
		ROW(" ~", false),
		ROW("\xc2\xa0", false), /* U+00A0, the first after C1 */
		/* 0x80 as a continuation byte is not a control character */
		ROW("\xc3\x80", false),
		ROW("\xe2\x82\x85", false), /* neither is 0x85 */
		ROW("\x1f", true),
		ROW("a\tb", true),
		ROW("a\n", true),
		ROW("\x7f", true),
		ROW("\xc2\x80", true),
		ROW("a\xc2\x9f", true),
	};

	(void)state;
	assert_all(cases, COUNT_OF(cases), text_has_control);
}

static void blank_is_white_space_or_nothing(void **state)
{
	static const struct text_case cases[] = {
		ROW("", true),
		ROW(" \t\r\n\v\f", true),
		ROW("  x ", false),
		ROW("\xc2\xa0", false),
		ROW("\0", false),
	};

	(void)state;
	assert_all(cases, COUNT_OF(cases), text_is_blank);
}

/* ---- numbers ----------------------------------------------------------------------------- */

static void integers_are_read_to_both_ends_of_int64(void **state)
{
	static const struct {
		const char *text;
		int64_t value;
	} cases[] = {
		{"0", 0},
		{"-0", 0},
		{"7", 7},
		{"007", 7},
		{"-12", -12},
		{"9223372036854775807", INT64_MAX},
		{"-9223372036854775808", INT64_MIN},
		{"-9223372036854775807", -INT64_MAX},
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		int64_t value = 99;

		assert_true(text_to_int(slice_of(cases[i].text), &value));
		assert_int_equal(value, cases[i].value);
	}
}

static void what_is_no_integer_is_refused_and_changes_nothing(void **state)
{
	static const char *const cases[] = {"", "-", "+1", " 1", "1 ", "1.0", "1e3", "0x10", "--1",
		"1-", "1:", "1/", "9223372036854775808", "-9223372036854775809",
		"99999999999999999999", "\xd9\xa1", "1,000"};
	int64_t value = 99;

	(void)state;
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		if (text_to_int(slice_of(cases[i]), &value))
			fail_msg("\"%s\" was read as %lld", cases[i], (long long)value);
		assert_int_equal(value, 99);
	}
	assert_false(text_to_int(slice_make("1\0", 2), &value));
	assert_false(text_to_int((struct slice){0}, &value));
}

static void durations_are_read_in_every_unit(void **state)
{
	static const struct {
		const char *text;
		int64_t us;
	} cases[] = {
		{"0", 0},
		{"0s", 0},
		{"7us", 7},
		{"20ms", 20000},
		{"90s", 90000000},
		{"2m", 120000000},
		{"24h", 86400000000},
		{"30d", 2592000000000},
		{"-5s", -5000000},
		{"9223372036854775807us", INT64_MAX},
		{"106751991d", 106751991 * 86400000000},
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		int64_t us = 99;

		assert_true(text_to_duration_us(slice_of(cases[i].text), &us));
		assert_int_equal(us, cases[i].us);
	}
}

static void what_is_no_duration_is_refused(void **state)
{
	static const char *const cases[] = {"", "-", "5", "-5", "s", "5 s", "5S", "1.5s", "5sec",
		"5ss", "0x", "0 ", "+5s", " 5s", "5s ", "1h30m", "106751992d",
		"9223372036854775808us"};
	int64_t us;

	(void)state;
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		if (text_to_duration_us(slice_of(cases[i]), &us))
			fail_msg("\"%s\" was read as %lld us", cases[i], (long long)us);
	}
}

static void times_are_read_with_fraction_and_offset(void **state)
{
	static const struct {
		const char *text;
		int64_t us;
	} cases[] = {
		{"1970-01-01T00:00:00Z", 0},
		{"2026-01-08T07:10:00Z", 1767856200000000},
		{"2026-01-08T08:10:00+01:00", 1767856200000000},
		{"2026-01-08T01:40:00-05:30", 1767856200000000},
		{"2026-01-08T07:10:00.5Z", 1767856200500000},
		{"2026-01-08T07:10:00.1234567Z", 1767856200123456},
		{"2026-01-08T07:10:00-00:00", 1767856200000000},
		{"2016-12-31T23:59:60Z", 1483228800000000},
		{"2024-02-29T00:00:00Z", 1709164800000000},
		{"1969-12-31T23:59:59.999999Z", -1},
		{"9999-12-31T23:59:59Z", 253402300799000000},
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		int64_t us = 0;

		assert_true(text_to_time_us(slice_of(cases[i].text), &us));
		assert_true(us == cases[i].us);
	}
}

static void a_time_that_was_written_is_read_as_the_same(void **state)
{
	static const int64_t cases[] = {
		0, -1, 1, 1767856200123000, 1767856200123456, -62135596800000000};
	struct arena arena;

	(void)state;
	arena_init(&arena, 4096);
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct buffer text = buffer_make(&arena, 0);
		int64_t us = 7;

		buffer_time(&text, cases[i]);
		assert_true(text_to_time_us(buffer_slice(&text), &us));
		assert_true(us == cases[i]);
	}
	arena_release(&arena);
}

static void what_is_no_time_is_refused_and_changes_nothing(void **state)
{
	static const char *const cases[] = {"", "now", "2026-01-08", "2026-01-08T07:10:00",
		"2026-01-08 07:10:00Z", "2026-01-08T07:10Z", "2026-1-8T07:10:00Z",
		"2026-13-08T07:10:00Z", "2026-00-08T07:10:00Z", "2026-02-30T07:10:00Z",
		"2025-02-29T07:10:00Z", "2026-01-00T07:10:00Z", "2026-01-08T24:00:00Z",
		"2026-01-08T07:60:00Z", "2026-01-08T07:10:61Z", "2026-01-08T07:10:00.Z",
		"2026-01-08T07:10:00,5Z", "2026-01-08T07:10:00+1:00", "2026-01-08T07:10:00+0100",
		"2026-01-08T07:10:00+24:00", "2026-01-08T07:10:00Z ", " 2026-01-08T07:10:00Z",
		"2026-01-08T07:10:00ZZ", "-026-01-08T07:10:00Z", "26-01-08T07:10:00Z"};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		int64_t us = 7;

		if (text_to_time_us(slice_of(cases[i]), &us))
			fail_msg("accepted: %s", cases[i]);
		assert_true(us == 7);
	}
}

/* ---- log lines --------------------------------------------------------------------------- */

static void log_lines_keep_text_and_escape_what_could_forge_them(void **state)
{
	static const struct {
		struct slice text;
		const char *expected;
	} cases[] = {
		{SLICE("plain \xc3\xa4 text"), "plain \xc3\xa4 text"},
		{SLICE("a\nb\r"), "a\\x0ab\\x0d"},
		{SLICE("\x1b[31m"), "\\x1b[31m"},
		{SLICE("\0"), "\\x00"},
		{SLICE("\x7f"), "\\x7f"},
		{SLICE("\xc2\x85"), "\\xc2\\x85"}, /* NEL, a line break for some programs */
		{SLICE("\xff\xc3"), "\\xff\\xc3"},
		{SLICE("\xe2\x82\xac\xe2\x82"), "\xe2\x82\xac\\xe2\\x82"},
		{SLICE(""), ""},
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		struct arena arena;
		struct buffer line;

		arena_init(&arena, 64);
		line = buffer_make(&arena, 0);
		text_escape_log(&line, cases[i].text);
		assert_slice(buffer_slice(&line), cases[i].expected);
		arena_release(&arena);
	}
}

static void every_byte_alone_is_harmless_in_a_log_line(void **state)
{
	struct arena arena;

	(void)state;
	arena_init(&arena, 4096);
	for (int byte = 0; byte < 256; byte++) {
		char c = (char)byte;
		struct buffer line = buffer_make(&arena, 0);

		text_escape_log(&line, slice_make(&c, 1));
		assert_true(text_is_utf8(buffer_slice(&line)));
		assert_false(text_has_control(buffer_slice(&line)));
		assert_int_equal(line.len, byte >= 0x20 && byte < 0x7f ? 1 : 4);
	}
	arena_release(&arena);
}

static void a_cut_falls_between_two_characters(void **state)
{
	static const struct slice text = SLICE("a\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80");
	static const size_t kept[] = {0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 10};

	(void)state;
	for (size_t max = 0; max < COUNT_OF(kept); max++) {
		struct slice cut = text_cut(text, max);

		assert_true(cut.data == text.data);
		assert_int_equal(cut.len, kept[max]);
		assert_true(text_is_utf8(cut));
	}
}

static void parts_of_urls_are_decoded_and_broken_ones_refused(void **state)
{
	static const char *const broken[] = {"%", "a%2", "%zz", "%00", "%g0", "%0g", "a%2%41"};
	struct arena arena;

	(void)state;
	arena_init(&arena, 256);
	assert_string_equal(text_unescape(&arena, slice_of("")), "");
	assert_string_equal(text_unescape(&arena, slice_of("a+b")), "a+b");
	assert_string_equal(text_unescape(&arena, slice_of("p%40s%2f%2F%25")), "p@s//%");
	assert_string_equal(text_unescape(&arena, slice_of("%c3%A4")), "\xc3\xa4");
	for (size_t i = 0; i < sizeof(broken) / sizeof(broken[0]); i++)
		assert_null(text_unescape(&arena, slice_of(broken[i])));
	arena_release(&arena);
}

/* Writes "a" and then the character, and returns the whole text. */
static struct slice text_of(char *text, uint32_t character)
{
	size_t len = character < 0x80 ? 1 : character < 0x800 ? 2 : character < 0x10000 ? 3 : 4;
	static const unsigned char leads[] = {0, 0, 0xc0, 0xe0, 0xf0};

	text[0] = 'a';
	for (size_t i = len; i > 1; i--, character >>= 6)
		text[i] = (char)(0x80 | (character & 0x3f));
	text[1] = (char)(leads[len] | character);
	return slice_make(text, len + 1);
}

static void the_end_of_a_prefix_has_the_next_character(void **state)
{
	char prefix[5], next[5];
	struct arena arena;

	(void)state;
	arena_init(&arena, 256);
	for (uint32_t character = 1; character < 0x10ffff; character++) {
		uint32_t after = character == 0xd7ff ? 0xe000 : character + 1;
		struct slice end = text_prefix_end(&arena, text_of(prefix, character));

		assert_true(slice_equal(end, text_of(next, after)));
		if (after == 0xe000)
			character = 0xdfff;
		arena_reset(&arena);
	}
	arena_release(&arena);
}

static void nothing_comes_after_the_last_character(void **state)
{
	char text[5];
	struct arena arena;

	(void)state;
	arena_init(&arena, 256);
	assert_true(slice_is(text_prefix_end(&arena, text_of(text, 0x10ffff)), "b"));
	assert_true(slice_is(text_prefix_end(&arena, slice_of("")), ""));
	assert_true(slice_is(
		text_prefix_end(&arena, slice_of("\xf4\x8f\xbf\xbf\xf4\x8f\xbf\xbf")), ""));
	arena_release(&arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(slices_order_by_bytes_and_the_shorter_first),
		cmocka_unit_test(slices_with_nul_differ_behind_it),
		cmocka_unit_test(an_absent_slice_equals_an_empty_one),
		cmocka_unit_test(case_is_ignored_for_ascii_letters_alone),
		cmocka_unit_test(a_prefix_is_told_from_what_is_shorter_or_different),
		cmocka_unit_test(trimming_takes_spaces_and_tabs_at_the_ends_only),
		cmocka_unit_test(cutting_gives_every_part_and_then_none),
		cmocka_unit_test(utf8_is_accepted_and_everything_else_refused),
		cmocka_unit_test(utf8_never_reads_behind_the_end),
		cmocka_unit_test(control_characters_are_c0_del_and_c1),
		cmocka_unit_test(blank_is_white_space_or_nothing),
		cmocka_unit_test(a_cut_falls_between_two_characters),
		cmocka_unit_test(the_end_of_a_prefix_has_the_next_character),
		cmocka_unit_test(nothing_comes_after_the_last_character),
		cmocka_unit_test(integers_are_read_to_both_ends_of_int64),
		cmocka_unit_test(what_is_no_integer_is_refused_and_changes_nothing),
		cmocka_unit_test(durations_are_read_in_every_unit),
		cmocka_unit_test(what_is_no_duration_is_refused),
		cmocka_unit_test(times_are_read_with_fraction_and_offset),
		cmocka_unit_test(a_time_that_was_written_is_read_as_the_same),
		cmocka_unit_test(what_is_no_time_is_refused_and_changes_nothing),
		cmocka_unit_test(log_lines_keep_text_and_escape_what_could_forge_them),
		cmocka_unit_test(every_byte_alone_is_harmless_in_a_log_line),
		cmocka_unit_test(parts_of_urls_are_decoded_and_broken_ones_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
