/*
 * Messages in SQLite. A dialog is the union of two directions, each read from the index
 * messages_dialog, newest first; INDEXED BY fails loudly if that index ever stops to fit.
 */
#include "adapters/store/sqlite/sqlite_repositories.h"

#include "adapters/store/sqlite/sqlite_internal.h"

/* Greater than every id: U+10FFFF in UTF-8. */
static const char last_id[] = "\xF4\x8F\xBF\xBF";

/* clang-format off */
static const char put_sql[] =
	"INSERT INTO messages (receiver_id, id, sender_id, text, created_at) "
	"VALUES (?1, ?2, ?3, ?4, ?5)";

static const char mark_sql[] =
	"UPDATE messages SET is_read = 1 "
	"WHERE receiver_id = ?1 AND id = ?2 AND is_read = 0";
/* clang-format on */

static const char exists_sql[] = "SELECT 1 FROM messages WHERE receiver_id = ?1 AND id = ?2";

/* clang-format off */
/* ?1 and ?2 are the users, ?3 the id to stay below, ?4 the limit. */
#define DIRECTION_SQL(receiver, sender)                                              \
	"SELECT * "                                                                  \
	"FROM ("                                                                     \
	"  SELECT receiver_id, id, sender_id, text, created_at, is_read "            \
	"  FROM messages INDEXED BY messages_dialog "                                \
	"  WHERE receiver_id = " receiver " AND sender_id = " sender " AND id < ?3 " \
	"  ORDER BY id DESC LIMIT ?4)"
/* clang-format on */

static const char list_sql[] = DIRECTION_SQL("?1", "?2") " UNION ALL " DIRECTION_SQL(
	"?2", "?1") " ORDER BY id DESC LIMIT ?4";

/* Messages of a user to himself: both directions are the same. */
static const char list_own_sql[] = DIRECTION_SQL("?1", "?2");

/* clang-format off */
static const char count_unread_sql[] =
	"SELECT receiver_id, count(*) "
	"FROM messages INDEXED BY messages_unread "
	"WHERE is_read = 0 AND receiver_id > ?1 "
	"GROUP BY receiver_id "
	"ORDER BY receiver_id LIMIT ?5";

static const char list_unread_sql[] =
	"SELECT receiver_id, id, sender_id, created_at "
	"FROM messages INDEXED BY messages_unread "
	"WHERE receiver_id = ?4 AND id > ?1 AND is_read = 0 "
	"ORDER BY id LIMIT ?5";
/* clang-format on */

/* ---- changes ----------------------------------------------------------------------------- */

static enum status put(const struct message_repository *repository, struct session *base,
	const struct message *messages, size_t count)
{
	struct sqlite_query query = sqlite_query_open(sqlite_session_of(base), put_sql);

	for (size_t i = 0; i < count; i++) {
		const struct message *message = &messages[i];

		sqlite_query_change_one(&query,
			SQLITE_VALUES(sqlite_text(message->receiver_id), sqlite_text(message->id),
				sqlite_text(message->sender_id), sqlite_text(message->text),
				sqlite_int(message->created_us)));
	}
	return sqlite_query_close(&query);
}

static enum status mark_unread(
	struct sqlite_session *session, struct message_mark *marks, size_t count)
{
	struct sqlite_query query = sqlite_query_open(session, mark_sql);

	for (size_t i = 0; i < count; i++) {
		int changed = sqlite_query_change(&query,
			SQLITE_VALUES(sqlite_text(marks[i].receiver_id), sqlite_text(marks[i].id)));

		marks[i].was_unread = changed == 1;
	}
	return sqlite_query_close(&query);
}

static enum status look_for_others(
	struct sqlite_session *session, struct message_mark *marks, size_t count)
{
	struct sqlite_query query = sqlite_query_open(session, exists_sql);

	for (size_t i = 0; i < count; i++) {
		marks[i].exists = marks[i].was_unread;
		if (marks[i].exists)
			continue;
		sqlite_query_start(&query,
			SQLITE_VALUES(sqlite_text(marks[i].receiver_id), sqlite_text(marks[i].id)));
		marks[i].exists = sqlite_query_next(&query);
	}
	return sqlite_query_close(&query);
}

static enum status mark(const struct message_repository *repository, struct session *base,
	struct message_mark *marks, size_t count)
{
	struct sqlite_session *session = sqlite_session_of(base);
	enum status status = mark_unread(session, marks, count);

	return status == STATUS_OK ? look_for_others(session, marks, count) : status;
}

/* ---- dialogs ----------------------------------------------------------------------------- */

static enum status fill_page(
	struct sqlite_session *session, struct arena *arena, struct message_query *page)
{
	bool own = slice_equal(page->user_id, page->other_id);
	struct slice before = page->before.len > 0 ? page->before : slice_of(last_id);
	struct sqlite_query query = sqlite_query_open(session, own ? list_own_sql : list_sql);
	size_t room = 0, text_bytes = 0;

	page->messages = NULL;
	page->message_count = 0;
	sqlite_query_start(
		&query, SQLITE_VALUES(sqlite_text(page->user_id), sqlite_text(page->other_id),
				sqlite_text(before), sqlite_int((int64_t)page->limit)));
	while (text_bytes <= page->text_max && sqlite_query_next(&query)) {
		struct message *message;

		page->messages = sqlite_more_room(
			arena, page->messages, sizeof(*page->messages), page->message_count, &room);
		message = &page->messages[page->message_count++];
		*message = (struct message){
			.receiver_id = sqlite_query_keep(&query, arena, 0),
			.id = sqlite_query_keep(&query, arena, 1),
			.sender_id = sqlite_query_keep(&query, arena, 2),
			.text = sqlite_query_keep(&query, arena, 3),
			.created_us = sqlite_query_int(&query, 4),
			.is_read = sqlite_query_int(&query, 5) != 0,
		};
		text_bytes += message->text.len;
	}
	return sqlite_query_close(&query);
}

static enum status list(const struct message_repository *repository, struct session *base,
	struct arena *arena, struct message_query *pages, size_t count)
{
	struct sqlite_session *session = sqlite_session_of(base);
	enum status status = sqlite_snapshot_begin(session);

	for (size_t i = 0; i < count && status == STATUS_OK; i++)
		status = fill_page(session, arena, &pages[i]);
	return status == STATUS_OK ? sqlite_snapshot_end(session) : status;
}

/* ---- unread messages --------------------------------------------------------------------- */

static void fill_count(void *row, struct arena *arena, const struct sqlite_query *query)
{
	*(struct unread_count *)row = (struct unread_count){
		.user_id = sqlite_query_keep(query, arena, 0),
		.count = sqlite_query_int(query, 1),
	};
}

static enum status count_unread(const struct message_repository *repository,
	struct session *session, struct arena *arena, struct row_page *page,
	struct unread_count *counts)
{
	static const struct sqlite_list by_receiver = {
		.sql = count_unread_sql,
		.row_size = sizeof(struct unread_count),
		.fill = fill_count,
	};

	return sqlite_list_rows(session, arena, &by_receiver, page, counts);
}

static void fill_unread(void *row, struct arena *arena, const struct sqlite_query *query)
{
	*(struct message *)row = (struct message){
		.receiver_id = sqlite_query_keep(query, arena, 0),
		.id = sqlite_query_keep(query, arena, 1),
		.sender_id = sqlite_query_keep(query, arena, 2),
		.created_us = sqlite_query_int(query, 3),
	};
}

static enum status list_unread(const struct message_repository *repository, struct session *session,
	struct arena *arena, struct row_page *page, struct message *messages)
{
	static const struct sqlite_list unread = {
		.sql = list_unread_sql,
		.row_size = sizeof(struct message),
		.fill = fill_unread,
	};

	return sqlite_list_rows(session, arena, &unread, page, messages);
}

static const struct message_repository_ops ops = {
	.put = put,
	.mark = mark,
	.list = list,
	.count_unread = count_unread,
	.list_unread = list_unread,
};

const struct message_repository sqlite_message_repository = {.ops = &ops};
