/*
 * What ports/claim_repository.h promises, on one engine, for every table whose rows are claimed.
 * Here: single claims. Work of many is in claim_work_contract.c, and what
 * ports/outbox_repository.h adds in claim_outbox_contract.c.
 */
#include "claim_contract.h"

#include <stdio.h>

#include "claim_fixture.h"

/* ---- the state table, row by row --------------------------------------------------------- */

static void a_pending_row_that_is_due_is_claimed(void **state)
{
	struct fixture *fixture = *state;
	struct slice id = claim_fixture_put_one(fixture);
	const struct claim *got = fixture->claim;

	assert_true(claim_fixture_row_is(fixture, id, "status = 'PENDING' AND claim_epoch = 0"));
	assert_int_equal(claim_fixture_claim(fixture, "me", LEASE_US), 1);
	assert_true(slice_equal(got->id, id));
	assert_true(slice_is(got->type, fixture->subject->type));
	assert_true(slice_is(got->key, "u_123:item1"));
	assert_true(slice_starts_with(got->trace, "00-0af7"));
	assert_true(slice_equal(got->payload, slice_make("\x00\xff\x80", 3)));
	assert_true(got->occurred_us > 0 && got->occurred_us <= claim_fixture_now_us(fixture));
	assert_int_equal(got->attempt_count, 0);
	assert_true(got->epoch == 1);
	assert_true(claim_fixture_status_is(fixture, id, fixture->subject->busy));
	assert_true(claim_fixture_row_is(fixture, id,
		"locked_by = 'me' AND locked_at IS NOT NULL AND lease_until > locked_at "
		"AND claim_epoch = 1 AND last_error IS NULL AND attempt_count = 0"));
}

static void a_busy_row_is_left_alone_until_its_lease_is_over(void **state)
{
	struct fixture *fixture = *state;
	struct slice id = claim_fixture_put_one(fixture);

	assert_int_equal(claim_fixture_claim(fixture, "me", LEASE_US), 1);
	assert_int_equal(claim_fixture_claim(fixture, "you", LEASE_US), 0);
	engine_shift_us(fixture->engine, LEASE_US - 5 * SECOND_US);
	assert_int_equal(claim_fixture_claim(fixture, "you", LEASE_US), 0);
	engine_shift_us(fixture->engine, 6 * SECOND_US);
	assert_int_equal(claim_fixture_claim(fixture, "you", LEASE_US), 1);
	assert_true(fixture->claim[0].epoch == 2);
	assert_int_equal(fixture->claim[0].attempt_count, 0);
	assert_true(claim_fixture_row_is(
		fixture, id, "locked_by = 'you' AND claim_epoch = 2 AND lease_until > locked_at"));
	assert_int_equal(claim_fixture_claim(fixture, "me", LEASE_US), 0);
}

static void a_claim_that_is_done_is_over(void **state)
{
	struct fixture *fixture = *state;
	struct slice id = claim_fixture_put_one(fixture);

	claim_fixture_claim_and_end(fixture, CLAIM_DONE);
	assert_true(claim_fixture_is_done_now(fixture, id));
	assert_true(
		claim_fixture_row_is(fixture, id, "attempt_count = 0 AND next_retry_at IS NULL"));
	engine_shift_us(fixture->engine, 2 * MINUTE_US);
	assert_int_equal(claim_fixture_claim(fixture, "me", LEASE_US), 0);
}

static void a_claim_that_is_to_be_retried_waits_until_it_is_due(void **state)
{
	struct fixture *fixture = *state;
	struct slice id = claim_fixture_put_one(fixture);

	claim_fixture_claim_and_end(fixture, CLAIM_RETRY);
	assert_true(claim_fixture_row_is(fixture, id,
		"status = 'PENDING' AND attempt_count = 1 AND next_retry_at > locked_at "
		"AND last_error = 'no route to host' AND lease_until IS NULL"));
	assert_int_equal(claim_fixture_claim(fixture, "me", LEASE_US), 0);
	engine_shift_us(fixture->engine, MINUTE_US - 5 * SECOND_US);
	assert_int_equal(claim_fixture_claim(fixture, "me", LEASE_US), 0);
	engine_shift_us(fixture->engine, 6 * SECOND_US);
	assert_int_equal(claim_fixture_claim(fixture, "me", LEASE_US), 1);
	assert_int_equal(fixture->claim[0].attempt_count, 1);
	assert_true(fixture->claim[0].epoch == 2);
	assert_true(claim_fixture_row_is(fixture, id, "last_error IS NULL AND attempt_count = 1"));
}

static void a_claim_that_has_failed_stays_so(void **state)
{
	struct fixture *fixture = *state;
	struct slice id = claim_fixture_put_one(fixture);

	claim_fixture_claim_and_end(fixture, CLAIM_FAILED);
	assert_true(claim_fixture_row_is(fixture, id,
		"status = 'FAILED' AND attempt_count = 1 AND next_retry_at IS NULL "
		"AND last_error = 'no route to host' AND lease_until IS NULL"));
	engine_shift_us(fixture->engine, 2 * MINUTE_US);
	assert_int_equal(claim_fixture_claim(fixture, "me", LEASE_US), 0);
}

static void a_claim_that_is_returned_is_due_at_once_and_nothing_counts(void **state)
{
	struct fixture *fixture = *state;
	struct slice id = claim_fixture_put_one(fixture);

	claim_fixture_claim_and_end(fixture, CLAIM_RETURNED);
	assert_true(claim_fixture_row_is(fixture, id,
		"status = 'PENDING' AND attempt_count = 0 AND next_retry_at IS NULL "
		"AND last_error IS NULL AND lease_until IS NULL"));
	assert_int_equal(claim_fixture_claim(fixture, "you", LEASE_US), 1);
	assert_int_equal(fixture->claim[0].attempt_count, 0);
	assert_true(fixture->claim[0].epoch == 2);
}

static void a_claim_that_is_delayed_waits_until_it_is_due_and_nothing_counts(void **state)
{
	struct fixture *fixture = *state;
	struct slice id = claim_fixture_put_one(fixture);

	claim_fixture_claim_and_end(fixture, CLAIM_DELAYED);
	assert_true(claim_fixture_row_is(fixture, id,
		"status = 'PENDING' AND attempt_count = 0 AND next_retry_at > locked_at "
		"AND last_error = 'no route to host' AND lease_until IS NULL"));
	assert_int_equal(claim_fixture_claim(fixture, "me", LEASE_US), 0);
	engine_shift_us(fixture->engine, MINUTE_US + SECOND_US);
	assert_int_equal(claim_fixture_claim(fixture, "you", LEASE_US), 1);
	assert_int_equal(fixture->claim[0].attempt_count, 0);
}

static void claims_end_each_in_its_own_way(void **state)
{
	struct fixture *fixture = *state;

	claim_fixture_put_many(fixture, "row", 5);
	assert_int_equal(claim_fixture_claim(fixture, "me", LEASE_US), 5);
	for (int i = 0; i < 5; i++) {
		fixture->claim[i].end = (enum claim_end)i;
		fixture->claim[i].delay_us = MINUTE_US;
	}
	claim_fixture_end(fixture, "me");
	for (int i = 0; i < 5; i++)
		assert_true(fixture->claim[i].was_ours);
	assert_true(claim_fixture_is_done_now(fixture, fixture->claim[CLAIM_DONE].id));
	assert_true(claim_fixture_row_is(fixture, fixture->claim[CLAIM_RETRY].id,
		"status = 'PENDING' AND next_retry_at IS NOT NULL AND attempt_count = 1"));
	assert_true(claim_fixture_row_is(fixture, fixture->claim[CLAIM_DELAYED].id,
		"status = 'PENDING' AND next_retry_at IS NOT NULL AND attempt_count = 0"));
	assert_true(claim_fixture_row_is(fixture, fixture->claim[CLAIM_FAILED].id,
		"status = 'FAILED' AND last_error IS NULL AND attempt_count = 1"));
	assert_true(claim_fixture_row_is(fixture, fixture->claim[CLAIM_RETURNED].id,
		"status = 'PENDING' AND next_retry_at IS NULL AND attempt_count = 0"));
}

static void an_error_is_cut_between_two_characters(void **state)
{
	struct fixture *fixture = *state;
	struct slice id = claim_fixture_put_one(fixture);
	char error[CLAIM_ERROR_MAX + 10];

	memset(error, 'x', sizeof(error));
	memcpy(error + CLAIM_ERROR_MAX - 2, "\xe2\x82\xac", 3);
	assert_int_equal(claim_fixture_claim(fixture, "me", LEASE_US), 1);
	fixture->claim[0].end = CLAIM_FAILED;
	fixture->claim[0].error = slice_make(error, sizeof(error));
	claim_fixture_end(fixture, "me");
	assert_true(claim_fixture_row_is(fixture, id, "length(last_error) = 498"));
}

/* ---- whose claim it is ------------------------------------------------------------------- */

/* Nothing that is tried with a claim that is not, or no longer, ours changes the row. */
static void end_in_vain(struct fixture *fixture, const char *owner, struct claim *claim_of)
{
	struct session *session = fixture->engine->session;
	struct claim_terms terms = {.owner = slice_of(owner), .lease_us = MINUTE_US};

	for (int i = 0; i < 4; i++) {
		claim_of->end = (enum claim_end)i;
		claim_of->was_ours = true;
		engine_begin(session);
		assert_int_equal(fixture->claims->ops->end(
					 fixture->claims, session, slice_of(owner), claim_of, 1),
			STATUS_OK);
		engine_commit(session);
		assert_false(claim_of->was_ours);
	}
	claim_of->was_ours = true;
	engine_begin(session);
	assert_int_equal(fixture->claims->ops->renew(fixture->claims, session, &terms, claim_of, 1),
		STATUS_OK);
	engine_commit(session);
	assert_false(claim_of->was_ours);
}

static void a_foreign_owner_changes_nothing(void **state)
{
	struct fixture *fixture = *state;
	struct slice id = claim_fixture_put_one(fixture);

	assert_int_equal(claim_fixture_claim(fixture, "me", LEASE_US), 1);
	end_in_vain(fixture, "you", fixture->claim);
	assert_true(claim_fixture_row_is(
		fixture, id, "locked_by = 'me' AND attempt_count = 0 AND lease_until > locked_at"));
	assert_true(claim_fixture_status_is(fixture, id, fixture->subject->busy));
}

static void a_worker_that_wakes_after_its_lease_changes_nothing(void **state)
{
	struct fixture *fixture = *state;
	struct slice id = claim_fixture_put_one(fixture);
	struct claim late;

	assert_int_equal(claim_fixture_claim(fixture, "me", 0), 1);
	late = fixture->claim[0];
	assert_int_equal(claim_fixture_claim(fixture, "me", LEASE_US), 1);
	end_in_vain(fixture, "me", &late);
	assert_true(claim_fixture_status_is(fixture, id, fixture->subject->busy));
	assert_true(claim_fixture_row_is(fixture, id, "claim_epoch = 2 AND attempt_count = 0"));
	fixture->claim[0].end = CLAIM_DONE;
	claim_fixture_end(fixture, "me");
	assert_true(fixture->claim[0].was_ours);
	end_in_vain(fixture, "me", fixture->claim);
	assert_true(claim_fixture_is_done_now(fixture, id));
}

static void a_lease_that_is_over_can_still_be_ended_while_nobody_took_it(void **state)
{
	struct fixture *fixture = *state;
	struct slice id = claim_fixture_put_one(fixture);

	assert_int_equal(claim_fixture_claim(fixture, "me", 0), 1);
	fixture->claim[0].end = CLAIM_DONE;
	claim_fixture_end(fixture, "me");
	assert_true(fixture->claim[0].was_ours);
	assert_true(claim_fixture_is_done_now(fixture, id));
}

static void only_what_is_ours_of_a_batch_is_ended(void **state)
{
	struct fixture *fixture = *state;

	claim_fixture_put_many(fixture, "row", 3);
	assert_int_equal(claim_fixture_claim(fixture, "me", LEASE_US), 3);
	fixture->claim[1].epoch = 7;
	claim_fixture_end(fixture, "me");
	assert_true(fixture->claim[0].was_ours);
	assert_false(fixture->claim[1].was_ours);
	assert_true(fixture->claim[2].was_ours);
	assert_true(claim_fixture_status_is(fixture, fixture->claim[1].id, fixture->subject->busy));
}

static void a_renewed_lease_lasts_from_then_on(void **state)
{
	struct fixture *fixture = *state;
	struct claim_terms terms = {.owner = slice_of("me"), .lease_us = LEASE_US};
	struct session *session;

	claim_fixture_put_one(fixture);
	assert_int_equal(claim_fixture_claim(fixture, "me", LEASE_US), 1);
	engine_shift_us(fixture->engine, LEASE_US - 5 * SECOND_US);
	session = fixture->engine->session;
	engine_begin(session);
	assert_int_equal(
		fixture->claims->ops->renew(fixture->claims, session, &terms, fixture->claim, 1),
		STATUS_OK);
	engine_commit(session);
	assert_true(fixture->claim[0].was_ours);
	engine_shift_us(fixture->engine, LEASE_US - 5 * SECOND_US);
	assert_int_equal(claim_fixture_claim(fixture, "you", LEASE_US), 0);
	engine_shift_us(fixture->engine, 6 * SECOND_US);
	assert_int_equal(claim_fixture_claim(fixture, "you", LEASE_US), 1);
}

/* ---- which rows -------------------------------------------------------------------------- */

static void the_oldest_come_first_and_no_more_than_told(void **state)
{
	struct fixture *fixture = *state;

	claim_fixture_put_many(fixture, "late", 5);
	engine_execute(fixture->engine,
		"UPDATE %s SET created_at = created_at - %s WHERE %s = '%s'",
		fixture->subject->table,
		engine_time_is_ours(fixture->engine) ? "500000" : "interval '500 ms'",
		fixture->subject->id, engine_uuid(fixture->engine, "late-3").data);
	assert_int_equal(
		claim_fixture_claim_by(fixture, fixture->engine->session, "me", LEASE_US, 3),
		STATUS_OK);
	assert_int_equal(fixture->count, 3);
	assert_true(slice_equal(fixture->claim[0].id, engine_uuid(fixture->engine, "late-3")));
	assert_int_equal(claim_fixture_claim(fixture, "me", LEASE_US), 2);
	assert_int_equal(claim_fixture_claim(fixture, "me", LEASE_US), 0);
}

static void a_claim_that_is_rolled_back_was_never_made(void **state)
{
	struct fixture *fixture = *state;
	struct slice id = claim_fixture_put_one(fixture);
	struct session *session = fixture->engine->session;
	struct claim_terms terms = {.owner = slice_of("me"), .lease_us = LEASE_US, .max = 1};

	engine_begin(session);
	assert_int_equal(fixture->claims->ops->claim(fixture->claims, session,
				 &fixture->engine->arena, &terms, fixture->claim, &fixture->count),
		STATUS_OK);
	assert_int_equal(fixture->count, 1);
	session->ops->rollback(session);
	assert_true(claim_fixture_row_is(fixture, id, "status = 'PENDING' AND claim_epoch = 0"));
	assert_int_equal(claim_fixture_claim(fixture, "you", LEASE_US), 1);
}

static void what_others_are_claiming_is_passed_over(void **state)
{
	struct fixture *fixture = *state;
	struct session *other = engine_session(fixture->engine, SESSION_WRITE);
	struct claim_terms terms = {.owner = slice_of("you"), .lease_us = LEASE_US, .max = 2};
	struct claim theirs[2];
	size_t count;

	if (engine_time_is_ours(fixture->engine))
		return; /* whoever has the turn has every row */
	claim_fixture_put_many(fixture, "row", 3);
	engine_begin(other);
	assert_int_equal(fixture->claims->ops->claim(fixture->claims, other,
				 &fixture->engine->arena, &terms, theirs, &count),
		STATUS_OK);
	assert_int_equal(count, 2);
	assert_int_equal(claim_fixture_claim(fixture, "me", LEASE_US), 1);
	engine_commit(other);
	assert_false(slice_equal(fixture->claim[0].id, theirs[0].id));
	assert_false(slice_equal(fixture->claim[0].id, theirs[1].id));
}

static int claim_tests(const struct subject *subject, const char *name)
{
	const struct CMUnitTest tests[] = {
		ON(subject, a_pending_row_that_is_due_is_claimed),
		ON(subject, a_busy_row_is_left_alone_until_its_lease_is_over),
		ON(subject, a_claim_that_is_done_is_over),
		ON(subject, a_claim_that_is_to_be_retried_waits_until_it_is_due),
		ON(subject, a_claim_that_has_failed_stays_so),
		ON(subject, a_claim_that_is_returned_is_due_at_once_and_nothing_counts),
		ON(subject, a_claim_that_is_delayed_waits_until_it_is_due_and_nothing_counts),
		ON(subject, claims_end_each_in_its_own_way),
		ON(subject, an_error_is_cut_between_two_characters),
		ON(subject, a_foreign_owner_changes_nothing),
		ON(subject, a_worker_that_wakes_after_its_lease_changes_nothing),
		ON(subject, a_lease_that_is_over_can_still_be_ended_while_nobody_took_it),
		ON(subject, only_what_is_ours_of_a_batch_is_ended),
		ON(subject, a_renewed_lease_lasts_from_then_on),
		ON(subject, the_oldest_come_first_and_no_more_than_told),
		ON(subject, a_claim_that_is_rolled_back_was_never_made),
		ON(subject, what_others_are_claiming_is_passed_over),
	};

	return cmocka_run_group_tests_name(name, tests, NULL, NULL);
}

int main(void)
{
	static const struct subject *const subjects[] = {&claims_of_outbox,
		&claims_of_dialog_outbox, &claims_of_notifications, &claims_of_outbound};
	int failed = 0;

	for (size_t i = 0; i < sizeof(subjects) / sizeof(subjects[0]); i++) {
		char name[64];

		snprintf(name, sizeof(name), "claims of %s", subjects[i]->table);
		failed += claim_tests(subjects[i], name);
		snprintf(name, sizeof(name), "work on %s", subjects[i]->table);
		failed += claim_work_tests(subjects[i], name);
	}
	failed += claim_outbox_tests(&claims_of_outbox, "outbox");
	failed += claim_outbox_tests(&claims_of_dialog_outbox, "dialogs' outbox");
	failed += claim_relay_tests(&claims_of_outbox, "relay");
	return failed;
}
