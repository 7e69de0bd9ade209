/* What ports/outbox_repository.h adds to claims, on one engine. */
#include "claim_contract.h"
#include "claim_fixture.h"

/* ---- what the outbox adds ---------------------------------------------------------------- */

static void an_event_is_there_when_its_transaction_commits(void **state)
{
	struct fixture *fixture = *state;
	struct session *session = fixture->engine->session;
	struct slice id = engine_uuid(fixture->engine, "a");

	engine_begin(session);
	assert_int_equal(
		claim_fixture_outbox_put(fixture->engine, session, &id, 1, 1767855000123456),
		STATUS_OK);
	session->ops->rollback(session);
	assert_int_equal(claim_fixture_claim(fixture, "me", LEASE_US), 0);
	engine_begin(session);
	assert_int_equal(
		claim_fixture_outbox_put(fixture->engine, session, &id, 1, 1767855000123456),
		STATUS_OK);
	engine_commit(session);
	assert_int_equal(claim_fixture_claim(fixture, "me", LEASE_US), 1);
	assert_true(fixture->claim[0].occurred_us == 1767855000123456);
}

static size_t resend(struct fixture *fixture, int64_t since_us)
{
	struct session *session = fixture->engine->session;
	size_t count = 77;

	engine_begin(session);
	assert_int_equal(fixture->engine->outbox->ops->resend(fixture->engine->outbox, session,
				 since_us, slice_of("ops"), &count),
		STATUS_OK);
	engine_commit(session);
	return count;
}

static void what_was_published_since_then_is_sent_again(void **state)
{
	struct fixture *fixture = *state;
	struct slice id = claim_fixture_put_one(fixture);
	int64_t records = engine_count(fixture->engine, "operator_actions");
	int64_t start_us = claim_fixture_now_us(fixture);

	claim_fixture_claim_and_end(fixture, CLAIM_DONE);
	assert_int_equal(resend(fixture, claim_fixture_now_us(fixture) + SECOND_US), 0);
	assert_true(claim_fixture_is_done_now(fixture, id));
	assert_int_equal(resend(fixture, start_us), 1);
	assert_true(claim_fixture_row_is(fixture, id,
		"status = 'PENDING' AND attempt_count = 0 AND next_retry_at IS NULL "
		"AND published_at IS NULL"));
	assert_int_equal(claim_fixture_claim(fixture, "me", LEASE_US), 1);
	assert_true(fixture->claim[0].epoch == 2);
	assert_int_equal(resend(fixture, 0), 0); /* what is on its way stays so */
	assert_int_equal(engine_count(fixture->engine, "operator_actions"), records + 3);
	assert_true(engine_count(fixture->engine,
			    "operator_actions WHERE action = 'resend' AND target = "
			    "'%s' AND detail LIKE '1 published since 20__-%%Z'",
			    fixture->subject->table) >= 1);
}

/* Lists up to `limit` records before this time and id; returns how many there were. */
static size_t list_actions(struct fixture *fixture, int64_t before_us, int64_t before_id,
	size_t limit, struct operator_record *records)
{
	struct session *session = fixture->engine->session;
	struct row_page page = {
		.after_number = before_us, .after_minor = before_id, .limit = limit};

	assert_int_equal(
		session->ops->list_actions(session, &fixture->engine->arena, &page, records),
		STATUS_OK);
	return page.count;
}

static void actions_are_listed_newest_first_with_who_did_them(void **state)
{
	struct fixture *fixture = *state;
	struct operator_record records[2], next[1];
	int64_t start_us = claim_fixture_now_us(fixture);

	resend(fixture, start_us);
	resend(fixture, start_us + SECOND_US);
	resend(fixture, start_us + 2 * SECOND_US);
	assert_int_equal(list_actions(fixture, INT64_C(253402300799999999), 0, 2, records), 2);
	assert_true(records[0].at_us > records[1].at_us ||
		    (records[0].at_us == records[1].at_us && records[0].id > records[1].id));
	assert_true(records[0].at_us >= start_us);
	assert_true(slice_is(records[0].who, "ops"));
	assert_true(slice_is(records[0].action, "resend"));
	assert_true(slice_is(records[0].target, fixture->subject->table));
	assert_int_equal(list_actions(fixture, records[0].at_us, records[0].id, 1, next), 1);
	assert_true(next[0].id == records[1].id);
	assert_int_equal(list_actions(fixture, 0, 0, 1, next), 0);
}

static bool resolve(
	struct fixture *fixture, const char *kind, struct slice id, enum dead_letter_action action)
{
	const struct dead_letter_resolution resolution = {
		{slice_of(kind), id}, action, slice_of("wrong item"), slice_of("night shift")};
	struct session *session = fixture->engine->session;
	bool found = false;

	engine_begin(session);
	assert_int_equal(fixture->engine->outbox->dead->ops->resolve(
				 fixture->engine->outbox->dead, session, &resolution, &found),
		STATUS_OK);
	engine_commit(session);
	return found;
}

static int64_t depth(struct fixture *fixture)
{
	int64_t count = -1;

	assert_int_equal(fixture->engine->outbox->dead->ops->depth(fixture->engine->outbox->dead,
				 fixture->engine->session, slice_of("outbox"), &count),
		STATUS_OK);
	return count;
}

static void a_failed_event_is_reopened_and_counts_from_the_start(void **state)
{
	struct fixture *fixture = *state;
	struct slice id = claim_fixture_put_one(fixture);

	claim_fixture_claim_and_end(fixture, CLAIM_FAILED);
	assert_true(depth(fixture) == 1);
	assert_true(resolve(fixture, "outbox", id, DEAD_LETTER_REPLAY));
	assert_true(claim_fixture_row_is(
		fixture, id, "status = 'PENDING' AND attempt_count = 0 AND next_retry_at IS NULL"));
	assert_true(depth(fixture) == 0);
	assert_false(resolve(fixture, "outbox", id, DEAD_LETTER_REPLAY));
	assert_int_equal(claim_fixture_claim(fixture, "me", LEASE_US), 1);
	assert_int_equal(fixture->claim[0].attempt_count, 0);
	assert_int_equal(engine_count(fixture->engine,
				 "operator_actions WHERE action = 'replay' AND target = "
				 "'%s/%s' AND detail = 'wrong item' AND who = 'night shift'",
				 fixture->subject->table, id.data),
		1);
}

static void a_failed_event_is_discarded_for_good(void **state)
{
	struct fixture *fixture = *state;
	struct slice id = claim_fixture_put_one(fixture);

	assert_false(resolve(fixture, "outbox", id, DEAD_LETTER_DISCARD));
	claim_fixture_claim_and_end(fixture, CLAIM_FAILED);
	assert_false(resolve(fixture, "notification", id, DEAD_LETTER_DISCARD));
	assert_false(resolve(fixture, "outbox", slice_of("no id"), DEAD_LETTER_DISCARD));
	assert_true(resolve(fixture, "outbox", id, DEAD_LETTER_DISCARD));
	assert_true(
		claim_fixture_row_is(fixture, id, "status = 'DISCARDED' AND attempt_count = 1"));
	assert_false(resolve(fixture, "outbox", id, DEAD_LETTER_REPLAY));
	assert_int_equal(claim_fixture_claim(fixture, "me", LEASE_US), 0);
	assert_int_equal(engine_count(fixture->engine,
				 "operator_actions WHERE action = 'discard' AND target = "
				 "'%s/%s'",
				 fixture->subject->table, id.data),
		1);
}

static void a_resolution_that_is_rolled_back_leaves_no_record(void **state)
{
	struct fixture *fixture = *state;
	struct session *session = fixture->engine->session;
	struct slice id = claim_fixture_put_one(fixture);
	const struct dead_letter_resolution resolution = {
		{slice_of("outbox"), id}, DEAD_LETTER_DISCARD, slice_of(""), slice_of("")};
	bool found;

	claim_fixture_claim_and_end(fixture, CLAIM_FAILED);
	engine_begin(session);
	assert_int_equal(fixture->engine->outbox->dead->ops->resolve(
				 fixture->engine->outbox->dead, session, &resolution, &found),
		STATUS_OK);
	session->ops->rollback(session);
	assert_true(found);
	assert_true(claim_fixture_status_is(fixture, id, "FAILED"));
	assert_int_equal(
		engine_count(fixture->engine, "operator_actions WHERE target LIKE '%%%s'", id.data),
		0);
}

static void failed_events_are_listed_by_id_page_by_page(void **state)
{
	struct fixture *fixture = *state;
	const struct dead_letter_repository *dead = fixture->engine->outbox->dead;
	struct session *session = engine_session(fixture->engine, SESSION_READ);
	struct dead_letter_page page = {.kind = slice_of("outbox"), .limit = 3};
	struct dead_letter letters[3];
	size_t count, seen = 0;

	claim_fixture_put_many(fixture, "row", 9);
	assert_int_equal(
		claim_fixture_claim_by(fixture, fixture->engine->session, "me", LEASE_US, 7),
		STATUS_OK);
	for (int i = 0; i < 7; i++) {
		fixture->claim[i].end = CLAIM_FAILED;
		fixture->claim[i].error = slice_of("no");
	}
	claim_fixture_end(fixture, "me");
	do {
		assert_int_equal(dead->ops->list(dead, session, &fixture->engine->arena, &page,
					 letters, &count),
			STATUS_OK);
		for (size_t i = 0; i < count; i++) {
			assert_true(slice_compare(letters[i].id, page.after) > 0);
			assert_true(slice_is(letters[i].kind, "outbox"));
			assert_true(slice_is(letters[i].error, "no"));
			assert_int_equal(letters[i].payload.len, 0);
			page.after = letters[i].id;
		}
		seen += count;
	} while (count == 3);
	assert_int_equal(seen, 7);
	page = (struct dead_letter_page){.kind = slice_of("poison"), .limit = 3};
	assert_int_equal(
		dead->ops->list(dead, session, &fixture->engine->arena, &page, letters, &count),
		STATUS_OK);
	assert_int_equal(count, 0);
}

static bool find(struct fixture *fixture, struct slice id, struct dead_letter *letter)
{
	const struct dead_letter_name name = {slice_of("outbox"), id};
	bool found = false;

	assert_int_equal(
		fixture->engine->outbox->dead->ops->find(fixture->engine->outbox->dead,
			fixture->engine->session, &fixture->engine->arena, &name, letter, &found),
		STATUS_OK);
	return found;
}

static void a_failed_event_is_found_with_all_that_is_known(void **state)
{
	struct fixture *fixture = *state;
	struct slice id = claim_fixture_put_one(fixture);
	struct dead_letter letter;

	assert_false(find(fixture, id, &letter));
	claim_fixture_claim_and_end(fixture, CLAIM_FAILED);
	assert_false(find(fixture, slice_of("no id"), &letter));
	engine_begin(fixture->engine->session);
	assert_true(find(fixture, id, &letter));
	fixture->engine->session->ops->rollback(fixture->engine->session);
	assert_true(find(fixture, id, &letter));
	assert_true(slice_equal(letter.id, id));
	assert_true(slice_is(letter.type, "EntitlementGranted"));
	assert_true(slice_is(letter.key, "u_123:item1"));
	assert_true(slice_is(letter.error, "no route to host"));
	assert_true(slice_equal(letter.payload, slice_make("\x00\xff\x80", 3)));
	assert_int_equal(letter.attempt_count, 1);
	assert_int_equal(letter.position.len, 0);
	assert_true(letter.created_us > 0 && letter.created_us <= claim_fixture_now_us(fixture));
}

int claim_outbox_tests(const struct subject *subject, const char *name)
{
	const struct CMUnitTest tests[] = {
		ON(subject, an_event_is_there_when_its_transaction_commits),
		ON(subject, what_was_published_since_then_is_sent_again),
		ON(subject, actions_are_listed_newest_first_with_who_did_them),
		ON(subject, a_failed_event_is_reopened_and_counts_from_the_start),
		ON(subject, a_failed_event_is_discarded_for_good),
		ON(subject, a_resolution_that_is_rolled_back_leaves_no_record),
		ON(subject, failed_events_are_listed_by_id_page_by_page),
		ON(subject, a_failed_event_is_found_with_all_that_is_known),
	};

	return cmocka_run_group_tests_name(name, tests, NULL, NULL);
}
