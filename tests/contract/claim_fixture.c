/*
 * Puts rows into a table of claims, claims and ends them, and checks the columns with SQL of its
 * own. The tables differ only in their names and words (struct subject), so each test runs on all
 * of them.
 */
#include "claim_fixture.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- the tables -------------------------------------------------------------------------- */

static const struct claim_repository *outbox_claims(const struct engine *engine)
{
	return engine->outbox->claims;
}

enum status claim_fixture_outbox_put(struct engine *engine, struct session *session,
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
	return engine->outbox->ops->put(engine->outbox, session, events, count);
}

#define KEEP_SQL(table)                                                                            \
	"INSERT INTO " table " (event_id, event_type, aggregate_key, trace_id, "                   \
	"payload, status, created_at, published_at) SELECT gen_random_uuid(), 'x', "               \
	"'x', '', '', 'PUBLISHED', clock_timestamp(), clock_timestamp() "                          \
	"FROM generate_series(1, 20000)"

#define OUTBOX(name, dialogs)                                                                      \
	{                                                                                          \
		.table = name, .id = "event_id", .busy = "IN_FLIGHT", .done = "PUBLISHED",         \
		.done_at = "published_at", .type = "EntitlementGranted", .claims = outbox_claims,  \
		.put = claim_fixture_outbox_put, .keep_sql = KEEP_SQL(name),                       \
		.is_of_dialogs = dialogs, .is_outbox = true,                                       \
	}

const struct subject claims_of_outbox = OUTBOX("outbox_events", false);
const struct subject claims_of_dialog_outbox = OUTBOX("dialog_outbox_events", true);

static const struct claim_repository *notification_claims(const struct engine *engine)
{
	return engine->notifications->claims;
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
	return engine->notifications->ops->put(
		engine->notifications, session, notifications, count);
}

const struct subject claims_of_notifications = {
	.table = "notifications",
	.id = "notification_id",
	.busy = "PROCESSING",
	.done = "SENT",
	.done_at = "sent_at",
	.type = "EntitlementGranted",
	.claims = notification_claims,
	.put = notification_put,
	.keep_sql = "INSERT INTO notifications (notification_id, event_id, event_type, user_id, "
		    "stock_keeping_unit, version, aggregate_key, trace_id, payload, occurred_at, "
		    "status, created_at, sent_at) SELECT gen_random_uuid(), 'x', 'x', 'x', 'x', 1, "
		    "'x', '', '', clock_timestamp(), 'SENT', clock_timestamp(), clock_timestamp() "
		    "FROM generate_series(1, 20000)",
};

static const struct claim_repository *outbound_claims(const struct engine *engine)
{
	return engine->outbound->claims;
}

static enum status outbound_put(struct engine *engine, struct session *session,
	const struct slice *ids, size_t count, int64_t time_us)
{
	struct outbound_message messages[CLAIMS_MAX];

	for (size_t i = 0; i < count; i++)
		messages[i] = (struct outbound_message){
			.id = ids[i],
			.message_id = ids[i],
			.user_id = slice_of("u_123:item1"),
			.trace =
				slice_of("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
			.payload = slice_make("\x00\xff\x80", 3),
			.created_us = time_us + (int64_t)i,
		};
	return engine->outbound->ops->put(engine->outbound, session, messages, count);
}

const struct subject claims_of_outbound = {
	.table = "outbound_messages",
	.id = "id",
	.busy = "SENDING",
	.done = "SENT",
	.done_at = "sent_at",
	.type = "sms",
	.claims = outbound_claims,
	.put = outbound_put,
	.keep_sql = "INSERT INTO outbound_messages (id, message_id, aggregate_key, trace_id, "
		    "payload, occurred_at, status, created_at, sent_at) SELECT gen_random_uuid(), "
		    "'x', 'x', '', '', clock_timestamp(), 'SENT', clock_timestamp(), "
		    "clock_timestamp() FROM generate_series(1, 20000)",
};

/* ---- a fixture for each test --------------------------------------------------------------- */

int claim_fixture_setup(void **state)
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

int claim_fixture_teardown(void **state)
{
	struct fixture *fixture = *state;
	void *engine = fixture->engine;

	free(fixture);
	return engine_teardown(&engine);
}

int64_t claim_fixture_now_us(struct fixture *fixture)
{
	struct entitlement_row row = {.user_id = slice_of("nobody"), .unit = slice_of("x")};
	struct session *session = fixture->engine->session;
	int64_t now_us = 0;

	engine_begin(session);
	assert_int_equal(fixture->engine->entitlements->ops->lock(
				 fixture->engine->entitlements, session, &row, 1, &now_us),
		STATUS_OK);
	session->ops->rollback(session);
	return now_us;
}

void claim_fixture_put_many(struct fixture *fixture, const char *name, size_t count)
{
	struct slice ids[CLAIMS_MAX];
	int64_t time_us = claim_fixture_now_us(fixture);

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

struct slice claim_fixture_put_one(struct fixture *fixture)
{
	claim_fixture_put_many(fixture, "row", 1);
	return engine_uuid(fixture->engine, "row-0");
}

enum status claim_fixture_claim_by(struct fixture *fixture, struct session *session,
	const char *owner, int64_t lease_us, size_t max)
{
	struct claim_terms terms = {.owner = slice_of(owner), .lease_us = lease_us, .max = max};
	enum status status = session->ops->begin(session, TRANSACTION_WAIT);

	if (status == STATUS_OK)
		status = fixture->claims->ops->claim(fixture->claims, session,
			&fixture->engine->arena, &terms, fixture->claim, &fixture->count);
	return status == STATUS_OK ? session->ops->commit(session) : status;
}

size_t claim_fixture_claim(struct fixture *fixture, const char *owner, int64_t lease_us)
{
	assert_int_equal(claim_fixture_claim_by(
				 fixture, fixture->engine->session, owner, lease_us, CLAIMS_MAX),
		STATUS_OK);
	return fixture->count;
}

void claim_fixture_end(struct fixture *fixture, const char *owner)
{
	struct session *session = fixture->engine->session;

	for (size_t i = 0; i < fixture->count; i++)
		fixture->claim[i].was_ours = !fixture->claim[i].was_ours;
	engine_begin(session);
	assert_int_equal(fixture->claims->ops->end(fixture->claims, session, slice_of(owner),
				 fixture->claim, fixture->count),
		STATUS_OK);
	engine_commit(session);
}

void claim_fixture_claim_and_end(struct fixture *fixture, enum claim_end how)
{
	assert_int_equal(claim_fixture_claim(fixture, "me", LEASE_US), 1);
	fixture->claim[0].end = how;
	fixture->claim[0].delay_us = MINUTE_US;
	fixture->claim[0].error = slice_of("no route to host");
	claim_fixture_end(fixture, "me");
	assert_true(fixture->claim[0].was_ours);
}

bool claim_fixture_row_is(struct fixture *fixture, struct slice id, const char *condition)
{
	return engine_count(fixture->engine, "%s WHERE %s = '%s' AND %s", fixture->subject->table,
		       fixture->subject->id, id.data, condition) == 1;
}

bool claim_fixture_status_is(struct fixture *fixture, struct slice id, const char *status)
{
	char condition[64];

	snprintf(condition, sizeof(condition), "status = '%s'", status);
	return claim_fixture_row_is(fixture, id, condition);
}

bool claim_fixture_is_done_now(struct fixture *fixture, struct slice id)
{
	char condition[128];

	snprintf(condition, sizeof(condition),
		"status = '%s' AND %s >= locked_at AND lease_until IS NULL AND last_error IS NULL",
		fixture->subject->done, fixture->subject->done_at);
	return claim_fixture_row_is(fixture, id, condition);
}

struct claim_stats claim_fixture_stats_of(struct fixture *fixture)
{
	struct session *session = engine_session(fixture->engine, SESSION_READ);
	struct claim_stats stats = {.pending = -1};

	assert_int_equal(fixture->claims->ops->count(fixture->claims, session, &stats), STATUS_OK);
	return stats;
}
