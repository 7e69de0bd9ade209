/*
 * Functions that all repositories share: they write batches as arrays, look up or lock rows by id,
 * read pages, and sweep.
 *
 * A repository describes its struct once (struct pg_shape, struct pg_lookup), with the offsets of
 * its ids and flags, so that the loops over batches and results exist only here. Results identify
 * rows by their positions in the arrays that were sent, not by id, so that no search is necessary.
 */
#include <assert.h>
#include <ctype.h>

#include "adapters/store/postgres/postgres_internal.h"

static const struct pg_statement now_statement = {"quipu_now", "SELECT " PG_TO_US("quipu_now()")};

struct pg_param pg_param_ids(
	struct pg_session *session, const struct slice *first, size_t size, size_t count)
{
	struct pg_array ids = pg_array_of(session, PG_OID_TEXT, count);

	for (size_t i = 0; i < count; i++)
		pg_array_text(&ids, *(const struct slice *)((const char *)first + i * size));
	return pg_param_array(&ids);
}

/* ---- batches ----------------------------------------------------------------------------- */

static const void *row_at(const void *rows, size_t size, size_t i)
{
	return (const char *)rows + i * size;
}

static bool flag_at(const void *row, size_t offset)
{
	return *(const bool *)((const char *)row + offset);
}

static void set_flag(void *row, size_t offset, bool value)
{
	*(bool *)((char *)row + offset) = value;
}

void pg_queue_all(struct pg_session *session, const struct pg_statement *statement,
	const struct pg_shape *shape, const void *rows, size_t count)
{
	struct pg_array columns[PG_PARAMS_MAX];

	pg_arrays_of(session, shape->types, shape->column_count, count, columns);
	for (size_t i = 0; i < count; i++)
		shape->add(columns, row_at(rows, shape->row_size, i));
	pg_queue_arrays(session, statement, columns, shape->column_count);
}

size_t pg_queue_some(struct pg_session *session, const struct pg_statement *statement,
	const struct pg_shape *shape, bool exists, const void *rows, size_t count)
{
	struct pg_array columns[PG_PARAMS_MAX];
	size_t wanted = 0;

	for (size_t i = 0; i < count; i++)
		wanted += flag_at(row_at(rows, shape->row_size, i), shape->exists_at) == exists;
	if (wanted == 0)
		return 0;
	pg_arrays_of(session, shape->types, shape->column_count, wanted, columns);
	for (size_t i = 0; i < count; i++) {
		const void *row = row_at(rows, shape->row_size, i);

		if (flag_at(row, shape->exists_at) == exists)
			shape->add(columns, row);
	}
	pg_queue_arrays(session, statement, columns, shape->column_count);
	return wanted;
}

enum status pg_put_rows(
	struct pg_session *session, const struct pg_put *put, const void *rows, size_t count)
{
	size_t insert_slot, inserts;

	pg_queue_some(session, &put->update, &put->shape, true, rows, count);
	insert_slot = session->queued;
	inserts = pg_queue_some(session, &put->insert, &put->shape, false, rows, count);
	return pg_flush_inserts(session, insert_slot, inserts);
}

void pg_flag_places(const PGresult *result, bool *first, size_t size, size_t count)
{
	for (size_t i = 0; i < count; i++)
		set_flag(first, i * size, false);
	for (int row = 0; row < PQntuples(result); row++)
		set_flag(first, pg_place(result, row, count) * size, true);
}

/* ---- rows by id -------------------------------------------------------------------------- */

static void queue_lookup(struct pg_session *session, const struct pg_statement *statement,
	const struct pg_lookup *lookup, const void *rows, size_t count)
{
	struct pg_param ids[PG_ID_COLUMNS_MAX] = {0};

	for (size_t i = 0; i < lookup->id_count; i++)
		ids[i] = pg_param_ids(session,
			(const struct slice *)((const char *)rows + lookup->id_at[i]),
			lookup->row_size, count);
	pg_queue(session, statement, ids, lookup->id_count);
}

/* Fills the rows from the results. results[0] has the rows that were found or locked. After a lock
 * that skips busy rows, results[2] has all rows that exist, busy or not. */
static void fill_rows(
	const struct pg_session *session, const struct pg_lookup *lookup, void *rows, size_t count)
{
	const PGresult *found = session->results[0];
	const PGresult *visible = session->results[2];
	size_t size = lookup->row_size;

	for (size_t i = 0; i < count; i++) {
		set_flag(rows, i * size + lookup->exists_at, false);
		set_flag(rows, i * size + lookup->busy_at, false);
	}
	for (int i = 0; i < PQntuples(found); i++) {
		char *row = (char *)rows + pg_place(found, i, count) * size;

		set_flag(row, lookup->exists_at, true);
		lookup->fill(row, found, i);
	}
	for (int i = 0; i < PQntuples(visible); i++) {
		char *row = (char *)rows + pg_place(visible, i, count) * size;

		set_flag(row, lookup->busy_at, !flag_at(row, lookup->exists_at));
	}
}

static enum status flush_lookup(struct pg_session *session, const struct pg_lookup *lookup,
	void *rows, size_t count, int64_t *now_us)
{
	enum status status = pg_flush(session);

	if (status != STATUS_OK)
		return status;
	*now_us = pg_int8(session->results[1], 0, 0);
	fill_rows(session, lookup, rows, count);
	return STATUS_OK;
}

enum status pg_find_rows(struct pg_session *session, const struct pg_lookup *lookup, void *rows,
	size_t count, int64_t *now_us)
{
	queue_lookup(session, &lookup->find, lookup, rows, count);
	pg_queue(session, &now_statement, NULL, 0);
	return flush_lookup(session, lookup, rows, count, now_us);
}

enum status pg_lock_rows(struct pg_session *session, const struct pg_lookup *lookup, void *rows,
	size_t count, int64_t *now_us)
{
	bool skip = session->mode == TRANSACTION_SKIP;

	queue_lookup(session, skip ? &lookup->lock_free : &lookup->lock, lookup, rows, count);
	pg_queue(session, &now_statement, NULL, 0);
	if (skip)
		queue_lookup(session, &lookup->find, lookup, rows, count);
	return flush_lookup(session, lookup, rows, count, now_us);
}

/* ---- pages and sweeps -------------------------------------------------------------------- */

enum status pg_list_rows(struct pg_session *session, const struct pg_statement *statement,
	struct pg_param *params, size_t param_count, struct row_page *page)
{
	enum status status;

	params[param_count] = pg_param_int8(session, (int64_t)page->limit);
	pg_queue(session, statement, params, param_count + 1);
	pg_queue(session, &now_statement, NULL, 0);
	status = pg_flush(session);
	if (status != STATUS_OK)
		return status;
	page->count = (size_t)PQntuples(session->results[0]);
	page->now_us = pg_int8(session->results[1], 0, 0);
	assert(page->count <= page->limit);
	return STATUS_OK;
}

struct slice pg_keep(struct arena *arena, const PGresult *result, int row, int column)
{
	return arena_copy(arena, pg_slice(result, row, column));
}

enum status pg_sweep(struct session *base, const struct pg_statement *statement, int64_t age_us,
	size_t limit, size_t *deleted)
{
	struct pg_session *session = pg_session_of(base);
	const struct pg_param params[] = {
		pg_param_int8(session, age_us), pg_param_int8(session, (int64_t)limit)};
	enum status status = pg_run(session, statement, params, 2);

	if (status == STATUS_OK)
		*deleted = (size_t)PQntuples(session->results[0]);
	return status;
}

bool pg_is_uuid(struct slice text)
{
	static const char shape[] = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";

	if (text.len != sizeof(shape) - 1)
		return false;
	for (size_t i = 0; i < text.len; i++) {
		if (shape[i] == 'x' ? !isxdigit((unsigned char)text.data[i]) : text.data[i] != '-')
			return false;
	}
	return true;
}

struct pg_param pg_param_uuid(struct slice text)
{
	static const struct slice before_all = SLICE("00000000-0000-0000-0000-000000000000");

	return pg_param_text(pg_is_uuid(text) ? text : before_all);
}

size_t pg_place(const PGresult *result, int row, size_t count)
{
	int64_t place = pg_int8(result, row, 0);

	assert(place >= 1 && (size_t)place <= count);
	return (size_t)place - 1;
}
