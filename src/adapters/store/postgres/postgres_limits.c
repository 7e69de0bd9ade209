/*
 * Limits of users in PostgreSQL. settle() records how many reserved slots were used or given back.
 * Each settlement names the window in which the slots were reserved. If the user's row is in
 * another window by now, the settlement changes nothing.
 */
#include "adapters/store/postgres/postgres_repositories.h"

#include "adapters/store/postgres/postgres_eraser.h"
#include "adapters/store/postgres/postgres_internal.h"

/* clang-format off */
#define ROWS_SQL                                                                       \
	"SELECT w.n, l.rate_limit, l.time_window, l.current_count, l.reserved_count, " \
	"    " PG_TO_US("l.last_refresh_time") ", l.shadow, l.by_default "              \
	"FROM " PG_PLACES " "                                                          \
	"JOIN rate_limit_store l ON l.user_id = w.id"
/* clang-format on */

static void fill_row(void *found, const PGresult *result, int at)
{
	struct limit_row *row = found;

	row->rate_limit = pg_int4(result, at, 1);
	row->time_window = pg_int4(result, at, 2);
	row->current_count = pg_int4(result, at, 3);
	row->reserved_count = pg_int4(result, at, 4);
	row->last_refresh_us = pg_int8(result, at, 5);
	row->shadow = pg_bool(result, at, 6);
	row->by_default = pg_bool(result, at, 7);
}

static const struct pg_lookup by_user = {
	.find = {"quipu_limits_find", ROWS_SQL},
	.lock = {"quipu_limits_lock", ROWS_SQL " ORDER BY w.n FOR UPDATE OF l"},
	.lock_free = {"quipu_limits_lock_free",
		ROWS_SQL " ORDER BY w.n FOR UPDATE OF l SKIP LOCKED"},
	.id_at = {offsetof(struct limit_row, user_id)},
	.id_count = 1,
	.row_size = sizeof(struct limit_row),
	.exists_at = offsetof(struct limit_row, exists),
	.busy_at = offsetof(struct limit_row, busy),
	.fill = fill_row,
};

static const Oid put_types[] = {PG_OID_TEXT, PG_OID_INT4, PG_OID_INT4, PG_OID_INT4, PG_OID_INT4,
	PG_OID_INT8, PG_OID_INT4, PG_OID_INT4};

static void add_row(struct pg_array *columns, const void *element)
{
	const struct limit_row *row = element;

	pg_array_text(&columns[0], row->user_id);
	pg_array_int4(&columns[1], row->rate_limit);
	pg_array_int4(&columns[2], row->time_window);
	pg_array_int4(&columns[3], row->current_count);
	pg_array_int4(&columns[4], row->reserved_count);
	pg_array_int8(&columns[5], row->last_refresh_us);
	pg_array_int4(&columns[6], row->shadow);
	pg_array_int4(&columns[7], row->by_default);
}

/* clang-format off */
#define NEW_ROWS                                                                           \
	"unnest($1::text[], $2::int4[], $3::int4[], $4::int4[], $5::int4[], $6::int8[], " \
	"    $7::int4[], $8::int4[]) AS e(user_id, rate_limit, time_window, "             \
	"    current_count, reserved_count, refresh_us, shadow, by_default)"

static const struct pg_put put_rows = {
	.shape =
		{
			.types = put_types,
			.column_count = sizeof(put_types) / sizeof(put_types[0]),
			.row_size = sizeof(struct limit_row),
			.exists_at = offsetof(struct limit_row, exists),
			.add = add_row,
		},
	.update =
		{
			"quipu_limits_update",
			"UPDATE rate_limit_store AS l "
			"SET rate_limit = e.rate_limit, time_window = e.time_window, "
			"    current_count = e.current_count, reserved_count = e.reserved_count, "
			"    last_refresh_time = " PG_FROM_US("e.refresh_us") ", "
			"    shadow = e.shadow <> 0, by_default = e.by_default <> 0 "
			"FROM " NEW_ROWS " "
			"WHERE l.user_id = e.user_id",
		},
	.insert =
		{
			"quipu_limits_insert",
			"INSERT INTO rate_limit_store (user_id, rate_limit, time_window, current_count, "
			"    reserved_count, last_refresh_time, shadow, by_default) "
			"SELECT user_id, rate_limit, time_window, current_count, reserved_count, "
			"    " PG_FROM_US("refresh_us") ", shadow <> 0, by_default <> 0 "
			"FROM " NEW_ROWS " "
			"ON CONFLICT (user_id) DO NOTHING "
			"RETURNING 1",
		},
};

static const struct pg_statement remove_statement = {
	"quipu_limits_remove", "DELETE FROM rate_limit_store WHERE user_id = ANY ($1::text[])"};

static const struct pg_statement settle_statement = {
	"quipu_limits_settle",
	"UPDATE rate_limit_store AS l "
	"SET current_count = l.current_count + e.confirmed, "
	"    reserved_count = l.reserved_count - e.given_back "
	"FROM unnest($1::text[], $2::int8[], $3::int4[], $4::int4[]) "
	"    AS e(user_id, window_us, confirmed, given_back) "
	"WHERE l.user_id = e.user_id "
	"  AND l.last_refresh_time = " PG_FROM_US("e.window_us"),
};

static const struct pg_statement sweep_statement = {
	"quipu_limits_sweep",
	"DELETE FROM rate_limit_store "
	"WHERE user_id = ANY (ARRAY("
	"    SELECT user_id "
	"    FROM rate_limit_store "
	"    WHERE by_default "
	"      AND last_refresh_time < (SELECT quipu_now()) - $1::int8 * interval '1 microsecond' "
	"      AND last_refresh_time < "
	"        (SELECT quipu_now()) - time_window * $1::int8 * interval '1 microsecond' "
	"    ORDER BY last_refresh_time LIMIT $2::int8 FOR UPDATE SKIP LOCKED)) "
	"RETURNING 1",
};

#define REFRESHED_US PG_TO_US("last_refresh_time")

static const struct pg_statement list_statement = {
	"quipu_limits_list",
	"SELECT user_id, rate_limit, time_window, current_count, reserved_count, "
	"    " REFRESHED_US ", shadow, by_default "
	"FROM rate_limit_store "
	"WHERE user_id > $1::text "
	"ORDER BY user_id LIMIT $2::int8",
};
/* clang-format on */

static enum status lock(const struct limit_repository *repository, struct session *base,
	struct limit_row *rows, size_t count, int64_t *now_us)
{
	return pg_lock_rows(pg_session_of(base), &by_user, rows, count, now_us);
}

static enum status find(const struct limit_repository *repository, struct session *base,
	struct limit_row *rows, size_t count, int64_t *now_us)
{
	return pg_find_rows(pg_session_of(base), &by_user, rows, count, now_us);
}

static enum status put(const struct limit_repository *repository, struct session *base,
	const struct limit_row *rows, size_t count)
{
	return pg_put_rows(pg_session_of(base), &put_rows, rows, count);
}

static enum status remove_rows(const struct limit_repository *repository, struct session *base,
	const struct slice *user_ids, size_t count)
{
	struct pg_session *session = pg_session_of(base);
	struct pg_param ids = pg_param_ids(session, user_ids, sizeof(*user_ids), count);

	return pg_run(session, &remove_statement, &ids, 1);
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

static enum status sweep(const struct limit_repository *repository, struct session *base,
	const struct limit_idle *idle, size_t limit, size_t *deleted)
{
	return pg_sweep(base, &sweep_statement, idle->unit_us * idle->windows, limit, deleted);
}

static enum status list(const struct limit_repository *repository, struct session *base,
	struct arena *arena, struct row_page *page, struct limit_row *rows)
{
	struct pg_session *session = pg_session_of(base);
	struct pg_param params[2] = {pg_param_text(page->after[0])};
	enum status status = pg_list_rows(session, &list_statement, params, 1, page);

	for (size_t i = 0; status == STATUS_OK && i < page->count; i++) {
		rows[i] = (struct limit_row){
			.user_id = pg_keep(arena, session->results[0], (int)i, 0),
			.exists = true,
		};
		fill_row(&rows[i], session->results[0], (int)i);
	}
	return status;
}

static const struct limit_repository_ops ops = {
	.lock = lock,
	.put = put,
	.remove = remove_rows,
	.settle = settle,
	.sweep = sweep,
	.find = find,
	.list = list,
};

const struct limit_repository postgres_limit_repository = {
	.ops = &ops,
	.eraser = &postgres_limits_eraser.base,
};
