/*
 * What ports/claim_repository.h promises, on one engine, for every table whose rows are claimed;
 * and what ports/outbox_repository.h adds to it.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine.h"
#include "waiting.h"

#define SECOND_US 1000000LL
#define MINUTE_US (60 * SECOND_US)
#define LEASE_US (30 * SECOND_US)
#define CLAIMS_MAX 200

/* A table of claims and its words. */
struct subject {
	const char *table;
	const char *id;
	const char *busy;
	const char *done;
	const char *done_at;
	const struct claim_repository *(*claims)(const struct engine *engine);
	/* In a transaction: new rows, with these ids, made at `time_us` and so on. */
	enum status (*put)(struct engine *engine, struct session *session, const struct slice *ids,
		size_t count, int64_t time_us);
	const char *keep_sql; /* for PostgreSQL: makes KEPT rows that are done */
	bool is_of_dialogs;   /* an outbox: that of dialogs */
};

struct fixture {
	struct engine *engine;
	const struct subject *subject;
	const struct claim_repository *claims;
	struct claim claim[CLAIMS_MAX];
	size_t count;
};

/* ---- the tables -------------------------------------------------------------------------- */

static const struct claim_repository *outbox_claims(const struct engine *engine)
{
	return &engine->outbox->claims;
}

static enum status outbox_put(struct engine *engine, struct session *session,
	const struct slice *ids, size_t count, int64_t time_us)
{
	struct outbox_event events[CLAIMS_MAX];

	for (size_t i = 0; i < count; i++)
		events[i] = (struct outbox_event){
			.id = ids[i],
			.type = slice_of("EntitlementGranted"),
			.key = slice_of("u_123:item1"),
			.trace =
				slice_of("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
			.payload = slice_make("\x00\xff\x80", 3),
			.occurred_us = time_us + (int64_t)i,
		};
	return engine->outbox->put(session, events, count);
}

#define KEEP_SQL(table)                                                                            \
	"INSERT INTO " table " (event_id, event_type, aggregate_key, trace_id, "                   \
	"payload, status, created_at, published_at) SELECT gen_random_uuid(), 'x', "               \
	"'x', '', '', 'PUBLISHED', clock_timestamp(), clock_timestamp() "                          \
	"FROM generate_series(1, 10000)"

#define OUTBOX(name, dialogs)                                                                      \
	{                                                                                          \
		.table = name, .id = "event_id", .busy = "IN_FLIGHT", .done = "PUBLISHED",         \
		.done_at = "published_at", .claims = outbox_claims, .put = outbox_put,             \
		.keep_sql = KEEP_SQL(name), .is_of_dialogs = dialogs,                              \
	}

static const struct subject outbox = OUTBOX("outbox_events", false);
static const struct subject dialog_outbox = OUTBOX("dialog_outbox_events", true);

static const struct claim_repository *notification_claims(const struct engine *engine)
{
	return &engine->notifications->claims;
}

static enum status notification_put(struct engine *engine, struct session *session,
	const struct slice *ids, size_t count, int64_t time_us)
{
	struct notification notifications[CLAIMS_MAX];

	for (size_t i = 0; i < count; i++)
		notifications[i] = (struct notification){
			.id = ids[i],
			.event_id = ids[i],
			.event_type = slice_of("EntitlementGranted"),
			.user_id = slice_of("u_123"),
			.unit = slice_of("item1"),
			.key = slice_of("u_123:item1"),
			.trace =
				slice_of("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
			.version = 1,
			.payload = slice_make("\x00\xff\x80", 3),
			.occurred_us = time_us + (int64_t)i,
		};
	return engine->notifications->put(session, notifications, count);
}

static const struct subject notifications = {
	.table = "notifications",
	.id = "notification_id",
	.busy = "PROCESSING",
	.done = "SENT",
	.done_at = "sent_at",
	.claims = notification_claims,
	.put = notification_put,
	.keep_sql = "INSERT INTO notifications (notification_id, event_id, event_type, user_id, "
		    "stock_keeping_unit, version, aggregate_key, trace_id, payload, occurred_at, "
		    "status, created_at, sent_at) SELECT gen_random_uuid(), 'x', 'x', 'x', 'x', 1, "
		    "'x', '', '', clock_timestamp(), 'SENT', clock_timestamp(), clock_timestamp() "
		    "FROM generate_series(1, 10000)",
};

/* ---- a fixture for each test --------------------------------------------------------------- */

static int setup(void **state)
{
	struct fixture *fixture = qp_calloc(1, sizeof(*fixture));
	void *engine = NULL;

	fixture->subject = *state;
	engine_setup(&engine);
	fixture->engine = engine;
	if (fixture->subject->is_of_dialogs)
		fixture->engine->outbox = fixture->engine->dialog_outbox;
	fixture->claims = fixture->subject->claims(fixture->engine);
	if (!engine_time_is_ours(fixture->engine)) /* its tests share a database */
		engine_execute(fixture->engine, "TRUNCATE %s", fixture->subject->table);
	*state = fixture;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *fixture = *state;
	void *engine = fixture->engine;

	free(fixture);
	return engine_teardown(&engine);
}

static int64_t now_us(struct fixture *fixture)
{
	struct entitlement_row row = {.user_id = slice_of("nobody"), .unit = slice_of("x")};
	struct session *session = fixture->engine->session;
	int64_t now_us = 0;

	engine_begin(session);
	assert_int_equal(fixture->engine->entitlements->lock(session, &row, 1, &now_us), STATUS_OK);
	session->ops->rollback(session);
	return now_us;
}

/* "name-0", "name-1", … */
static void put_many(struct fixture *fixture, const char *name, size_t count)
{
	struct slice ids[CLAIMS_MAX];
	int64_t time_us = now_us(fixture);

	for (size_t i = 0; i < count; i++) {
		char text[32];

		snprintf(text, sizeof(text), "%s-%zu", name, i);
		ids[i] = engine_uuid(fixture->engine, text);
	}
	engine_begin(fixture->engine->session);
	assert_int_equal(fixture->subject->put(
				 fixture->engine, fixture->engine->session, ids, count, time_us),
		STATUS_OK);
	engine_commit(fixture->engine->session);
}

/* The most common case: one row. Its id. */
static struct slice put_one(struct fixture *fixture)
{
	put_many(fixture, "row", 1);
	return engine_uuid(fixture->engine, "row-0");
}

static enum status claim_by(struct fixture *fixture, struct session *session, const char *owner,
	int64_t lease_us, size_t max)
{
	struct claim_terms terms = {.owner = slice_of(owner), .lease_us = lease_us, .max = max};
	enum status status = session->ops->begin(session, LOCK_WAIT);

	if (status == STATUS_OK)
		status = fixture->claims->claim(
			session, &fixture->engine->arena, &terms, fixture->claim, &fixture->count);
	return status == STATUS_OK ? session->ops->commit(session) : status;
}

static size_t claim(struct fixture *fixture, const char *owner, int64_t lease_us)
{
	assert_int_equal(claim_by(fixture, fixture->engine->session, owner, lease_us, CLAIMS_MAX),
		STATUS_OK);
	return fixture->count;
}

/* Ends all that fixture->claim holds. */
static void end(struct fixture *fixture, const char *owner)
{
	struct session *session = fixture->engine->session;

	for (size_t i = 0; i < fixture->count; i++)
		fixture->claim[i].was_ours = !fixture->claim[i].was_ours;
	engine_begin(session);
	assert_int_equal(
		fixture->claims->end(session, slice_of(owner), fixture->claim, fixture->count),
		STATUS_OK);
	engine_commit(session);
}

/* Claims the one row that is there and ends it. */
static void claim_and_end(struct fixture *fixture, enum claim_end how)
{
	assert_int_equal(claim(fixture, "me", LEASE_US), 1);
	fixture->claim[0].end = how;
	fixture->claim[0].delay_us = MINUTE_US;
	fixture->claim[0].error = slice_of("no route to host");
	end(fixture, "me");
	assert_true(fixture->claim[0].was_ours);
}

/* Whether the row with this id meets a condition of SQL. */
static bool row_is(struct fixture *fixture, struct slice id, const char *condition)
{
	return engine_count(fixture->engine, "%s WHERE %s = '%s' AND %s", fixture->subject->table,
		       fixture->subject->id, id.data, condition) == 1;
}

static bool status_is(struct fixture *fixture, struct slice id, const char *status)
{
	char condition[64];

	snprintf(condition, sizeof(condition), "status = '%s'", status);
	return row_is(fixture, id, condition);
}

static bool is_done_now(struct fixture *fixture, struct slice id)
{
	char condition[128];

	snprintf(condition, sizeof(condition),
		"status = '%s' AND %s >= locked_at AND lease_until IS NULL AND last_error IS NULL",
		fixture->subject->done, fixture->subject->done_at);
	return row_is(fixture, id, condition);
}

/* ---- the state table, row by row --------------------------------------------------------- */

static void a_pending_row_that_is_due_is_claimed(void **state)
{
	struct fixture *fixture = *state;
	struct slice id = put_one(fixture);
	const struct claim *got = fixture->claim;

	assert_true(row_is(fixture, id, "status = 'PENDING' AND claim_epoch = 0"));
	assert_int_equal(claim(fixture, "me", LEASE_US), 1);
	assert_true(slice_equal(got->id, id));
	assert_true(slice_is(got->type, "EntitlementGranted"));
	assert_true(slice_is(got->key, "u_123:item1"));
	assert_true(slice_starts_with(got->trace, "00-0af7"));
	assert_true(slice_equal(got->payload, slice_make("\x00\xff\x80", 3)));
	assert_true(got->occurred_us > 0 && got->occurred_us <= now_us(fixture));
	assert_int_equal(got->attempt_count, 0);
	assert_true(got->epoch == 1);
	assert_true(status_is(fixture, id, fixture->subject->busy));
	assert_true(row_is(fixture, id,
		"locked_by = 'me' AND locked_at IS NOT NULL AND lease_until > locked_at "
		"AND claim_epoch = 1 AND last_error IS NULL AND attempt_count = 0"));
}

static void a_busy_row_is_left_alone_until_its_lease_is_over(void **state)
{
	struct fixture *fixture = *state;
	struct slice id = put_one(fixture);

	assert_int_equal(claim(fixture, "me", LEASE_US), 1);
	assert_int_equal(claim(fixture, "you", LEASE_US), 0);
	engine_shift_us(fixture->engine, LEASE_US - 5 * SECOND_US);
	assert_int_equal(claim(fixture, "you", LEASE_US), 0);
	engine_shift_us(fixture->engine, 6 * SECOND_US);
	assert_int_equal(claim(fixture, "you", LEASE_US), 1);
	assert_true(fixture->claim[0].epoch == 2);
	assert_int_equal(fixture->claim[0].attempt_count, 0);
	assert_true(row_is(
		fixture, id, "locked_by = 'you' AND claim_epoch = 2 AND lease_until > locked_at"));
	assert_int_equal(claim(fixture, "me", LEASE_US), 0);
}

static void a_claim_that_is_done_is_over(void **state)
{
	struct fixture *fixture = *state;
	struct slice id = put_one(fixture);

	claim_and_end(fixture, CLAIM_DONE);
	assert_true(is_done_now(fixture, id));
	assert_true(row_is(fixture, id, "attempt_count = 0 AND next_retry_at IS NULL"));
	engine_shift_us(fixture->engine, 2 * MINUTE_US);
	assert_int_equal(claim(fixture, "me", LEASE_US), 0);
}

static void a_claim_that_is_to_be_retried_waits_until_it_is_due(void **state)
{
	struct fixture *fixture = *state;
	struct slice id = put_one(fixture);

	claim_and_end(fixture, CLAIM_RETRY);
	assert_true(row_is(fixture, id,
		"status = 'PENDING' AND attempt_count = 1 AND next_retry_at > locked_at "
		"AND last_error = 'no route to host' AND lease_until IS NULL"));
	assert_int_equal(claim(fixture, "me", LEASE_US), 0);
	engine_shift_us(fixture->engine, MINUTE_US - 5 * SECOND_US);
	assert_int_equal(claim(fixture, "me", LEASE_US), 0);
	engine_shift_us(fixture->engine, 6 * SECOND_US);
	assert_int_equal(claim(fixture, "me", LEASE_US), 1);
	assert_int_equal(fixture->claim[0].attempt_count, 1);
	assert_true(fixture->claim[0].epoch == 2);
	assert_true(row_is(fixture, id, "last_error IS NULL AND attempt_count = 1"));
}

static void a_claim_that_has_failed_stays_so(void **state)
{
	struct fixture *fixture = *state;
	struct slice id = put_one(fixture);

	claim_and_end(fixture, CLAIM_FAILED);
	assert_true(row_is(fixture, id,
		"status = 'FAILED' AND attempt_count = 1 AND next_retry_at IS NULL "
		"AND last_error = 'no route to host' AND lease_until IS NULL"));
	engine_shift_us(fixture->engine, 2 * MINUTE_US);
	assert_int_equal(claim(fixture, "me", LEASE_US), 0);
}

static void a_claim_that_is_returned_is_due_at_once_and_nothing_counts(void **state)
{
	struct fixture *fixture = *state;
	struct slice id = put_one(fixture);

	claim_and_end(fixture, CLAIM_RETURNED);
	assert_true(row_is(fixture, id,
		"status = 'PENDING' AND attempt_count = 0 AND next_retry_at IS NULL "
		"AND last_error IS NULL AND lease_until IS NULL"));
	assert_int_equal(claim(fixture, "you", LEASE_US), 1);
	assert_int_equal(fixture->claim[0].attempt_count, 0);
	assert_true(fixture->claim[0].epoch == 2);
}

static void claims_end_each_in_its_own_way(void **state)
{
	struct fixture *fixture = *state;

	put_many(fixture, "row", 4);
	assert_int_equal(claim(fixture, "me", LEASE_US), 4);
	for (int i = 0; i < 4; i++) {
		fixture->claim[i].end = (enum claim_end)i;
		fixture->claim[i].delay_us = MINUTE_US;
	}
	end(fixture, "me");
	for (int i = 0; i < 4; i++)
		assert_true(fixture->claim[i].was_ours);
	assert_true(is_done_now(fixture, fixture->claim[CLAIM_DONE].id));
	assert_true(row_is(fixture, fixture->claim[CLAIM_RETRY].id,
		"status = 'PENDING' AND next_retry_at IS NOT NULL AND attempt_count = 1"));
	assert_true(row_is(fixture, fixture->claim[CLAIM_FAILED].id,
		"status = 'FAILED' AND last_error IS NULL AND attempt_count = 1"));
	assert_true(row_is(fixture, fixture->claim[CLAIM_RETURNED].id,
		"status = 'PENDING' AND next_retry_at IS NULL AND attempt_count = 0"));
}

static void an_error_is_cut_between_two_characters(void **state)
{
	struct fixture *fixture = *state;
	struct slice id = put_one(fixture);
	char error[CLAIM_ERROR_MAX + 10];

	memset(error, 'x', sizeof(error));
	memcpy(error + CLAIM_ERROR_MAX - 2, "\xe2\x82\xac", 3);
	assert_int_equal(claim(fixture, "me", LEASE_US), 1);
	fixture->claim[0].end = CLAIM_FAILED;
	fixture->claim[0].error = slice_make(error, sizeof(error));
	end(fixture, "me");
	assert_true(row_is(fixture, id, "length(last_error) = 498"));
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
		assert_int_equal(
			fixture->claims->end(session, slice_of(owner), claim_of, 1), STATUS_OK);
		engine_commit(session);
		assert_false(claim_of->was_ours);
	}
	claim_of->was_ours = true;
	engine_begin(session);
	assert_int_equal(fixture->claims->renew(session, &terms, claim_of, 1), STATUS_OK);
	engine_commit(session);
	assert_false(claim_of->was_ours);
}

static void a_foreign_owner_changes_nothing(void **state)
{
	struct fixture *fixture = *state;
	struct slice id = put_one(fixture);

	assert_int_equal(claim(fixture, "me", LEASE_US), 1);
	end_in_vain(fixture, "you", fixture->claim);
	assert_true(row_is(
		fixture, id, "locked_by = 'me' AND attempt_count = 0 AND lease_until > locked_at"));
	assert_true(status_is(fixture, id, fixture->subject->busy));
}

static void a_worker_that_wakes_after_its_lease_changes_nothing(void **state)
{
	struct fixture *fixture = *state;
	struct slice id = put_one(fixture);
	struct claim late;

	assert_int_equal(claim(fixture, "me", 0), 1);
	late = fixture->claim[0];
	assert_int_equal(claim(fixture, "me", LEASE_US), 1);
	end_in_vain(fixture, "me", &late);
	assert_true(status_is(fixture, id, fixture->subject->busy));
	assert_true(row_is(fixture, id, "claim_epoch = 2 AND attempt_count = 0"));
	fixture->claim[0].end = CLAIM_DONE;
	end(fixture, "me");
	assert_true(fixture->claim[0].was_ours);
	end_in_vain(fixture, "me", fixture->claim);
	assert_true(is_done_now(fixture, id));
}

static void a_lease_that_is_over_can_still_be_ended_while_nobody_took_it(void **state)
{
	struct fixture *fixture = *state;
	struct slice id = put_one(fixture);

	assert_int_equal(claim(fixture, "me", 0), 1);
	fixture->claim[0].end = CLAIM_DONE;
	end(fixture, "me");
	assert_true(fixture->claim[0].was_ours);
	assert_true(is_done_now(fixture, id));
}

static void only_what_is_ours_of_a_batch_is_ended(void **state)
{
	struct fixture *fixture = *state;

	put_many(fixture, "row", 3);
	assert_int_equal(claim(fixture, "me", LEASE_US), 3);
	fixture->claim[1].epoch = 7;
	end(fixture, "me");
	assert_true(fixture->claim[0].was_ours);
	assert_false(fixture->claim[1].was_ours);
	assert_true(fixture->claim[2].was_ours);
	assert_true(status_is(fixture, fixture->claim[1].id, fixture->subject->busy));
}

static void a_renewed_lease_lasts_from_then_on(void **state)
{
	struct fixture *fixture = *state;
	struct claim_terms terms = {.owner = slice_of("me"), .lease_us = LEASE_US};
	struct session *session;

	put_one(fixture);
	assert_int_equal(claim(fixture, "me", LEASE_US), 1);
	engine_shift_us(fixture->engine, LEASE_US - 5 * SECOND_US);
	session = fixture->engine->session;
	engine_begin(session);
	assert_int_equal(fixture->claims->renew(session, &terms, fixture->claim, 1), STATUS_OK);
	engine_commit(session);
	assert_true(fixture->claim[0].was_ours);
	engine_shift_us(fixture->engine, LEASE_US - 5 * SECOND_US);
	assert_int_equal(claim(fixture, "you", LEASE_US), 0);
	engine_shift_us(fixture->engine, 6 * SECOND_US);
	assert_int_equal(claim(fixture, "you", LEASE_US), 1);
}

/* ---- which rows -------------------------------------------------------------------------- */

static void the_oldest_come_first_and_no_more_than_told(void **state)
{
	struct fixture *fixture = *state;

	put_many(fixture, "late", 5);
	engine_execute(fixture->engine,
		"UPDATE %s SET created_at = created_at - %s WHERE %s = '%s'",
		fixture->subject->table,
		engine_time_is_ours(fixture->engine) ? "500000" : "interval '500 ms'",
		fixture->subject->id, engine_uuid(fixture->engine, "late-3").data);
	assert_int_equal(claim_by(fixture, fixture->engine->session, "me", LEASE_US, 3), STATUS_OK);
	assert_int_equal(fixture->count, 3);
	assert_true(slice_equal(fixture->claim[0].id, engine_uuid(fixture->engine, "late-3")));
	assert_int_equal(claim(fixture, "me", LEASE_US), 2);
	assert_int_equal(claim(fixture, "me", LEASE_US), 0);
}

static void a_claim_that_is_rolled_back_was_never_made(void **state)
{
	struct fixture *fixture = *state;
	struct slice id = put_one(fixture);
	struct session *session = fixture->engine->session;
	struct claim_terms terms = {.owner = slice_of("me"), .lease_us = LEASE_US, .max = 1};

	engine_begin(session);
	assert_int_equal(fixture->claims->claim(session, &fixture->engine->arena, &terms,
				 fixture->claim, &fixture->count),
		STATUS_OK);
	assert_int_equal(fixture->count, 1);
	session->ops->rollback(session);
	assert_true(row_is(fixture, id, "status = 'PENDING' AND claim_epoch = 0"));
	assert_int_equal(claim(fixture, "you", LEASE_US), 1);
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
	put_many(fixture, "row", 3);
	engine_begin(other);
	assert_int_equal(
		fixture->claims->claim(other, &fixture->engine->arena, &terms, theirs, &count),
		STATUS_OK);
	assert_int_equal(count, 2);
	assert_int_equal(claim(fixture, "me", LEASE_US), 1);
	engine_commit(other);
	assert_false(slice_equal(fixture->claim[0].id, theirs[0].id));
	assert_false(slice_equal(fixture->claim[0].id, theirs[1].id));
}

/* ---- workers at once --------------------------------------------------------------------- */

#define WORKERS 3
#define WORK 400

struct worker {
	struct fixture *fixture;
	struct session *session;
	char owner[16];
	struct arena arena;
	int done;
	int lost; /* claims that were not ours any more */
};

/* Claims some with a lease that is soon over, and ends them. How many it got. */
static size_t work_once(struct worker *worker)
{
	const struct claim_repository *claims = worker->fixture->claims;
	struct session *session = worker->session;
	struct claim_terms terms = {.owner = slice_of(worker->owner), .lease_us = 2000, .max = 7};
	struct claim got[7];
	size_t count = 0;

	arena_reset(&worker->arena);
	if (session->ops->begin(session, LOCK_WAIT) != STATUS_OK ||
		claims->claim(session, &worker->arena, &terms, got, &count) != STATUS_OK ||
		session->ops->commit(session) != STATUS_OK)
		return 1;
	if (session->ops->begin(session, LOCK_WAIT) != STATUS_OK ||
		claims->end(session, terms.owner, got, count) != STATUS_OK ||
		session->ops->commit(session) != STATUS_OK)
		return 1;
	for (size_t i = 0; i < count; i++) {
		worker->done += got[i].was_ours;
		worker->lost += !got[i].was_ours;
	}
	return count;
}

static void *work(void *argument)
{
	for (int idle = 0; idle < 5;) {
		if (work_once(argument) > 0)
			idle = 0;
		else if (++idle < 5)
			wait_a_moment();
	}
	return NULL;
}

static void every_row_is_done_once_whatever_the_leases(void **state)
{
	struct fixture *fixture = *state;
	struct worker workers[WORKERS];
	pthread_t threads[WORKERS];
	int done = 0;

	put_many(fixture, "a", WORK / 2);
	put_many(fixture, "b", WORK / 2);
	for (int i = 0; i < WORKERS; i++) {
		workers[i] = (struct worker){.fixture = fixture,
			.session = engine_session(fixture->engine, SESSION_WRITE)};
		snprintf(workers[i].owner, sizeof(workers[i].owner), "worker-%d", i);
		arena_init(&workers[i].arena, 4096);
		assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
	}
	for (int i = 0; i < WORKERS; i++) {
		pthread_join(threads[i], NULL);
		arena_release(&workers[i].arena);
		done += workers[i].done;
	}
	assert_int_equal(done, WORK);
	assert_int_equal(engine_count(fixture->engine, "%s WHERE status = '%s'",
				 fixture->subject->table, fixture->subject->done),
		WORK);
}

/* ---- counting and sweeping --------------------------------------------------------------- */

static struct claim_stats stats_of(struct fixture *fixture)
{
	struct session *session = engine_session(fixture->engine, SESSION_READ);
	struct claim_stats stats = {.pending = -1};

	assert_int_equal(fixture->claims->count(session, &stats), STATUS_OK);
	return stats;
}

static void count_tells_how_many_are_in_each_state(void **state)
{
	struct fixture *fixture = *state;
	struct claim_stats stats = stats_of(fixture);

	assert_true(stats.pending == 0 && stats.busy == 0 && stats.failed == 0);
	assert_true(stats.oldest_us == 0);
	put_many(fixture, "row", 6);
	assert_int_equal(claim_by(fixture, fixture->engine->session, "me", LEASE_US, 3), STATUS_OK);
	fixture->claim[0].end = CLAIM_DONE;
	fixture->claim[1].end = CLAIM_FAILED;
	fixture->count = 2;
	end(fixture, "me");
	engine_shift_us(fixture->engine, MINUTE_US);
	stats = stats_of(fixture);
	assert_true(stats.pending == 3);
	assert_true(stats.busy == 1);
	assert_true(stats.failed == 1);
	assert_true(stats.oldest_us >= MINUTE_US && stats.oldest_us < 2 * MINUTE_US);
}

static void sweep_deletes_what_is_done_for_longer_than_told(void **state)
{
	struct fixture *fixture = *state;
	struct session *session = fixture->engine->session;
	size_t deleted = 77;

	put_many(fixture, "row", 6);
	assert_int_equal(claim_by(fixture, session, "me", LEASE_US, 4), STATUS_OK);
	end(fixture, "me");
	assert_int_equal(fixture->claims->sweep(session, MINUTE_US, 100, &deleted), STATUS_OK);
	assert_int_equal(deleted, 0);
	assert_int_equal(fixture->claims->sweep(session, -SECOND_US, 3, &deleted), STATUS_OK);
	assert_int_equal(deleted, 3);
	assert_int_equal(fixture->claims->sweep(session, -SECOND_US, 3, &deleted), STATUS_OK);
	assert_int_equal(deleted, 1);
	assert_int_equal(engine_count(fixture->engine, "%s", fixture->subject->table), 2);
	assert_true(stats_of(fixture).pending == 2);
}

static void sweep_takes_what_was_given_up_too(void **state)
{
	struct fixture *fixture = *state;
	size_t deleted = 0;

	put_one(fixture);
	claim_and_end(fixture, CLAIM_FAILED);
	assert_int_equal(fixture->claims->sweep(fixture->engine->session, MINUTE_US, 9, &deleted),
		STATUS_OK);
	assert_int_equal(deleted, 0);
	engine_shift_us(fixture->engine, 2 * MINUTE_US);
	assert_int_equal(fixture->claims->sweep(fixture->engine->session, MINUTE_US, 9, &deleted),
		STATUS_OK);
	assert_int_equal(deleted, 1);
}

/* ---- what is done costs nothing ---------------------------------------------------------- */

#define KEPT 10000

/* Rows and index entries of the table that were read so far, on PostgreSQL. */
static int64_t reads_of(struct fixture *fixture)
{
	return engine_count(fixture->engine,
		"generate_series(1, (SELECT seq_tup_read + (SELECT sum(idx_tup_read) "
		"FROM pg_stat_user_indexes WHERE relname = t.relname) "
		"FROM pg_stat_user_tables t WHERE relname = '%s'))",
		fixture->subject->table);
}

/* Backends of the database, apart from that which counts them. */
#define BACKENDS                                                                                   \
	"pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend' " \
	"AND pid <> pg_backend_pid()"

/* A backend has told what it has read when it is gone, which is soon after its connection. */
static int64_t settled_reads_of(struct fixture *fixture)
{
	struct engine *engine = fixture->engine;

	engine_execute(engine, "CREATE TABLE earlier_backends AS SELECT pid FROM " BACKENDS);
	engine_restart(engine);
	WAIT_UNTIL(engine_count(
			   engine, BACKENDS " AND pid IN (SELECT pid FROM earlier_backends)") == 0);
	engine_execute(engine, "DROP TABLE earlier_backends");
	return reads_of(fixture);
}

static void work_on_all_statements(struct fixture *fixture, const char *name)
{
	struct session *session = fixture->engine->session;
	struct claim_terms terms = {.owner = slice_of("me"), .lease_us = LEASE_US};
	char text[16];
	size_t deleted;

	for (int i = 0; i < 4; i++) {
		snprintf(text, sizeof(text), "%s-%d", name, i);
		put_many(fixture, text, 50);
		assert_int_equal(claim(fixture, "me", LEASE_US), 50);
		engine_begin(session);
		assert_int_equal(
			fixture->claims->renew(session, &terms, fixture->claim, 50), STATUS_OK);
		engine_commit(session);
		end(fixture, "me");
		assert_true(stats_of(fixture).pending == 0);
		assert_int_equal(
			fixture->claims->sweep(session, MINUTE_US, 50, &deleted), STATUS_OK);
		assert_int_equal(
			fixture->claims->sweep(session, -SECOND_US, 50, &deleted), STATUS_OK);
		assert_int_equal(deleted, 50);
	}
}

static void keep_many(struct fixture *fixture)
{
	engine_execute(fixture->engine, "%s", fixture->subject->keep_sql);
}

static void done_rows_are_never_read(struct fixture *fixture)
{
	int64_t before = settled_reads_of(fixture);

	work_on_all_statements(fixture, "a");
	assert_in_range(settled_reads_of(fixture) - before, 1, KEPT / 2);
}

static void rows_that_are_done_are_not_read_by_any_statement(void **state)
{
	struct fixture *fixture = *state;

	if (engine_time_is_ours(fixture->engine))
		return; /* the statements name their indexes, and SQLite refuses to do without */
	keep_many(fixture);
	engine_execute(fixture->engine, "ANALYZE %s", fixture->subject->table);
	done_rows_are_never_read(fixture);
}

static void nor_while_the_planner_knows_nothing_of_them(void **state)
{
	struct fixture *fixture = *state;

	if (engine_time_is_ours(fixture->engine))
		return;
	keep_many(fixture);
	done_rows_are_never_read(fixture);
}

/* Statements are planned when they are first used, which is while the table is still small. */
static void nor_where_they_came_after_the_statements_were_planned(void **state)
{
	struct fixture *fixture = *state;
	int64_t before;

	if (engine_time_is_ours(fixture->engine))
		return;
	before = settled_reads_of(fixture);
	work_on_all_statements(fixture, "a");
	keep_many(fixture);
	work_on_all_statements(fixture, "b");
	assert_in_range(settled_reads_of(fixture) - before, 1, KEPT / 2);
}

/* ---- what the outbox adds ---------------------------------------------------------------- */

static void an_event_is_there_when_its_transaction_commits(void **state)
{
	struct fixture *fixture = *state;
	struct session *session = fixture->engine->session;
	struct slice id = engine_uuid(fixture->engine, "a");

	engine_begin(session);
	assert_int_equal(outbox_put(fixture->engine, session, &id, 1, 1767855000123456), STATUS_OK);
	session->ops->rollback(session);
	assert_int_equal(claim(fixture, "me", LEASE_US), 0);
	engine_begin(session);
	assert_int_equal(outbox_put(fixture->engine, session, &id, 1, 1767855000123456), STATUS_OK);
	engine_commit(session);
	assert_int_equal(claim(fixture, "me", LEASE_US), 1);
	assert_true(fixture->claim[0].occurred_us == 1767855000123456);
}

static size_t resend(struct fixture *fixture, int64_t since_us)
{
	struct session *session = fixture->engine->session;
	size_t count = 77;

	engine_begin(session);
	assert_int_equal(fixture->engine->outbox->resend(session, since_us, &count), STATUS_OK);
	engine_commit(session);
	return count;
}

static void what_was_published_since_then_is_sent_again(void **state)
{
	struct fixture *fixture = *state;
	struct slice id = put_one(fixture);
	int64_t records = engine_count(fixture->engine, "operator_actions");
	int64_t start_us = now_us(fixture);

	claim_and_end(fixture, CLAIM_DONE);
	assert_int_equal(resend(fixture, now_us(fixture) + SECOND_US), 0);
	assert_true(is_done_now(fixture, id));
	assert_int_equal(resend(fixture, start_us), 1);
	assert_true(row_is(fixture, id,
		"status = 'PENDING' AND attempt_count = 0 AND next_retry_at IS NULL "
		"AND published_at IS NULL"));
	assert_int_equal(claim(fixture, "me", LEASE_US), 1);
	assert_true(fixture->claim[0].epoch == 2);
	assert_int_equal(resend(fixture, 0), 0); /* what is on its way stays so */
	assert_int_equal(engine_count(fixture->engine, "operator_actions"), records + 3);
	assert_true(engine_count(fixture->engine,
			    "operator_actions WHERE action = 'resend' AND target = "
			    "'%s' AND detail LIKE '1 published since 20__-%%Z'",
			    fixture->subject->table) >= 1);
}

static bool resolve(
	struct fixture *fixture, const char *kind, struct slice id, enum dead_letter_action action)
{
	struct session *session = fixture->engine->session;
	bool found = false;

	engine_begin(session);
	assert_int_equal(fixture->engine->outbox->dead.resolve(session, slice_of(kind), id, action,
				 slice_of("wrong item"), &found),
		STATUS_OK);
	engine_commit(session);
	return found;
}

static int64_t depth(struct fixture *fixture)
{
	int64_t count = -1;

	assert_int_equal(
		fixture->engine->outbox->dead.depth(fixture->engine->session, &count), STATUS_OK);
	return count;
}

static void a_failed_event_is_reopened_and_counts_from_the_start(void **state)
{
	struct fixture *fixture = *state;
	struct slice id = put_one(fixture);

	claim_and_end(fixture, CLAIM_FAILED);
	assert_true(depth(fixture) == 1);
	assert_true(resolve(fixture, "outbox", id, DEAD_LETTER_REPLAY));
	assert_true(row_is(
		fixture, id, "status = 'PENDING' AND attempt_count = 0 AND next_retry_at IS NULL"));
	assert_true(depth(fixture) == 0);
	assert_false(resolve(fixture, "outbox", id, DEAD_LETTER_REPLAY));
	assert_int_equal(claim(fixture, "me", LEASE_US), 1);
	assert_int_equal(fixture->claim[0].attempt_count, 0);
	assert_int_equal(engine_count(fixture->engine,
				 "operator_actions WHERE action = 'replay' AND target = "
				 "'%s/%s' AND detail = 'wrong item'",
				 fixture->subject->table, id.data),
		1);
}

static void a_failed_event_is_discarded_for_good(void **state)
{
	struct fixture *fixture = *state;
	struct slice id = put_one(fixture);

	assert_false(resolve(fixture, "outbox", id, DEAD_LETTER_DISCARD));
	claim_and_end(fixture, CLAIM_FAILED);
	assert_false(resolve(fixture, "notification", id, DEAD_LETTER_DISCARD));
	assert_false(resolve(fixture, "outbox", slice_of("no id"), DEAD_LETTER_DISCARD));
	assert_true(resolve(fixture, "outbox", id, DEAD_LETTER_DISCARD));
	assert_true(row_is(fixture, id, "status = 'DISCARDED' AND attempt_count = 1"));
	assert_false(resolve(fixture, "outbox", id, DEAD_LETTER_REPLAY));
	assert_int_equal(claim(fixture, "me", LEASE_US), 0);
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
	struct slice id = put_one(fixture);
	bool found;

	claim_and_end(fixture, CLAIM_FAILED);
	engine_begin(session);
	assert_int_equal(fixture->engine->outbox->dead.resolve(session, slice_of("outbox"), id,
				 DEAD_LETTER_DISCARD, slice_of(""), &found),
		STATUS_OK);
	session->ops->rollback(session);
	assert_true(found);
	assert_true(status_is(fixture, id, "FAILED"));
	assert_int_equal(
		engine_count(fixture->engine, "operator_actions WHERE target LIKE '%%%s'", id.data),
		0);
}

static void failed_events_are_listed_by_id_page_by_page(void **state)
{
	struct fixture *fixture = *state;
	const struct dead_letter_repository *dead = &fixture->engine->outbox->dead;
	struct session *session = engine_session(fixture->engine, SESSION_READ);
	struct dead_letter_page page = {.kind = slice_of("outbox"), .limit = 3};
	struct dead_letter letters[3];
	size_t count, seen = 0;

	put_many(fixture, "row", 9);
	assert_int_equal(claim_by(fixture, fixture->engine->session, "me", LEASE_US, 7), STATUS_OK);
	for (int i = 0; i < 7; i++) {
		fixture->claim[i].end = CLAIM_FAILED;
		fixture->claim[i].error = slice_of("no");
	}
	end(fixture, "me");
	do {
		assert_int_equal(
			dead->list(session, &fixture->engine->arena, &page, letters, &count),
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
		dead->list(session, &fixture->engine->arena, &page, letters, &count), STATUS_OK);
	assert_int_equal(count, 0);
}

static bool find(struct fixture *fixture, struct slice id, struct dead_letter *letter)
{
	bool found = false;

	assert_int_equal(fixture->engine->outbox->dead.find(fixture->engine->session,
				 &fixture->engine->arena, slice_of("outbox"), id, letter, &found),
		STATUS_OK);
	return found;
}

static void a_failed_event_is_found_with_all_that_is_known(void **state)
{
	struct fixture *fixture = *state;
	struct slice id = put_one(fixture);
	struct dead_letter letter;

	assert_false(find(fixture, id, &letter));
	claim_and_end(fixture, CLAIM_FAILED);
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
	assert_true(letter.created_us > 0 && letter.created_us <= now_us(fixture));
}

#define ON(subject, test)                                                                          \
	cmocka_unit_test_prestate_setup_teardown(test, setup, teardown, (void *)(subject))

#define EVERY_TABLE(subject)                                                                       \
	ON(subject, a_pending_row_that_is_due_is_claimed),                                         \
		ON(subject, a_busy_row_is_left_alone_until_its_lease_is_over),                     \
		ON(subject, a_claim_that_is_done_is_over),                                         \
		ON(subject, a_claim_that_is_to_be_retried_waits_until_it_is_due),                  \
		ON(subject, a_claim_that_has_failed_stays_so),                                     \
		ON(subject, a_claim_that_is_returned_is_due_at_once_and_nothing_counts),           \
		ON(subject, claims_end_each_in_its_own_way),                                       \
		ON(subject, an_error_is_cut_between_two_characters),                               \
		ON(subject, a_foreign_owner_changes_nothing),                                      \
		ON(subject, a_worker_that_wakes_after_its_lease_changes_nothing),                  \
		ON(subject, a_lease_that_is_over_can_still_be_ended_while_nobody_took_it),         \
		ON(subject, only_what_is_ours_of_a_batch_is_ended),                                \
		ON(subject, a_renewed_lease_lasts_from_then_on),                                   \
		ON(subject, the_oldest_come_first_and_no_more_than_told),                          \
		ON(subject, a_claim_that_is_rolled_back_was_never_made),                           \
		ON(subject, what_others_are_claiming_is_passed_over),                              \
		ON(subject, every_row_is_done_once_whatever_the_leases),                           \
		ON(subject, count_tells_how_many_are_in_each_state),                               \
		ON(subject, sweep_deletes_what_is_done_for_longer_than_told),                      \
		ON(subject, rows_that_are_done_are_not_read_by_any_statement),                     \
		ON(subject, nor_while_the_planner_knows_nothing_of_them),                          \
		ON(subject, nor_where_they_came_after_the_statements_were_planned)

#define EVERY_OUTBOX(subject)                                                                      \
	EVERY_TABLE(subject), ON(subject, an_event_is_there_when_its_transaction_commits),         \
		ON(subject, what_was_published_since_then_is_sent_again),                          \
		ON(subject, a_failed_event_is_reopened_and_counts_from_the_start),                 \
		ON(subject, a_failed_event_is_discarded_for_good),                                 \
		ON(subject, a_resolution_that_is_rolled_back_leaves_no_record),                    \
		ON(subject, failed_events_are_listed_by_id_page_by_page),                          \
		ON(subject, a_failed_event_is_found_with_all_that_is_known)

int main(void)
{
	const struct CMUnitTest outbox_tests[] = {EVERY_OUTBOX(&outbox)};
	const struct CMUnitTest dialog_outbox_tests[] = {EVERY_OUTBOX(&dialog_outbox)};
	const struct CMUnitTest notification_tests[] = {
		EVERY_TABLE(&notifications),
		ON(&notifications, sweep_takes_what_was_given_up_too),
	};
	int failed = cmocka_run_group_tests_name("claims of the outbox", outbox_tests, NULL, NULL);

	failed += cmocka_run_group_tests_name(
		"claims of the dialogs' outbox", dialog_outbox_tests, NULL, NULL);
	failed += cmocka_run_group_tests_name(
		"claims of notifications", notification_tests, NULL, NULL);
	return failed;
}
