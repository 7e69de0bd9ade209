/*
 * Messages in both encodings: what is accepted and what is refused.
 * tests/e2e/test_twirp_messages.py compares them with another implementation of proto3.
 */
#include "check.h"

#include <every_type.pb-c.h>
#include <math.h>

#include "base/buffer.h"
#include "protobuf/proto_message.h"

static struct arena arena;

static int set_up(void **state)
{
	(void)state;
	arena_init(&arena, 4096);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	arena_release(&arena);
	return 0;
}

static Quipu__Test__EveryType *read(enum proto_encoding encoding, struct slice bytes)
{
	struct proto_error error = {0};
	ProtobufCMessage *message =
		proto_read(&quipu__test__every_type__descriptor, encoding, bytes, &arena, &error);

	if (!message)
		fail_msg("\"%.*s\": %s %s", (int)bytes.len, bytes.data, error.where, error.why);
	return (Quipu__Test__EveryType *)message;
}

static Quipu__Test__EveryType *read_json(const char *text)
{
	return read(PROTO_JSON, slice_of(text));
}

static struct proto_error refused(enum proto_encoding encoding, struct slice bytes)
{
	struct proto_error error = {0};
	ProtobufCMessage *message =
		proto_read(&quipu__test__every_type__descriptor, encoding, bytes, &arena, &error);

	if (message)
		fail_msg("\"%.*s\" must be refused", (int)bytes.len, bytes.data);
	assert_non_null(error.where);
	assert_true(strlen(error.why) > 0);
	return error;
}

/* Converts JSON to the binary encoding and back. */
static struct slice there_and_back(const char *text)
{
	struct slice binary = proto_write(&read_json(text)->base, PROTO_BINARY, &arena);

	return proto_write(&read(PROTO_BINARY, binary)->base, PROTO_JSON, &arena);
}

static void test_every_type_goes_through_both_encodings(void **unused)
{
	static const char *const members[] = {
		"\"a_int32\":-2147483648",
		"\"a_sint32\":2147483647",
		"\"a_sfixed32\":-1",
		"\"a_uint32\":4294967295",
		"\"a_fixed32\":7",
		"\"a_int64\":\"-9223372036854775808\"",
		"\"a_sint64\":\"9223372036854775807\"",
		"\"a_sfixed64\":\"-5\"",
		"\"a_uint64\":\"18446744073709551615\"",
		"\"a_fixed64\":\"1\"",
		"\"a_float\":0.1",
		"\"a_float\":\"NaN\"",
		"\"a_double\":0.1",
		"\"a_double\":\"-Infinity\"",
		"\"a_bool\":true",
		"\"a_colour\":\"GREEN\"",
		"\"a_string\":\"h\xc3\xa9 \\\"x\\\" \\n\"",
		"\"a_bytes\":\"AAECA/8=\"",
		"\"an_inner\":{\"text\":\"x\",\"small_number\":3}",
		"\"a_time\":\"2026-01-08T07:10:00.123456789Z\"",
		"\"choice_number\":0",
		"\"choice_text\":\"\"",
		"\"choice_inner\":{\"text\":\"\",\"small_number\":0}",
		"\"many_int32\":[1,-2,3]",
		"\"many_uint64\":[\"0\",\"18446744073709551615\"]",
		"\"many_double\":[1.5,\"Infinity\",-2e+100]",
		"\"many_bool\":[true,false]",
		"\"many_colour\":[\"RED\",\"BLUE\",77]",
		"\"many_string\":[\"\",\"b\"]",
		"\"many_bytes\":[\"\",\"/w==\",\"//8=\",\"////\"]",
		"\"many_inner\":[{\"text\":\"\",\"small_number\":0},{\"text\":\"b\","
		"\"small_number\":1}]",
		"\"many_time\":[\"1970-01-01T00:00:00Z\",\"0001-01-01T00:00:00Z\","
		"\"9999-12-31T23:59:59.999Z\",\"1969-12-31T23:59:59.000001Z\"]",
	};

	(void)unused;
	for (size_t i = 0; i < COUNT_OF(members); i++) {
		struct buffer text = buffer_make(&arena, 128);

		buffer_format(&text, "{%s}", members[i]);
		buffer_char(&text, '\0');
		assert_contains(there_and_back(text.data), members[i]);
	}
}

static void test_defaults_are_written_out_and_absent_messages_are_not(void **unused)
{
	(void)unused;
	assert_slice(there_and_back("{}"),
		"{\"a_int32\":0,\"a_sint32\":0,\"a_sfixed32\":0,\"a_uint32\":0,\"a_fixed32\":0,"
		"\"a_int64\":\"0\",\"a_sint64\":\"0\",\"a_sfixed64\":\"0\",\"a_uint64\":\"0\","
		"\"a_fixed64\":\"0\",\"a_float\":0,\"a_double\":0,\"a_bool\":false,"
		"\"a_colour\":\"COLOUR_NONE\",\"a_string\":\"\",\"a_bytes\":\"\","
		"\"many_int32\":[],\"many_uint64\":[],\"many_double\":[],\"many_bool\":[],"
		"\"many_colour\":[],\"many_string\":[],\"many_bytes\":[],\"many_inner\":[],"
		"\"many_time\":[]}");
}

static void test_names_in_both_forms_null_and_unknown_fields(void **unused)
{
	Quipu__Test__EveryType *message;

	(void)unused;
	message = read_json("{\"aInt32\":5,\"manyInt32\":[1],\"anInner\":{\"smallNumber\":4}}");
	assert_int_equal(message->a_int32, 5);
	assert_int_equal(message->n_many_int32, 1);
	assert_int_equal(message->an_inner->small_number, 4);
	message = read_json("{\"a_int32\":null,\"many_int32\":null,\"an_inner\":null,"
			    "\"choice_text\":null,\"a_string\":null,\"a_time\":null}");
	assert_int_equal(message->a_int32, 0);
	assert_int_equal(message->n_many_int32, 0);
	assert_null(message->an_inner);
	assert_null(message->a_time);
	assert_string_equal(message->a_string, "");
	assert_int_equal(message->choice_case, 0);
	message = read_json("{\"other\":{\"deep\":[1,2,{}]},\"a_int32\":1,\"an_inner\":{\"x\":1}}");
	assert_int_equal(message->a_int32, 1);
}

static void test_numbers_that_are_accepted(void **unused)
{
	Quipu__Test__EveryType *message;

	(void)unused;
	message = read_json("{\"a_int64\":-5,\"a_uint64\":9223372036854775807,"
			    "\"a_double\":3,\"a_float\":-1.5e3,\"a_colour\":-2}");
	assert_int_equal(message->a_int64, -5);
	assert_true(message->a_uint64 == INT64_MAX);
	assert_true(message->a_double == 3);
	assert_true(message->a_float == -1500);
	assert_int_equal(message->a_colour, QUIPU__TEST__EVERY_TYPE__COLOUR__GREEN);
	assert_true(isnan(read_json("{\"a_double\":\"NaN\"}")->a_double));
}

static void test_bytes_in_every_alphabet_with_and_without_padding(void **unused)
{
	static const char *const texts[] = {
		"{\"a_bytes\":\"-_8=\"}", "{\"a_bytes\":\"+/8=\"}", "{\"a_bytes\":\"-_8\"}"};

	(void)unused;
	for (size_t i = 0; i < COUNT_OF(texts); i++) {
		Quipu__Test__EveryType *message = read_json(texts[i]);

		assert_int_equal(message->a_bytes.len, 2);
		assert_memory_equal(message->a_bytes.data, "\xfb\xff", 2);
	}
}

static void test_times_with_offsets_and_fractions(void **unused)
{
	static const struct {
		const char *text;
		int64_t seconds;
		int32_t nanos;
	} rows[] = {
		{"{\"a_time\":\"1970-01-01T00:00:00Z\"}", 0, 0},
		{"{\"a_time\":\"1970-01-01T01:30:00+01:30\"}", 0, 0},
		{"{\"a_time\":\"1969-12-31T22:00:00-02:00\"}", 0, 0},
		{"{\"a_time\":\"2024-02-29T12:00:00.5Z\"}", 1709208000, 500000000},
		{"{\"a_time\":\"1970-01-01T00:00:01.000000001Z\"}", 1, 1},
	};

	(void)unused;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		Quipu__Test__EveryType *message = read_json(rows[i].text);

		assert_int_equal(message->a_time->seconds, rows[i].seconds);
		assert_int_equal(message->a_time->nanos, rows[i].nanos);
	}
}

static void test_values_that_cannot_be_read_are_told_by_their_place(void **unused)
{
	static const struct {
		const char *text;
		const char *where;
	} rows[] = {
		{"{\"a_int32\":2147483648}", "a_int32"},
		{"{\"a_int32\":-2147483649}", "a_int32"},
		{"{\"a_int32\":1.0}", "a_int32"},
		{"{\"a_int32\":1e0}", "a_int32"},
		{"{\"a_int32\":\"1\"}", "a_int32"},
		{"{\"a_int32\":true}", "a_int32"},
		{"{\"a_int32\":[1]}", "a_int32"},
		{"{\"a_int32\":1,\"aInt32\":1}", "a_int32"},
		{"{\"a_uint32\":-1}", "a_uint32"},
		{"{\"a_uint32\":4294967296}", "a_uint32"},
		{"{\"a_int64\":\"9223372036854775808\"}", "a_int64"},
		{"{\"a_int64\":\"\"}", "a_int64"},
		{"{\"a_int64\":\" 1\"}", "a_int64"},
		{"{\"a_int64\":1.5}", "a_int64"},
		{"{\"a_uint64\":-1}", "a_uint64"},
		{"{\"a_uint64\":\"-1\"}", "a_uint64"},
		{"{\"a_uint64\":\"18446744073709551616\"}", "a_uint64"},
		{"{\"a_uint64\":\"\"}", "a_uint64"},
		{"{\"a_double\":\"1\"}", "a_double"},
		{"{\"a_double\":false}", "a_double"},
		{"{\"a_float\":1e39}", "a_float"},
		{"{\"a_bool\":1}", "a_bool"},
		{"{\"a_bool\":\"true\"}", "a_bool"},
		{"{\"a_colour\":true}", "a_colour"},
		{"{\"a_colour\":1.5}", "a_colour"},
		{"{\"a_string\":5}", "a_string"},
		{"{\"a_bytes\":\"A\"}", "a_bytes"},
		{"{\"a_bytes\":\"AA=\"}", "a_bytes"},
		{"{\"a_bytes\":\"A*==\"}", "a_bytes"},
		{"{\"a_bytes\":7}", "a_bytes"},
		{"{\"an_inner\":[]}", "an_inner"},
		{"{\"an_inner\":{\"small_number\":\"x\"}}", "an_inner.small_number"},
		{"{\"many_int32\":5}", "many_int32"},
		{"{\"many_int32\":[1,null]}", "many_int32[1]"},
		{"{\"many_inner\":[{},{},{\"text\":1}]}", "many_inner[2].text"},
		{"{\"choice_number\":1,\"choice_text\":\"x\"}", "choice_text"},
		{"{\"a_time\":5}", "a_time"},
		{"{\"a_time\":\"2026-01-08\"}", "a_time"},
		{"{\"a_time\":\"2026-01-08T07:10:00\"}", "a_time"},
		{"{\"a_time\":\"2026-02-29T07:10:00Z\"}", "a_time"},
		{"{\"a_time\":\"2026-13-01T07:10:00Z\"}", "a_time"},
		{"{\"a_time\":\"2026-01-08T24:00:00Z\"}", "a_time"},
		{"{\"a_time\":\"2026-01-08T07:60:00Z\"}", "a_time"},
		{"{\"a_time\":\"2026-01-08T07:10:60Z\"}", "a_time"},
		{"{\"a_time\":\"2026-01-08T07:10:00.Z\"}", "a_time"},
		{"{\"a_time\":\"2026-01-08T07:10:00.1234567890Z\"}", "a_time"},
		{"{\"a_time\":\"2026-01-08T07:10:00+24:00\"}", "a_time"},
		{"{\"a_time\":\"2026-01-08T07:10:00+01\"}", "a_time"},
		{"{\"a_time\":\"2026-01-08T07:10:00Z \"}", "a_time"},
		{"{\"a_time\":\"0000-12-31T23:59:59Z\"}", "a_time"},
		{"{\"a_time\":\"0001-01-01T00:00:00+00:01\"}", "a_time"},
		{"{\"many_time\":[\"x\"]}", "many_time[0]"},
		{"{\"a_int32\":1,\"a_int32\":1}", ""},
		{"{\"a_int32\":1} x", ""},
		{"[]", ""},
		{"", ""},
		{"{\"a_string\":\"\\u0000\"}", ""},
		{"{\"a_string\":\"\\ud800\"}", ""},
	};

	(void)unused;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct proto_error error = refused(PROTO_JSON, slice_of(rows[i].text));

		if (strcmp(error.where, rows[i].where) != 0)
			fail_msg("%s: \"%s\"", rows[i].text, error.where);
		assert_false(error.is_argument);
	}
}

static void test_a_name_that_an_enum_does_not_list_is_an_argument_that_is_wrong(void **unused)
{
	struct proto_error error =
		refused(PROTO_JSON, slice_of("{\"many_colour\":[\"RED\",\"PINK\"]}"));

	(void)unused;
	assert_true(error.is_argument);
	assert_string_equal(error.where, "many_colour[1]");
}

static void test_binary_messages_that_are_refused(void **unused)
{
	static const struct {
		struct slice bytes;
		const char *where;
	} rows[] = {
		{SLICE("\x7a\x02\xff\xfe"), "a_string"}, /* not UTF-8 */
		{SLICE("\x7a\x03"
		       "a\0b"),
			"a_string"},                             /* would be cut at the NUL */
		{SLICE("\x8a\x01\x04\x0a\x02\xc0\x80"), "text"}, /* in a nested message */
		{SLICE("\xb2\x02\x01\x80"), ""},                 /* the length is incomplete */
		{SLICE("\x08"), ""},
		{SLICE("\x0d\x01\x00\x00"), ""},
		{SLICE("\x09\x01\x00\x00"), ""},
		{SLICE("\x0b\x0c"), ""},                 /* a group */
		{SLICE("\x00\x01"), ""},                 /* field 0 */
		{SLICE("\x82\x00\x00"), ""},             /* the same, in two bytes */
		{SLICE("\x0a\x01\x01"), ""},             /* an integer as bytes */
		{SLICE("\x7a\xff\xff\xff\xff\x0f"), ""}, /* longer than the whole message */
		{SLICE("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00"), ""},
	};

	(void)unused;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct proto_error error = refused(PROTO_BINARY, rows[i].bytes);

		if (strcmp(error.where, rows[i].where) != 0)
			fail_msg("%zu: \"%s\" %s", i, error.where, error.why);
	}
}

static void test_binary_messages_that_are_accepted(void **unused)
{
	struct slice unknown = SLICE("\xa0\x06\x05\xaa\x06\x02\xff\xfe\x08\x07");
	struct slice unlisted = SLICE("\x70\x63");
	struct slice packed = SLICE("\xfa\x01\x02\x05\x06");
	struct slice empty = {0};

	(void)unused;
	assert_int_equal(read(PROTO_BINARY, unknown)->a_int32, 7);
	assert_int_equal((int)read(PROTO_BINARY, unlisted)->a_colour, 99);
	assert_int_equal(read(PROTO_BINARY, packed)->n_many_int32, 2);
	assert_int_equal(read(PROTO_BINARY, empty)->a_int32, 0);
}

static void test_descriptions_are_checked(void **unused)
{
	(void)unused;
	proto_check(&quipu__test__every_type__descriptor);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_every_type_goes_through_both_encodings),
		TEST(test_defaults_are_written_out_and_absent_messages_are_not),
		TEST(test_names_in_both_forms_null_and_unknown_fields),
		TEST(test_numbers_that_are_accepted),
		TEST(test_bytes_in_every_alphabet_with_and_without_padding),
		TEST(test_times_with_offsets_and_fractions),
		TEST(test_values_that_cannot_be_read_are_told_by_their_place),
		TEST(test_a_name_that_an_enum_does_not_list_is_an_argument_that_is_wrong),
		TEST(test_binary_messages_that_are_refused),
		TEST(test_binary_messages_that_are_accepted),
		TEST(test_descriptions_are_checked),
	};

	return cmocka_run_group_tests_name("proto message", tests, NULL, NULL);
}
