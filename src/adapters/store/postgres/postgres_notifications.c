/*
 * Notifications in PostgreSQL, with their dead letters (notification_dlq) and the inbox of
 * processed events (processed_events).
 *
 * Invariant: a FAILED notification has an unresolved letter with the same id, because one
 * transaction sets the status and writes the letter. `quipu verify` checks this.
 */
#include "adapters/store/postgres/postgres_eraser.h"
#include "adapters/store/postgres/postgres_repositories.h"

#include <assert.h>

#define OCCURRED_FROM_US PG_FROM_US("occurred_us")
#define OCCURRED_US PG_TO_US("occurred_at")
#define CREATED_US PG_TO_US("created_at")
#define SENT_US PG_TO_US("sent_at")
#define MADE_US PG_TO_US("n.created_at")

/* ---- notifications ----------------------------------------------------------------------- */

/* clang-format off */
static const struct pg_statement put_statement = {
	"quipu_notifications_put",
	"INSERT INTO notifications (notification_id, event_id, event_type, user_id, "
	"    stock_keeping_unit, version, aggregate_key, trace_id, payload, occurred_at, "
	"    created_at) "
	"SELECT id::uuid, event_id, type, user_id, unit, version, key, trace, payload, "
	"    " OCCURRED_FROM_US ", (SELECT quipu_now()) "
	"FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::int8[], "
	"    $7::text[], $8::text[], $9::bytea[], $10::int8[]) AS w(id, event_id, type, "
	"    user_id, unit, version, key, trace, payload, occurred_us)",
};

static const struct pg_statement list_statement = {
	"quipu_notifications_list",
	"SELECT notification_id::text, event_id, event_type, user_id, stock_keeping_unit, "
	"    aggregate_key, trace_id, version, " OCCURRED_US ", status, attempt_count, "
	"    " CREATED_US ", coalesce(" SENT_US ", 0) "
	"FROM notifications "
	"WHERE user_id = $1::text "
	"ORDER BY created_at DESC, occurred_at DESC, notification_id DESC LIMIT $2::int8",
};

#define WAITING_LETTER                                                \
	"notification_dlq d "                                         \
	"WHERE d.id = n.notification_id AND d.kind = 'notification' " \
	"  AND d.resolved_at IS NULL"
#define HAS_EVENT PG_FINDS("processed_events p WHERE p.event_id = n.event_id")
#define HAS_LETTER PG_FINDS(WAITING_LETTER)

static const struct pg_statement list_facts_statement = {
	"quipu_notifications_list_facts",
	"SELECT n.notification_id::text, n.status = 'FAILED', " MADE_US ", " HAS_EVENT ", "
	"    " HAS_LETTER " "
	"FROM notifications n "
	"WHERE n.notification_id > $1::text::uuid "
	"ORDER BY n.notification_id LIMIT $2::int8",
};
/* clang-format on */

static const struct pg_claims claims =
	PG_CLAIMS("notifications", "notification_id", "occurred_at", "PROCESSING", "SENT",
		"sent_at", "'SENT', 'FAILED', 'DISCARDED'", "coalesce(sent_at, created_at)");

static const Oid put_types[] = {PG_OID_TEXT, PG_OID_TEXT, PG_OID_TEXT, PG_OID_TEXT, PG_OID_TEXT,
	PG_OID_INT8, PG_OID_TEXT, PG_OID_TEXT, PG_OID_BYTEA, PG_OID_INT8};

static void add_notification(struct pg_array *columns, const void *element)
{
	const struct notification *notification = element;

	pg_array_text(&columns[0], notification->id);
	pg_array_text(&columns[1], notification->event_id);
	pg_array_text(&columns[2], notification->event_type);
	pg_array_text(&columns[3], notification->user_id);
	pg_array_text(&columns[4], notification->unit);
	pg_array_int8(&columns[5], notification->version);
	pg_array_text(&columns[6], notification->key);
	pg_array_text(&columns[7], notification->trace);
	pg_array_text(&columns[8], notification->payload);
	pg_array_int8(&columns[9], notification->occurred_us);
}

static const struct pg_shape put_shape = {
	.types = put_types,
	.column_count = sizeof(put_types) / sizeof(put_types[0]),
	.row_size = sizeof(struct notification),
	.add = add_notification,
};

static enum status put(const struct notification_repository *repository, struct session *base,
	const struct notification *notifications, size_t count)
{
	struct pg_session *session = pg_session_of(base);

	pg_queue_all(session, &put_statement, &put_shape, notifications, count);
	return pg_flush(session);
}

static void fill_notification(
	struct notification *notification, struct arena *arena, const PGresult *result, int row)
{
	*notification = (struct notification){
		.id = pg_keep(arena, result, row, 0),
		.event_id = pg_keep(arena, result, row, 1),
		.event_type = pg_keep(arena, result, row, 2),
		.user_id = pg_keep(arena, result, row, 3),
		.unit = pg_keep(arena, result, row, 4),
		.key = pg_keep(arena, result, row, 5),
		.trace = pg_keep(arena, result, row, 6),
		.version = pg_int8(result, row, 7),
		.occurred_us = pg_int8(result, row, 8),
		.status = pg_keep(arena, result, row, 9),
		.attempt_count = pg_int4(result, row, 10),
		.created_us = pg_int8(result, row, 11),
		.sent_us = pg_int8(result, row, 12),
	};
}

static enum status list(const struct notification_repository *repository, struct session *base,
	struct arena *arena, struct row_page *page, struct notification *notifications)
{
	struct pg_session *session = pg_session_of(base);
	struct pg_param params[2] = {pg_param_text(page->user_id)};
	enum status status = pg_list_rows(session, &list_statement, params, 1, page);

	for (size_t i = 0; status == STATUS_OK && i < page->count; i++)
		fill_notification(&notifications[i], arena, session->results[0], (int)i);
	return status;
}

static enum status list_facts(const struct notification_repository *repository,
	struct session *base, struct arena *arena, struct row_page *page,
	struct notification_facts *rows)
{
	struct pg_session *session = pg_session_of(base);
	struct pg_param params[2] = {pg_param_uuid(page->after[0])};
	enum status status = pg_list_rows(session, &list_facts_statement, params, 1, page);

	for (size_t i = 0; status == STATUS_OK && i < page->count; i++)
		rows[i] = (struct notification_facts){
			.id = pg_keep(arena, session->results[0], (int)i, 0),
			.is_failed = pg_bool(session->results[0], (int)i, 1),
			.created_us = pg_int8(session->results[0], (int)i, 2),
			.has_event = pg_bool(session->results[0], (int)i, 3),
			.has_letter = pg_bool(session->results[0], (int)i, 4),
		};
	return status;
}

/* ---- dead letters ------------------------------------------------------------------------ */

/* clang-format off */
#define PUT_LETTERS_SQL                                                                        \
	"INSERT INTO notification_dlq AS d (id, kind, event_type, aggregate_key, position, "   \
	"    last_error, payload, attempt_count, created_at) "                                 \
	"SELECT DISTINCT ON (w.id) w.id::uuid, w.kind, w.type, w.key, w.position, w.error, "   \
	"    w.payload, w.attempt_count, (SELECT quipu_now()) "                                \
	"FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], " \
	"    $7::bytea[], $8::int4[]) "                                                        \
	"    AS w(id, kind, type, key, position, error, payload, attempt_count) "

#define WAITING_SQL(payload)                                                       \
	"SELECT id::text, kind, event_type, aggregate_key, position, last_error, " \
	"    attempt_count, " CREATED_US ", " payload " "                          \
	"FROM notification_dlq "                                                   \
	"WHERE resolved_at IS NULL AND kind = $1::text AND id "

static const struct pg_dead_letters dead = {
	.base = {.ops = &pg_dead_letters_ops},
	.target = "notification_dlq",
	.reopens = &claims,
	/* A notification that was replayed and fails again reopens its letter. */
	.put = {"quipu_notification_dlq_put",
		PUT_LETTERS_SQL
		"WHERE w.kind <> 'poison' "
		"ORDER BY w.id "
		"ON CONFLICT (id) "
		"DO UPDATE SET last_error = excluded.last_error, "
		"    attempt_count = excluded.attempt_count, created_at = excluded.created_at, "
		"    resolved_at = NULL, resolution = NULL "
		"WHERE d.resolved_at IS NOT NULL"},
	.put_poison = {"quipu_notification_dlq_put_poison",
		PUT_LETTERS_SQL
		"WHERE w.kind = 'poison' "
		"ORDER BY w.id "
		"ON CONFLICT (position) WHERE position <> '' DO NOTHING"},
	.list = {"quipu_notification_dlq_list",
		WAITING_SQL("''::bytea") "> $2::text::uuid ORDER BY id LIMIT $3::int8"},
	.find = {"quipu_notification_dlq_find", WAITING_SQL("payload") "= $2::text::uuid"},
	.row = {"quipu_notification_dlq_row",
		"UPDATE notifications "
		"SET status = $3::text, next_retry_at = NULL, "
		"    attempt_count = CASE $3::text WHEN 'PENDING' THEN 0 ELSE attempt_count END "
		"WHERE stage = 'FAILED' AND notification_id = $2::text::uuid "
		"  AND EXISTS ("
		"    SELECT 1 "
		"    FROM notification_dlq "
		"    WHERE resolved_at IS NULL AND kind = 'notification' AND kind = $1::text "
		"      AND id = $2::text::uuid)"},
	/* A notification that has been deleted cannot be replayed; its letter can only be
	 * discarded. */
	.letter = {"quipu_notification_dlq_letter",
		"UPDATE notification_dlq "
		"SET resolved_at = quipu_now(), "
		"    resolution = CASE $3::text WHEN 'PENDING' THEN 'REPLAYED' ELSE $3::text END "
		"WHERE resolved_at IS NULL AND kind = $1::text AND id = $2::text::uuid "
		"  AND (kind <> 'notification' "
		"    OR $3::text = 'DISCARDED' "
		"    OR EXISTS ("
		"      SELECT 1 "
		"      FROM notifications "
		"      WHERE notification_id = $2::text::uuid AND status = 'PENDING')) "
		"RETURNING 1"},
	.depth = {"quipu_notification_dlq_depth",
		"SELECT count(*) "
		"FROM notification_dlq "
		"WHERE resolved_at IS NULL AND ($1::text = '' OR kind = $1::text)"},
};

/* ---- the inbox --------------------------------------------------------------------------- */

static const struct pg_statement take_in_statement = {
	"quipu_processed_events_put",
	"INSERT INTO processed_events (event_id, processed_at) "
	"SELECT event_id, (SELECT quipu_now()) "
	"FROM unnest($1::text[]) AS w(event_id) "
	"ON CONFLICT (event_id) DO NOTHING "
	"RETURNING event_id",
};

static const struct pg_statement forget_statement = {
	"quipu_processed_events_sweep",
	"DELETE FROM processed_events "
	"WHERE event_id = ANY (ARRAY("
	"    SELECT event_id "
	"    FROM processed_events "
	"    WHERE processed_at < (SELECT quipu_now()) - $1::int8 * interval '1 microsecond' "
	"    ORDER BY processed_at LIMIT $2::int8 FOR UPDATE SKIP LOCKED)) "
	"RETURNING 1",
};
/* clang-format on */

/* take_in_statement returns the ids that are new, in the order of `events`. */
static enum status take_in(const struct inbox_repository *repository, struct session *base,
	struct inbox_event *events, size_t count)
{
	struct pg_session *session = pg_session_of(base);
	struct pg_param ids = pg_param_ids(session, &events->event_id, sizeof(*events), count);
	enum status status = pg_run(session, &take_in_statement, &ids, 1);
	int row = 0;

	if (status != STATUS_OK)
		return status;
	for (size_t i = 0; i < count; i++) {
		events[i].is_new =
			row < PQntuples(session->results[0]) &&
			slice_equal(pg_slice(session->results[0], row, 0), events[i].event_id);
		row += events[i].is_new;
	}
	assert(row == PQntuples(session->results[0]));
	return STATUS_OK;
}

static enum status forget(const struct inbox_repository *repository, struct session *base,
	int64_t age_us, size_t limit, size_t *deleted)
{
	return pg_sweep(base, &forget_statement, age_us, limit, deleted);
}

static const struct inbox_repository_ops inbox_ops = {.put = take_in, .sweep = forget};
static const struct inbox_repository inbox = {.ops = &inbox_ops};

static const struct notification_repository_ops ops = {
	.put = put,
	.list = list,
	.list_facts = list_facts,
};

const struct notification_repository postgres_notification_repository = {
	.ops = &ops,
	.eraser = &postgres_notifications_eraser.base,
	.claims = &claims.base,
	.dead = &dead.base,
	.inbox = &inbox,
};
