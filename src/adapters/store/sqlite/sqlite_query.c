/*
 * Implements queries. A query is one prepared statement, run once for each row of a batch.
 *
 * SQLite runs in this process, so a statement costs no round trip. Therefore a loop that runs a
 * small statement for each row is as fast as one large statement, and it is easier to read. To keep
 * the loops free of checks, a query remembers its first failure and ignores the calls that follow.
 */
#include "adapters/store/sqlite/sqlite_internal.h"

#define ROOM_FIRST 8

struct sqlite_query sqlite_query_open(struct sqlite_session *session, const char *sql)
{
	struct sqlite_query query = {.session = session};

	assert(session->active);
	query.rc =
		sqlite_connection_statement(sqlite_session_connection(session), sql, &query.stmt);
	return query;
}

/* Never returns a null pointer, for which SQLite would bind NULL instead of an empty value. */
static const char *data_of(struct slice bytes)
{
	return bytes.data ? bytes.data : "";
}

static int bind(sqlite3_stmt *stmt, int at, const struct sqlite_value *value)
{
	switch (value->kind) {
	case SQLITE_VALUE_INT:
		return sqlite3_bind_int64(stmt, at, value->number);
	case SQLITE_VALUE_TEXT:
		return sqlite3_bind_text64(stmt, at, data_of(value->bytes), value->bytes.len,
			SQLITE_STATIC, SQLITE_UTF8);
	case SQLITE_VALUE_BLOB:
		return sqlite3_bind_blob64(
			stmt, at, data_of(value->bytes), value->bytes.len, SQLITE_STATIC);
	case SQLITE_VALUE_NULL:
		return sqlite3_bind_null(stmt, at);
	}
	return SQLITE_MISUSE;
}

/* Runs the statement to its end, because a statement with RETURNING is complete only then. */
static void end_run(struct sqlite_query *query)
{
	while (sqlite_query_next(query))
		;
	if (!query->bound)
		return;
	sqlite3_reset(query->stmt);
	sqlite3_clear_bindings(query->stmt);
	query->bound = false;
}

void sqlite_query_start(struct sqlite_query *query, const struct sqlite_value *values, size_t count)
{
	end_run(query);
	query->bound = query->rc == SQLITE_OK;
	for (size_t i = 0; i < count && query->rc == SQLITE_OK; i++)
		query->rc = bind(query->stmt, (int)i + 1, &values[i]);
	query->running = query->rc == SQLITE_OK && !query->rerun;
}

bool sqlite_query_next(struct sqlite_query *query)
{
	int rc;

	if (!query->running)
		return false;
	rc = sqlite3_step(query->stmt);
	if (rc == SQLITE_ROW)
		return true;
	query->running = false;
	if (rc != SQLITE_DONE)
		query->rc = rc;
	return false;
}

int64_t sqlite_query_int(const struct sqlite_query *query, int column)
{
	assert(query->running);
	return sqlite3_column_int64(query->stmt, column);
}

bool sqlite_query_is_null(const struct sqlite_query *query, int column)
{
	assert(query->running);
	return sqlite3_column_type(query->stmt, column) == SQLITE_NULL;
}

struct slice sqlite_query_bytes(const struct sqlite_query *query, int column)
{
	const void *data = sqlite3_column_blob(query->stmt, column);

	assert(query->running);
	return slice_make(data, (size_t)sqlite3_column_bytes(query->stmt, column));
}

struct slice sqlite_query_keep(const struct sqlite_query *query, struct arena *arena, int column)
{
	return arena_copy(arena, sqlite_query_bytes(query, column));
}

int sqlite_query_change(struct sqlite_query *query, const struct sqlite_value *values, size_t count)
{
	sqlite_query_start(query, values, count);
	if (!query->running)
		return 0;
	end_run(query);
	return query->rc == SQLITE_OK ? sqlite3_changes(sqlite3_db_handle(query->stmt)) : 0;
}

void sqlite_query_change_one(
	struct sqlite_query *query, const struct sqlite_value *values, size_t count)
{
	if (sqlite_query_change(query, values, count) != 1)
		query->rerun = true;
}

enum status sqlite_query_close(struct sqlite_query *query)
{
	end_run(query);
	if (query->rc != SQLITE_OK)
		return sqlite_session_fail(query->session, query->rc);
	return query->rerun ? sqlite_session_rerun(query->session) : STATUS_OK;
}

static enum status fill_page(struct sqlite_session *session, struct arena *arena,
	const struct sqlite_list *list, struct row_page *page, char *rows)
{
	struct sqlite_query query = sqlite_query_open(session, list->sql);
	const struct sqlite_value values[] = {
		sqlite_text(page->after[0]),
		sqlite_text(page->after[1]),
		sqlite_int(page->after_number),
		sqlite_text(page->user_id),
		sqlite_int((int64_t)page->limit),
		sqlite_int(page->after_minor),
		sqlite_text(page->from),
		sqlite_text(page->until),
	};

	page->count = 0;
	sqlite_query_start(&query, values, (size_t)sqlite3_bind_parameter_count(query.stmt));
	while (sqlite_query_next(&query))
		list->fill(rows + page->count++ * list->row_size, arena, &query);
	return sqlite_query_close(&query);
}

enum status sqlite_list_rows(struct session *base, struct arena *arena,
	const struct sqlite_list *list, struct row_page *page, void *rows)
{
	struct sqlite_session *session = sqlite_session_of(base);
	enum status status = sqlite_snapshot_begin(session);

	if (status == STATUS_OK)
		status = fill_page(session, arena, list, page, rows);
	if (status == STATUS_OK)
		status = sqlite_snapshot_end(session);
	page->now_us = sqlite_now_us(session);
	return status;
}

void *sqlite_more_room(struct arena *arena, void *elements, size_t size, size_t count, size_t *room)
{
	size_t more = *room ? *room * 2 : ROOM_FIRST;

	if (count < *room)
		return elements;
	elements = arena_grow(arena, elements, *room * size, more * size);
	*room = more;
	return elements;
}

enum status sqlite_sweep(
	struct session *base, const char *sql, int64_t before_us, size_t limit, size_t *deleted)
{
	enum status status = base->ops->begin(base, TRANSACTION_WAIT);
	struct sqlite_query query;
	int count;

	if (status != STATUS_OK)
		return status;
	query = sqlite_query_open(sqlite_session_of(base), sql);
	count = sqlite_query_change(
		&query, SQLITE_VALUES(sqlite_int(before_us), sqlite_int((int64_t)limit)));
	status = sqlite_query_close(&query);
	if (status == STATUS_OK)
		status = base->ops->commit(base);
	if (status == STATUS_OK)
		*deleted = (size_t)count;
	return status;
}

enum status sqlite_sweep_age(
	struct session *base, const char *sql, int64_t age_us, size_t limit, size_t *deleted)
{
	int64_t before_us = sqlite_now_us(sqlite_session_of(base)) - age_us;

	return sqlite_sweep(base, sql, before_us, limit, deleted);
}
