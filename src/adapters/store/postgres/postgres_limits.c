#include "adapters/store/postgres/postgres_repositories.h"

#include "adapters/store/postgres/postgres_internal.h"

#define ROWS_SQL                                                                                   \
	"SELECT w.n, l.rate_limit, l.time_window, l.current_count, l.reserved_count, " PG_TO_US(   \
		"l.last_refresh_time") " "                                                         \
				       "FROM " PG_PLACES                                           \
				       " JOIN rate_limit_store l ON l.user_id = w.id"

static const struct pg_row_statements row_statements = {
	.find = {"quipu_limits_find", ROWS_SQL},
	.lock = {"quipu_limits_lock", ROWS_SQL " ORDER BY w.n FOR UPDATE OF l"},
	.lock_free = {"quipu_limits_lock_free",
		ROWS_SQL " ORDER BY w.n FOR UPDATE OF l SKIP LOCKED"},
};

static const struct pg_statement update_statement = {
	"quipu_limits_update",
	"UPDATE rate_limit_store AS l SET rate_limit = e.rate_limit, time_window = e.time_window, "
	"current_count = e.current_count, reserved_count = e.reserved_count, "
	"last_refresh_time = " PG_FROM_US(
		"e.refresh_us") " "
				"FROM unnest($1::text[], $2::int4[], $3::int4[], $4::int4[], "
				"$5::int4[], $6::int8[]) "
				"AS e(user_id, rate_limit, time_window, current_count, "
				"reserved_count, refresh_us) "
				"WHERE l.user_id = e.user_id",
};

static const struct pg_statement insert_statement = {
	"quipu_limits_insert",
	"INSERT INTO rate_limit_store (user_id, rate_limit, time_window, current_count, "
	"reserved_count, last_refresh_time) "
	"SELECT user_id, rate_limit, time_window, current_count, reserved_count, " PG_FROM_US(
		"refresh_us") " "
			      "FROM unnest($1::text[], $2::int4[], $3::int4[], $4::int4[], "
			      "$5::int4[], $6::int8[]) "
			      "AS e(user_id, rate_limit, time_window, current_count, "
			      "reserved_count, refresh_us) "
			      "ON CONFLICT (user_id) DO NOTHING RETURNING 1",
};

static const struct pg_statement settle_statement = {
	"quipu_limits_settle",
	"UPDATE rate_limit_store AS l SET current_count = l.current_count + e.confirmed, "
	"reserved_count = l.reserved_count - e.given_back "
	"FROM unnest($1::text[], $2::int8[], $3::int4[], $4::int4[]) "
	"AS e(user_id, window_us, confirmed, given_back) "
	"WHERE l.user_id = e.user_id AND l.last_refresh_time = " PG_FROM_US("e.window_us"),
};

#define REFRESHED_US PG_TO_US("last_refresh_time")

static const struct pg_statement list_statement = {
	"quipu_limits_list",
	"SELECT user_id, rate_limit, time_window, current_count, reserved_count, " REFRESHED_US
	" FROM rate_limit_store WHERE user_id > $1::text ORDER BY user_id LIMIT $2::int8",
};

static void fill_row(struct limit_row *row, const PGresult *result, int at)
{
	row->exists = true;
	row->rate_limit = pg_int4(result, at, 1);
	row->time_window = pg_int4(result, at, 2);
	row->current_count = pg_int4(result, at, 3);
	row->reserved_count = pg_int4(result, at, 4);
	row->last_refresh_us = pg_int8(result, at, 5);
}

static void forget_rows(struct limit_row *rows, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		rows[i].exists = false;
		rows[i].busy = false;
	}
}

static void fill_rows(struct limit_row *rows, size_t count, const struct pg_session *session)
{
	const PGresult *found = session->results[0];
	const PGresult *visible = session->results[2];

	forget_rows(rows, count);
	for (int i = 0; i < PQntuples(found); i++)
		fill_row(&rows[pg_place(found, i, count)], found, i);
	for (int i = 0; i < PQntuples(visible); i++) {
		struct limit_row *row = &rows[pg_place(visible, i, count)];

		row->busy = !row->exists;
	}
}

static enum status lock(const struct limit_repository *repository, struct session *base,
	struct limit_row *rows, size_t count, int64_t *now_us)
{
	struct pg_session *session = pg_session_of(base);
	struct pg_param ids = pg_param_ids(session, &rows->user_id, sizeof(*rows), count);
	enum status status = pg_lock_rows(session, &row_statements, &ids, 1, now_us);

	if (status == STATUS_OK)
		fill_rows(rows, count, session);
	return status;
}

static enum status find(const struct limit_repository *repository, struct session *base,
	struct limit_row *rows, size_t count, int64_t *now_us)
{
	struct pg_session *session = pg_session_of(base);
	struct pg_param ids = pg_param_ids(session, &rows->user_id, sizeof(*rows), count);
	enum status status = pg_find_rows(session, &row_statements, &ids, 1, now_us);

	if (status == STATUS_OK)
		fill_rows(rows, count, session);
	return status;
}

#define PUT_COLUMNS 6

/* Queues the rows that exist already, or those that do not; returns how many there are. */
static size_t queue_rows(struct pg_session *session, const struct pg_statement *statement,
	bool exists, const struct limit_row *rows, size_t count)
{
	static const Oid types[PUT_COLUMNS] = {
		PG_OID_TEXT, PG_OID_INT4, PG_OID_INT4, PG_OID_INT4, PG_OID_INT4, PG_OID_INT8};
	struct pg_array columns[PUT_COLUMNS];
	size_t wanted = 0;

	for (size_t i = 0; i < count; i++)
		wanted += rows[i].exists == exists;
	if (wanted == 0)
		return 0;
	pg_arrays_of(session, types, PUT_COLUMNS, wanted, columns);
	for (size_t i = 0; i < count; i++) {
		if (rows[i].exists != exists)
			continue;
		pg_array_text(&columns[0], rows[i].user_id);
		pg_array_int4(&columns[1], rows[i].rate_limit);
		pg_array_int4(&columns[2], rows[i].time_window);
		pg_array_int4(&columns[3], rows[i].current_count);
		pg_array_int4(&columns[4], rows[i].reserved_count);
		pg_array_int8(&columns[5], rows[i].last_refresh_us);
	}
	pg_queue_arrays(session, statement, columns, PUT_COLUMNS);
	return wanted;
}

static enum status put(const struct limit_repository *repository, struct session *base,
	const struct limit_row *rows, size_t count)
{
	struct pg_session *session = pg_session_of(base);
	size_t insert_slot, inserts;

	queue_rows(session, &update_statement, true, rows, count);
	insert_slot = session->queued;
	inserts = queue_rows(session, &insert_statement, false, rows, count);
	return pg_flush_inserts(session, insert_slot, inserts);
}

static enum status settle(const struct limit_repository *repository, struct session *base,
	const struct limit_settlement *settlements, size_t count)
{
	struct pg_session *session = pg_session_of(base);
	struct pg_array ids = pg_array_of(session, PG_OID_TEXT, count);
	struct pg_array windows = pg_array_of(session, PG_OID_INT8, count);
	struct pg_array confirmed = pg_array_of(session, PG_OID_INT4, count);
	struct pg_array given_back = pg_array_of(session, PG_OID_INT4, count);

	for (size_t i = 0; i < count; i++) {
		pg_array_text(&ids, settlements[i].user_id);
		pg_array_int8(&windows, settlements[i].window_start_us);
		pg_array_int4(&confirmed, settlements[i].confirmed);
		pg_array_int4(&given_back, settlements[i].given_back);
	}
	struct pg_param params[4] = {pg_param_array(&ids), pg_param_array(&windows),
		pg_param_array(&confirmed), pg_param_array(&given_back)};

	return pg_run(session, &settle_statement, params, 4);
}

static enum status list(const struct limit_repository *repository, struct session *base,
	struct arena *arena, struct row_page *page, struct limit_row *rows)
{
	struct pg_session *session = pg_session_of(base);
	struct pg_param params[2] = {pg_param_text(page->after[0])};
	enum status status = pg_list_rows(session, &list_statement, params, 1, page);

	for (size_t i = 0; status == STATUS_OK && i < page->count; i++) {
		rows[i] = (struct limit_row){
			.user_id = pg_keep(arena, session->results[0], (int)i, 0)};
		fill_row(&rows[i], session->results[0], (int)i);
	}
	return status;
}

static const struct limit_repository_ops ops = {
	.lock = lock,
	.put = put,
	.settle = settle,
	.find = find,
	.list = list,
};

const struct limit_repository postgres_limit_repository = {.ops = &ops};
