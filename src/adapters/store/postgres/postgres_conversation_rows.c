#include "adapters/store/postgres/postgres_conversation_rows.h"

#include "adapters/store/postgres/postgres_internal.h"

/* clang-format off */
static const struct pg_statement rows_statement = {
	"quipu_conversations_rows",
	"SELECT user_id, other_id, last_span "
	"FROM conversations "
	"WHERE (user_id, other_id) > ($1::text, $2::text) "
	"ORDER BY user_id, other_id LIMIT $3::int8",
};

/* Lists pairs of users. The statement jumps in the index messages_dialog from each pair straight to
 * the next pair, so its cost does not depend on how many messages a pair has. */
static const struct pg_statement directions_statement = {
	"quipu_messages_directions",
	"WITH RECURSIVE pair AS ("
	"  (SELECT receiver_id, sender_id FROM messages "
	"   WHERE (receiver_id, sender_id) > ($1::text, $2::text) "
	"   ORDER BY receiver_id, sender_id LIMIT 1) "
	"  UNION ALL "
	"  SELECT n.receiver_id, n.sender_id "
	"  FROM pair p "
	"  CROSS JOIN LATERAL ("
	"    SELECT m.receiver_id, m.sender_id FROM messages m "
	"    WHERE (m.receiver_id, m.sender_id) > (p.receiver_id, p.sender_id) "
	"    ORDER BY m.receiver_id, m.sender_id LIMIT 1) AS n) "
	"SELECT receiver_id, sender_id FROM pair LIMIT $3::int8",
};

static const struct pg_statement find_statement = {
	"quipu_conversations_find",
	"SELECT w.n, c.last_span "
	"FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS w(user_id, other_id, n) "
	"JOIN conversations c ON c.user_id = w.user_id AND c.other_id = w.other_id",
};
/* clang-format on */

static enum status list_pairs(struct session *base, const struct pg_statement *statement,
	struct arena *arena, struct row_page *page, struct conversation_row *rows)
{
	struct pg_session *session = pg_session_of(base);
	struct pg_param params[3] = {pg_param_text(page->after[0]), pg_param_text(page->after[1])};
	enum status status = pg_list_rows(session, statement, params, 2, page);
	const PGresult *result = session->results[0];

	for (int i = 0; status == STATUS_OK && i < PQntuples(result); i++)
		rows[i] = (struct conversation_row){
			.user_id = pg_keep(arena, result, i, 0),
			.other_id = pg_keep(arena, result, i, 1),
			.last_span = PQnfields(result) > 2 ? pg_keep(arena, result, i, 2)
							   : (struct slice){0},
		};
	return status;
}

enum status pg_conversation_list_rows(const struct message_repository *repository,
	struct session *base, struct arena *arena, struct row_page *page,
	struct conversation_row *rows)
{
	return list_pairs(base, &rows_statement, arena, page, rows);
}

enum status pg_conversation_list_directions(const struct message_repository *repository,
	struct session *base, struct arena *arena, struct row_page *page,
	struct conversation_row *rows)
{
	return list_pairs(base, &directions_statement, arena, page, rows);
}

enum status pg_conversation_find_rows(const struct message_repository *repository,
	struct session *base, struct arena *arena, struct conversation_row *rows, size_t count)
{
	struct pg_session *session = pg_session_of(base);
	const struct pg_param keys[] = {
		pg_param_ids(session, &rows->user_id, sizeof(*rows), count),
		pg_param_ids(session, &rows->other_id, sizeof(*rows), count),
	};
	const PGresult *found;
	enum status status;

	pg_queue(session, &find_statement, keys, 2);
	status = pg_flush(session);
	if (status != STATUS_OK)
		return status;
	found = session->results[0];
	for (size_t i = 0; i < count; i++)
		rows[i].last_span = (struct slice){0};
	for (int i = 0; i < PQntuples(found); i++)
		rows[pg_int8(found, i, 0) - 1].last_span = pg_keep(arena, found, i, 1);
	return STATUS_OK;
}
