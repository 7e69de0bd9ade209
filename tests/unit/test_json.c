/* Strict JSON: one object, exact integers, nothing that two programs could read differently. */
#include "check.h"

#include <stdio.h>

#include "base/json.h"
#include "base/json_digest.h"

static json_t *parse(struct slice text, char *why)
{
	memset(why, '?', JSON_WHY_SIZE);
	return json_parse_object(text, why);
}

static void assert_refused(struct slice text, const char *what)
{
	char why[JSON_WHY_SIZE];
	json_t *value = parse(text, why);

	if (value)
		fail_msg("%s is accepted", what);
	assert_non_null(memchr(why, '\0', sizeof(why)));
	assert_true(strlen(why) > 0 && why[0] != '?');
}

static void an_object_is_read(void **state)
{
	char why[JSON_WHY_SIZE];
	json_t *value =
		parse(slice_of(" {\"a\": 1, \"b\": {\"c\": [true, null, \"\\u00e4\"]}}\r\n"), why);

	(void)state;
	assert_non_null(value);
	assert_int_equal(json_integer_value(json_object_get(value, "a")), 1);
	assert_string_equal(json_string_value(json_array_get(
				    json_object_get(json_object_get(value, "b"), "c"), 2)),
		"\xc3\xa4");
	json_decref(value);
}

static void what_is_no_object_is_refused(void **state)
{
	static const char *const cases[] = {"", " ", "1", "\"a\"", "null", "true", "[]", "[{}]",
		"{", "}", "{}}", "{} {}", "{}x", "{}\n1", "{\"a\"}", "{\"a\":}", "{\"a\":1,}",
		"{a:1}", "{'a':1}", "{\"a\":01}", "{\"a\":+1}", "{\"a\":.5}", "{\"a\":1.}",
		"{\"a\":NaN}", "{\"a\":Infinity}", "{\"a\":0x1}", "{\"a\":tru}", "{\"a\":\"",
		"{\"a\":\"\n\"}", "{\"a\":\"\\x\"}", "// c\n{}", "{/**/}", "\xef\xbb\xbf{}"};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(cases); i++)
		assert_refused(slice_of(cases[i]), cases[i]);
}

/* The message says what was expected and where, but quotes nothing that the client has sent. */
static void a_refusal_says_what_is_wrong(void **state)
{
	static const struct {
		const char *text, *why;
	} cases[] = {
		{"{\"a\": 1 \"secret\": 2}", "expected ',' or '}' at line 1, column 9"},
		{"{\"a\": \"\xc3\xa4\" \"\xc3\xa4\": 2}",
			"expected ',' or '}' at line 1, column 11"},
		{"{\"a\": [1 2]}", "expected ',' or ']' at line 1, column 10"},
		{"{\n\"a\" 1}", "expected ':' at line 2, column 5"},
		{"{\"a\":1,}", "expected a name in quotes at line 1, column 8"},
		{"{a:1}", "expected a name in quotes at line 1, column 2"},
		{"a", "expected '{' at line 1, column 1"},
		{"{} {}", "expected the end of the text at line 1, column 4"},
		{"{\"a\":}", "expected a value at line 1, column 6"},
		{"{\"a\":tru}", "invalid token at line 1, column 6"},
		{"{\"a\":1", "expected ',' or '}', but the text ends at line 1, column 6"},
	};
	static const char prefix[] = "the body is not valid JSON: ";
	char why[JSON_WHY_SIZE];

	(void)state;
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		assert_null(parse(slice_of(cases[i].text), why));
		assert_memory_equal(why, prefix, strlen(prefix));
		assert_string_equal(why + strlen(prefix), cases[i].why);
	}
}

static void duplicate_keys_are_refused_at_any_depth(void **state)
{
	(void)state;
	assert_refused(slice_of("{\"a\":1,\"a\":1}"), "a twice");
	assert_refused(slice_of("{\"a\":1,\"\\u0061\":2}"), "a and its escape");
	assert_refused(slice_of("{\"x\":[{\"a\":1,\"a\":2}]}"), "a twice within");
}

static void nul_surrogates_and_bad_utf8_are_refused(void **state)
{
	static const struct slice cases[] = {
		SLICE("{\"a\":\"\\u0000\"}"),
		SLICE("{\"a\\u0000\":1}"),
		SLICE("{\"a\":\"\0\"}"),
		SLICE("{}\0"),
		SLICE("{\"a\":5\0}"),
		SLICE("{\"a\":5}\0{\"a\":6}"),
		SLICE("{\"a\":\"\\ud800\"}"),
		SLICE("{\"a\":\"\\udc00\"}"),
		SLICE("{\"a\":\"\\ud800\\u0041\"}"),
		SLICE("{\"a\":\"\\udc00\\ud800\"}"),
		SLICE("{\"a\":\"\xff\"}"),
		SLICE("{\"a\":\"\xc3\"}"),
		SLICE("{\"a\":\"\xc0\x80\"}"),
		SLICE("{\"a\":\"\xed\xa0\x80\"}"),
		SLICE("{\"\xff\":1}"),
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(cases); i++)
		assert_refused(cases[i], cases[i].data);
}

static void a_surrogate_pair_is_one_character(void **state)
{
	char why[JSON_WHY_SIZE];
	json_t *value = parse(slice_of("{\"a\":\"\\ud83d\\ude00\"}"), why);

	(void)state;
	assert_string_equal(json_string_value(json_object_get(value, "a")), "\xf0\x9f\x98\x80");
	json_decref(value);
}

static void integers_are_exact_to_both_ends_of_int64(void **state)
{
	static const struct {
		const char *text;
		int64_t value;
	} cases[] = {
		{"{\"a\":9223372036854775807}", INT64_MAX},
		{"{\"a\":-9223372036854775808}", INT64_MIN},
		{"{\"a\":9007199254740993}", 9007199254740993},
		{"{\"a\":-0}", 0},
	};
	char why[JSON_WHY_SIZE];

	(void)state;
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		json_t *value = parse(slice_of(cases[i].text), why);
		json_t *number = json_object_get(value, "a");

		assert_true(json_is_integer(number));
		assert_int_equal(json_integer_value(number), cases[i].value);
		json_decref(value);
	}
}

/* Parses {"a": `number`, "b": 7}, in which b must be 7, and returns a. */
static double read_real(const char *number)
{
	char text[512], why[JSON_WHY_SIZE];
	json_t *value, *found;
	double real;

	snprintf(text, sizeof(text), "{\"a\":%s,\"b\":7}", number);
	value = parse(slice_of(text), why);
	if (!value)
		fail_msg("%s: %s", text, why);
	found = json_object_get(value, "a");
	assert_true(json_is_real(found));
	assert_int_equal(json_integer_value(json_object_get(value, "b")), 7);
	real = json_real_value(found);
	json_decref(value);
	return real;
}

static void a_number_that_fits_nowhere_is_no_integer_and_spoils_nothing_else(void **state)
{
	char long_integer[401];

	(void)state;
	memset(long_integer, '9', 400);
	long_integer[400] = '\0';
	assert_true(read_real("9223372036854775808") == 9223372036854775800.0);
	assert_true(read_real("-9223372036854775809") == -9223372036854775800.0);
	assert_true(
		read_real("123456789012345678901234567890") == 123456789012345678901234567800.0);
	assert_true(read_real(long_integer) == JSON_HUGE);
	assert_true(read_real("1e309") == JSON_HUGE);
	assert_true(read_real("-9E+308") == -JSON_HUGE);
	assert_true(read_real("-1.5e999999999999999999999") == -JSON_HUGE);
	assert_true(read_real("1e-999") == 0);
	assert_true(read_real("0.1234567890123456789") > 0.1234);
}

static void digits_within_strings_are_no_numbers(void **state)
{
	char why[JSON_WHY_SIZE];
	json_t *value =
		parse(slice_of("{\"\\\"1e999\":\"99999999999999999999\\\\\",\"b\":1e999}"), why);

	(void)state;
	assert_non_null(value);
	assert_string_equal(
		json_string_value(json_object_get(value, "\"1e999")), "99999999999999999999\\");
	json_decref(value);
}

static void a_wide_number_that_is_none_stays_refused(void **state)
{
	static const char *const cases[] = {"{\"a\":00000000000000000000}", "{\"a\":1e}",
		"{\"a\":1e+}", "{\"a\":1.e999}", "{\"a\":.1e999}", "{\"a\":-e999}",
		"{\"a\":1e999e999}", "{\"a\":99999999999999999999-}",
		"{\"a\":099999999999999999999}", "{\"a\":99999999999999999999 1}", "1e999",
		"99999999999999999999", "{99999999999999999999:1}"};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(cases); i++)
		assert_refused(slice_of(cases[i]), cases[i]);
}

static void an_event_may_hold_anything_in_members_that_nobody_reads(void **state)
{
	static const struct slice cases[] = {
		SLICE("{\"a\":1,\"x\":99999999999999999999999999}"),
		SLICE("{\"x\":-1e999,\"a\":1}"),
		SLICE("{\"x\":\"\\u0000\",\"a\":1}"),
		SLICE("{\"x\":{\"y\":1,\"y\":2},\"a\":1}"),
		SLICE("{\"a\":1,\"x\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]"
		      "]"
		      "]]]]]]]]]]]]]]]]]]}"),
	};
	char why[JSON_WHY_SIZE];

	(void)state;
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		json_t *event = json_parse_event(cases[i], why);

		if (!event)
			fail_msg("%s: %s", cases[i].data, why);
		assert_int_equal(json_integer_value(json_object_get(event, "a")), 1);
		json_decref(event);
	}
}

static void an_event_must_be_a_json_object_like_everything_else(void **state)
{
	static const struct slice cases[] = {SLICE(""), SLICE("[]"), SLICE("{\"a\":1"),
		SLICE("{\"a\":\"\xff\"}"), SLICE("{}\0"), SLICE("{\"a\":01}"), SLICE("{}{}")};
	char why[JSON_WHY_SIZE];

	(void)state;
	for (size_t i = 0; i < COUNT_OF(cases); i++)
		assert_null(json_parse_event(cases[i], why));
}

/* ---- digests ----------------------------------------------------------------------------- */

static void digest_of(const char *text, unsigned char out[SHA256_SIZE])
{
	char why[JSON_WHY_SIZE];
	json_t *value = parse(slice_of(text), why);
	struct digest digest;
	struct arena scratch;

	if (!value)
		fail_msg("%s: %s", text, why);
	arena_init(&scratch, 1024);
	digest_begin(&digest);
	json_digest(&digest, value, &scratch);
	digest_end(&digest, out);
	arena_release(&scratch);
	json_decref(value);
}

static bool digests_agree(const char *a, const char *b)
{
	unsigned char first[SHA256_SIZE], second[SHA256_SIZE];

	digest_of(a, first);
	digest_of(b, second);
	return memcmp(first, second, SHA256_SIZE) == 0;
}

static void a_digest_does_not_depend_on_how_json_was_typed(void **state)
{
	static const char *const cases[][2] = {
		{"{\"a\":1,\"b\":2}", "{ \"b\" : 2,\r\n\"a\" : 1 }"},
		{"{\"a\":{\"x\":[],\"y\":{}}}", "{\"a\":{\"y\":{},\"x\":[ ]}}"},
		{"{\"a\":\"a/\xc3\xa4\"}", "{\"\\u0061\":\"\\u0061\\/\\u00E4\"}"},
		{"{\"a\":5}", "{\"a\":5.0}"},
		{"{\"a\":5}", "{\"a\":50e-1}"},
		{"{\"a\":0}", "{\"a\":-0}"},
		{"{\"a\":0}", "{\"a\":-0.0}"},
		{"{\"a\":0.1}", "{\"a\":1e-1}"},
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		if (!digests_agree(cases[i][0], cases[i][1]))
			fail_msg("%s and %s differ", cases[i][0], cases[i][1]);
	}
}

static void a_digest_tells_different_values_apart(void **state)
{
	static const char *const values[] = {"{}", "{\"a\":null}", "{\"a\":false}", "{\"a\":true}",
		"{\"a\":0}", "{\"a\":1}", "{\"a\":-1}", "{\"a\":0.5}", "{\"a\":\"1\"}",
		"{\"a\":\"\"}", "{\"a\":[]}", "{\"a\":{}}", "{\"a\":[1]}", "{\"a\":[1,1]}",
		"{\"a\":[1,2]}", "{\"a\":[2,1]}", "{\"a\":[[1],2]}", "{\"a\":[[1,2]]}", "{\"b\":1}",
		"{\"a\":1,\"b\":1}", "{\"A\":1}", "{\"a\":9007199254740993}",
		"{\"a\":9007199254740992}", "{\"a\":9223372036854775807}", "{\"a\":{\"b\":1}}",
		"{\"a\":\"a\",\"b\":\"\"}", "{\"a\":\"\",\"b\":\"a\"}"};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(values); i++) {
		for (size_t j = 0; j < i; j++) {
			if (digests_agree(values[i], values[j]))
				fail_msg("%s and %s agree", values[i], values[j]);
		}
	}
}

static void fractions_and_exponents_are_never_integers(void **state)
{
	static const char *const cases[] = {
		"{\"a\":1.0}", "{\"a\":1e2}", "{\"a\":1E0}", "{\"a\":-0.0}", "{\"a\":1e-1}"};
	char why[JSON_WHY_SIZE];

	(void)state;
	for (size_t i = 0; i < COUNT_OF(cases); i++) {
		json_t *value = parse(slice_of(cases[i]), why);

		assert_non_null(value);
		assert_false(json_is_integer(json_object_get(value, "a")));
		json_decref(value);
	}
}

/* {"a":{"a": … }} or {"a":[[ … ]]}, `depth` deep. */
static struct slice nested(char *text, size_t size, int depth, bool arrays)
{
	size_t len = 0;

	for (int i = 0; i < depth; i++)
		len += (size_t)snprintf(
			text + len, size - len, "%s", i == 0 || !arrays ? "{\"a\":" : "[");
	len += (size_t)snprintf(text + len, size - len, "1");
	for (int i = depth - 1; i >= 0; i--)
		text[len++] = i == 0 || !arrays ? '}' : ']';
	return slice_make(text, len);
}

static void nesting_is_bounded_at_32(void **state)
{
	char text[1024], why[JSON_WHY_SIZE];

	(void)state;
	for (int arrays = 0; arrays < 2; arrays++) {
		struct slice deepest = nested(text, sizeof(text), JSON_DEPTH_MAX, arrays);
		json_t *value = parse(deepest, why);

		assert_non_null(value);
		json_decref(value);
		assert_refused(nested(text, sizeof(text), JSON_DEPTH_MAX + 1, arrays), "33 deep");
	}
}

static void nesting_without_end_is_refused_before_it_is_parsed(void **state)
{
	static char brackets[65536];

	(void)state;
	memset(brackets, '[', sizeof(brackets));
	assert_refused(slice_make(brackets, sizeof(brackets)), "64 KiB of brackets");
}

static void brackets_within_strings_do_not_nest(void **state)
{
	char text[256] = "{\"\\\"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\":"
			 "\"\\\\\",\"b\":\"{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{\"}";
	char why[JSON_WHY_SIZE];
	json_t *value = parse(slice_of(text), why);

	(void)state;
	assert_non_null(value);
	assert_int_equal(json_object_size(value), 2);
	json_decref(value);
}

static void the_reason_names_the_place(void **state)
{
	char why[JSON_WHY_SIZE];

	(void)state;
	assert_null(parse(slice_of("{\n\"a\": oops}"), why));
	assert_non_null(strstr(why, "line 2"));
	assert_null(parse(slice_of("[]"), why));
	assert_non_null(strstr(why, "object"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_object_is_read),
		cmocka_unit_test(what_is_no_object_is_refused),
		cmocka_unit_test(a_refusal_says_what_is_wrong),
		cmocka_unit_test(duplicate_keys_are_refused_at_any_depth),
		cmocka_unit_test(nul_surrogates_and_bad_utf8_are_refused),
		cmocka_unit_test(a_surrogate_pair_is_one_character),
		cmocka_unit_test(integers_are_exact_to_both_ends_of_int64),
		cmocka_unit_test(a_number_that_fits_nowhere_is_no_integer_and_spoils_nothing_else),
		cmocka_unit_test(digits_within_strings_are_no_numbers),
		cmocka_unit_test(a_wide_number_that_is_none_stays_refused),
		cmocka_unit_test(an_event_may_hold_anything_in_members_that_nobody_reads),
		cmocka_unit_test(an_event_must_be_a_json_object_like_everything_else),
		cmocka_unit_test(a_digest_does_not_depend_on_how_json_was_typed),
		cmocka_unit_test(a_digest_tells_different_values_apart),
		cmocka_unit_test(fractions_and_exponents_are_never_integers),
		cmocka_unit_test(nesting_is_bounded_at_32),
		cmocka_unit_test(nesting_without_end_is_refused_before_it_is_parsed),
		cmocka_unit_test(brackets_within_strings_do_not_nest),
		cmocka_unit_test(the_reason_names_the_place),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
