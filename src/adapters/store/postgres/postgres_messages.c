/*
 * Messages in PostgreSQL. Rows are changed without being locked first. Each dialog is read by a
 * statement of its own, because Citus does not support a LIMIT for each row of a batch; several of
 * these statements share one round trip.
 */
#include "adapters/store/postgres/postgres_repositories.h"

#include "adapters/shared/conversation_ends.h"
#include "adapters/store/postgres/postgres_conversation_rows.h"
#include "adapters/store/postgres/postgres_eraser.h"
#include "adapters/store/postgres/postgres_internal.h"

#define CREATED_US PG_TO_US("created_at")
#define CREATED_FROM_US PG_FROM_US("w.created_us")

/* Greater than every id: U+10FFFF in UTF-8. */
static const char last_id[] = "\xF4\x8F\xBF\xBF";

/* clang-format off */
static const struct pg_statement put_statement = {
	"quipu_messages_put",
	"INSERT INTO messages (receiver_id, id, sender_id, text, created_at, in_conversation) "
	"SELECT w.receiver_id, w.id, w.sender_id, w.text, " CREATED_FROM_US ", true "
	"FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::int8[]) "
	"    AS w(receiver_id, id, sender_id, text, created_us)",
};

/*
 * Creates missing rows of conversations, and moves last_span forward. Most new messages belong to
 * the span that their conversation's row already has as last_span; the statement only reads such
 * rows, without locking them. It locks and writes all other rows in the order of the arrays. If two
 * sessions write the same row at the same time, the row gets the later of the two spans.
 */
static const struct pg_statement end_statement = {
	"quipu_conversations_end",
	"INSERT INTO conversations AS c (user_id, other_id, last_span) "
	"SELECT w.user_id, w.other_id, left(w.last_id, 7) "
	"FROM unnest($1::text[], $2::text[], $3::text[]) AS w(user_id, other_id, last_id) "
	"WHERE NOT " PG_FINDS("conversations f "
	"    WHERE f.user_id = w.user_id AND f.other_id = w.other_id "
	"      AND f.last_span >= left(w.last_id, 7)") " "
	"ON CONFLICT (user_id, other_id) DO UPDATE "
	"SET last_span = EXCLUDED.last_span "
	"WHERE c.last_span < EXCLUDED.last_span",
};

#define MARKS_SQL                                                                          \
	"WITH w AS MATERIALIZED ("                                                         \
	"  SELECT u.*, false AS is_read "                                                  \
	"  FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS u(receiver_id, id, n)) "

/*
 * The planner may only use a nested loop over the sorted rows of w, which are the messages to mark
 * as read, with one index look-up per row (see session_settings in postgres_store.c). So rows are
 * locked in the order of their keys. The statement compares is_read with a column of w. If the
 * statement compared is_read with a constant, the planner might read the index of all unread
 * messages while a new table has no statistics.
 */
static const struct pg_statement mark_statement = {
	"quipu_messages_mark",
	MARKS_SQL
	"UPDATE messages AS m SET is_read = true "
	"FROM w "
	"WHERE m.receiver_id = w.receiver_id AND m.id = w.id "
	"  AND m.is_read = w.is_read "
	"RETURNING w.n",
};

static const struct pg_statement exist_statement = {
	"quipu_messages_exist",
	MARKS_SQL
	"SELECT w.n "
	"FROM w "
	"JOIN messages m ON m.receiver_id = w.receiver_id AND m.id = w.id",
};

static const struct pg_statement exists_from_statement = {
	"quipu_messages_exists_from",
	"SELECT 1 "
	"FROM messages "
	"WHERE receiver_id = $1::text AND id = $3::text AND sender_id = $2::text",
};

static const struct pg_statement find_unread_statement = {
	"quipu_messages_find_unread",
	"SELECT id "
	"FROM messages "
	"WHERE receiver_id = $1::text AND sender_id = $2::text AND id <= $3::text AND NOT is_read "
	"ORDER BY id LIMIT $4::int8",
};

/* In DIRECTION_SQL and LIST_SQL, $1 and $2 are the two users of the dialog. Only messages with ids
 * below $3 are listed. $4 limits the number of messages, $5 the bytes of their texts. */
#define DIRECTION_SQL(receiver, sender)                                              \
	"("                                                                          \
	"  SELECT receiver_id, id, sender_id, text, created_at, is_read "            \
	"  FROM messages "                                                           \
	"  WHERE receiver_id = " receiver "::text AND sender_id = " sender "::text " \
	"    AND id < $3::text "                                                     \
	"  ORDER BY id DESC LIMIT $4::int8)"

/* PostgreSQL stores large texts outside the row, but stores their lengths in the row, where
 * octet_length() finds them. So the statement does not read texts beyond the limit $5. */
#define LIST_SQL(directions)                                                            \
	"SELECT receiver_id, id, sender_id, text, " CREATED_US ", is_read "             \
	"FROM ("                                                                        \
	"  SELECT m.*, sum(octet_length(m.text)) OVER (ORDER BY m.id DESC ROWS "        \
	"      BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS newer_text "             \
	"  FROM (" directions ") AS m "                                                 \
	"  ORDER BY id DESC LIMIT $4::int8) AS n "                                      \
	"WHERE coalesce(newer_text, 0) <= $5::int8 "                                    \
	"ORDER BY id DESC"
/* clang-format on */

static const struct pg_statement list_statement = {
	"quipu_messages_list",
	LIST_SQL(DIRECTION_SQL("$1", "$2") " UNION ALL " DIRECTION_SQL("$2", "$1")),
};

/* For messages that a user sends to themselves: both directions are the same. */
static const struct pg_statement list_own_statement = {
	"quipu_messages_list_own",
	LIST_SQL(DIRECTION_SQL("$1", "$2")),
};

/* clang-format off */
#define NEWEST_SQL(receiver, sender)                            \
	"(SELECT receiver_id, id FROM messages "                \
	" WHERE receiver_id = " receiver " AND sender_id = " sender \
	" ORDER BY id DESC LIMIT 1)"

/*
 * $1 is the user. Lists only conversations whose last message has an id below $2, the cursor. $3
 * limits the number of conversations, $4 the bytes of text. The statement sorts conversations by
 * the ids of their last messages, but the table conversations has only the span of each last
 * message. Therefore the statement reads all conversations of the cursor's span, and of as many
 * earlier spans as it takes to fill a page. It counts unread messages in the table messages, in the
 * same snapshot as the last messages.
 */
static const struct pg_statement list_conversations_statement = {
	"quipu_conversations_list",
	"WITH near AS MATERIALIZED ("
	"  SELECT other_id FROM conversations "
	"  WHERE user_id = $1::text AND last_span = left($2::text, 7) "
	"  UNION ALL "
	"  (SELECT other_id FROM conversations "
	"   WHERE user_id = $1::text AND last_span < left($2::text, 7) "
	"   ORDER BY last_span DESC FETCH FIRST ($3::int8) ROWS WITH TIES)), "
	"page AS MATERIALIZED ("
	"  SELECT n.other_id, l.receiver_id, l.id "
	"  FROM near n "
	"  CROSS JOIN LATERAL ("
	     NEWEST_SQL("$1::text", "n.other_id") " UNION ALL " NEWEST_SQL("n.other_id", "$1::text")
	"    ORDER BY id DESC LIMIT 1) AS l "
	"  WHERE l.id < $2::text "
	"  ORDER BY l.id DESC LIMIT $3::int8) "
	"SELECT s.receiver_id, s.id, s.sender_id, s.text, " PG_TO_US("s.created_at") ", s.is_read, "
	"  s.other_id, "
	"  (SELECT count(*) FROM messages u "
	"   WHERE u.receiver_id = $1::text AND u.sender_id = s.other_id AND NOT u.is_read) "
	"FROM ("
	"  SELECT m.*, p.other_id, sum(octet_length(m.text)) OVER (ORDER BY m.id DESC ROWS "
	"      BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS newer_text "
	"  FROM page p "
	"  JOIN messages m ON m.receiver_id = p.receiver_id AND m.id = p.id) AS s "
	"WHERE coalesce(s.newer_text, 0) <= $4::int8 "
	"ORDER BY s.id DESC",
};

static const struct pg_statement count_unread_statement = {
	"quipu_messages_count_unread",
	"SELECT receiver_id, count(*) "
	"FROM messages "
	"WHERE NOT is_read AND receiver_id > $1::text "
	"GROUP BY receiver_id "
	"ORDER BY receiver_id LIMIT $2::int8",
};

static const struct pg_statement list_unread_statement = {
	"quipu_messages_list_unread",
	"SELECT receiver_id, id, sender_id, " CREATED_US " "
	"FROM messages "
	"WHERE receiver_id = $1::text AND id > $2::text AND NOT is_read "
	"ORDER BY id LIMIT $3::int8",
};
/* clang-format on */

/* ---- changes ----------------------------------------------------------------------------- */

static const Oid put_types[] = {PG_OID_TEXT, PG_OID_TEXT, PG_OID_TEXT, PG_OID_TEXT, PG_OID_INT8};

static void add_message(struct pg_array *columns, const void *element)
{
	const struct message *message = element;

	pg_array_text(&columns[0], message->receiver_id);
	pg_array_text(&columns[1], message->id);
	pg_array_text(&columns[2], message->sender_id);
	pg_array_text(&columns[3], message->text);
	pg_array_int8(&columns[4], message->created_us);
}

static const struct pg_shape put_shape = {
	.types = put_types,
	.column_count = sizeof(put_types) / sizeof(put_types[0]),
	.row_size = sizeof(struct message),
	.add = add_message,
};

static const Oid end_types[] = {PG_OID_TEXT, PG_OID_TEXT, PG_OID_TEXT};

static void add_end(struct pg_array *columns, const void *element)
{
	const struct conversation_end *end = element;

	pg_array_text(&columns[0], end->user_id);
	pg_array_text(&columns[1], end->other_id);
	pg_array_text(&columns[2], end->last_id);
}

static const struct pg_shape end_shape = {
	.types = end_types,
	.column_count = sizeof(end_types) / sizeof(end_types[0]),
	.row_size = sizeof(struct conversation_end),
	.add = add_end,
};

static enum status put(const struct message_repository *repository, struct session *base,
	const struct message *messages, size_t count)
{
	struct pg_session *session = pg_session_of(base);
	size_t end_count;
	const struct conversation_end *ends =
		conversation_ends(&session->arena, messages, count, &end_count);

	pg_queue_all(session, &put_statement, &put_shape, messages, count);
	pg_queue_all(session, &end_statement, &end_shape, ends, end_count);
	return pg_flush(session);
}

static enum status mark(const struct message_repository *repository, struct session *base,
	struct message_mark *marks, size_t count)
{
	struct pg_session *session = pg_session_of(base);
	const struct pg_param keys[] = {
		pg_param_ids(session, &marks->receiver_id, sizeof(*marks), count),
		pg_param_ids(session, &marks->id, sizeof(*marks), count),
	};
	enum status status;

	pg_queue(session, &mark_statement, keys, 2);
	pg_queue(session, &exist_statement, keys, 2);
	status = pg_flush(session);
	if (status != STATUS_OK)
		return status;
	pg_flag_places(session->results[0], &marks->was_unread, sizeof(*marks), count);
	pg_flag_places(session->results[1], &marks->exists, sizeof(*marks), count);
	return STATUS_OK;
}

/* ---- unread messages of one sender ------------------------------------------------------- */

static void queue_unread(struct pg_session *session, const struct unread_query *query)
{
	const struct pg_param params[] = {
		pg_param_text(query->receiver_id),
		pg_param_text(query->sender_id),
		pg_param_text(query->up_to),
		pg_param_int8(session, (int64_t)query->limit),
	};

	pg_queue(session, &exists_from_statement, params, 3);
	pg_queue(session, &find_unread_statement, params, 4);
}

static void fill_unread(struct unread_query *query, struct arena *arena, const PGresult *exists,
	const PGresult *unread)
{
	query->exists = PQntuples(exists) > 0;
	query->id_count = (size_t)PQntuples(unread);
	query->ids = arena_array(arena, struct slice, query->id_count);
	for (int i = 0; i < PQntuples(unread); i++)
		query->ids[i] = pg_keep(arena, unread, i, 0);
}

#define UNREAD_QUEUE_MAX (PG_QUEUE_MAX / 2) /* each query needs two statements */

static enum status find_unread(const struct message_repository *repository, struct session *base,
	struct arena *arena, struct unread_query *queries, size_t count)
{
	struct pg_session *session = pg_session_of(base);
	enum status status = STATUS_OK;

	for (size_t from = 0; from < count && status == STATUS_OK; from += UNREAD_QUEUE_MAX) {
		size_t left = count - from;
		size_t some = left < UNREAD_QUEUE_MAX ? left : UNREAD_QUEUE_MAX;

		for (size_t i = 0; i < some; i++)
			queue_unread(session, &queries[from + i]);
		status = pg_flush(session);
		for (size_t i = 0; i < some && status == STATUS_OK; i++)
			fill_unread(&queries[from + i], arena, session->results[2 * i],
				session->results[2 * i + 1]);
	}
	return status;
}

/* ---- dialogs ----------------------------------------------------------------------------- */

static void queue_query(struct pg_session *session, const struct message_query *query)
{
	struct slice before = query->before.len > 0 ? query->before : slice_of(last_id);
	bool own = slice_equal(query->user_id, query->other_id);
	const struct pg_param params[] = {
		pg_param_text(query->user_id),
		pg_param_text(query->other_id),
		pg_param_text(before),
		pg_param_int8(session, (int64_t)query->limit),
		pg_param_int8(session, (int64_t)query->text_max),
	};

	pg_queue(session, own ? &list_own_statement : &list_statement, params, 5);
}

static struct message keep_message(struct arena *arena, const PGresult *result, int row)
{
	return (struct message){
		.receiver_id = pg_keep(arena, result, row, 0),
		.id = pg_keep(arena, result, row, 1),
		.sender_id = pg_keep(arena, result, row, 2),
		.text = pg_keep(arena, result, row, 3),
		.created_us = pg_int8(result, row, 4),
		.is_read = pg_bool(result, row, 5),
	};
}

static void fill_query(struct message_query *query, struct arena *arena, const PGresult *result)
{
	query->message_count = (size_t)PQntuples(result);
	query->messages = arena_array(arena, struct message, query->message_count);
	for (int i = 0; i < PQntuples(result); i++)
		query->messages[i] = keep_message(arena, result, i);
}

/* Runs all queries in one round trip; `count` is at most PG_QUEUE_MAX. */
static enum status list_some(struct pg_session *session, struct arena *arena,
	struct message_query *queries, size_t count)
{
	enum status status;

	for (size_t i = 0; i < count; i++)
		queue_query(session, &queries[i]);
	status = pg_flush(session);
	for (size_t i = 0; i < count && status == STATUS_OK; i++)
		fill_query(&queries[i], arena, session->results[i]);
	return status;
}

static enum status list(const struct message_repository *repository, struct session *base,
	struct arena *arena, struct message_query *queries, size_t count)
{
	struct pg_session *session = pg_session_of(base);
	enum status status = STATUS_OK;

	for (size_t i = 0; i < count && status == STATUS_OK; i += PG_QUEUE_MAX) {
		size_t left = count - i;

		status = list_some(
			session, arena, &queries[i], left < PG_QUEUE_MAX ? left : PG_QUEUE_MAX);
	}
	return status;
}

/* ---- conversations ----------------------------------------------------------------------- */

static void queue_conversations(struct pg_session *session, const struct conversation_query *query)
{
	const struct pg_param params[] = {
		pg_param_text(query->user_id),
		pg_param_text(query->before.len > 0 ? query->before : slice_of(last_id)),
		pg_param_int8(session, (int64_t)query->limit),
		pg_param_int8(session, (int64_t)query->text_max),
	};

	pg_queue(session, &list_conversations_statement, params, 4);
}

static void fill_conversations(
	struct conversation_query *query, struct arena *arena, const PGresult *result)
{
	query->conversation_count = (size_t)PQntuples(result);
	query->conversations = arena_array(arena, struct conversation, query->conversation_count);
	for (int i = 0; i < PQntuples(result); i++)
		query->conversations[i] = (struct conversation){
			.other_id = pg_keep(arena, result, i, 6),
			.last = keep_message(arena, result, i),
			.unread = pg_int8(result, i, 7),
		};
}

static enum status list_conversations(const struct message_repository *repository,
	struct session *base, struct arena *arena, struct conversation_query *queries, size_t count)
{
	struct pg_session *session = pg_session_of(base);
	enum status status = STATUS_OK;

	for (size_t from = 0; from < count && status == STATUS_OK; from += PG_QUEUE_MAX) {
		size_t some = count - from < PG_QUEUE_MAX ? count - from : PG_QUEUE_MAX;

		for (size_t i = 0; i < some; i++)
			queue_conversations(session, &queries[from + i]);
		status = pg_flush(session);
		for (size_t i = 0; i < some && status == STATUS_OK; i++)
			fill_conversations(&queries[from + i], arena, session->results[i]);
	}
	return status;
}

/* ---- unread messages --------------------------------------------------------------------- */

static enum status count_unread(const struct message_repository *repository, struct session *base,
	struct arena *arena, struct row_page *page, struct unread_count *counts)
{
	struct pg_session *session = pg_session_of(base);
	struct pg_param params[2] = {pg_param_text(page->after[0])};
	enum status status = pg_list_rows(session, &count_unread_statement, params, 1, page);
	const PGresult *result = session->results[0];

	for (int i = 0; status == STATUS_OK && i < PQntuples(result); i++) {
		counts[i].user_id = pg_keep(arena, result, i, 0);
		counts[i].count = pg_int8(result, i, 1);
	}
	return status;
}

static enum status list_unread(const struct message_repository *repository, struct session *base,
	struct arena *arena, struct row_page *page, struct message *messages)
{
	struct pg_session *session = pg_session_of(base);
	struct pg_param params[3] = {pg_param_text(page->user_id), pg_param_text(page->after[0])};
	enum status status = pg_list_rows(session, &list_unread_statement, params, 2, page);
	const PGresult *result = session->results[0];

	for (int i = 0; status == STATUS_OK && i < PQntuples(result); i++)
		messages[i] = (struct message){
			.receiver_id = pg_keep(arena, result, i, 0),
			.id = pg_keep(arena, result, i, 1),
			.sender_id = pg_keep(arena, result, i, 2),
			.created_us = pg_int8(result, i, 3),
		};
	return status;
}

static const struct message_repository_ops ops = {
	.put = put,
	.mark = mark,
	.find_unread = find_unread,
	.list = list,
	.list_conversations = list_conversations,
	.count_unread = count_unread,
	.list_unread = list_unread,
	.list_rows = pg_conversation_list_rows,
	.list_directions = pg_conversation_list_directions,
	.find_rows = pg_conversation_find_rows,
};

const struct message_repository postgres_message_repository = {
	.ops = &ops,
	.eraser = &postgres_dialogs_eraser.base,
};
