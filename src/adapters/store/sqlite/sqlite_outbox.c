/* Outboxes in SQLite. An outbox is a table of events that relays claim. Its dead letters are the
 * rows that are FAILED. */
#include "adapters/store/sqlite/sqlite_repositories.h"

#include <assert.h>

#define DETAIL_ARENA_SIZE 128

/* clang-format off */
#define PUT_SQL(table)                                                                    \
	"INSERT INTO " table " (event_id, event_type, aggregate_key, trace_id, payload, " \
	"    created_at) "                                                                \
	"VALUES (?1, ?2, ?3, ?4, ?5, ?6)"

#define RESEND_SQL(table)                                                                       \
	"UPDATE " table " "                                                                     \
	"SET status = 'PENDING', attempt_count = 0, next_retry_at = NULL, published_at = NULL " \
	"WHERE rowid IN ("                                                                      \
	"  SELECT rowid "                                                                       \
	"  FROM " table " INDEXED BY " table "_ended "                                          \
	"  WHERE status = 'PUBLISHED' AND published_at >= ?1)"

#define RESOLVE_SQL(table)                                                                      \
	"UPDATE " table " "                                                                     \
	"SET status = ?3, next_retry_at = NULL, "                                               \
	"    attempt_count = CASE ?3 WHEN 'PENDING' THEN 0 ELSE attempt_count END "             \
	"WHERE status = 'FAILED' AND ?1 = 'outbox' AND event_id = ?2"

#define DEAD_SQL(payload, table)                                                               \
	"SELECT event_id, 'outbox', event_type, aggregate_key, '', coalesce(last_error, ''), " \
	"    attempt_count, created_at, " payload " "                                          \
	"FROM " table " "                                                                      \
	"WHERE status = 'FAILED' AND ?1 = 'outbox' AND event_id "
/* clang-format on */

static const struct outbox_repository_ops ops;

static const struct sqlite_outbox *outbox_of(const struct outbox_repository *repository)
{
	assert(repository->ops == &ops);
	return (const struct sqlite_outbox *)repository;
}

static enum status put(const struct outbox_repository *repository, struct session *base,
	const struct outbox_event *events, size_t count)
{
	struct sqlite_query query =
		sqlite_query_open(sqlite_session_of(base), outbox_of(repository)->put);

	for (size_t i = 0; i < count; i++) {
		const struct outbox_event *event = &events[i];

		sqlite_query_change_one(&query,
			SQLITE_VALUES(sqlite_text(event->id), sqlite_text(event->type),
				sqlite_text(event->key), sqlite_text(event->trace),
				sqlite_blob(event->payload), sqlite_int(event->occurred_us)));
	}
	return sqlite_query_close(&query);
}

static enum status record_resend(struct sqlite_session *session, const struct sqlite_outbox *outbox,
	int64_t since_us, struct slice who, int count)
{
	struct arena arena;
	struct buffer detail;
	enum status status;

	arena_init(&arena, DETAIL_ARENA_SIZE);
	detail = buffer_make(&arena, DETAIL_ARENA_SIZE);
	buffer_format(&detail, "%d published since ", count);
	buffer_time(&detail, since_us);
	status = sqlite_record_action(session, &(struct operator_record){
						       .who = who,
						       .action = slice_of("resend"),
						       .target = slice_of(outbox->dead.target),
						       .detail = buffer_slice(&detail),
					       });
	arena_release(&arena);
	return status;
}

static enum status resend(const struct outbox_repository *repository, struct session *base,
	int64_t since_us, struct slice who, size_t *count)
{
	const struct sqlite_outbox *outbox = outbox_of(repository);
	struct sqlite_session *session = sqlite_session_of(base);
	struct sqlite_query query = sqlite_query_open(session, outbox->resend);
	int reopened = sqlite_query_change(&query, SQLITE_VALUES(sqlite_int(since_us)));
	enum status status = sqlite_query_close(&query);

	if (status == STATUS_OK)
		status = record_resend(session, outbox, since_us, who, reopened);
	if (status == STATUS_OK)
		*count = (size_t)reopened;
	return status;
}

static const struct outbox_repository_ops ops = {.put = put, .resend = resend};

/* Initializes the struct sqlite_outbox `name` for `table`. */
#define SQLITE_OUTBOX(name, table)                                                                 \
	{                                                                                          \
		.base = {.ops = &ops, .claims = &name.claims.base, .dead = &name.dead.base},       \
		.claims = SQLITE_CLAIMS(table, "event_id", "created_at", "IN_FLIGHT", "PUBLISHED", \
			"published_at", "status = 'PUBLISHED'", "published_at"),                   \
		.dead =                                                                            \
			{                                                                          \
				.base = {.ops = &sqlite_dead_letters_ops},                         \
				.target = table,                                                   \
				.list = DEAD_SQL("x''", table) "> ?2 ORDER BY event_id LIMIT ?3",  \
				.find = DEAD_SQL("payload", table) "= ?2",                         \
				.row = RESOLVE_SQL(table),                                         \
				.depth = "SELECT count(*) "                                        \
					 "FROM " table " "                                         \
					 "WHERE status = 'FAILED' AND ?1 IN ('', 'outbox')",       \
			},                                                                         \
		.put = PUT_SQL(table), .resend = RESEND_SQL(table),                                \
	}

const struct sqlite_outbox sqlite_entitlement_outbox =
	SQLITE_OUTBOX(sqlite_entitlement_outbox, "outbox_events");
const struct sqlite_outbox sqlite_dialog_outbox =
	SQLITE_OUTBOX(sqlite_dialog_outbox, "dialog_outbox_events");
