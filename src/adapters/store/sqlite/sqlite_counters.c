/*
 * Counters of unread messages in SQLite. lock() reads the rows without locking them: because only
 * one session writes at a time, the rows cannot change between lock() and put().
 */
#include "adapters/store/sqlite/sqlite_repositories.h"

#include "adapters/store/sqlite/sqlite_eraser.h"
#include "adapters/store/sqlite/sqlite_internal.h"

#define TYPE "'UnreadMessages'"

/* clang-format off */
static const char lock_sql[] =
	"SELECT state = 'read', event_at "
	"FROM counter_messages "
	"WHERE user_id = ?1 AND message_id = ?2";

static const char put_sql[] =
	"INSERT INTO counter_messages (user_id, message_id, state, event_at) "
	"VALUES (?1, ?2, ?3, ?4) "
	"ON CONFLICT (user_id, message_id) "
	"DO UPDATE SET state = excluded.state, event_at = excluded.event_at";

static const char sweep_sql[] =
	"DELETE FROM counter_messages "
	"WHERE (user_id, message_id) IN ("
	"  SELECT user_id, message_id "
	"  FROM counter_messages INDEXED BY counter_messages_read "
	"  WHERE state = 'read' AND event_at < ?1 "
	"  ORDER BY event_at LIMIT ?2)";

static const char list_unread_sql[] =
	"SELECT user_id, message_id, event_at "
	"FROM counter_messages INDEXED BY counter_messages_unread "
	"WHERE user_id = ?4 AND message_id > ?1 AND state = 'unread' "
	"ORDER BY message_id LIMIT ?5";

/* An upsert does not work here: SQLite would first check the row to be inserted, whose count is the
 * delta, so a negative delta would violate the constraint on count. */
static const char add_sql[] =
	"UPDATE counters SET count = count + ?2, version = version + 1, last_updated = ?3 "
	"WHERE user_id = ?1 AND type = " TYPE " "
	"RETURNING count, version, last_updated";

static const char make_sql[] =
	"INSERT INTO counters (user_id, type, count, last_updated, version) "
	"VALUES (?1, " TYPE ", ?2, ?3, max(1, ?3 / 1000)) "
	"RETURNING count, version, last_updated";

static const char find_sql[] =
	"SELECT count, version, last_updated "
	"FROM counters "
	"WHERE user_id = ?1 AND type = " TYPE;

static const char list_sql[] =
	"SELECT count, version, last_updated, user_id "
	"FROM counters "
	"WHERE user_id > ?1 AND type = " TYPE " "
	"ORDER BY user_id LIMIT ?5";
/* clang-format on */

/* ---- messages ---------------------------------------------------------------------------- */

static enum status lock(const struct counter_repository *repository, struct session *base,
	struct counter_message *messages, size_t count)
{
	struct sqlite_query query = sqlite_query_open(sqlite_session_of(base), lock_sql);

	for (size_t i = 0; i < count; i++) {
		struct counter_message *message = &messages[i];

		sqlite_query_start(&query, SQLITE_VALUES(sqlite_text(message->user_id),
						   sqlite_text(message->message_id)));
		message->exists = sqlite_query_next(&query);
		if (!message->exists)
			continue;
		message->is_read = sqlite_query_int(&query, 0) != 0;
		message->event_us = sqlite_query_int(&query, 1);
	}
	return sqlite_query_close(&query);
}

static enum status put(const struct counter_repository *repository, struct session *base,
	const struct counter_message *messages, size_t count)
{
	struct sqlite_query query = sqlite_query_open(sqlite_session_of(base), put_sql);

	for (size_t i = 0; i < count; i++) {
		const struct counter_message *message = &messages[i];
		const char *state = message->is_read ? "read" : "unread";

		sqlite_query_change_one(&query,
			SQLITE_VALUES(sqlite_text(message->user_id),
				sqlite_text(message->message_id), sqlite_text(slice_of(state)),
				sqlite_int(message->event_us)));
	}
	return sqlite_query_close(&query);
}

static enum status sweep(const struct counter_repository *repository, struct session *base,
	int64_t age_us, size_t limit, size_t *deleted)
{
	return sqlite_sweep_age(base, sweep_sql, age_us, limit, deleted);
}

static void fill_unread(void *row, struct arena *arena, const struct sqlite_query *query)
{
	*(struct counter_message *)row = (struct counter_message){
		.user_id = sqlite_query_keep(query, arena, 0),
		.message_id = sqlite_query_keep(query, arena, 1),
		.exists = true,
		.event_us = sqlite_query_int(query, 2),
	};
}

static enum status list_unread(const struct counter_repository *repository, struct session *session,
	struct arena *arena, struct row_page *page, struct counter_message *messages)
{
	static const struct sqlite_list unread = {
		.sql = list_unread_sql,
		.row_size = sizeof(struct counter_message),
		.fill = fill_unread,
	};

	return sqlite_list_rows(session, arena, &unread, page, messages);
}

/* ---- counters ---------------------------------------------------------------------------- */

static void fill_row(struct counter_row *row, const struct sqlite_query *query)
{
	row->exists = true;
	row->count = sqlite_query_int(query, 0);
	row->version = sqlite_query_int(query, 1);
	row->updated_us = sqlite_query_int(query, 2);
}

/* Reads the next row of the query. If there is no next row, sets row->exists to false. */
static void fill_next(struct counter_row *row, struct sqlite_query *query)
{
	row->exists = false;
	if (sqlite_query_next(query))
		fill_row(row, query);
}

static enum status change_row(
	struct sqlite_session *session, const char *sql, struct counter_row *row, int64_t now_us)
{
	struct sqlite_query query = sqlite_query_open(session, sql);

	sqlite_query_start(&query, SQLITE_VALUES(sqlite_text(row->user_id), sqlite_int(row->delta),
					   sqlite_int(now_us)));
	fill_next(row, &query);
	return sqlite_query_close(&query);
}

static enum status add(const struct counter_repository *repository, struct session *base,
	struct counter_row *rows, size_t count)
{
	struct sqlite_session *session = sqlite_session_of(base);
	int64_t now_us = sqlite_now_us(session);
	enum status status = STATUS_OK;

	for (size_t i = 0; i < count && status == STATUS_OK; i++) {
		status = change_row(session, add_sql, &rows[i], now_us);
		if (status == STATUS_OK && !rows[i].exists)
			status = change_row(session, make_sql, &rows[i], now_us);
	}
	return status;
}

static enum status fill_rows(struct sqlite_session *session, struct counter_row *rows, size_t count)
{
	struct sqlite_query query = sqlite_query_open(session, find_sql);

	for (size_t i = 0; i < count; i++) {
		sqlite_query_start(&query, SQLITE_VALUES(sqlite_text(rows[i].user_id)));
		fill_next(&rows[i], &query);
	}
	return sqlite_query_close(&query);
}

static enum status find(const struct counter_repository *repository, struct session *base,
	struct counter_row *rows, size_t count)
{
	struct sqlite_session *session = sqlite_session_of(base);
	bool inside = session->active;
	enum status status = inside ? STATUS_OK : sqlite_snapshot_begin(session);

	if (status == STATUS_OK)
		status = fill_rows(session, rows, count);
	if (status == STATUS_OK && !inside)
		status = sqlite_snapshot_end(session);
	return status;
}

static void fill_listed(void *listed, struct arena *arena, const struct sqlite_query *query)
{
	struct counter_row *row = listed;

	*row = (struct counter_row){.user_id = sqlite_query_keep(query, arena, 3)};
	fill_row(row, query);
}

static enum status list(const struct counter_repository *repository, struct session *session,
	struct arena *arena, struct row_page *page, struct counter_row *rows)
{
	static const struct sqlite_list all = {
		.sql = list_sql,
		.row_size = sizeof(struct counter_row),
		.fill = fill_listed,
	};

	return sqlite_list_rows(session, arena, &all, page, rows);
}

static const struct counter_repository_ops ops = {
	.lock = lock,
	.put = put,
	.add = add,
	.find = find,
	.sweep = sweep,
	.list = list,
	.list_unread = list_unread,
};

const struct counter_repository sqlite_counter_repository = {
	.ops = &ops,
	.eraser = &sqlite_counters_eraser.base,
};
