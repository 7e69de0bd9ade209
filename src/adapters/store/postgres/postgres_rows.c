/* Rows by id, found or locked in the order of the ids: the part that all repositories share. */
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

enum status pg_find_rows(struct pg_session *session, const struct pg_row_statements *statements,
	const struct pg_param *ids, size_t id_count, int64_t *now_us)
{
	enum status status;

	pg_queue(session, &statements->find, ids, id_count);
	pg_queue(session, &now_statement, NULL, 0);
	status = pg_flush(session);
	if (status == STATUS_OK)
		*now_us = pg_int8(session->results[1], 0, 0);
	return status;
}

enum status pg_lock_rows(struct pg_session *session, const struct pg_row_statements *statements,
	const struct pg_param *ids, size_t id_count, int64_t *now_us)
{
	bool skip = session->mode == TRANSACTION_SKIP;
	enum status status;

	pg_queue(session, skip ? &statements->lock_free : &statements->lock, ids, id_count);
	pg_queue(session, &now_statement, NULL, 0);
	if (skip)
		pg_queue(session, &statements->find, ids, id_count);
	status = pg_flush(session);
	if (status == STATUS_OK)
		*now_us = pg_int8(session->results[1], 0, 0);
	return status;
}

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
