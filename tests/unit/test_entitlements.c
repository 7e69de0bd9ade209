/* The rules of entitlements, and the event that tells of a change. */
#include "check.h"

#include "events/entitlement_event.h"
#include "services/entitlements/entitlement_rules.h"

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

/* ---- rules ------------------------------------------------------------------------------- */

static void every_state_answers_every_verb_as_the_table_says(void **state)
{
	static const struct {
		struct entitlement_state before;
		enum entitlement_verb verb;
		enum status status;
		struct entitlement_state after;
	} rows[] = {
		{{false, false, 0}, ENTITLEMENT_GRANT, STATUS_OK, {true, true, 1}},
		{{false, false, 0}, ENTITLEMENT_REVOKE, STATUS_ENTITLEMENT_NOT_FOUND,
			{false, false, 0}},
		{{true, true, 12}, ENTITLEMENT_GRANT, STATUS_ENTITLEMENT_STATE_CONFLICT,
			{true, true, 12}},
		{{true, true, 12}, ENTITLEMENT_REVOKE, STATUS_OK, {true, false, 13}},
		{{true, false, 13}, ENTITLEMENT_GRANT, STATUS_OK, {true, true, 14}},
		{{true, false, 13}, ENTITLEMENT_REVOKE, STATUS_ENTITLEMENT_STATE_CONFLICT,
			{true, false, 13}},
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct entitlement_state entitlement = rows[i].before;

		assert_int_equal(entitlement_apply(&entitlement, rows[i].verb), rows[i].status);
		assert_int_equal(entitlement.exists, rows[i].after.exists);
		assert_int_equal(entitlement.is_active, rows[i].after.is_active);
		assert_true(entitlement.version == rows[i].after.version);
	}
}

/* ---- the event --------------------------------------------------------------------------- */

static struct entitlement_event good_event(void)
{
	return (struct entitlement_event){
		.event_id = SLICE("0f8fad5b-d9cb-469f-a165-70867728950e"),
		.event_type = SLICE(ENTITLEMENT_GRANTED),
		.occurred_us = 1767856200123456,
		.user_id = SLICE("u_123"),
		.unit = SLICE("item1"),
		.source = SLICE("purchase"),
		.source_id = SLICE("p_456"),
		.version = 12,
	};
}

static void a_packed_event_reads_as_it_was(void **state)
{
	struct entitlement_event event = good_event(), read;
	struct slice packed = entitlement_event_pack(&arena, &event);

	(void)state;
	assert_null(entitlement_event_unpack(&arena, packed, &read));
	assert_slice(read.event_id, "0f8fad5b-d9cb-469f-a165-70867728950e");
	assert_slice(read.event_type, "EntitlementGranted");
	assert_true(read.occurred_us == event.occurred_us);
	assert_slice(read.user_id, "u_123");
	assert_slice(read.unit, "item1");
	assert_slice(read.source, "purchase");
	assert_slice(read.source_id, "p_456");
	assert_true(read.version == 12);
}

/* What is wrong with `event` once it is packed. */
static const char *wrong_with(const struct entitlement_event *event)
{
	struct entitlement_event read;

	return entitlement_event_unpack(&arena, entitlement_event_pack(&arena, event), &read);
}

static void an_event_that_lacks_something_is_told_what(void **state)
{
	struct entitlement_event event = good_event();
	struct slice empty = {0};

	(void)state;
	assert_null(wrong_with(&event));
	event.event_id = empty;
	assert_non_null(strstr(wrong_with(&event), "event_id"));
	event = good_event();
	event.event_type = slice_of("EntitlementLost");
	assert_non_null(strstr(wrong_with(&event), "event_type"));
	event = good_event();
	event.user_id = slice_of("a\nb");
	assert_non_null(strstr(wrong_with(&event), "user_id"));
	event.user_id = slice_of("\xff\xfe");
	assert_non_null(strstr(wrong_with(&event), "user_id"));
	event = good_event();
	event.unit = empty;
	assert_non_null(strstr(wrong_with(&event), "stock_keeping_unit"));
	event = good_event();
	event.source = slice_of("\xc3");
	assert_non_null(strstr(wrong_with(&event), "source"));
	event = good_event();
	event.version = 0;
	assert_non_null(strstr(wrong_with(&event), "version"));
	event = good_event();
	event.occurred_us = -1;
	assert_non_null(strstr(wrong_with(&event), "occurred_at"));
}

static void bytes_that_are_no_event_are_refused_wherever_they_end(void **state)
{
	struct entitlement_event event = good_event(), read;
	struct slice packed = entitlement_event_pack(&arena, &event);

	(void)state;
	for (size_t len = 0; len < packed.len; len++)
		assert_non_null(
			entitlement_event_unpack(&arena, slice_make(packed.data, len), &read));
	assert_non_null(entitlement_event_unpack(&arena, slice_of("{\"json\":true}"), &read));
}

static void a_text_with_a_nul_in_it_is_not_cut_short_in_silence(void **state)
{
	struct entitlement_event event = good_event(), read;
	struct slice packed = entitlement_event_pack(&arena, &event);
	char *bytes = (char *)(uintptr_t)packed.data;
	char *place = memmem(bytes, packed.len, "u_123", 5);

	(void)state;
	assert_non_null(place);
	place[1] = '\0';
	assert_non_null(entitlement_event_unpack(&arena, packed, &read));
}

static void fields_of_a_later_version_are_no_fault(void **state)
{
	struct entitlement_event event = good_event(), read;
	struct slice packed = entitlement_event_pack(&arena, &event);
	struct buffer longer = buffer_make(&arena, packed.len + 8);

	(void)state;
	buffer_add(&longer, packed);
	buffer_bytes(&longer, "\x7a\x02hi", 4); /* field 15, a text */
	assert_null(entitlement_event_unpack(&arena, buffer_slice(&longer), &read));
	assert_slice(read.user_id, "u_123");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_state_answers_every_verb_as_the_table_says),
		cmocka_unit_test_setup_teardown(a_packed_event_reads_as_it_was, setup, teardown),
		cmocka_unit_test_setup_teardown(
			an_event_that_lacks_something_is_told_what, setup, teardown),
		cmocka_unit_test_setup_teardown(
			bytes_that_are_no_event_are_refused_wherever_they_end, setup, teardown),
		cmocka_unit_test_setup_teardown(
			a_text_with_a_nul_in_it_is_not_cut_short_in_silence, setup, teardown),
		cmocka_unit_test_setup_teardown(
			fields_of_a_later_version_are_no_fault, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
