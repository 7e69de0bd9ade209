/* What JetStream returns from a stream, in JSON, becomes the message that was published. */
#include "check.h"

#include "adapters/bus/nats/nats_consuming.h"

#define TIME "\"time\":\"2026-01-08T07:10:00.123456789Z\""
#define TIME_US 1767856200123456LL

/* Returns false if the text is not readable as a stored message. */
static bool read_text(const char *text, natsMsg **message, int64_t *time_us)
{
	char why[JSON_WHY_SIZE];
	json_t *stored = json_parse_object(slice_of(text), why);
	bool readable;

	assert_non_null(stored);
	readable = nats_stored_read(stored, message, time_us);
	json_decref(stored);
	return readable;
}

static void assert_header(natsMsg *message, const char *name, const char *expected)
{
	const char *value = NULL;

	assert_int_equal(natsMsgHeader_Get(message, name, &value), NATS_OK);
	assert_string_equal(value, expected);
}

static void a_message_is_read_with_headers_and_bytes(void **state)
{
	natsMsg *message = NULL;
	int64_t time_us = 0;

	(void)state;
	/* NATS/1.0, Nats-Msg-Id: a-1, key:k:1, and an empty line; the data are pay, NUL, load */
	assert_true(read_text("{\"subject\":\"events.granted\",\"seq\":7,"
			      "\"hdrs\":\"TkFUUy8xLjANCk5hdHMtTXNnLUlkOiBhLTENCmtleTprOjENCg0K\","
			      "\"data\":\"cGF5AGxvYWQ=\"," TIME "}",
		&message, &time_us));
	assert_string_equal(natsMsg_GetSubject(message), "events.granted");
	assert_int_equal(natsMsg_GetDataLength(message), 8);
	assert_memory_equal(natsMsg_GetData(message), "pay\0load", 8);
	assert_header(message, "Nats-Msg-Id", "a-1");
	assert_header(message, "key", "k:1");
	assert_int_equal(time_us, TIME_US);
	natsMsg_Destroy(message);
}

static void a_message_without_headers_and_data_is_read(void **state)
{
	natsMsg *message = NULL;
	int64_t time_us = 0;

	(void)state;
	assert_true(read_text("{\"subject\":\"e\"," TIME "}", &message, &time_us));
	assert_int_equal(natsMsg_GetDataLength(message), 0);
	natsMsg_Destroy(message);
}

static void headers_that_are_none_are_skipped(void **state)
{
	static const char *const encoded[] = {
		"Z2FyYmFnZTogeA0KDQo=", /* garbage: x, without NATS/1.0 */
		"TkFUUy8xLjA=",         /* NATS/1.0 alone */
		"TkFUUy8xLjANCm5vIGNvbG9uDQo6IG5vIG5hbWUNCiBhOiBmb2xkZWQNCg0K",
		"TkFUUy8xLjANCgBhOiBiDQoNCg==", /* a name that begins with NUL */
		"//79",                         /* bytes that are no text */
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(encoded); i++) {
		natsMsg *message = NULL;
		const char **names = NULL;
		int64_t time_us = 0;
		char text[256];
		int count = 0;

		snprintf(text, sizeof(text), "{\"subject\":\"e\",\"hdrs\":\"%s\"," TIME "}",
			encoded[i]);
		assert_true(read_text(text, &message, &time_us));
		assert_int_equal(natsMsgHeader_Keys(message, &names, &count), NATS_NOT_FOUND);
		natsMsg_Destroy(message);
	}
}

static void what_is_no_message_is_refused(void **state)
{
	static const char *const texts[] = {
		"{}",
		"{" TIME "}",
		"{\"subject\":\"\"," TIME "}",
		"{\"subject\":\"e\"}",
		"{\"subject\":\"e\",\"time\":\"today\"}",
		"{\"subject\":\"e\",\"data\":\"*\"," TIME "}",
		"{\"subject\":\"e\",\"data\":\"A\"," TIME "}",
		"{\"subject\":\"e\",\"hdrs\":\"-_\"," TIME "}",
	};
	natsMsg *message = NULL;
	int64_t time_us = 0;

	(void)state;
	for (size_t i = 0; i < COUNT_OF(texts); i++)
		assert_false(read_text(texts[i], &message, &time_us));
	assert_false(nats_stored_read(NULL, &message, &time_us));
	assert_null(message);
}

/* cnats needs its own threads to free a message. */
static int open_library(void **state)
{
	(void)state;
	return nats_Open(-1) == NATS_OK ? 0 : -1;
}

static int close_library(void **state)
{
	(void)state;
	return nats_CloseAndWait(0) == NATS_OK ? 0 : -1;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_message_is_read_with_headers_and_bytes),
		cmocka_unit_test(a_message_without_headers_and_data_is_read),
		cmocka_unit_test(headers_that_are_none_are_skipped),
		cmocka_unit_test(what_is_no_message_is_refused),
	};

	return cmocka_run_group_tests(tests, open_library, close_library);
}
