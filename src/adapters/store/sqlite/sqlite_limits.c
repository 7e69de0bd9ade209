/* Limits of users in SQLite. settle() records how many reserved slots were confirmed or given back.
 * Each settlement names the window in which the slots were reserved. If a new window has begun in
 * the user's row since then, the settlement changes nothing. */
#include "adapters/store/sqlite/sqlite_repositories.h"

#include "adapters/store/sqlite/sqlite_eraser.h"
#include "adapters/store/sqlite/sqlite_internal.h"

/* clang-format off */
static const char find_sql[] =
	"SELECT rate_limit, time_window, current_count, reserved_count, last_refresh_time, "
	"    shadow, by_default "
	"FROM rate_limit_store "
	"WHERE user_id = ?1";

static const char put_sql[] =
	"INSERT INTO rate_limit_store (user_id, rate_limit, time_window, current_count, "
	"    reserved_count, last_refresh_time, shadow, by_default) "
	"VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) "
	"ON CONFLICT (user_id) "
	"DO UPDATE SET rate_limit = excluded.rate_limit, time_window = excluded.time_window, "
	"    current_count = excluded.current_count, "
	"    reserved_count = excluded.reserved_count, "
	"    last_refresh_time = excluded.last_refresh_time, shadow = excluded.shadow, "
	"    by_default = excluded.by_default";

static const char remove_sql[] = "DELETE FROM rate_limit_store WHERE user_id = ?1";

static const char settle_sql[] =
	"UPDATE rate_limit_store "
	"SET current_count = current_count + ?3, reserved_count = reserved_count - ?4 "
	"WHERE user_id = ?1 AND last_refresh_time = ?2";
/* clang-format on */

static void fill_row(struct limit_row *row, const struct sqlite_query *query)
{
	row->rate_limit = (int32_t)sqlite_query_int(query, 0);
	row->time_window = (int32_t)sqlite_query_int(query, 1);
	row->current_count = (int32_t)sqlite_query_int(query, 2);
	row->reserved_count = (int32_t)sqlite_query_int(query, 3);
	row->last_refresh_us = sqlite_query_int(query, 4);
	row->shadow = sqlite_query_int(query, 5) != 0;
	row->by_default = sqlite_query_int(query, 6) != 0;
}

static enum status fill_rows(struct sqlite_session *session, struct limit_row *rows, size_t count)
{
	struct sqlite_query query = sqlite_query_open(session, find_sql);

	for (size_t i = 0; i < count; i++) {
		struct limit_row *row = &rows[i];

		sqlite_query_start(&query, SQLITE_VALUES(sqlite_text(row->user_id)));
		row->busy = false;
		row->exists = sqlite_query_next(&query);
		if (row->exists)
			fill_row(row, &query);
	}
	return sqlite_query_close(&query);
}

static enum status lock(const struct limit_repository *repository, struct session *base,
	struct limit_row *rows, size_t count, int64_t *now_us)
{
	struct sqlite_session *session = sqlite_session_of(base);

	*now_us = sqlite_now_us(session);
	return fill_rows(session, rows, count);
}

static enum status put(const struct limit_repository *repository, struct session *base,
	const struct limit_row *rows, size_t count)
{
	struct sqlite_query query = sqlite_query_open(sqlite_session_of(base), put_sql);

	for (size_t i = 0; i < count; i++) {
		const struct limit_row *row = &rows[i];

		sqlite_query_change_one(&query,
			SQLITE_VALUES(sqlite_text(row->user_id), sqlite_int(row->rate_limit),
				sqlite_int(row->time_window), sqlite_int(row->current_count),
				sqlite_int(row->reserved_count), sqlite_int(row->last_refresh_us),
				sqlite_int(row->shadow), sqlite_int(row->by_default)));
	}
	return sqlite_query_close(&query);
}

static enum status remove_rows(const struct limit_repository *repository, struct session *base,
	const struct slice *user_ids, size_t count)
{
	struct sqlite_query query = sqlite_query_open(sqlite_session_of(base), remove_sql);

	for (size_t i = 0; i < count; i++)
		sqlite_query_change_one(&query, SQLITE_VALUES(sqlite_text(user_ids[i])));
	return sqlite_query_close(&query);
}

static enum status settle(const struct limit_repository *repository, struct session *base,
	const struct limit_settlement *settlements, size_t count)
{
	struct sqlite_query query = sqlite_query_open(sqlite_session_of(base), settle_sql);

	for (size_t i = 0; i < count; i++) {
		const struct limit_settlement *settlement = &settlements[i];

		sqlite_query_change(&query, SQLITE_VALUES(sqlite_text(settlement->user_id),
						    sqlite_int(settlement->window_start_us),
						    sqlite_int(settlement->confirmed),
						    sqlite_int(settlement->given_back)));
	}
	return sqlite_query_close(&query);
}

/* clang-format off */
static const char sweep_sql[] =
	"DELETE FROM rate_limit_store "
	"WHERE user_id IN ("
	"  SELECT user_id "
	"  FROM rate_limit_store "
	"  WHERE by_default AND last_refresh_time < ?1 - ?2 "
	"    AND last_refresh_time < ?1 - ?2 * time_window "
	"  ORDER BY last_refresh_time LIMIT ?3)";
/* clang-format on */

static enum status sweep(const struct limit_repository *repository, struct session *base,
	const struct limit_idle *idle, size_t limit, size_t *deleted)
{
	struct sqlite_session *session = sqlite_session_of(base);
	enum status status = base->ops->begin(base, TRANSACTION_WAIT);
	struct sqlite_query query;
	int count;

	if (status != STATUS_OK)
		return status;
	query = sqlite_query_open(session, sweep_sql);
	count = sqlite_query_change(&query,
		SQLITE_VALUES(sqlite_int(sqlite_now_us(session)),
			sqlite_int(idle->unit_us * idle->windows), sqlite_int((int64_t)limit)));
	status = sqlite_query_close(&query);
	if (status == STATUS_OK)
		status = base->ops->commit(base);
	if (status == STATUS_OK)
		*deleted = (size_t)count;
	return status;
}

static enum status find(const struct limit_repository *repository, struct session *base,
	struct limit_row *rows, size_t count, int64_t *now_us)
{
	struct sqlite_session *session = sqlite_session_of(base);
	enum status status = sqlite_snapshot_begin(session);

	*now_us = sqlite_now_us(session);
	if (status == STATUS_OK)
		status = fill_rows(session, rows, count);
	if (status == STATUS_OK)
		status = sqlite_snapshot_end(session);
	return status;
}

static void fill_listed(void *listed, struct arena *arena, const struct sqlite_query *query)
{
	struct limit_row *row = listed;

	*row = (struct limit_row){
		.user_id = sqlite_query_keep(query, arena, 7),
		.exists = true,
	};
	fill_row(row, query);
}

/* clang-format off */
static const char list_sql[] =
	"SELECT rate_limit, time_window, current_count, reserved_count, last_refresh_time, "
	"    shadow, by_default, user_id "
	"FROM rate_limit_store "
	"WHERE user_id > ?1 "
	"ORDER BY user_id LIMIT ?5";
/* clang-format on */

static enum status list(const struct limit_repository *repository, struct session *session,
	struct arena *arena, struct row_page *page, struct limit_row *rows)
{
	static const struct sqlite_list all = {
		.sql = list_sql,
		.row_size = sizeof(struct limit_row),
		.fill = fill_listed,
	};

	return sqlite_list_rows(session, arena, &all, page, rows);
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

const struct limit_repository sqlite_limit_repository = {
	.ops = &ops,
	.eraser = &sqlite_limits_eraser.base,
};
