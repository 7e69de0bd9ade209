/*
 * Entitlements, their sources and their audit in PostgreSQL. The audit is partitioned by month;
 * tend_audit() calls SQL functions that create partitions ahead of time and drop old ones.
 *
 * One statement locks the rows of entitlements, and a later statement reads the sources. The later
 * statement sees the changes that the previous holder of the lock has committed. The locking
 * statement would not see these changes, because its snapshot is from before it waited for the
 * lock.
 */
#include "adapters/store/postgres/postgres_repositories.h"

#include "adapters/store/postgres/postgres_entitlement_audit.h"
#include "adapters/store/postgres/postgres_entitlement_facts.h"
#include "adapters/store/postgres/postgres_eraser.h"
#include "adapters/store/postgres/postgres_internal.h"

#define UPDATED_US PG_TO_US("e.updated_at")
#define UPDATED_FROM_US PG_FROM_US("w.updated_us")
#define OCCURRED_FROM_US PG_FROM_US("w.occurred_us")

/* clang-format off */
#define ROWS_SQL                                                                      \
	"SELECT w.n, e.status = 'ACTIVE', e.version, " UPDATED_US ", e.step "         \
	"FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS w(user_id, unit, n) " \
	"JOIN entitlements e ON e.user_id = w.user_id "                               \
	"  AND e.stock_keeping_unit = w.unit"
/* clang-format on */

static void fill_row(void *found, const PGresult *result, int at)
{
	struct entitlement_row *row = found;

	row->is_active = pg_bool(result, at, 1);
	row->version = pg_int8(result, at, 2);
	row->updated_us = pg_int8(result, at, 3);
	row->step = pg_int8(result, at, 4);
}

static const struct pg_lookup by_user_and_unit = {
	.find = {"quipu_entitlements_find", ROWS_SQL},
	.lock = {"quipu_entitlements_lock", ROWS_SQL " ORDER BY w.n FOR UPDATE OF e"},
	.lock_free = {"quipu_entitlements_lock_free",
		ROWS_SQL " ORDER BY w.n FOR UPDATE OF e SKIP LOCKED"},
	.id_at = {offsetof(struct entitlement_row, user_id),
		offsetof(struct entitlement_row, unit)},
	.id_count = 2,
	.row_size = sizeof(struct entitlement_row),
	.exists_at = offsetof(struct entitlement_row, exists),
	.busy_at = offsetof(struct entitlement_row, busy),
	.fill = fill_row,
};

/* clang-format off */
#define PUT_ROWS                                                                    \
	"FROM unnest($1::text[], $2::text[], $3::text[], $4::int8[], $5::int8[], "  \
	"    $6::int8[]) AS w(user_id, unit, status, version, step, updated_us) "
/* clang-format on */

static const Oid put_types[] = {
	PG_OID_TEXT, PG_OID_TEXT, PG_OID_TEXT, PG_OID_INT8, PG_OID_INT8, PG_OID_INT8};

static struct slice status_text(bool is_active)
{
	return slice_of(is_active ? "ACTIVE" : "REVOKED");
}

static void add_row(struct pg_array *columns, const void *element)
{
	const struct entitlement_row *row = element;

	pg_array_text(&columns[0], row->user_id);
	pg_array_text(&columns[1], row->unit);
	pg_array_text(&columns[2], status_text(row->is_active));
	pg_array_int8(&columns[3], row->version);
	pg_array_int8(&columns[4], row->step);
	pg_array_int8(&columns[5], row->updated_us);
}

/* clang-format off */
static const struct pg_put put_rows = {
	.shape =
		{
			.types = put_types,
			.column_count = sizeof(put_types) / sizeof(put_types[0]),
			.row_size = sizeof(struct entitlement_row),
			.exists_at = offsetof(struct entitlement_row, exists),
			.add = add_row,
		},
	.update =
		{
			"quipu_entitlements_update",
			"UPDATE entitlements AS e "
			"SET status = w.status, version = w.version, step = w.step, "
			"    updated_at = " UPDATED_FROM_US " " PUT_ROWS
			"WHERE e.user_id = w.user_id AND e.stock_keeping_unit = w.unit",
		},
	.insert =
		{
			"quipu_entitlements_insert",
			"INSERT INTO entitlements (user_id, stock_keeping_unit, status, version, step, "
			"    updated_at) "
			"SELECT w.user_id, w.unit, w.status, w.version, w.step, " UPDATED_FROM_US " "
			PUT_ROWS
			"ON CONFLICT (user_id, stock_keeping_unit) DO NOTHING "
			"RETURNING 1",
		},
};

static const struct pg_statement audit_statement = {
	"quipu_entitlements_audit",
	"INSERT INTO entitlement_audit (occurred_at, user_id, stock_keeping_unit, action, "
	"    version, step, reason, purchase_id, event_id) "
	"SELECT " OCCURRED_FROM_US ", w.user_id, w.unit, w.action, w.version, w.step, w.reason, "
	"    nullif(w.purchase_id, ''), nullif(w.event_id, '')::uuid "
	"FROM unnest($1::int8[], $2::text[], $3::text[], $4::text[], $5::int8[], $6::int8[], "
	"    $7::text[], $8::text[], $9::text[]) AS w(occurred_us, user_id, unit, action, "
	"    version, step, reason, purchase_id, event_id)",
};

#define OF_ROW "s.user_id = w.user_id AND s.stock_keeping_unit = w.unit "
#define GRANTED_US PG_TO_US("s.granted_at")
#define REVOKED_US "coalesce(" PG_TO_US("s.revoked_at") ", 0)"

static const struct pg_statement find_sources_statement = {
	"quipu_entitlement_sources_find",
	"SELECT w.n, s.status = 'ACTIVE', " GRANTED_US ", " REVOKED_US " "
	"FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) WITH ORDINALITY "
	"    AS w(user_id, unit, kind, source_id, n) "
	"JOIN entitlement_sources s ON " OF_ROW
	"  AND s.kind = w.kind AND s.source_id = w.source_id",
};

static const struct pg_statement count_sources_statement = {
	"quipu_entitlement_sources_count",
	"SELECT w.n, c.total, c.active "
	"FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS w(user_id, unit, n) "
	"CROSS JOIN LATERAL ("
	"  SELECT count(*) AS total, count(*) FILTER (WHERE s.status = 'ACTIVE') AS active "
	"  FROM entitlement_sources s "
	"  WHERE " OF_ROW ") AS c",
};

static const struct pg_statement end_sources_statement = {
	"quipu_entitlement_sources_end",
	"UPDATE entitlement_sources AS s "
	"SET status = 'REVOKED', revoked_at = " UPDATED_FROM_US " "
	"FROM unnest($1::text[], $2::text[], $3::int8[]) AS w(user_id, unit, updated_us) "
	"WHERE " OF_ROW "AND s.status = 'ACTIVE'",
};

#define PUT_SOURCES                                                                           \
	"FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], " \
	"    $7::int8[], $8::int8[]) AS w(user_id, unit, kind, source_id, reason, status, "    \
	"    granted_us, revoked_us) "
#define GRANTED_FROM_US PG_FROM_US("w.granted_us")
#define REVOKED_FROM_US PG_FROM_US("nullif(w.revoked_us, 0)")

static const struct pg_statement update_sources_statement = {
	"quipu_entitlement_sources_update",
	"UPDATE entitlement_sources AS s "
	"SET status = w.status, granted_at = " GRANTED_FROM_US ", "
	"    revoked_at = " REVOKED_FROM_US " " PUT_SOURCES
	"WHERE " OF_ROW "AND s.kind = w.kind AND s.source_id = w.source_id",
};

static const struct pg_statement insert_sources_statement = {
	"quipu_entitlement_sources_insert",
	"INSERT INTO entitlement_sources (user_id, stock_keeping_unit, kind, source_id, reason, "
	"    status, granted_at, revoked_at) "
	"SELECT w.user_id, w.unit, w.kind, w.source_id, w.reason, w.status, "
	"    " GRANTED_FROM_US ", " REVOKED_FROM_US " " PUT_SOURCES,
};

static const struct pg_statement list_statement = {
	"quipu_entitlements_list",
	"SELECT w.n, e.status = 'ACTIVE', e.version, " UPDATED_US ", e.step, "
	"    e.stock_keeping_unit "
	"FROM unnest($1::text[], $2::text[], $3::int8[], $4::text[]) WITH ORDINALITY "
	"    AS w(user_id, after, most, status, n) "
	"CROSS JOIN LATERAL ("
	"  SELECT status, version, updated_at, step, stock_keeping_unit "
	"  FROM entitlements "
	"  WHERE user_id = w.user_id AND stock_keeping_unit > w.after "
	"    AND (w.status = '' OR status = w.status) "
	"  ORDER BY stock_keeping_unit LIMIT w.most) AS e "
	"ORDER BY w.n, e.stock_keeping_unit",
};

/* Reads everything in a single statement, so that an entitlement and its sources come from one
 * snapshot. */
static const struct pg_statement look_statement = {
	"quipu_entitlements_look",
	"SELECT w.n, e.status = 'ACTIVE', e.version, " UPDATED_US ", e.step, "
	"    s.kind IS NOT NULL, coalesce(s.kind, ''), coalesce(s.source_id, ''), "
	"    coalesce(s.reason, ''), coalesce(s.status = 'ACTIVE', false), "
	"    coalesce(" GRANTED_US ", 0), " REVOKED_US " "
	"FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS w(user_id, unit, n) "
	"JOIN entitlements e ON e.user_id = w.user_id AND e.stock_keeping_unit = w.unit "
	"LEFT JOIN LATERAL ("
	"  SELECT * "
	"  FROM entitlement_sources s "
	"  WHERE " OF_ROW
	"  ORDER BY s.status, s.granted_at DESC, s.kind, s.source_id "
	"  LIMIT $3::int8) AS s ON true "
	"ORDER BY w.n, s.status, s.granted_at DESC, s.kind, s.source_id",
};
/* clang-format on */

static const struct pg_statement make_months_statement = {
	"quipu_audit_make_months", "SELECT quipu_make_audit_months()"};

static const struct pg_statement drop_months_statement = {
	"quipu_audit_drop_months", "SELECT quipu_drop_audit_months($1::int8::int4)"};

static enum status lock(const struct entitlement_repository *repository, struct session *base,
	struct entitlement_row *rows, size_t count, int64_t *now_us)
{
	return pg_lock_rows(pg_session_of(base), &by_user_and_unit, rows, count, now_us);
}

/* ---- sources ----------------------------------------------------------------------------- */

static const Oid text_types[] = {PG_OID_TEXT, PG_OID_TEXT, PG_OID_TEXT, PG_OID_TEXT};

static void add_row_id(struct pg_array *columns, const void *element)
{
	const struct entitlement_row *row = element;

	pg_array_text(&columns[0], row->user_id);
	pg_array_text(&columns[1], row->unit);
}

static const struct pg_shape row_id_shape = {
	.types = text_types,
	.column_count = 2,
	.row_size = sizeof(struct entitlement_row),
	.add = add_row_id,
};

static void add_source_id(struct pg_array *columns, const void *element)
{
	const struct entitlement_source *source = element;

	pg_array_text(&columns[0], source->user_id);
	pg_array_text(&columns[1], source->unit);
	pg_array_text(&columns[2], source->kind);
	pg_array_text(&columns[3], source->id);
}

static const struct pg_shape source_id_shape = {
	.types = text_types,
	.column_count = 4,
	.row_size = sizeof(struct entitlement_source),
	.add = add_source_id,
};

/* Sets source_count and active_count to 0 first, because an entitlement without sources may be
 * missing from the result. */
static void fill_counts(struct entitlement_row *rows, size_t count, const PGresult *result)
{
	for (size_t i = 0; i < count; i++)
		rows[i].source_count = rows[i].active_count = 0;
	for (int i = 0; i < PQntuples(result); i++) {
		struct entitlement_row *row = &rows[pg_place(result, i, count)];

		row->source_count = (size_t)pg_int8(result, i, 1);
		row->active_count = (size_t)pg_int8(result, i, 2);
	}
}

static void fill_sources(struct entitlement_source *sources, size_t count, const PGresult *result)
{
	for (size_t i = 0; i < count; i++)
		sources[i].exists = false;
	for (int i = 0; i < PQntuples(result); i++) {
		struct entitlement_source *source = &sources[pg_place(result, i, count)];

		source->exists = true;
		source->is_active = pg_bool(result, i, 1);
		source->granted_us = pg_int8(result, i, 2);
		source->revoked_us = pg_int8(result, i, 3);
	}
}

static enum status find_sources(const struct entitlement_repository *repository,
	struct session *base, struct entitlement_row *rows, size_t row_count,
	struct entitlement_source *sources, size_t source_count)
{
	struct pg_session *session = pg_session_of(base);
	enum status status;

	pg_queue_all(session, &count_sources_statement, &row_id_shape, rows, row_count);
	pg_queue_all(session, &find_sources_statement, &source_id_shape, sources, source_count);
	status = pg_flush(session);
	if (status != STATUS_OK)
		return status;
	fill_counts(rows, row_count, session->results[0]);
	fill_sources(sources, source_count, session->results[1]);
	return STATUS_OK;
}

static const Oid end_types[] = {PG_OID_TEXT, PG_OID_TEXT, PG_OID_INT8};

static void add_end(struct pg_array *columns, const void *element)
{
	const struct entitlement_row *row = element;

	add_row_id(columns, row);
	pg_array_int8(&columns[2], row->updated_us);
}

static const struct pg_shape end_shape = {
	.types = end_types,
	.column_count = sizeof(end_types) / sizeof(end_types[0]),
	.row_size = sizeof(struct entitlement_row),
	.exists_at = offsetof(struct entitlement_row, ends_sources),
	.add = add_end,
};

static const Oid source_types[] = {PG_OID_TEXT, PG_OID_TEXT, PG_OID_TEXT, PG_OID_TEXT, PG_OID_TEXT,
	PG_OID_TEXT, PG_OID_INT8, PG_OID_INT8};

static void add_source(struct pg_array *columns, const void *element)
{
	const struct entitlement_source *source = element;

	add_source_id(columns, source);
	pg_array_text(&columns[4], source->reason);
	pg_array_text(&columns[5], status_text(source->is_active));
	pg_array_int8(&columns[6], source->granted_us);
	pg_array_int8(&columns[7], source->revoked_us);
}

static const struct pg_shape source_shape = {
	.types = source_types,
	.column_count = sizeof(source_types) / sizeof(source_types[0]),
	.row_size = sizeof(struct entitlement_source),
	.exists_at = offsetof(struct entitlement_source, exists),
	.add = add_source,
};

/* ---- writing ----------------------------------------------------------------------------- */

static const Oid audit_types[] = {PG_OID_INT8, PG_OID_TEXT, PG_OID_TEXT, PG_OID_TEXT, PG_OID_INT8,
	PG_OID_INT8, PG_OID_TEXT, PG_OID_TEXT, PG_OID_TEXT};

static void add_line(struct pg_array *columns, const void *element)
{
	const struct entitlement_audit *line = element;

	pg_array_int8(&columns[0], line->at_us);
	pg_array_text(&columns[1], line->user_id);
	pg_array_text(&columns[2], line->unit);
	pg_array_text(&columns[3], slice_of(line->is_active ? "GRANTED" : "REVOKED"));
	pg_array_int8(&columns[4], line->version);
	pg_array_int8(&columns[5], line->step);
	pg_array_text(&columns[6], line->reason);
	pg_array_text(&columns[7], line->purchase_id);
	pg_array_text(&columns[8], line->event_id);
}

static const struct pg_shape audit_shape = {
	.types = audit_types,
	.column_count = sizeof(audit_types) / sizeof(audit_types[0]),
	.row_size = sizeof(struct entitlement_audit),
	.add = add_line,
};

/*
 * Writes the entitlements first, in a separate round trip. If a session has inserted or locked an
 * entitlement, no other session can insert sources of that entitlement. Therefore put() inserts new
 * sources without ON CONFLICT; with ON CONFLICT, an insert would cost twice as much.
 */
static enum status put(const struct entitlement_repository *repository, struct session *base,
	const struct entitlement_changes *changes)
{
	struct pg_session *session = pg_session_of(base);
	enum status status = STATUS_OK;
	size_t queued;

	if (changes->row_count > 0)
		status = pg_put_rows(session, &put_rows, changes->rows, changes->row_count);
	if (status != STATUS_OK)
		return status;
	queued = pg_queue_some(session, &end_sources_statement, &end_shape, true, changes->rows,
		changes->row_count);
	queued += pg_queue_some(session, &update_sources_statement, &source_shape, true,
		changes->sources, changes->source_count);
	queued += pg_queue_some(session, &insert_sources_statement, &source_shape, false,
		changes->sources, changes->source_count);
	if (changes->line_count > 0)
		pg_queue_all(session, &audit_statement, &audit_shape, changes->lines,
			changes->line_count);
	return queued + changes->line_count > 0 ? pg_flush(session) : STATUS_OK;
}

/* ---- lists ------------------------------------------------------------------------------- */

/* The rows of `result` are in the order of `queries`. This function counts the rows of each query
 * before it allocates memory for them. */
static void fill_queries(struct entitlement_query *queries, size_t count, struct arena *arena,
	const PGresult *result)
{
	for (size_t i = 0; i < count; i++)
		queries[i].row_count = 0;
	for (int i = 0; i < PQntuples(result); i++)
		queries[pg_place(result, i, count)].row_count++;
	for (size_t i = 0; i < count; i++) {
		queries[i].rows = arena_array(arena, struct entitlement_row, queries[i].row_count);
		queries[i].row_count = 0;
	}
	for (int i = 0; i < PQntuples(result); i++) {
		struct entitlement_query *query = &queries[pg_place(result, i, count)];
		struct entitlement_row *row = &query->rows[query->row_count++];

		row->user_id = query->user_id;
		row->unit = pg_keep(arena, result, i, 5);
		row->exists = true;
		fill_row(row, result, i);
	}
}

static enum status list(const struct entitlement_repository *repository, struct session *base,
	struct arena *arena, struct entitlement_query *queries, size_t count)
{
	struct pg_session *session = pg_session_of(base);
	struct pg_array limits = pg_array_of(session, PG_OID_INT8, count);
	enum status status;

	for (size_t i = 0; i < count; i++)
		pg_array_int8(&limits, (int64_t)queries[i].limit);
	const struct pg_param params[] = {
		pg_param_ids(session, &queries->user_id, sizeof(*queries), count),
		pg_param_ids(session, &queries->after, sizeof(*queries), count),
		pg_param_array(&limits),
		pg_param_ids(session, &queries->status, sizeof(*queries), count),
	};

	status = pg_run(session, &list_statement, params, 4);
	if (status == STATUS_OK)
		fill_queries(queries, count, arena, session->results[0]);
	return status;
}

static struct entitlement_source source_of(struct arena *arena, const PGresult *result, int row)
{
	return (struct entitlement_source){
		.kind = pg_keep(arena, result, row, 6),
		.id = pg_keep(arena, result, row, 7),
		.exists = true,
		.reason = pg_keep(arena, result, row, 8),
		.is_active = pg_bool(result, row, 9),
		.granted_us = pg_int8(result, row, 10),
		.revoked_us = pg_int8(result, row, 11),
	};
}

/* The rows of `result` are in the order of `looks`. An entitlement has one row for each of its
 * sources, or a single row if it has no sources. */
static void fill_looks(
	struct entitlement_look *looks, size_t count, struct arena *arena, const PGresult *result)
{
	for (size_t i = 0; i < count; i++) {
		looks[i].row.exists = false;
		looks[i].source_count = 0;
	}
	for (int i = 0; i < PQntuples(result); i++)
		looks[pg_place(result, i, count)].source_count += pg_bool(result, i, 5);
	for (size_t i = 0; i < count; i++) {
		looks[i].sources =
			arena_array(arena, struct entitlement_source, looks[i].source_count);
		looks[i].source_count = 0;
	}
	for (int i = 0; i < PQntuples(result); i++) {
		struct entitlement_look *look = &looks[pg_place(result, i, count)];

		look->row.exists = true;
		fill_row(&look->row, result, i);
		if (pg_bool(result, i, 5))
			look->sources[look->source_count++] = source_of(arena, result, i);
	}
}

static enum status look(const struct entitlement_repository *repository, struct session *base,
	struct arena *arena, struct entitlement_look *looks, size_t count, size_t source_max)
{
	struct pg_session *session = pg_session_of(base);
	const struct pg_param params[] = {
		pg_param_ids(session, &looks->row.user_id, sizeof(*looks), count),
		pg_param_ids(session, &looks->row.unit, sizeof(*looks), count),
		pg_param_int8(session, (int64_t)source_max),
	};
	enum status status = pg_run(session, &look_statement, params, 3);

	if (status == STATUS_OK)
		fill_looks(looks, count, arena, session->results[0]);
	return status;
}

/* ---- the audit --------------------------------------------------------------------------- */

static enum status tend_audit(
	const struct entitlement_repository *repository, struct session *base, int keep_months)
{
	struct pg_session *session = pg_session_of(base);
	enum status status = pg_run(session, &make_months_statement, NULL, 0);
	struct pg_param keep;

	if (status != STATUS_OK || keep_months == 0)
		return status;
	keep = pg_param_int8(session, keep_months);
	return pg_run(session, &drop_months_statement, &keep, 1);
}

static const struct entitlement_repository_ops ops = {
	.lock = lock,
	.find_sources = find_sources,
	.put = put,
	.list = list,
	.look = look,
	.read_audit = pg_entitlement_read_audit,
	.list_facts = pg_entitlement_list_facts,
	.list_audit = pg_entitlement_list_audit,
	.list_source_owners = pg_entitlement_list_source_owners,
	.tend_audit = tend_audit,
};

const struct entitlement_repository postgres_entitlement_repository = {
	.ops = &ops,
	.eraser = &postgres_entitlements_eraser.base,
};
