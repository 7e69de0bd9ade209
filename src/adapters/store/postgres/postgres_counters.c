/*
 * Counters of unread messages in PostgreSQL.
 *
 * No statement locks rows in advance: lock() only reads. put() updates only messages that are still
 * unread, inserts only messages that are not stored yet, and counts the rows that it updates and
 * inserts. If it counts too few rows, another session has changed a message since lock(), and the
 * batch runs again.
 */
#include "adapters/store/postgres/postgres_repositories.h"

#include <assert.h>
#include <stdlib.h>

#include "adapters/store/postgres/postgres_eraser.h"
#include "adapters/store/postgres/postgres_internal.h"

#define EVENT_US PG_TO_US("m.event_at")
#define EVENT_FROM_US PG_FROM_US("w.event_us")
#define UPDATED_US PG_TO_US("c.last_updated")

#define TYPE "'UnreadMessages'"

/* clang-format off */
static const struct pg_statement lock_statement = {
	"quipu_counter_messages_find",
	"WITH w AS MATERIALIZED ("
	"  SELECT * "
	"  FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS u(user_id, message_id, n)) "
	"SELECT w.n, m.state = 'read', " EVENT_US " "
	"FROM w "
	"JOIN counter_messages m ON m.user_id = w.user_id "
	"  AND m.message_id = w.message_id",
};
/* clang-format on */

#define PUT_ROWS                                                                                   \
	"unnest($1::text[], $2::text[], $3::text[], $4::int8[]) "                                  \
	"AS u(user_id, message_id, state, event_us)"

/* clang-format off */
/* Compares the old state with w.known, a column of the batch that contains 'unread' in every row.
 * If the statement compared the old state with the constant 'unread' instead, the planner might
 * read the index of all unread messages. */
static const struct pg_statement update_statement = {
	"quipu_counter_messages_update",
	"WITH w AS MATERIALIZED (SELECT u.*, 'unread' AS known FROM " PUT_ROWS ") "
	"UPDATE counter_messages AS m SET state = w.state, event_at = " EVENT_FROM_US " "
	"FROM w "
	"WHERE m.user_id = w.user_id AND m.message_id = w.message_id "
	"  AND m.state = w.known "
	"RETURNING 1",
};

static const struct pg_statement insert_statement = {
	"quipu_counter_messages_insert",
	"INSERT INTO counter_messages (user_id, message_id, state, event_at) "
	"SELECT w.user_id, w.message_id, w.state, " EVENT_FROM_US " "
	"FROM (SELECT * FROM " PUT_ROWS ") AS w "
	"ON CONFLICT (user_id, message_id) DO NOTHING "
	"RETURNING 1",
};

static const struct pg_statement sweep_statement = {
	"quipu_counter_messages_sweep",
	"WITH oldest AS MATERIALIZED ("
	"  SELECT quipu_now() - $1::int8 * interval '1 microsecond' AS kept), "
	"chosen AS MATERIALIZED ("
	"  SELECT user_id, message_id, state "
	"  FROM counter_messages "
	"  WHERE state = 'read' AND event_at < (SELECT kept FROM oldest) "
	"  ORDER BY event_at LIMIT $2::int8) "
	"DELETE FROM counter_messages AS m "
	"USING chosen "
	"WHERE m.user_id = chosen.user_id AND m.message_id = chosen.message_id "
	"  AND m.state = chosen.state "
	"RETURNING 1",
};

static const struct pg_statement list_unread_statement = {
	"quipu_counter_messages_list_unread",
	"SELECT user_id, message_id, " EVENT_US " "
	"FROM counter_messages m "
	"WHERE user_id = $1::text AND message_id > $2::text AND state = 'unread' "
	"ORDER BY message_id LIMIT $3::int8",
};

/*
 * The rows of the batch (w) have a column with the type of the counter. If the statements compared
 * types with a constant instead, the planner would choose badly while a new table has no
 * statistics: it would read all counters of that type and search the batch for each counter.
 */
#define ADD_ROWS                                                                          \
	"WITH w AS MATERIALIZED ("                                                        \
	"  SELECT u.*, " TYPE " AS type, quipu_now() AS now "                             \
	"  FROM unnest($1::text[], $2::int8[]) WITH ORDINALITY AS u(user_id, delta, n)) "

#define ROW_COLUMNS "c.count, c.version, " UPDATED_US

/*
 * The planner may only use a nested loop over the sorted rows, with one index look-up per row (see
 * session_settings in postgres_store.c), so rows are locked in the order of their ids. An upsert
 * does not work here, because PostgreSQL would first check the constraints of the row to be
 * inserted. The count in that row would be the delta, and a negative delta violates the constraint
 * on count.
 */
static const struct pg_statement add_statement = {
	"quipu_counters_add",
	ADD_ROWS
	"UPDATE counters AS c "
	"SET count = c.count + w.delta, version = c.version + 1, last_updated = w.now "
	"FROM w "
	"WHERE c.user_id = w.user_id AND c.type = w.type "
	"RETURNING w.n, " ROW_COLUMNS,
};

static const struct pg_statement make_statement = {
	"quipu_counters_make",
	ADD_ROWS
	"INSERT INTO counters AS c (user_id, type, count, last_updated, version) "
	"SELECT w.user_id, w.type, w.delta, w.now, "
	"  greatest(1, " PG_TO_US("w.now") " / 1000) "
	"FROM w "
	"ON CONFLICT (user_id, type) DO NOTHING "
	"RETURNING c.user_id, " ROW_COLUMNS,
};

static const struct pg_statement find_statement = {
	"quipu_counters_find",
	"WITH w AS MATERIALIZED ("
	"  SELECT u.*, " TYPE " AS type "
	"  FROM unnest($1::text[]) WITH ORDINALITY AS u(user_id, n)) "
	"SELECT w.n, " ROW_COLUMNS " "
	"FROM w "
	"JOIN counters c ON c.user_id = w.user_id AND c.type = w.type",
};

static const struct pg_statement list_statement = {
	"quipu_counters_list",
	"SELECT c.user_id, " ROW_COLUMNS " "
	"FROM counters c "
	"WHERE c.user_id > $1::text AND c.type = " TYPE " "
	"ORDER BY c.user_id LIMIT $2::int8",
};
/* clang-format on */

/* ---- messages ---------------------------------------------------------------------------- */

static enum status lock(const struct counter_repository *repository, struct session *base,
	struct counter_message *messages, size_t count)
{
	struct pg_session *session = pg_session_of(base);
	const struct pg_param keys[] = {
		pg_param_ids(session, &messages->user_id, sizeof(*messages), count),
		pg_param_ids(session, &messages->message_id, sizeof(*messages), count),
	};
	enum status status = pg_run(session, &lock_statement, keys, 2);
	const PGresult *result = session->results[0];

	if (status != STATUS_OK)
		return status;
	for (size_t i = 0; i < count; i++)
		messages[i].exists = false;
	for (int i = 0; i < PQntuples(result); i++) {
		struct counter_message *message = &messages[pg_place(result, i, count)];

		message->exists = true;
		message->is_read = pg_bool(result, i, 1);
		message->event_us = pg_int8(result, i, 2);
	}
	return STATUS_OK;
}

static const Oid put_types[] = {PG_OID_TEXT, PG_OID_TEXT, PG_OID_TEXT, PG_OID_INT8};

static void add_message(struct pg_array *columns, const void *element)
{
	const struct counter_message *message = element;

	pg_array_text(&columns[0], message->user_id);
	pg_array_text(&columns[1], message->message_id);
	pg_array_text(&columns[2], slice_of(message->is_read ? "read" : "unread"));
	pg_array_int8(&columns[3], message->event_us);
}

static const struct pg_shape put_shape = {
	.types = put_types,
	.column_count = sizeof(put_types) / sizeof(put_types[0]),
	.row_size = sizeof(struct counter_message),
	.exists_at = offsetof(struct counter_message, exists),
	.add = add_message,
};

/* Writes either the existing messages (if `exists` is true) or the new ones. Returns RERUN if
 * another session changed or inserted one of these messages first. */
static enum status put_some(struct pg_session *session, const struct pg_statement *statement,
	bool exists, const struct counter_message *messages, size_t count)
{
	size_t wanted = pg_queue_some(session, statement, &put_shape, exists, messages, count);

	return wanted > 0 ? pg_flush_inserts(session, 0, wanted) : STATUS_OK;
}

static enum status put(const struct counter_repository *repository, struct session *base,
	const struct counter_message *messages, size_t count)
{
	struct pg_session *session = pg_session_of(base);
	enum status status = put_some(session, &update_statement, true, messages, count);

	if (status == STATUS_OK)
		status = put_some(session, &insert_statement, false, messages, count);
	return status;
}

static enum status sweep(const struct counter_repository *repository, struct session *base,
	int64_t age_us, size_t limit, size_t *deleted)
{
	return pg_sweep(base, &sweep_statement, age_us, limit, deleted);
}

static enum status list_unread(const struct counter_repository *repository, struct session *base,
	struct arena *arena, struct row_page *page, struct counter_message *messages)
{
	struct pg_session *session = pg_session_of(base);
	struct pg_param params[3] = {pg_param_text(page->user_id), pg_param_text(page->after[0])};
	enum status status = pg_list_rows(session, &list_unread_statement, params, 2, page);
	const PGresult *result = session->results[0];

	for (int i = 0; status == STATUS_OK && i < PQntuples(result); i++)
		messages[i] = (struct counter_message){
			.user_id = pg_keep(arena, result, i, 0),
			.message_id = pg_keep(arena, result, i, 1),
			.exists = true,
			.event_us = pg_int8(result, i, 2),
		};
	return status;
}

/* ---- counters ---------------------------------------------------------------------------- */

/* Fills a row from ROW_COLUMNS, which start at the second column of the result. */
static void fill_row(struct counter_row *row, const PGresult *result, int at)
{
	row->exists = true;
	row->count = pg_int8(result, at, 1);
	row->version = pg_int8(result, at, 2);
	row->updated_us = pg_int8(result, at, 3);
}

static void fill_rows(struct counter_row *rows, size_t count, const PGresult *result)
{
	for (size_t i = 0; i < count; i++)
		rows[i].exists = false;
	for (int i = 0; i < PQntuples(result); i++)
		fill_row(&rows[pg_place(result, i, count)], result, i);
}

static const Oid add_types[] = {PG_OID_TEXT, PG_OID_INT8};

static void add_row(struct pg_array *columns, const void *element)
{
	const struct counter_row *row = element;

	pg_array_text(&columns[0], row->user_id);
	pg_array_int8(&columns[1], row->delta);
}

static const struct pg_shape add_shape = {
	.types = add_types,
	.column_count = sizeof(add_types) / sizeof(add_types[0]),
	.row_size = sizeof(struct counter_row),
	.exists_at = offsetof(struct counter_row, exists),
	.add = add_row,
};

static int compare_user(const void *key, const void *element)
{
	return slice_compare(
		*(const struct slice *)key, ((const struct counter_row *)element)->user_id);
}

/* Fills in the rows that were created. The result may list them in any order; `rows` are sorted by
 * user_id. */
static void fill_made(struct counter_row *rows, size_t count, const PGresult *made)
{
	for (int i = 0; i < PQntuples(made); i++) {
		struct slice user_id = pg_slice(made, i, 0);
		struct counter_row *row =
			bsearch(&user_id, rows, count, sizeof(*rows), compare_user);

		assert(row && !row->exists);
		fill_row(row, made, i);
	}
}

static enum status make_rows(struct pg_session *session, struct counter_row *rows, size_t count)
{
	size_t missing = pg_queue_some(session, &make_statement, &add_shape, false, rows, count);
	enum status status;

	if (missing == 0)
		return STATUS_OK;
	status = pg_flush_inserts(session, 0, missing);
	if (status == STATUS_OK)
		fill_made(rows, count, session->results[0]);
	return status;
}

static enum status add(const struct counter_repository *repository, struct session *base,
	struct counter_row *rows, size_t count)
{
	struct pg_session *session = pg_session_of(base);
	enum status status;

	pg_queue_all(session, &add_statement, &add_shape, rows, count);
	status = pg_flush(session);
	if (status != STATUS_OK)
		return status;
	fill_rows(rows, count, session->results[0]);
	return make_rows(session, rows, count);
}

static enum status find(const struct counter_repository *repository, struct session *base,
	struct counter_row *rows, size_t count)
{
	struct pg_session *session = pg_session_of(base);
	struct pg_param ids = pg_param_ids(session, &rows->user_id, sizeof(*rows), count);
	enum status status = pg_run(session, &find_statement, &ids, 1);

	if (status == STATUS_OK)
		fill_rows(rows, count, session->results[0]);
	return status;
}

static enum status list(const struct counter_repository *repository, struct session *base,
	struct arena *arena, struct row_page *page, struct counter_row *rows)
{
	struct pg_session *session = pg_session_of(base);
	struct pg_param params[2] = {pg_param_text(page->after[0])};
	enum status status = pg_list_rows(session, &list_statement, params, 1, page);
	const PGresult *result = session->results[0];

	for (int i = 0; status == STATUS_OK && i < PQntuples(result); i++) {
		rows[i] = (struct counter_row){.user_id = pg_keep(arena, result, i, 0)};
		fill_row(&rows[i], result, i);
	}
	return status;
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

const struct counter_repository postgres_counter_repository = {
	.ops = &ops,
	.eraser = &postgres_counters_eraser.base,
};
