/*
 * Counts in SQLite. add() runs one atomic UPDATE per count. lock() reads the rows without locking
 * them: because only one session writes at a time, the rows cannot change between lock() and
 * edit().
 */
#include "adapters/store/sqlite/sqlite_repositories.h"

#include "adapters/store/sqlite/sqlite_internal.h"

/* clang-format off */
/*
 * Adds several steps to a count at once, if the count stays within its bounds after each step. ?1
 * is the sum of all steps. The running sum of the steps begins at 0; ?6 is its lowest value and ?7
 * its highest. If current_value is between ?4 and ?5, then current_value + ?6 and current_value +
 * ?7 fit into int64. CASE computes these two sums only if current_value is in that range, because
 * beyond int64 SQLite would calculate with floating-point numbers, which are not exact.
 */
static const char add_sql[] =
	"UPDATE count_values SET current_value = current_value + ?1, last_updated_at = ?2 "
	"WHERE item_id = ?3 "
	"  AND CASE WHEN current_value BETWEEN ?4 AND ?5 "
	"      THEN (min_value IS NULL OR current_value + ?6 >= min_value) "
	"       AND (max_value IS NULL OR current_value + ?7 <= max_value) "
	"      ELSE 0 END "
	"RETURNING current_value";

static const char find_sql[] =
	"SELECT item_id, current_value, last_updated_at, min_value, max_value "
	"FROM count_values "
	"WHERE item_id = ?1";

static const char *const edit_sql[] = {
	[COUNT_UPDATE] =
		"UPDATE count_values "
		"SET current_value = ?2, last_updated_at = ?3, min_value = ?4, max_value = ?5 "
		"WHERE item_id = ?1",
	[COUNT_INSERT] =
		"INSERT INTO count_values "
		"    (item_id, current_value, last_updated_at, min_value, max_value) "
		"VALUES (?1, ?2, ?3, ?4, ?5) "
		"ON CONFLICT (item_id) DO NOTHING",
	[COUNT_DELETE] = "DELETE FROM count_values WHERE item_id = ?1",
};
/* clang-format on */

static enum status add(const struct count_repository *repository, struct session *base,
	struct count_addition *additions, size_t count)
{
	struct sqlite_session *session = sqlite_session_of(base);
	struct sqlite_query query = sqlite_query_open(session, add_sql);
	int64_t now_us = sqlite_now_us(session);

	for (size_t i = 0; i < count; i++) {
		struct count_addition *addition = &additions[i];

		sqlite_query_start(&query,
			SQLITE_VALUES(sqlite_int(addition->sum), sqlite_int(now_us),
				sqlite_text(addition->item_id),
				sqlite_int(INT64_MIN - addition->lowest),
				sqlite_int(INT64_MAX - addition->highest),
				sqlite_int(addition->lowest), sqlite_int(addition->highest)));
		addition->applied = sqlite_query_next(&query);
		if (addition->applied)
			addition->value = sqlite_query_int(&query, 0);
	}
	return sqlite_query_close(&query);
}

static struct count_bound bound_at(const struct sqlite_query *query, int column)
{
	if (sqlite_query_is_null(query, column))
		return (struct count_bound){0};
	return (struct count_bound){.is_set = true, .value = sqlite_query_int(query, column)};
}

/* Fills a row from all columns of find_sql or LIST_SQL except the first. */
static void fill_row(struct count_row *row, const struct sqlite_query *query)
{
	row->value = sqlite_query_int(query, 1);
	row->updated_us = sqlite_query_int(query, 2);
	row->bounds.min = bound_at(query, 3);
	row->bounds.max = bound_at(query, 4);
}

static enum status fill_rows(struct sqlite_session *session, struct count_row *rows, size_t count)
{
	struct sqlite_query query = sqlite_query_open(session, find_sql);

	for (size_t i = 0; i < count; i++) {
		struct count_row *row = &rows[i];

		sqlite_query_start(&query, SQLITE_VALUES(sqlite_text(row->item_id)));
		row->busy = false;
		row->exists = sqlite_query_next(&query);
		if (row->exists)
			fill_row(row, &query);
	}
	return sqlite_query_close(&query);
}

static enum status lock(const struct count_repository *repository, struct session *base,
	struct count_row *rows, size_t count, int64_t *now_us)
{
	struct sqlite_session *session = sqlite_session_of(base);
	enum status status = fill_rows(session, rows, count);

	if (status == STATUS_OK)
		*now_us = sqlite_now_us(session);
	return status;
}

static enum status find(const struct count_repository *repository, struct session *base,
	struct count_row *rows, size_t count)
{
	struct sqlite_session *session = sqlite_session_of(base);
	enum status status = sqlite_snapshot_begin(session);

	if (status == STATUS_OK)
		status = fill_rows(session, rows, count);
	if (status == STATUS_OK)
		status = sqlite_snapshot_end(session);
	return status;
}

static struct sqlite_value bound_value(const struct count_bound *bound)
{
	return bound->is_set ? sqlite_int(bound->value) : sqlite_null();
}

static enum status edit_one(
	struct sqlite_session *session, const struct count_edit *edit, int64_t now_us)
{
	struct sqlite_query query = sqlite_query_open(session, edit_sql[edit->kind]);
	const struct sqlite_value values[] = {sqlite_text(edit->item_id), sqlite_int(edit->value),
		sqlite_int(now_us), bound_value(&edit->bounds.min), bound_value(&edit->bounds.max)};

	sqlite_query_change_one(&query, values, edit->kind == COUNT_DELETE ? 1 : 5);
	return sqlite_query_close(&query);
}

static enum status edit(const struct count_repository *repository, struct session *base,
	const struct count_edit *edits, size_t count, int64_t now_us)
{
	struct sqlite_session *session = sqlite_session_of(base);
	enum status status = STATUS_OK;

	for (size_t i = 0; i < count && status == STATUS_OK; i++)
		status = edit_one(session, &edits[i], now_us);
	return status;
}

static void fill_listed(void *row, struct arena *arena, const struct sqlite_query *query)
{
	*(struct count_row *)row = (struct count_row){
		.item_id = sqlite_query_keep(query, arena, 0),
		.exists = true,
	};
	fill_row(row, query);
}

/* clang-format off */
/* Combines two lower bounds of item_id with max(). With two separate conditions, SQLite would begin
 * to read at one bound, perhaps the lower one, and check the other bound on every row. */
#define LIST_SQL(until)                                                         \
	"SELECT item_id, current_value, last_updated_at, min_value, max_value " \
	"FROM count_values "                                                    \
	"WHERE item_id >= max(?1, ?7) AND item_id <> ?1 " until                 \
	"ORDER BY item_id LIMIT ?5"
/* clang-format on */

static enum status list(const struct count_repository *repository, struct session *session,
	struct arena *arena, struct row_page *page, struct count_row *rows)
{
	const struct sqlite_list range = {
		.sql = page->until.len > 0 ? LIST_SQL("AND item_id < ?8 ") : LIST_SQL(""),
		.row_size = sizeof(struct count_row),
		.fill = fill_listed,
	};

	return sqlite_list_rows(session, arena, &range, page, rows);
}

static const struct count_repository_ops ops = {
	.add = add,
	.lock = lock,
	.edit = edit,
	.find = find,
	.list = list,
};

const struct count_repository sqlite_count_repository = {.ops = &ops};
