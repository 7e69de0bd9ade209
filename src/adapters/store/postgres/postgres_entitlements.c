/*
 * Entitlements and their audit in PostgreSQL. The audit is partitioned by month; functions of the
 * schema create partitions ahead of time and drop old ones (tend_audit).
 */
#include "adapters/store/postgres/postgres_repositories.h"

#include "adapters/store/postgres/postgres_internal.h"

#define UPDATED_US PG_TO_US("e.updated_at")
#define UPDATED_FROM_US PG_FROM_US("w.updated_us")
#define OCCURRED_FROM_US PG_FROM_US("w.occurred_us")

/* clang-format off */
#define ROWS_SQL                                                                      \
	"SELECT w.n, e.status = 'ACTIVE', e.version, " UPDATED_US " "                 \
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
#define PUT_ROWS                                                                   \
	"FROM unnest($1::text[], $2::text[], $3::text[], $4::int8[], $5::int8[]) " \
	"    AS w(user_id, unit, status, version, updated_us) "
/* clang-format on */

static const Oid put_types[] = {PG_OID_TEXT, PG_OID_TEXT, PG_OID_TEXT, PG_OID_INT8, PG_OID_INT8};

static void add_row(struct pg_array *columns, const void *element)
{
	const struct entitlement_row *row = element;

	pg_array_text(&columns[0], row->user_id);
	pg_array_text(&columns[1], row->unit);
	pg_array_text(&columns[2], slice_of(row->is_active ? "ACTIVE" : "REVOKED"));
	pg_array_int8(&columns[3], row->version);
	pg_array_int8(&columns[4], row->updated_us);
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
			"SET status = w.status, version = w.version, "
			"    updated_at = " UPDATED_FROM_US " " PUT_ROWS
			"WHERE e.user_id = w.user_id AND e.stock_keeping_unit = w.unit",
		},
	.insert =
		{
			"quipu_entitlements_insert",
			"INSERT INTO entitlements (user_id, stock_keeping_unit, status, version, updated_at) "
			"SELECT w.user_id, w.unit, w.status, w.version, " UPDATED_FROM_US " " PUT_ROWS
			"ON CONFLICT (user_id, stock_keeping_unit) DO NOTHING "
			"RETURNING 1",
		},
};

static const struct pg_statement audit_statement = {
	"quipu_entitlements_audit",
	"INSERT INTO entitlement_audit (occurred_at, user_id, stock_keeping_unit, action, "
	"    version, reason, purchase_id, event_id) "
	"SELECT " OCCURRED_FROM_US ", w.user_id, w.unit, w.action, w.version, w.reason, "
	"    w.purchase_id, w.event_id::uuid "
	"FROM unnest($1::int8[], $2::text[], $3::text[], $4::text[], $5::int8[], $6::text[], "
	"    $7::text[], $8::text[]) AS w(occurred_us, user_id, unit, action, version, "
	"    reason, purchase_id, event_id)",
};

static const struct pg_statement list_statement = {
	"quipu_entitlements_list",
	"SELECT w.n, e.status = 'ACTIVE', e.version, " UPDATED_US ", e.stock_keeping_unit "
	"FROM unnest($1::text[], $2::text[], $3::int8[]) WITH ORDINALITY "
	"    AS w(user_id, after, most, n) "
	"CROSS JOIN LATERAL ("
	"  SELECT status, version, updated_at, stock_keeping_unit "
	"  FROM entitlements "
	"  WHERE user_id = w.user_id AND stock_keeping_unit > w.after "
	"  ORDER BY stock_keeping_unit LIMIT w.most) AS e "
	"ORDER BY w.n, e.stock_keeping_unit",
};

#define LINE_US PG_TO_US("a.occurred_at")

/* The newest audit line is the last entry of an index on each partition. */
static const struct pg_statement list_facts_statement = {
	"quipu_entitlements_list_facts",
	"SELECT e.user_id, e.status = 'ACTIVE', e.version, " UPDATED_US ", "
	"    e.stock_keeping_unit, a.version IS NOT NULL, "
	"    coalesce(a.action = 'GRANTED', false), coalesce(a.version, 0), "
	"    coalesce(" LINE_US ", 0) "
	"FROM ("
	"  SELECT * "
	"  FROM entitlements "
	"  WHERE (user_id, stock_keeping_unit) > ($1::text, $2::text) "
	"  ORDER BY user_id, stock_keeping_unit LIMIT $3::int8) AS e "
	"LEFT JOIN LATERAL ("
	"  SELECT action, version, occurred_at "
	"  FROM entitlement_audit "
	"  WHERE user_id = e.user_id AND stock_keeping_unit = e.stock_keeping_unit "
	"  ORDER BY version DESC LIMIT 1) AS a ON true "
	"ORDER BY e.user_id, e.stock_keeping_unit",
};

#define OF_SAME "b.user_id = a.user_id AND b.stock_keeping_unit = a.stock_keeping_unit "
#define LINE_AGAIN                                                                \
	"entitlement_audit b "                                                    \
	"WHERE " OF_SAME "AND b.version = a.version AND b.event_id <> a.event_id"
#define LINE_BEFORE                                   \
	"entitlement_audit b "                        \
	"WHERE " OF_SAME "AND b.version < a.version " \
	"ORDER BY b.version DESC LIMIT 1"
#define LINE_IS_REPEATED PG_FINDS(LINE_AGAIN)
#define LINE_HAS_ROW PG_FINDS("entitlements b WHERE " OF_SAME)

/* The rows that belong to a line are looked up for each line, so that a page may end anywhere. */
static const struct pg_statement list_audit_statement = {
	"quipu_entitlements_list_audit",
	"SELECT a.user_id, a.stock_keeping_unit, a.action = 'GRANTED', a.version, "
	"    a.event_id::text, " LINE_US ", " LINE_IS_REPEATED ", "
	"    coalesce((SELECT b.version FROM " LINE_BEFORE "), 0), " LINE_HAS_ROW ", "
	"    o.event_id IS NOT NULL, coalesce(o.event_type, ''), "
	"    coalesce(o.aggregate_key, ''), coalesce(o.payload, '') "
	"FROM ("
	"  SELECT * "
	"  FROM entitlement_audit "
	"  WHERE (user_id, stock_keeping_unit, version) > ($1::text, $2::text, $3::int8) "
	"  ORDER BY user_id, stock_keeping_unit, version LIMIT $4::int8) AS a "
	"LEFT JOIN outbox_events o ON o.event_id = a.event_id "
	"ORDER BY a.user_id, a.stock_keeping_unit, a.version",
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

static enum status put(const struct entitlement_repository *repository, struct session *base,
	const struct entitlement_row *rows, size_t count)
{
	return pg_put_rows(pg_session_of(base), &put_rows, rows, count);
}

static const Oid audit_types[] = {PG_OID_INT8, PG_OID_TEXT, PG_OID_TEXT, PG_OID_TEXT, PG_OID_INT8,
	PG_OID_TEXT, PG_OID_TEXT, PG_OID_TEXT};

static void add_line(struct pg_array *columns, const void *element)
{
	const struct entitlement_audit *line = element;

	pg_array_int8(&columns[0], line->at_us);
	pg_array_text(&columns[1], line->user_id);
	pg_array_text(&columns[2], line->unit);
	pg_array_text(&columns[3], slice_of(line->is_active ? "GRANTED" : "REVOKED"));
	pg_array_int8(&columns[4], line->version);
	pg_array_text(&columns[5], line->reason);
	pg_array_text(&columns[6], line->purchase_id);
	pg_array_text(&columns[7], line->event_id);
}

static const struct pg_shape audit_shape = {
	.types = audit_types,
	.column_count = sizeof(audit_types) / sizeof(audit_types[0]),
	.row_size = sizeof(struct entitlement_audit),
	.add = add_line,
};

static enum status audit(const struct entitlement_repository *repository, struct session *base,
	const struct entitlement_audit *lines, size_t count)
{
	struct pg_session *session = pg_session_of(base);

	pg_queue_all(session, &audit_statement, &audit_shape, lines, count);
	return pg_flush(session);
}

/* ---- lists ------------------------------------------------------------------------------- */

/* The result is sorted by query. Counts the rows of each query before it allocates them. */
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
		row->unit = pg_keep(arena, result, i, 4);
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
	};

	status = pg_run(session, &list_statement, params, 3);
	if (status == STATUS_OK)
		fill_queries(queries, count, arena, session->results[0]);
	return status;
}

/* ---- verifying --------------------------------------------------------------------------- */

static struct entitlement_facts facts_of(struct arena *arena, const PGresult *result, int row)
{
	struct entitlement_facts facts = {
		.row.user_id = pg_keep(arena, result, row, 0),
		.row.unit = pg_keep(arena, result, row, 4),
		.row.exists = true,
		.has_line = pg_bool(result, row, 5),
		.line_is_active = pg_bool(result, row, 6),
		.line_version = pg_int8(result, row, 7),
		.line_us = pg_int8(result, row, 8),
	};

	fill_row(&facts.row, result, row);
	return facts;
}

static enum status list_facts(const struct entitlement_repository *repository, struct session *base,
	struct arena *arena, struct row_page *page, struct entitlement_facts *rows)
{
	struct pg_session *session = pg_session_of(base);
	struct pg_param params[3] = {pg_param_text(page->after[0]), pg_param_text(page->after[1])};
	enum status status = pg_list_rows(session, &list_facts_statement, params, 2, page);

	for (size_t i = 0; status == STATUS_OK && i < page->count; i++)
		rows[i] = facts_of(arena, session->results[0], (int)i);
	return status;
}

static struct audit_facts line_of(struct arena *arena, const PGresult *result, int row)
{
	return (struct audit_facts){
		.line =
			{
				.user_id = pg_keep(arena, result, row, 0),
				.unit = pg_keep(arena, result, row, 1),
				.is_active = pg_bool(result, row, 2),
				.version = pg_int8(result, row, 3),
				.event_id = pg_keep(arena, result, row, 4),
				.at_us = pg_int8(result, row, 5),
			},
		.is_repeated = pg_bool(result, row, 6),
		.version_before = pg_int8(result, row, 7),
		.has_row = pg_bool(result, row, 8),
		.has_event = pg_bool(result, row, 9),
		.event_type = pg_keep(arena, result, row, 10),
		.event_key = pg_keep(arena, result, row, 11),
		.payload = pg_keep(arena, result, row, 12),
	};
}

static enum status list_audit(const struct entitlement_repository *repository, struct session *base,
	struct arena *arena, struct row_page *page, struct audit_facts *lines)
{
	struct pg_session *session = pg_session_of(base);
	struct pg_param params[4] = {pg_param_text(page->after[0]), pg_param_text(page->after[1]),
		pg_param_int8(session, page->after_number)};
	enum status status = pg_list_rows(session, &list_audit_statement, params, 3, page);

	for (size_t i = 0; status == STATUS_OK && i < page->count; i++)
		lines[i] = line_of(arena, session->results[0], (int)i);
	return status;
}

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
	.put = put,
	.audit = audit,
	.list = list,
	.list_facts = list_facts,
	.list_audit = list_audit,
	.tend_audit = tend_audit,
};

const struct entitlement_repository postgres_entitlement_repository = {.ops = &ops};
