#include "adapters/store/sqlite/sqlite_outbox.h"

#include "adapters/store/sqlite/sqlite_claims.h"
#include "adapters/store/sqlite/sqlite_dead_letters.h"

#define DETAIL_ARENA_SIZE 128

struct outbox_table {
	struct sqlite_claim_table claims;
	struct sqlite_dead_view dead;
	const char *put;
	const char *resend;
};

#define PUT_SQL(table)                                                                             \
	"INSERT INTO " table                                                                       \
	" (event_id, event_type, aggregate_key, trace_id, payload, created_at) "                   \
	"VALUES (?1, ?2, ?3, ?4, ?5, ?6)"

#define RESEND_SQL(table)                                                                          \
	"UPDATE " table " SET status = 'PENDING', attempt_count = 0, next_retry_at = NULL, "       \
	"published_at = NULL WHERE rowid IN (SELECT rowid FROM " table " INDEXED BY " table        \
	"_ended WHERE status = 'PUBLISHED' AND published_at >= ?1)"

#define RESOLVE_SQL(table)                                                                         \
	"UPDATE " table " SET status = ?3, next_retry_at = NULL, "                                 \
	"attempt_count = CASE ?3 WHEN 'PENDING' THEN 0 ELSE attempt_count END "                    \
	"WHERE status = 'FAILED' AND ?1 = 'outbox' AND event_id = ?2"

#define DEAD_SQL(payload, table)                                                                   \
	"SELECT event_id, 'outbox', event_type, aggregate_key, '', coalesce(last_error, ''), "     \
	"attempt_count, created_at, " payload " FROM " table                                       \
	" WHERE status = 'FAILED' AND ?1 = 'outbox' AND event_id "

#define OUTBOX_TABLE(table)                                                                        \
	{                                                                                          \
		.claims = SQLITE_CLAIM_TABLE(table, "event_id", "created_at", "IN_FLIGHT",         \
			"PUBLISHED", "published_at", "status = 'PUBLISHED'", "published_at"),      \
		.dead =                                                                            \
			{                                                                          \
				.target = table,                                                   \
				.list = DEAD_SQL("x''", table) "> ?2 ORDER BY event_id LIMIT ?3",  \
				.find = DEAD_SQL("payload", table) "= ?2",                         \
				.row = RESOLVE_SQL(table),                                         \
				.depth = "SELECT count(*) FROM " table " WHERE status = 'FAILED'", \
			},                                                                         \
		.put = PUT_SQL(table), .resend = RESEND_SQL(table),                                \
	}

static enum status put(struct session *base, const struct outbox_table *table,
	const struct outbox_event *events, size_t count)
{
	struct sqlite_query query = sqlite_query_open(sqlite_session_of(base), table->put);

	for (size_t i = 0; i < count; i++) {
		const struct outbox_event *event = &events[i];

		sqlite_query_change_one(&query,
			SQLITE_VALUES(sqlite_text(event->id), sqlite_text(event->type),
				sqlite_text(event->key), sqlite_text(event->trace),
				sqlite_blob(event->payload), sqlite_int(event->occurred_us)));
	}
	return sqlite_query_close(&query);
}

static enum status record_resend(struct sqlite_session *session, const struct outbox_table *table,
	int64_t since_us, int count)
{
	struct arena arena;
	struct buffer detail;
	enum status status;

	arena_init(&arena, DETAIL_ARENA_SIZE);
	detail = buffer_make(&arena, DETAIL_ARENA_SIZE);
	buffer_format(&detail, "%d published since ", count);
	buffer_time(&detail, since_us);
	status = sqlite_record_action(
		session, "resend", slice_of(table->dead.target), buffer_slice(&detail));
	arena_release(&arena);
	return status;
}

static enum status resend(
	struct session *base, const struct outbox_table *table, int64_t since_us, size_t *count)
{
	struct sqlite_session *session = sqlite_session_of(base);
	struct sqlite_query query = sqlite_query_open(session, table->resend);
	int reopened = sqlite_query_change(&query, SQLITE_VALUES(sqlite_int(since_us)));
	enum status status = sqlite_query_close(&query);

	if (status == STATUS_OK)
		status = record_resend(session, table, since_us, reopened);
	if (status == STATUS_OK)
		*count = (size_t)reopened;
	return status;
}

/* A table of this shape is a line here. */
#define OUTBOX(name, table)                                                                        \
	static const struct outbox_table name##_table = OUTBOX_TABLE(table);                       \
	SQLITE_CLAIM_FUNCTIONS(name##_claims, &name##_table.claims)                                \
	SQLITE_DEAD_FUNCTIONS(name##_dead, &name##_table.dead)                                     \
	static enum status name##_put(                                                             \
		struct session *session, const struct outbox_event *events, size_t count)          \
	{                                                                                          \
		return put(session, &name##_table, events, count);                                 \
	}                                                                                          \
	static enum status name##_resend(struct session *session, int64_t since_us, size_t *count) \
	{                                                                                          \
		return resend(session, &name##_table, since_us, count);                            \
	}                                                                                          \
	const struct outbox_repository name = {                                                    \
		.put = name##_put,                                                                 \
		.resend = name##_resend,                                                           \
		.claims = SQLITE_CLAIMS(name##_claims),                                            \
		.dead = SQLITE_DEAD_LETTERS(name##_dead, NULL),                                    \
	};

OUTBOX(sqlite_entitlement_outbox, "outbox_events")
OUTBOX(sqlite_dialog_outbox, "dialog_outbox_events")
