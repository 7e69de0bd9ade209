/*
 * Messages in SQLite. A dialog consists of the messages in two directions; each direction is read
 * from the index messages_dialog, newest first. Many statements name their index with INDEXED BY.
 * If SQLite cannot use that index, the statement fails; without INDEXED BY, it would silently
 * become slow.
 */
#include "adapters/store/sqlite/sqlite_repositories.h"

#include "adapters/shared/conversation_ends.h"
#include "adapters/store/sqlite/sqlite_conversation_rows.h"
#include "adapters/store/sqlite/sqlite_eraser.h"
#include "adapters/store/sqlite/sqlite_internal.h"

/* Greater than every id: U+10FFFF in UTF-8. */
static const char last_id[] = "\xF4\x8F\xBF\xBF";

/* clang-format off */
static const char put_sql[] =
	"INSERT INTO messages (receiver_id, id, sender_id, text, created_at) "
	"VALUES (?1, ?2, ?3, ?4, ?5)";

/* ?3 is the id of a conversation's newest message. The first 7 characters of the id are its span,
 * which says to within about 17 minutes when the message was sent. If the conversation's row
 * already has this span, as it usually does, the statement changes nothing. */
static const char end_sql[] =
	"INSERT INTO conversations (user_id, other_id, last_span) "
	"VALUES (?1, ?2, substr(?3, 1, 7)) "
	"ON CONFLICT (user_id, other_id) DO UPDATE "
	"SET last_span = excluded.last_span "
	"WHERE last_span < excluded.last_span";

static const char mark_sql[] =
	"UPDATE messages SET is_read = 1 "
	"WHERE receiver_id = ?1 AND id = ?2 AND is_read = 0";
/* clang-format on */

static const char exists_sql[] = "SELECT 1 FROM messages WHERE receiver_id = ?1 AND id = ?2";

/* clang-format off */
static const char exists_from_sql[] =
	"SELECT 1 FROM messages WHERE receiver_id = ?1 AND id = ?3 AND sender_id = ?2";

static const char find_unread_sql[] =
	"SELECT id "
	"FROM messages INDEXED BY messages_unread_from "
	"WHERE receiver_id = ?1 AND sender_id = ?2 AND id <= ?3 AND is_read = 0 "
	"ORDER BY id LIMIT ?4";

/* ?1 and ?2 are the users. Lists only messages with ids below ?3. ?4 is the limit. */
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

/* For messages that a user sends to themselves: both directions are the same. */
static const char list_own_sql[] = DIRECTION_SQL("?1", "?2");

/* clang-format off */
#define NEWEST_SQL(receiver, sender)                              \
	"coalesce((SELECT max(id) "                               \
	"  FROM messages INDEXED BY messages_dialog "             \
	"  WHERE receiver_id = " receiver " AND sender_id = " sender "), '')"

/*
 * ?1 is the user. Lists only conversations whose last message has an id below ?2. ?3 is the limit.
 * The index conversations_newest is sorted by span. So SQLite sorts the conversations of only one
 * span at a time by their last messages, and stops when the page is full. CROSS JOIN makes SQLite
 * read the table `page` before the table `messages`, because SQLite never reorders the tables of a
 * CROSS JOIN.
 */
static const char list_conversations_sql[] =
	"WITH page AS MATERIALIZED ("
	"  SELECT other_id, "
	"    max(" NEWEST_SQL("user_id", "other_id") ", " NEWEST_SQL("other_id", "user_id") ") AS id "
	"  FROM conversations INDEXED BY conversations_newest "
	"  WHERE user_id = ?1 AND last_span <= substr(?2, 1, 7) AND id < ?2 "
	"  ORDER BY last_span DESC, id DESC LIMIT ?3) "
	"SELECT m.receiver_id, m.id, m.sender_id, m.text, m.created_at, m.is_read, p.other_id, "
	"  (SELECT count(*) FROM messages u INDEXED BY messages_unread_from "
	"   WHERE u.receiver_id = ?1 AND u.sender_id = p.other_id AND u.is_read = 0) "
	"FROM page p "
	"CROSS JOIN messages m ON m.receiver_id IN (?1, p.other_id) AND m.id = p.id "
	"ORDER BY p.id DESC";

static const char count_unread_sql[] =
	"SELECT receiver_id, count(*) "
	"FROM messages INDEXED BY messages_unread_from "
	"WHERE is_read = 0 AND receiver_id > ?1 "
	"GROUP BY receiver_id "
	"ORDER BY receiver_id LIMIT ?5";

static const char list_unread_sql[] =
	"SELECT receiver_id, id, sender_id, created_at "
	"FROM messages INDEXED BY messages_unread_from "
	"WHERE receiver_id = ?4 AND id > ?1 AND is_read = 0 "
	"ORDER BY id LIMIT ?5";
/* clang-format on */

/* ---- changes ----------------------------------------------------------------------------- */

static enum status put_messages(
	struct sqlite_session *session, const struct message *messages, size_t count)
{
	struct sqlite_query query = sqlite_query_open(session, put_sql);

	for (size_t i = 0; i < count; i++) {
		const struct message *message = &messages[i];

		sqlite_query_change_one(&query,
			SQLITE_VALUES(sqlite_text(message->receiver_id), sqlite_text(message->id),
				sqlite_text(message->sender_id), sqlite_text(message->text),
				sqlite_int(message->created_us)));
	}
	return sqlite_query_close(&query);
}

static enum status end_conversations(
	struct sqlite_session *session, const struct message *messages, size_t count)
{
	struct sqlite_query query = sqlite_query_open(session, end_sql);
	struct arena arena;
	const struct conversation_end *ends;
	size_t end_count;
	enum status status;

	arena_init(&arena, 16 * 1024);
	ends = conversation_ends(&arena, messages, count, &end_count);
	for (size_t i = 0; i < end_count; i++)
		sqlite_query_change(&query,
			SQLITE_VALUES(sqlite_text(ends[i].user_id), sqlite_text(ends[i].other_id),
				sqlite_text(ends[i].last_id)));
	status = sqlite_query_close(&query);
	arena_release(&arena);
	return status;
}

static enum status put(const struct message_repository *repository, struct session *base,
	const struct message *messages, size_t count)
{
	struct sqlite_session *session = sqlite_session_of(base);
	enum status status = put_messages(session, messages, count);

	return status == STATUS_OK ? end_conversations(session, messages, count) : status;
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

/* ---- unread messages of one sender ------------------------------------------------------- */

static enum status look_for_message(struct sqlite_session *session, struct unread_query *wanted)
{
	struct sqlite_query query = sqlite_query_open(session, exists_from_sql);

	sqlite_query_start(
		&query, SQLITE_VALUES(sqlite_text(wanted->receiver_id),
				sqlite_text(wanted->sender_id), sqlite_text(wanted->up_to)));
	wanted->exists = sqlite_query_next(&query);
	return sqlite_query_close(&query);
}

static enum status fill_ids(
	struct sqlite_session *session, struct arena *arena, struct unread_query *wanted)
{
	struct sqlite_query query = sqlite_query_open(session, find_unread_sql);

	wanted->ids = arena_array(arena, struct slice, wanted->limit);
	wanted->id_count = 0;
	sqlite_query_start(&query,
		SQLITE_VALUES(sqlite_text(wanted->receiver_id), sqlite_text(wanted->sender_id),
			sqlite_text(wanted->up_to), sqlite_int((int64_t)wanted->limit)));
	while (sqlite_query_next(&query))
		wanted->ids[wanted->id_count++] = sqlite_query_keep(&query, arena, 0);
	return sqlite_query_close(&query);
}

static enum status find_unread(const struct message_repository *repository, struct session *base,
	struct arena *arena, struct unread_query *queries, size_t count)
{
	struct sqlite_session *session = sqlite_session_of(base);
	enum status status = STATUS_OK;

	for (size_t i = 0; i < count && status == STATUS_OK; i++) {
		status = look_for_message(session, &queries[i]);
		if (status == STATUS_OK)
			status = fill_ids(session, arena, &queries[i]);
	}
	return status;
}

/* ---- dialogs ----------------------------------------------------------------------------- */

static struct message keep_message(const struct sqlite_query *query, struct arena *arena)
{
	return (struct message){
		.receiver_id = sqlite_query_keep(query, arena, 0),
		.id = sqlite_query_keep(query, arena, 1),
		.sender_id = sqlite_query_keep(query, arena, 2),
		.text = sqlite_query_keep(query, arena, 3),
		.created_us = sqlite_query_int(query, 4),
		.is_read = sqlite_query_int(query, 5) != 0,
	};
}

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
		*message = keep_message(&query, arena);
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

/* ---- conversations ----------------------------------------------------------------------- */

static enum status fill_conversations(
	struct sqlite_session *session, struct arena *arena, struct conversation_query *page)
{
	struct slice before = page->before.len > 0 ? page->before : slice_of(last_id);
	struct sqlite_query query = sqlite_query_open(session, list_conversations_sql);
	size_t room = 0, text_bytes = 0;

	page->conversations = NULL;
	page->conversation_count = 0;
	sqlite_query_start(&query, SQLITE_VALUES(sqlite_text(page->user_id), sqlite_text(before),
					   sqlite_int((int64_t)page->limit)));
	while (text_bytes <= page->text_max && sqlite_query_next(&query)) {
		struct conversation *conversation;

		page->conversations = sqlite_more_room(arena, page->conversations,
			sizeof(*page->conversations), page->conversation_count, &room);
		conversation = &page->conversations[page->conversation_count++];
		*conversation = (struct conversation){
			.other_id = sqlite_query_keep(&query, arena, 6),
			.last = keep_message(&query, arena),
			.unread = sqlite_query_int(&query, 7),
		};
		text_bytes += conversation->last.text.len;
	}
	return sqlite_query_close(&query);
}

static enum status list_conversations(const struct message_repository *repository,
	struct session *base, struct arena *arena, struct conversation_query *pages, size_t count)
{
	struct sqlite_session *session = sqlite_session_of(base);
	enum status status = sqlite_snapshot_begin(session);

	for (size_t i = 0; i < count && status == STATUS_OK; i++)
		status = fill_conversations(session, arena, &pages[i]);
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
	.find_unread = find_unread,
	.list = list,
	.list_conversations = list_conversations,
	.count_unread = count_unread,
	.list_unread = list_unread,
	.list_rows = sqlite_conversation_list_rows,
	.list_directions = sqlite_conversation_list_directions,
	.find_rows = sqlite_conversation_find_rows,
};

const struct message_repository sqlite_message_repository = {
	.ops = &ops,
	.eraser = &sqlite_dialogs_eraser.base,
};
