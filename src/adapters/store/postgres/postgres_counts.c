/*
 * Counts in PostgreSQL. A batch of additions is one UPDATE and does not read the rows first. All
 * other changes lock their rows; then up to three statements update, delete and insert rows.
 */
#include "adapters/store/postgres/postgres_repositories.h"

#include "adapters/store/postgres/postgres_internal.h"

/* clang-format off */
/*
 * One atomic UPDATE for a whole batch. The planner may only use a nested loop over the sorted
 * array, with one index look-up per element (see session_settings in postgres_store.c), so rows are
 * locked in the order of their ids.
 *
 * CASE, unlike AND, evaluates in order: it compares sums with the bounds only if the sums fit into
 * int64, so an overflow cannot make the statement fail.
 */
static const struct pg_statement add_statement = {
	"quipu_counts_add",
	"UPDATE count_values AS c "
	"SET current_value = c.current_value + a.sum, last_updated_at = (SELECT quipu_now()) "
	"FROM unnest($1::text[], $2::int8[], $3::int8[], $4::int8[]) WITH ORDINALITY "
	"    AS a(item_id, sum, lowest, highest, n) "
	"WHERE c.item_id = a.item_id "
	"  AND CASE WHEN c.current_value BETWEEN '-9223372036854775808'::int8 - a.lowest "
	"                                    AND 9223372036854775807 - a.highest "
	"      THEN (c.min_value IS NULL OR c.current_value + a.lowest >= c.min_value) "
	"       AND (c.max_value IS NULL OR c.current_value + a.highest <= c.max_value) "
	"      ELSE false END "
	"RETURNING a.n, c.current_value",
};

#define VALUES_SQL "c.current_value, " PG_TO_US("c.last_updated_at") ", c.min_value, c.max_value "

#define ROWS_SQL                        \
	"SELECT w.n, " VALUES_SQL       \
	"FROM " PG_PLACES " "           \
	"JOIN count_values c ON c.item_id = w.id"
/* clang-format on */

static struct count_bound bound_at(const PGresult *result, int at, int column)
{
	if (PQgetisnull(result, at, column))
		return (struct count_bound){0};
	return (struct count_bound){.is_set = true, .value = pg_int8(result, at, column)};
}

/* Fills a row from the columns of VALUES_SQL, which start at the second column of the result. */
static void fill_row(void *found, const PGresult *result, int at)
{
	struct count_row *row = found;

	row->value = pg_int8(result, at, 1);
	row->updated_us = pg_int8(result, at, 2);
	row->bounds.min = bound_at(result, at, 3);
	row->bounds.max = bound_at(result, at, 4);
}

static const struct pg_lookup by_id = {
	.find = {"quipu_counts_find", ROWS_SQL},
	.lock = {"quipu_counts_lock", ROWS_SQL " ORDER BY w.n FOR UPDATE OF c"},
	.lock_free = {"quipu_counts_lock_free",
		ROWS_SQL " ORDER BY w.n FOR UPDATE OF c SKIP LOCKED"},
	.id_at = {offsetof(struct count_row, item_id)},
	.id_count = 1,
	.row_size = sizeof(struct count_row),
	.exists_at = offsetof(struct count_row, exists),
	.busy_at = offsetof(struct count_row, busy),
	.fill = fill_row,
};

/* clang-format off */
#define EDITS_SQL \
	"unnest($1::text[], $2::int8[], $3::int8[], $4::int8[]) AS e(item_id, value, min, max)"

static const struct pg_statement update_statement = {
	"quipu_counts_update",
	"UPDATE count_values AS c "
	"SET current_value = e.value, min_value = e.min, max_value = e.max, "
	"    last_updated_at = " PG_FROM_US("$5::int8") " "
	"FROM " EDITS_SQL " "
	"WHERE c.item_id = e.item_id",
};

static const struct pg_statement insert_statement = {
	"quipu_counts_insert",
	"INSERT INTO count_values (item_id, current_value, min_value, max_value, last_updated_at) "
	"SELECT e.item_id, e.value, e.min, e.max, " PG_FROM_US("$5::int8") " "
	"FROM " EDITS_SQL " "
	"ON CONFLICT (item_id) DO NOTHING "
	"RETURNING 1",
};
/* clang-format on */

static const struct pg_statement delete_statement = {
	"quipu_counts_delete", "DELETE FROM count_values WHERE item_id = ANY ($1::text[])"};

/* clang-format off */
#define LIST_SQL(until)                                                 \
	"SELECT c.item_id, " VALUES_SQL                                 \
	"FROM count_values c "                                          \
	"WHERE c.item_id > $1::text AND c.item_id >= $2::text " until   \
	"ORDER BY c.item_id LIMIT "

static const struct pg_statement list_statement = {"quipu_counts_list", LIST_SQL("") "$3::int8"};

static const struct pg_statement list_until_statement = {
	"quipu_counts_list_until", LIST_SQL("AND c.item_id < $3::text ") "$4::int8"};
/* clang-format on */

static enum status add(const struct count_repository *repository, struct session *base,
	struct count_addition *additions, size_t count)
{
	struct pg_session *session = pg_session_of(base);
	struct pg_array ids = pg_array_of(session, PG_OID_TEXT, count);
	struct pg_array sums = pg_array_of(session, PG_OID_INT8, count);
	struct pg_array lowests = pg_array_of(session, PG_OID_INT8, count);
	struct pg_array highests = pg_array_of(session, PG_OID_INT8, count);
	enum status status;

	for (size_t i = 0; i < count; i++) {
		additions[i].applied = false;
		pg_array_text(&ids, additions[i].item_id);
		pg_array_int8(&sums, additions[i].sum);
		pg_array_int8(&lowests, additions[i].lowest);
		pg_array_int8(&highests, additions[i].highest);
	}
	struct pg_param params[4] = {pg_param_array(&ids), pg_param_array(&sums),
		pg_param_array(&lowests), pg_param_array(&highests)};

	status = pg_run(session, &add_statement, params, 4);
	if (status != STATUS_OK)
		return status;
	for (int row = 0; row < PQntuples(session->results[0]); row++) {
		struct count_addition *addition =
			&additions[pg_place(session->results[0], row, count)];

		addition->applied = true;
		addition->value = pg_int8(session->results[0], row, 1);
	}
	return STATUS_OK;
}

static enum status lock(const struct count_repository *repository, struct session *base,
	struct count_row *rows, size_t count, int64_t *now_us)
{
	return pg_lock_rows(pg_session_of(base), &by_id, rows, count, now_us);
}

static enum status find(const struct count_repository *repository, struct session *base,
	struct count_row *rows, size_t count)
{
	int64_t now_us;

	return pg_find_rows(pg_session_of(base), &by_id, rows, count, &now_us);
}

static void add_bound(struct pg_array *column, const struct count_bound *bound)
{
	if (bound->is_set)
		pg_array_int8(column, bound->value);
	else
		pg_array_null(column);
}

/* Queues the edits of one kind, and returns their number. */
static size_t queue_edits(struct pg_session *session, const struct pg_statement *statement,
	enum count_edit_kind kind, const struct count_edit *edits, size_t count, int64_t now_us)
{
	static const Oid types[4] = {PG_OID_TEXT, PG_OID_INT8, PG_OID_INT8, PG_OID_INT8};
	struct pg_array columns[4];
	struct pg_param params[5];
	size_t wanted = 0;

	for (size_t i = 0; i < count; i++)
		wanted += edits[i].kind == kind;
	if (wanted == 0)
		return 0;
	pg_arrays_of(session, types, 4, wanted, columns);
	for (size_t i = 0; i < count; i++) {
		if (edits[i].kind != kind)
			continue;
		pg_array_text(&columns[0], edits[i].item_id);
		pg_array_int8(&columns[1], edits[i].value);
		add_bound(&columns[2], &edits[i].bounds.min);
		add_bound(&columns[3], &edits[i].bounds.max);
	}
	for (size_t i = 0; i < 4; i++)
		params[i] = pg_param_array(&columns[i]);
	params[4] = pg_param_int8(session, now_us);
	pg_queue(session, statement, params, kind == COUNT_DELETE ? 1 : 5);
	return wanted;
}

static enum status edit(const struct count_repository *repository, struct session *base,
	const struct count_edit *edits, size_t count, int64_t now_us)
{
	struct pg_session *session = pg_session_of(base);
	size_t inserts;
	size_t insert_slot;

	queue_edits(session, &update_statement, COUNT_UPDATE, edits, count, now_us);
	queue_edits(session, &delete_statement, COUNT_DELETE, edits, count, now_us);
	insert_slot = session->queued;
	inserts = queue_edits(session, &insert_statement, COUNT_INSERT, edits, count, now_us);
	return pg_flush_inserts(session, insert_slot, inserts);
}

static enum status list(const struct count_repository *repository, struct session *base,
	struct arena *arena, struct row_page *page, struct count_row *rows)
{
	struct pg_session *session = pg_session_of(base);
	bool ends = page->until.len > 0;
	struct pg_param params[4] = {pg_param_text(page->after[0]), pg_param_text(page->from),
		pg_param_text(page->until)};
	enum status status = pg_list_rows(session, ends ? &list_until_statement : &list_statement,
		params, ends ? 3 : 2, page);

	for (size_t i = 0; status == STATUS_OK && i < page->count; i++) {
		rows[i] = (struct count_row){
			.item_id = pg_keep(arena, session->results[0], (int)i, 0),
			.exists = true,
		};
		fill_row(&rows[i], session->results[0], (int)i);
	}
	return status;
}

static const struct count_repository_ops ops = {
	.add = add,
	.lock = lock,
	.edit = edit,
	.find = find,
	.list = list,
};

const struct count_repository postgres_count_repository = {.ops = &ops};
