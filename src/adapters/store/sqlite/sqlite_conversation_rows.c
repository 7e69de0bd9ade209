#include "adapters/store/sqlite/sqlite_conversation_rows.h"

#include "adapters/store/sqlite/sqlite_internal.h"

/* clang-format off */
static const char rows_sql[] =
	"SELECT user_id, other_id, last_span "
	"FROM conversations "
	"WHERE (user_id, other_id) > (?1, ?2) "
	"ORDER BY user_id, other_id LIMIT ?5";

#define NEXT_SQL(receiver, sender)                                             \
	"(SELECT rowid FROM messages INDEXED BY messages_dialog "              \
	" WHERE (receiver_id, sender_id) > (" receiver ", " sender ") "        \
	" ORDER BY receiver_id, sender_id LIMIT 1)"

/* Finds each next pair of users with one search of the index, which skips all messages of the
 * previous pair. So the time does not depend on how many messages a pair has. */
static const char directions_sql[] =
	"WITH RECURSIVE pair(receiver_id, sender_id) AS ("
	"  SELECT receiver_id, sender_id FROM messages WHERE rowid = " NEXT_SQL("?1", "?2")
	"  UNION ALL "
	"  SELECT m.receiver_id, m.sender_id "
	"  FROM pair p "
	"  CROSS JOIN messages m ON m.rowid = " NEXT_SQL("p.receiver_id", "p.sender_id") ") "
	"SELECT receiver_id, sender_id, '' FROM pair LIMIT ?5";

static const char find_sql[] =
	"SELECT last_span FROM conversations WHERE user_id = ?1 AND other_id = ?2";
/* clang-format on */

static void fill_row(void *row, struct arena *arena, const struct sqlite_query *query)
{
	*(struct conversation_row *)row = (struct conversation_row){
		.user_id = sqlite_query_keep(query, arena, 0),
		.other_id = sqlite_query_keep(query, arena, 1),
		.last_span = sqlite_query_keep(query, arena, 2),
	};
}

enum status sqlite_conversation_list_rows(const struct message_repository *repository,
	struct session *base, struct arena *arena, struct row_page *page,
	struct conversation_row *rows)
{
	static const struct sqlite_list all = {
		.sql = rows_sql, .row_size = sizeof(struct conversation_row), .fill = fill_row};

	return sqlite_list_rows(base, arena, &all, page, rows);
}

enum status sqlite_conversation_list_directions(const struct message_repository *repository,
	struct session *base, struct arena *arena, struct row_page *page,
	struct conversation_row *rows)
{
	static const struct sqlite_list all = {.sql = directions_sql,
		.row_size = sizeof(struct conversation_row),
		.fill = fill_row};

	return sqlite_list_rows(base, arena, &all, page, rows);
}

static enum status find_rows(struct sqlite_session *session, struct arena *arena,
	struct conversation_row *rows, size_t count)
{
	struct sqlite_query query = sqlite_query_open(session, find_sql);

	for (size_t i = 0; i < count; i++) {
		rows[i].last_span = (struct slice){0};
		sqlite_query_start(&query,
			SQLITE_VALUES(sqlite_text(rows[i].user_id), sqlite_text(rows[i].other_id)));
		if (sqlite_query_next(&query))
			rows[i].last_span = sqlite_query_keep(&query, arena, 0);
	}
	return sqlite_query_close(&query);
}

enum status sqlite_conversation_find_rows(const struct message_repository *repository,
	struct session *base, struct arena *arena, struct conversation_row *rows, size_t count)
{
	struct sqlite_session *session = sqlite_session_of(base);
	enum status status = sqlite_snapshot_begin(session);

	if (status == STATUS_OK)
		status = find_rows(session, arena, rows, count);
	return status == STATUS_OK ? sqlite_snapshot_end(session) : status;
}
