/* Events of dialogs, written and read, and what they do to a count. */
#include "check.h"

#include "base/random.h"
#include "effort.h"
#include "events/message_event.h"
#include "services/counters/counter_rules.h"
#include "services/counters/counters.h"

static struct arena arena;

static int setup(void **state)
{
	(void)state;
	arena_init(&arena, 4096);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	arena_release(&arena);
	return 0;
}

/* ---- events ------------------------------------------------------------------------------ */

static const struct message_event good_new = {
	.user_id = SLICE("bob"),
	.message_id = SLICE("0192f0c1-2d3e-7abc-8def-0123456789ab"),
	.sender_id = SLICE("alice"),
	.at_us = 1767856200123000,
};

static void an_envelope_is_written_as_masstransit_does(void **state)
{
	struct slice text =
		message_event_write(&arena, &good_new, slice_of("event-1"), "Quipu.Dialogs");

	(void)state;
	assert_slice(text,
		"{\"messageId\":\"event-1\","
		"\"messageType\":[\"urn:message:Quipu.Dialogs:NewMessageEvent\"],"
		"\"message\":{\"recipientId\":\"bob\","
		"\"messageId\":\"0192f0c1-2d3e-7abc-8def-0123456789ab\",\"senderId\":\"alice\","
		"\"timestamp\":\"2026-01-08T07:10:00.123Z\"},"
		"\"sentTime\":\"2026-01-08T07:10:00.123Z\",\"headers\":{}}");
}

static void what_is_written_reads_as_it_was(void **state)
{
	(void)state;
	for (int is_read = 0; is_read < 2; is_read++) {
		struct message_event event = good_new, read = {.is_read = is_read};
		struct slice text;

		event.is_read = is_read;
		text = message_event_write(&arena, &event, slice_of("e"), "Quipu.Dialogs");
		assert_null(message_event_read(&arena, text, &read));
		assert_slice(read.user_id, "bob");
		assert_slice(read.message_id, "0192f0c1-2d3e-7abc-8def-0123456789ab");
		assert_true(read.at_us == good_new.at_us);
	}
}

static void envelopes_and_bare_messages_in_both_cases_are_read(void **state)
{
	static const char *const texts[] = {
		"{\"recipientId\":\"bob\",\"messageId\":\"m\",\"timestamp\":\"2026-01-08T07:10:"
		"00Z\"}",
		"{\"RecipientId\":\"bob\",\"MessageId\":\"m\",\"SenderId\":\"a\","
		"\"Timestamp\":\"2026-01-08T07:10:00Z\"}",
		"{\"messageType\":[\"urn:message:Other.Space:NewMessageEvent\"],\"message\":"
		"{\"RecipientId\":\"bob\",\"MessageId\":\"m\",\"Timestamp\":"
		"\"2026-01-08T10:10:00+03:00\"}}",
		"{\"MessageType\":[],\"Message\":{\"recipientId\":\"bob\",\"messageId\":\"m\","
		"\"timestamp\":\"2026-01-08T07:10:00.0000000Z\"},\"host\":{}}",
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(texts); i++) {
		struct message_event event = {0};

		assert_null(message_event_read(&arena, slice_of(texts[i]), &event));
		assert_slice(event.user_id, "bob");
		assert_slice(event.message_id, "m");
		assert_true(event.at_us == 1767856200000000);
	}
}

/* .NET services write them so. */
static void a_time_may_be_named_otherwise_or_come_from_the_envelope(void **state)
{
	static const struct {
		const char *text;
		int64_t at_us;
	} rows[] = {
		{"{\"recipientId\":\"b\",\"messageId\":\"m\"}", 0},
		{"{\"recipientId\":\"b\",\"messageId\":\"m\",\"timestamp\":null}", 0},
		{"{\"RecipientId\":\"b\",\"MessageId\":\"m\",\"CreatedAt\":"
		 "\"2026-01-08T07:10:00.1234567\"}",
			1767856200123456},
		{"{\"message\":{\"recipientId\":\"b\",\"messageId\":\"m\"},\"sentTime\":"
		 "\"2026-01-08T07:10:00Z\"}",
			1767856200000000},
		{"{\"message\":{\"recipientId\":\"b\",\"messageId\":\"m\",\"timestamp\":"
		 "\"2026-01-08T07:10:00\"},\"sentTime\":\"2027-01-08T07:10:00Z\"}",
			1767856200000000},
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct message_event event = {.at_us = 7};

		assert_null(message_event_read(&arena, slice_of(rows[i].text), &event));
		assert_true(event.at_us == rows[i].at_us);
	}
}

static void ids_may_be_integers_and_guids_of_either_case(void **state)
{
	struct message_event event = {0};

	(void)state;
	assert_null(message_event_read(&arena,
		slice_of("{\"recipientId\":1001,\"messageId\":-7,\"senderId\":2}"), &event));
	assert_slice(event.user_id, "1001");
	assert_slice(event.message_id, "-7");
	assert_null(message_event_read(&arena,
		slice_of("{\"recipientId\":\"B\",\"messageId\":"
			 "\"0192F0C1-2D3E-7ABC-8DEF-0123456789AB\"}"),
		&event));
	assert_slice(event.user_id, "B");
	assert_slice(event.message_id, "0192f0c1-2d3e-7abc-8def-0123456789ab");
	assert_null(message_event_read(
		&arena, slice_of("{\"recipientId\":\"B\",\"messageId\":\"NOT-A-GUID\"}"), &event));
	assert_slice(event.message_id, "NOT-A-GUID");
}

static void a_new_message_without_an_id_has_that_of_its_envelope(void **state)
{
	struct message_event event = {0}, read = {.is_read = true};

	(void)state;
	assert_null(message_event_read(&arena,
		slice_of("{\"messageId\":\"E\",\"message\":{\"recipientId\":\"b\"}}"), &event));
	assert_slice(event.message_id, "E");
	assert_null(message_event_read(&arena,
		slice_of("{\"messageId\":\"F\",\"message\":{\"recipientId\":\"b\",\"messageId\":"
			 "null}}"),
		&event));
	assert_slice(event.message_id, "F");
	assert_non_null(message_event_read(
		&arena, slice_of("{\"messageId\":\"E\",\"message\":{\"userId\":\"b\"}}"), &read));
}

static void what_is_no_event_is_told_why(void **state)
{
	static const struct {
		const char *text;
		const char *why;
	} rows[] = {
		{"", "JSON"},
		{"[]", "JSON"},
		{"{}", "recipientId"},
		{"{\"recipientId\":7.5}", "recipientId"},
		{"{\"recipientId\":99999999999999999999}", "recipientId"},
		{"{\"recipientId\":\"\"}", "recipientId"},
		{"{\"recipientId\":\"a\\nb\"}", "recipientId"},
		{"{\"recipientId\":\"bob\"}", "messageId"},
		{"{\"recipientId\":\"bob\",\"messageId\":\"m\",\"timestamp\":7}", "timestamp"},
		{"{\"recipientId\":\"bob\",\"messageId\":\"m\",\"timestamp\":\"now\"}",
			"timestamp"},
		{"{\"messageType\":[\"urn:message:X:MessageReadEvent\"],\"message\":{}}",
			"messageType"},
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct message_event event = {0};
		const char *why = message_event_read(&arena, slice_of(rows[i].text), &event);

		assert_non_null(why);
		assert_non_null(strstr(why, rows[i].why));
	}
}

/* ---- counting ---------------------------------------------------------------------------- */

#define MESSAGES 12
#define EVENTS 60

/*
 * Every message is sent; some are read. The events come in any order, each any number of times.
 * Once each has come at least once, the count is the number of messages that were not read.
 */
static void any_order_and_any_repetition_end_at_the_right_count(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= effort(5000, 100000); seed++) {
		struct dice dice = {.state = seed};
		struct counter_message known[MESSAGES] = {0};
		bool is_read[MESSAGES], came[2][MESSAGES] = {{0}};
		int64_t count = 0, expected = 0, delta;

		seed_begin(seed);
		for (size_t i = 0; i < MESSAGES; i++) {
			is_read[i] = dice_below(&dice, 2);
			expected += !is_read[i];
		}
		for (size_t i = 0; i < EVENTS + 2 * MESSAGES; i++) {
			size_t which = i < EVENTS ? dice_below(&dice, MESSAGES) : i % MESSAGES;
			bool reads = i < EVENTS ? dice_below(&dice, 2) : (i - EVENTS) / MESSAGES;

			if (reads && !is_read[which])
				continue;
			if (i >= EVENTS && came[reads][which])
				continue;
			came[reads][which] = true;
			if (counter_apply(&known[which], reads, 0, &delta))
				known[which].exists = true;
			count += delta;
			assert_true(count >= 0);
		}
		assert_true(count == expected);
	}
	seeds_end();
}

/* ---- a batch ----------------------------------------------------------------------------- */

/* A repository that knows no message yet and remembers what is added. */
static struct counter_row added[4];
static size_t added_count;

static enum status know_nothing(const struct counter_repository *repository,
	struct session *session, struct counter_message *messages, size_t count)
{
	(void)session;
	for (size_t i = 0; i < count; i++)
		messages[i].exists = false;
	return STATUS_OK;
}

static enum status put_anything(const struct counter_repository *repository,
	struct session *session, const struct counter_message *messages, size_t count)
{
	(void)session;
	(void)messages;
	(void)count;
	return STATUS_OK;
}

static enum status remember_added(const struct counter_repository *repository,
	struct session *session, struct counter_row *rows, size_t count)
{
	(void)session;
	assert_true(count <= COUNT_OF(added));
	memcpy(added, rows, count * sizeof(*rows));
	added_count = count;
	return STATUS_OK;
}

static void every_message_of_a_batch_counts_for_its_user(void **state)
{
	static const struct counter_repository_ops repository_ops = {
		.lock = know_nothing, .put = put_anything, .add = remember_added};
	static const struct counter_repository repository = {.ops = &repository_ops};
	const struct counters counters = {.repository = &repository};
	struct counter_message messages[] = {
		{.user_id = SLICE("alice"), .message_id = SLICE("1")},
		{.user_id = SLICE("bob"), .message_id = SLICE("2")},
		{.user_id = SLICE("bob"), .message_id = SLICE("3")},
		{.user_id = SLICE("bob"), .message_id = SLICE("4")},
	};
	struct counter_counting counting = {
		.arena = &arena, .messages = messages, .count = COUNT_OF(messages)};

	(void)state;
	assert_int_equal(counter_count(&counters, NULL, &counting), STATUS_OK);
	assert_int_equal(counting.changed, 4);
	assert_int_equal(added_count, 2);
	assert_slice(added[0].user_id, "alice");
	assert_int_equal(added[0].delta, 1);
	assert_slice(added[1].user_id, "bob");
	assert_int_equal(added[1].delta, 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			an_envelope_is_written_as_masstransit_does, setup, teardown),
		cmocka_unit_test_setup_teardown(what_is_written_reads_as_it_was, setup, teardown),
		cmocka_unit_test_setup_teardown(
			envelopes_and_bare_messages_in_both_cases_are_read, setup, teardown),
		cmocka_unit_test_setup_teardown(
			a_time_may_be_named_otherwise_or_come_from_the_envelope, setup, teardown),
		cmocka_unit_test_setup_teardown(
			ids_may_be_integers_and_guids_of_either_case, setup, teardown),
		cmocka_unit_test_setup_teardown(
			a_new_message_without_an_id_has_that_of_its_envelope, setup, teardown),
		cmocka_unit_test_setup_teardown(what_is_no_event_is_told_why, setup, teardown),
		cmocka_random_test(any_order_and_any_repetition_end_at_the_right_count),
		cmocka_unit_test_setup_teardown(
			every_message_of_a_batch_counts_for_its_user, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
