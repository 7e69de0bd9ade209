/*
 * Notifications in SQLite, with their dead letters (notification_dlq) and the inbox of processed
 * events (processed_events).
 *
 * Invariant, which `quipu verify` checks: a FAILED notification has an unresolved letter with the
 * same id. The status and the letter are written in one transaction.
 */
#include "adapters/store/sqlite/sqlite_eraser.h"
#include "adapters/store/sqlite/sqlite_repositories.h"

/* ---- notifications ----------------------------------------------------------------------- */

/* clang-format off */
static const char put_sql[] =
	"INSERT INTO notifications (notification_id, event_id, event_type, user_id, "
	"    stock_keeping_unit, version, aggregate_key, trace_id, payload, occurred_at, "
	"    created_at) "
	"VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";

static const char list_sql[] =
	"SELECT notification_id, event_id, event_type, user_id, stock_keeping_unit, "
	"    aggregate_key, trace_id, version, occurred_at, status, attempt_count, "
	"    created_at, coalesce(sent_at, 0) "
	"FROM notifications "
	"WHERE user_id = ?4 "
	"ORDER BY created_at DESC, occurred_at DESC, notification_id DESC LIMIT ?5";
/* clang-format on */

static const struct sqlite_claims claims = SQLITE_CLAIMS("notifications", "notification_id",
	"occurred_at", "PROCESSING", "SENT", "sent_at", "status IN ('SENT', 'FAILED', 'DISCARDED')",
	"coalesce(sent_at, created_at)");

static enum status put(const struct notification_repository *repository, struct session *base,
	const struct notification *notifications, size_t count)
{
	struct sqlite_session *session = sqlite_session_of(base);
	struct sqlite_query query = sqlite_query_open(session, put_sql);
	int64_t now_us = sqlite_now_us(session);

	for (size_t i = 0; i < count; i++) {
		const struct notification *notification = &notifications[i];

		sqlite_query_change_one(&query,
			SQLITE_VALUES(sqlite_text(notification->id),
				sqlite_text(notification->event_id),
				sqlite_text(notification->event_type),
				sqlite_text(notification->user_id), sqlite_text(notification->unit),
				sqlite_int(notification->version), sqlite_text(notification->key),
				sqlite_text(notification->trace),
				sqlite_blob(notification->payload),
				sqlite_int(notification->occurred_us), sqlite_int(now_us)));
	}
	return sqlite_query_close(&query);
}

static void fill_notification(void *row, struct arena *arena, const struct sqlite_query *query)
{
	*(struct notification *)row = (struct notification){
		.id = sqlite_query_keep(query, arena, 0),
		.event_id = sqlite_query_keep(query, arena, 1),
		.event_type = sqlite_query_keep(query, arena, 2),
		.user_id = sqlite_query_keep(query, arena, 3),
		.unit = sqlite_query_keep(query, arena, 4),
		.key = sqlite_query_keep(query, arena, 5),
		.trace = sqlite_query_keep(query, arena, 6),
		.version = sqlite_query_int(query, 7),
		.occurred_us = sqlite_query_int(query, 8),
		.status = sqlite_query_keep(query, arena, 9),
		.attempt_count = (int32_t)sqlite_query_int(query, 10),
		.created_us = sqlite_query_int(query, 11),
		.sent_us = sqlite_query_int(query, 12),
	};
}

static enum status list(const struct notification_repository *repository, struct session *session,
	struct arena *arena, struct row_page *page, struct notification *notifications)
{
	static const struct sqlite_list newest = {
		.sql = list_sql,
		.row_size = sizeof(struct notification),
		.fill = fill_notification,
	};

	return sqlite_list_rows(session, arena, &newest, page, notifications);
}

static void fill_facts(void *row, struct arena *arena, const struct sqlite_query *query)
{
	*(struct notification_facts *)row = (struct notification_facts){
		.id = sqlite_query_keep(query, arena, 0),
		.is_failed = sqlite_query_int(query, 1) != 0,
		.created_us = sqlite_query_int(query, 2),
		.has_event = sqlite_query_int(query, 3) != 0,
		.has_letter = sqlite_query_int(query, 4) != 0,
	};
}

/* clang-format off */
static const char list_facts_sql[] =
	"SELECT notification_id, status = 'FAILED', created_at, "
	"    EXISTS (SELECT 1 FROM processed_events p WHERE p.event_id = n.event_id), "
	"    EXISTS ("
	"      SELECT 1 "
	"      FROM notification_dlq d "
	"      WHERE d.id = n.notification_id AND d.kind = 'notification' "
	"        AND d.resolved_at IS NULL) "
	"FROM notifications n "
	"WHERE notification_id > ?1 "
	"ORDER BY notification_id LIMIT ?5";
/* clang-format on */

static enum status list_facts(const struct notification_repository *repository,
	struct session *session, struct arena *arena, struct row_page *page,
	struct notification_facts *rows)
{
	static const struct sqlite_list all = {
		.sql = list_facts_sql,
		.row_size = sizeof(struct notification_facts),
		.fill = fill_facts,
	};

	return sqlite_list_rows(session, arena, &all, page, rows);
}

/* ---- dead letters ------------------------------------------------------------------------ */

/* clang-format off */
#define WAITING_SQL(payload)                                                                \
	"SELECT id, kind, event_type, aggregate_key, position, last_error, attempt_count, " \
	"    created_at, " payload " "                                                      \
	"FROM notification_dlq "                                                            \
	"WHERE resolved_at IS NULL AND kind = ?1 AND id "

static const struct sqlite_dead_letters dead = {
	.base = {.ops = &sqlite_dead_letters_ops},
	/* A notification that was replayed and fails again reopens its letter. */
	.put =
		"INSERT INTO notification_dlq (id, kind, event_type, aggregate_key, position, "
		"    last_error, payload, attempt_count, created_at) "
		"VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) "
		"ON CONFLICT (position) WHERE position <> '' DO NOTHING "
		"ON CONFLICT (id) "
		"DO UPDATE SET last_error = excluded.last_error, "
		"    attempt_count = excluded.attempt_count, created_at = excluded.created_at, "
		"    resolved_at = NULL, resolution = NULL "
		"WHERE notification_dlq.resolved_at IS NOT NULL "
		"  AND notification_dlq.kind <> 'poison'",
	.target = "notification_dlq",
	.list = WAITING_SQL("x''") "> ?2 ORDER BY id LIMIT ?3",
	.find = WAITING_SQL("payload") "= ?2",
	.row =
		"UPDATE notifications "
		"SET status = ?3, next_retry_at = NULL, attempt_count = CASE ?3 WHEN 'PENDING' THEN 0 "
		"    ELSE attempt_count END "
		"WHERE status = 'FAILED' AND notification_id = ?2 "
		"  AND EXISTS ("
		"    SELECT 1 "
		"    FROM notification_dlq "
		"    WHERE resolved_at IS NULL AND kind = 'notification' AND kind = ?1 "
		"      AND id = ?2)",
	/* Marks the letter of a notification as REPLAYED only if the statement `row` has set the
	 * notification to PENDING. If the notification has been swept, an operator can only discard
	 * its letter. */
	.letter =
		"UPDATE notification_dlq "
		"SET resolved_at = ?4, resolution = CASE ?3 WHEN 'PENDING' THEN 'REPLAYED' "
		"    ELSE ?3 END "
		"WHERE resolved_at IS NULL AND kind = ?1 AND id = ?2 "
		"  AND (kind <> 'notification' "
		"    OR ?3 = 'DISCARDED' "
		"    OR EXISTS ("
		"      SELECT 1 "
		"      FROM notifications "
		"      WHERE notification_id = ?2 AND status = 'PENDING'))",
	.depth = "SELECT count(*) "
		 "FROM notification_dlq "
		 "WHERE resolved_at IS NULL AND (?1 = '' OR kind = ?1)",
};

/* ---- the inbox --------------------------------------------------------------------------- */

static const char take_in_sql[] =
	"INSERT INTO processed_events (event_id, processed_at) "
	"VALUES (?1, ?2) "
	"ON CONFLICT (event_id) DO NOTHING";

static const char forget_sql[] =
	"DELETE FROM processed_events "
	"WHERE event_id IN ("
	"  SELECT event_id "
	"  FROM processed_events "
	"  WHERE processed_at < ?1 "
	"  ORDER BY processed_at LIMIT ?2)";
/* clang-format on */

static enum status take_in(const struct inbox_repository *repository, struct session *base,
	struct inbox_event *events, size_t count)
{
	struct sqlite_session *session = sqlite_session_of(base);
	struct sqlite_query query = sqlite_query_open(session, take_in_sql);
	int64_t now_us = sqlite_now_us(session);

	for (size_t i = 0; i < count; i++)
		events[i].is_new =
			sqlite_query_change(&query, SQLITE_VALUES(sqlite_text(events[i].event_id),
							    sqlite_int(now_us))) == 1;
	return sqlite_query_close(&query);
}

static enum status forget(const struct inbox_repository *repository, struct session *base,
	int64_t age_us, size_t limit, size_t *deleted)
{
	return sqlite_sweep_age(base, forget_sql, age_us, limit, deleted);
}

static const struct inbox_repository_ops inbox_ops = {.put = take_in, .sweep = forget};
static const struct inbox_repository inbox = {.ops = &inbox_ops};

static const struct notification_repository_ops ops = {
	.put = put,
	.list = list,
	.list_facts = list_facts,
};

const struct notification_repository sqlite_notification_repository = {
	.ops = &ops,
	.eraser = &sqlite_notifications_eraser.base,
	.claims = &claims.base,
	.dead = &dead.base,
	.inbox = &inbox,
};
