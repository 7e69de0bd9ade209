/*
 * Stores messages that are on their way to a provider, and their dead letters (outbound_dlq), in
 * SQLite.
 *
 * Invariant: a FAILED message has an unresolved letter with the same id. The status and the letter
 * are written in one transaction.
 */
#include "adapters/store/sqlite/sqlite_repositories.h"

/* clang-format off */
static const char put_sql[] =
	"INSERT INTO outbound_messages (id, message_id, aggregate_key, trace_id, payload, "
	"    occurred_at, created_at) "
	"VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) "
	"ON CONFLICT (id) DO NOTHING";

static const char note_sql[] =
	"INSERT INTO queued_messages (id, user_id, created_at) "
	"SELECT ?1, ?2, ?3 "
	"WHERE NOT EXISTS (SELECT 1 FROM outbound_messages WHERE id = ?1) "
	"ON CONFLICT (id) DO NOTHING";

static const char unqueue_sql[] = "DELETE FROM queued_messages WHERE id = ?1";

static const char know_sql[] = "SELECT 1 FROM outbound_messages WHERE id = ?1";

static const char find_sql[] =
	"SELECT message_id, aggregate_key, occurred_at, status, coalesce(last_error, ''), "
	"    attempt_count, created_at, coalesce(sent_at, 0) "
	"FROM outbound_messages "
	"WHERE id = ?1 "
	"UNION ALL "
	"SELECT id, user_id, created_at, 'QUEUED', '', 0, 0, 0 "
	"FROM queued_messages "
	"WHERE id = ?1";

static const char sweep_sql[] =
	"DELETE FROM queued_messages "
	"WHERE id IN (SELECT id FROM queued_messages WHERE created_at < ?1 LIMIT ?2)";
/* clang-format on */

static const struct sqlite_claims claims =
	SQLITE_CLAIMS("outbound_messages", "id", "occurred_at", "SENDING", "SENT", "sent_at",
		"status IN ('SENT', 'FAILED', 'DISCARDED')", "coalesce(sent_at, created_at)");

static enum status note(const struct outbound_repository *repository, struct session *base,
	const struct outbound_message *messages, size_t count)
{
	struct sqlite_query query = sqlite_query_open(sqlite_session_of(base), note_sql);

	for (size_t i = 0; i < count; i++)
		sqlite_query_change(&query,
			SQLITE_VALUES(sqlite_text(messages[i].id), sqlite_text(messages[i].user_id),
				sqlite_int(messages[i].created_us)));
	return sqlite_query_close(&query);
}

static enum status unqueue(
	struct sqlite_session *session, const struct outbound_message *messages, size_t count)
{
	struct sqlite_query query = sqlite_query_open(session, unqueue_sql);

	for (size_t i = 0; i < count; i++) {
		if (messages[i].is_new)
			sqlite_query_change(&query, SQLITE_VALUES(sqlite_text(messages[i].id)));
	}
	return sqlite_query_close(&query);
}

/* Rows are claimed in the order of created_at. Each message of a batch gets a later created_at than
 * the one before it, so that the messages are claimed in the order of the batch. */
static enum status put(const struct outbound_repository *repository, struct session *base,
	struct outbound_message *messages, size_t count)
{
	struct sqlite_session *session = sqlite_session_of(base);
	struct sqlite_query query = sqlite_query_open(session, put_sql);
	int64_t now_us = sqlite_now_us(session);
	enum status status;

	for (size_t i = 0; i < count; i++) {
		struct outbound_message *message = &messages[i];

		message->is_new =
			sqlite_query_change(&query,
				SQLITE_VALUES(sqlite_text(message->id),
					sqlite_text(message->message_id),
					sqlite_text(message->user_id), sqlite_text(message->trace),
					sqlite_blob(message->payload),
					sqlite_int(message->created_us),
					sqlite_int(now_us + (int64_t)i))) == 1;
	}
	status = sqlite_query_close(&query);
	return status == STATUS_OK ? unqueue(session, messages, count) : status;
}

static enum status know(const struct outbound_repository *repository, struct session *base,
	struct outbound_message *messages, size_t count)
{
	struct sqlite_query query = sqlite_query_open(sqlite_session_of(base), know_sql);

	for (size_t i = 0; i < count; i++) {
		sqlite_query_start(&query, SQLITE_VALUES(sqlite_text(messages[i].id)));
		messages[i].exists = sqlite_query_next(&query);
	}
	return sqlite_query_close(&query);
}

static void fill_message(
	struct outbound_message *message, struct arena *arena, const struct sqlite_query *query)
{
	message->exists = true;
	message->message_id = sqlite_query_keep(query, arena, 0);
	message->user_id = sqlite_query_keep(query, arena, 1);
	message->created_us = sqlite_query_int(query, 2);
	message->status = sqlite_query_keep(query, arena, 3);
	message->error = sqlite_query_keep(query, arena, 4);
	message->attempt_count = (int32_t)sqlite_query_int(query, 5);
	message->taken_us = sqlite_query_int(query, 6);
	message->sent_us = sqlite_query_int(query, 7);
}

static enum status find(const struct outbound_repository *repository, struct session *base,
	struct arena *arena, struct outbound_message *message)
{
	struct sqlite_session *session = sqlite_session_of(base);
	enum status status = sqlite_snapshot_begin(session);
	struct sqlite_query query;

	if (status != STATUS_OK)
		return status;
	query = sqlite_query_open(session, find_sql);
	sqlite_query_start(&query, SQLITE_VALUES(sqlite_text(message->id)));
	message->exists = false;
	if (sqlite_query_next(&query))
		fill_message(message, arena, &query);
	status = sqlite_query_close(&query);
	return status == STATUS_OK ? sqlite_snapshot_end(session) : status;
}

static enum status sweep_queued(const struct outbound_repository *repository, struct session *base,
	int64_t age_us, size_t limit, size_t *deleted)
{
	return sqlite_sweep_age(base, sweep_sql, age_us, limit, deleted);
}

/* ---- dead letters ------------------------------------------------------------------------ */

/* clang-format off */
#define WAITING_SQL(payload)                                                                \
	"SELECT id, kind, event_type, aggregate_key, position, last_error, attempt_count, " \
	"    created_at, " payload " "                                                      \
	"FROM outbound_dlq "                                                                \
	"WHERE resolved_at IS NULL AND kind = ?1 AND id "

static const struct sqlite_dead_letters dead = {
	.base = {.ops = &sqlite_dead_letters_ops},
	/* A message that was replayed and fails again reopens its letter. */
	.put =
		"INSERT INTO outbound_dlq (id, kind, event_type, aggregate_key, position, "
		"    last_error, payload, attempt_count, created_at) "
		"VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) "
		"ON CONFLICT (id) "
		"DO UPDATE SET last_error = excluded.last_error, "
		"    attempt_count = excluded.attempt_count, created_at = excluded.created_at, "
		"    resolved_at = NULL, resolution = NULL "
		"WHERE outbound_dlq.resolved_at IS NOT NULL",
	.target = "outbound_dlq",
	.list = WAITING_SQL("x''") "> ?2 ORDER BY id LIMIT ?3",
	.find = WAITING_SQL("payload") "= ?2",
	.row =
		"UPDATE outbound_messages "
		"SET status = ?3, next_retry_at = NULL, attempt_count = CASE ?3 WHEN 'PENDING' THEN 0 "
		"    ELSE attempt_count END "
		"WHERE status = 'FAILED' AND id = ?2 "
		"  AND EXISTS ("
		"    SELECT 1 "
		"    FROM outbound_dlq d "
		"    WHERE d.resolved_at IS NULL AND d.kind = ?1 AND d.id = ?2)",
	/* Marks a letter as REPLAYED only if the statement `row` has set the message to PENDING. If
	 * the message has been swept, an operator can only discard its letter. */
	.letter =
		"UPDATE outbound_dlq "
		"SET resolved_at = ?4, resolution = CASE ?3 WHEN 'PENDING' THEN 'REPLAYED' "
		"    ELSE ?3 END "
		"WHERE resolved_at IS NULL AND kind = ?1 AND id = ?2 "
		"  AND (?3 = 'DISCARDED' "
		"    OR EXISTS ("
		"      SELECT 1 "
		"      FROM outbound_messages m "
		"      WHERE m.id = ?2 AND m.status = 'PENDING'))",
	.depth = "SELECT count(*) "
		 "FROM outbound_dlq "
		 "WHERE resolved_at IS NULL AND (?1 = '' OR kind = ?1)",
};
/* clang-format on */

static const struct outbound_repository_ops ops = {
	.note = note, .put = put, .know = know, .find = find, .sweep_queued = sweep_queued};

const struct outbound_repository sqlite_outbound_repository = {
	.ops = &ops,
	.claims = &claims.base,
	.dead = &dead.base,
};
