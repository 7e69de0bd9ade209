/* The rules of entitlements, and the event about a change. */
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

#define NOW_US 1767856200123456

static struct entitlement_row row_of(int64_t version, size_t active_count)
{
	return (struct entitlement_row){
		.is_active = version % 2 != 0,
		.version = version,
		.source_count = active_count + 1,
		.active_count = active_count,
	};
}

static struct entitlement_source source_of(const char *kind, bool exists, bool is_active)
{
	return (struct entitlement_source){
		.kind = slice_of(kind),
		.exists = exists,
		.is_active = is_active,
		.granted_us = exists,
		.revoked_us = exists && !is_active,
	};
}

static void a_grant_answers_every_state_as_the_table_says(void **state)
{
	static const struct {
		int64_t version;
		const char *kind;
		bool exists, is_active; /* of the source */
		enum status status;
		int64_t version_after, step_after;
	} rows[] = {
		{0, "purchase", false, false, STATUS_OK, 1, 0},
		{1, "purchase", false, false, STATUS_OK, 1, 1},
		{1, "purchase", true, true, STATUS_ENTITLEMENT_STATE_CONFLICT, 1, 0},
		{1, "purchase", true, false, STATUS_ENTITLEMENT_STATE_CONFLICT, 1, 0},
		{1, "reason", true, true, STATUS_ENTITLEMENT_STATE_CONFLICT, 1, 0},
		{1, "reason", true, false, STATUS_OK, 1, 1},
		{2, "purchase", false, false, STATUS_OK, 3, 0},
		{2, "purchase", true, false, STATUS_ENTITLEMENT_STATE_CONFLICT, 2, 0},
		{2, "reason", true, false, STATUS_OK, 3, 0},
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct entitlement_row row = row_of(rows[i].version, rows[i].version % 2 != 0);
		struct entitlement_source source =
			source_of(rows[i].kind, rows[i].exists, rows[i].is_active);
		bool is_granted = rows[i].status == STATUS_OK;

		assert_int_equal(entitlement_grant(&row, &source, NOW_US), rows[i].status);
		assert_true(row.version == rows[i].version_after);
		assert_true(row.step == rows[i].step_after);
		assert_int_equal(source.is_active, rows[i].is_active || is_granted);
		assert_int_equal(source.granted_us == NOW_US, is_granted);
		assert_int_equal(row.updated_us == NOW_US, row.version != rows[i].version);
	}
}

static void a_revoke_answers_every_state_as_the_table_says(void **state)
{
	static const struct {
		int64_t version;
		size_t active_count;
		bool exists, is_active, migrated; /* of the sources */
		enum status status;
		int64_t version_after, step_after;
	} rows[] = {
		{0, 0, false, false, false, STATUS_ENTITLEMENT_NOT_FOUND, 0, 0},
		{1, 1, false, false, false, STATUS_ENTITLEMENT_NOT_FOUND, 1, 0},
		{1, 1, true, true, false, STATUS_OK, 2, 0},
		{1, 2, true, true, false, STATUS_OK, 1, 1},
		{1, 2, true, true, true, STATUS_OK, 1, 1},
		{1, 1, true, false, false, STATUS_ENTITLEMENT_STATE_CONFLICT, 1, 0},
		{1, 1, true, false, true, STATUS_ENTITLEMENT_STATE_CONFLICT, 1, 0},
		{1, 1, false, false, true, STATUS_OK, 2, 0},
		{1, 2, false, false, true, STATUS_OK, 1, 1},
		{2, 0, false, false, false, STATUS_ENTITLEMENT_STATE_CONFLICT, 2, 0},
		{2, 0, true, false, false, STATUS_ENTITLEMENT_STATE_CONFLICT, 2, 0},
	};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(rows); i++) {
		struct entitlement_row row = row_of(rows[i].version, rows[i].active_count);
		struct entitlement_source source =
			source_of(ENTITLEMENT_PURCHASE, rows[i].exists, rows[i].is_active);
		struct entitlement_source migrated =
			source_of(ENTITLEMENT_MIGRATED, rows[i].migrated, rows[i].migrated);
		bool is_ended = rows[i].status == STATUS_OK;

		assert_int_equal(
			entitlement_revoke(&row, &source, &migrated, NOW_US), rows[i].status);
		assert_true(row.version == rows[i].version_after);
		assert_true(row.step == rows[i].step_after);
		assert_int_equal(row.is_active, row.version % 2 != 0);
		assert_int_equal(source.granted_us > 0 && source.revoked_us == NOW_US, is_ended);
		assert_int_equal(
			migrated.is_active, rows[i].migrated && !(is_ended && !rows[i].exists));
	}
}

static void a_revoke_of_all_ends_every_source_and_the_entitlement(void **state)
{
	struct entitlement_row row = row_of(5, 9), revoked = row_of(6, 0), absent = row_of(0, 0);
	struct entitlement_source sources[] = {source_of(ENTITLEMENT_PURCHASE, true, true),
		source_of(ENTITLEMENT_REASON, true, false), source_of("reason", false, false)};

	(void)state;
	assert_int_equal(entitlement_revoke_all(&row, sources, 3, NOW_US), STATUS_OK);
	assert_true(row.version == 6 && !row.is_active && row.ends_sources);
	assert_int_equal(row.active_count, 0);
	assert_true(!sources[0].is_active && sources[0].revoked_us == NOW_US);
	assert_true(sources[1].revoked_us == 1);
	assert_true(sources[2].granted_us == 0);
	assert_int_equal(entitlement_revoke_all(&revoked, sources, 3, NOW_US),
		STATUS_ENTITLEMENT_STATE_CONFLICT);
	assert_int_equal(
		entitlement_revoke_all(&absent, sources, 3, NOW_US), STATUS_ENTITLEMENT_NOT_FOUND);
}

static void sources_are_bounded_and_what_is_there_may_still_change(void **state)
{
	struct entitlement_row row = row_of(1, ENTITLEMENT_SOURCES_MAX - 1);
	struct entitlement_source purchase = source_of(ENTITLEMENT_PURCHASE, false, false);
	struct entitlement_source reason = source_of(ENTITLEMENT_REASON, true, false);
	struct entitlement_source known = source_of(ENTITLEMENT_PURCHASE, true, true);
	struct entitlement_source migrated = source_of(ENTITLEMENT_MIGRATED, false, false);

	(void)state;
	assert_int_equal(row.source_count, ENTITLEMENT_SOURCES_MAX);
	assert_int_equal(
		entitlement_grant(&row, &purchase, NOW_US), STATUS_ENTITLEMENT_TOO_MANY_SOURCES);
	assert_true(purchase.granted_us == 0 && !purchase.is_active);
	assert_true(row.step == 0);
	assert_int_equal(entitlement_grant(&row, &reason, NOW_US), STATUS_OK);
	assert_int_equal(entitlement_revoke(&row, &known, &migrated, NOW_US), STATUS_OK);
}

static void purchases_and_refunds_must_name_their_purchase(void **state)
{
	(void)state;
	assert_true(entitlement_needs_purchase(slice_of("purchase")));
	assert_true(entitlement_needs_purchase(slice_of("refund")));
	assert_false(entitlement_needs_purchase(slice_of("Purchase")));
	assert_false(entitlement_needs_purchase(slice_of("gift")));
	assert_false(entitlement_needs_purchase((struct slice){0}));
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

/* Packs `event` and returns what is wrong with it. */
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
	buffer_bytes(&longer, "\x7a\x02hi", 4); /* field 15, a string */
	assert_null(entitlement_event_unpack(&arena, buffer_slice(&longer), &read));
	assert_slice(read.user_id, "u_123");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_grant_answers_every_state_as_the_table_says),
		cmocka_unit_test(a_revoke_answers_every_state_as_the_table_says),
		cmocka_unit_test(a_revoke_of_all_ends_every_source_and_the_entitlement),
		cmocka_unit_test(sources_are_bounded_and_what_is_there_may_still_change),
		cmocka_unit_test(purchases_and_refunds_must_name_their_purchase),
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
