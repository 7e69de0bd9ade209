/*
 * Entitlements and their audit in SQLite. The audit is one table without partitions, so old months
 * are deleted row by row, in chunks that keep the writer's turn short.
 */
#include "adapters/store/sqlite/sqlite_repositories.h"

#include "adapters/store/sqlite/sqlite_internal.h"

#define AUDIT_CHUNK 5000 /* audit lines to delete in one transaction */

/* clang-format off */
static const char find_sql[] =
	"SELECT status = 'ACTIVE', version, updated_at "
	"FROM entitlements "
	"WHERE user_id = ?1 AND stock_keeping_unit = ?2";

static const char put_sql[] =
	"INSERT INTO entitlements (user_id, stock_keeping_unit, status, version, updated_at) "
	"VALUES (?1, ?2, ?3, ?4, ?5) "
	"ON CONFLICT (user_id, stock_keeping_unit) "
	"DO UPDATE SET status = excluded.status, version = excluded.version, "
	"    updated_at = excluded.updated_at";

static const char audit_sql[] =
	"INSERT INTO entitlement_audit (occurred_at, user_id, stock_keeping_unit, action, "
	"    version, reason, purchase_id, event_id) "
	"VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";

static const char list_sql[] =
	"SELECT status = 'ACTIVE', version, updated_at, stock_keeping_unit "
	"FROM entitlements "
	"WHERE user_id = ?1 AND stock_keeping_unit > ?2 "
	"ORDER BY stock_keeping_unit LIMIT ?3";

/* Returns when the month began that is ?2 months before the month of ?1. */
static const char kept_sql[] =
	"SELECT 1000000 * unixepoch(?1 / 1000000, 'unixepoch', 'start of month', "
	"    '-' || ?2 || ' months')";

static const char sweep_sql[] =
	"DELETE FROM entitlement_audit "
	"WHERE (occurred_at, event_id) IN ("
	"  SELECT occurred_at, event_id "
	"  FROM entitlement_audit "
	"  WHERE occurred_at < ?1 "
	"  ORDER BY occurred_at LIMIT ?2)";
/* clang-format on */

static void fill_row(struct entitlement_row *row, const struct sqlite_query *query)
{
	row->exists = true;
	row->is_active = sqlite_query_int(query, 0) != 0;
	row->version = sqlite_query_int(query, 1);
	row->updated_us = sqlite_query_int(query, 2);
}

static enum status lock(const struct entitlement_repository *repository, struct session *base,
	struct entitlement_row *rows, size_t count, int64_t *now_us)
{
	struct sqlite_session *session = sqlite_session_of(base);
	struct sqlite_query query = sqlite_query_open(session, find_sql);

	*now_us = sqlite_now_us(session);
	for (size_t i = 0; i < count; i++) {
		sqlite_query_start(&query,
			SQLITE_VALUES(sqlite_text(rows[i].user_id), sqlite_text(rows[i].unit)));
		rows[i].busy = false;
		rows[i].exists = false;
		if (sqlite_query_next(&query))
			fill_row(&rows[i], &query);
	}
	return sqlite_query_close(&query);
}

static enum status put(const struct entitlement_repository *repository, struct session *base,
	const struct entitlement_row *rows, size_t count)
{
	struct sqlite_query query = sqlite_query_open(sqlite_session_of(base), put_sql);

	for (size_t i = 0; i < count; i++) {
		const char *status = rows[i].is_active ? "ACTIVE" : "REVOKED";

		sqlite_query_change_one(&query,
			SQLITE_VALUES(sqlite_text(rows[i].user_id), sqlite_text(rows[i].unit),
				sqlite_text(slice_of(status)), sqlite_int(rows[i].version),
				sqlite_int(rows[i].updated_us)));
	}
	return sqlite_query_close(&query);
}

static enum status audit(const struct entitlement_repository *repository, struct session *base,
	const struct entitlement_audit *lines, size_t count)
{
	struct sqlite_query query = sqlite_query_open(sqlite_session_of(base), audit_sql);

	for (size_t i = 0; i < count; i++) {
		const struct entitlement_audit *line = &lines[i];
		const char *action = line->is_active ? "GRANTED" : "REVOKED";

		sqlite_query_change_one(&query,
			SQLITE_VALUES(sqlite_int(line->at_us), sqlite_text(line->user_id),
				sqlite_text(line->unit), sqlite_text(slice_of(action)),
				sqlite_int(line->version), sqlite_text(line->reason),
				sqlite_text(line->purchase_id), sqlite_text(line->event_id)));
	}
	return sqlite_query_close(&query);
}

/* ---- lists ------------------------------------------------------------------------------- */

static void fill_page(
	struct entitlement_query *page, struct arena *arena, struct sqlite_query *query)
{
	size_t room = 0;

	page->rows = NULL;
	page->row_count = 0;
	sqlite_query_start(
		query, SQLITE_VALUES(sqlite_text(page->user_id), sqlite_text(page->after),
			       sqlite_int((int64_t)page->limit)));
	while (sqlite_query_next(query)) {
		struct entitlement_row row = {
			.user_id = page->user_id,
			.unit = sqlite_query_keep(query, arena, 3),
		};

		fill_row(&row, query);
		page->rows =
			sqlite_more_room(arena, page->rows, sizeof(row), page->row_count, &room);
		page->rows[page->row_count++] = row;
	}
}

static enum status fill_pages(struct sqlite_session *session, struct arena *arena,
	struct entitlement_query *pages, size_t count)
{
	struct sqlite_query query = sqlite_query_open(session, list_sql);

	for (size_t i = 0; i < count; i++)
		fill_page(&pages[i], arena, &query);
	return sqlite_query_close(&query);
}

static enum status list(const struct entitlement_repository *repository, struct session *base,
	struct arena *arena, struct entitlement_query *pages, size_t count)
{
	struct sqlite_session *session = sqlite_session_of(base);
	enum status status = sqlite_snapshot_begin(session);

	if (status == STATUS_OK)
		status = fill_pages(session, arena, pages, count);
	if (status == STATUS_OK)
		status = sqlite_snapshot_end(session);
	return status;
}

/* ---- verifying --------------------------------------------------------------------------- */

/* clang-format off */
#define NEWEST_LINE                                          \
	" FROM entitlement_audit a "                         \
	"WHERE a.user_id = e.user_id "                       \
	"  AND a.stock_keeping_unit = e.stock_keeping_unit " \
	"ORDER BY version DESC LIMIT 1"
#define OF_SAME "b.user_id = a.user_id AND b.stock_keeping_unit = a.stock_keeping_unit "

static const char list_facts_sql[] =
	"SELECT status = 'ACTIVE', version, updated_at, user_id, stock_keeping_unit, "
	"    (SELECT version" NEWEST_LINE "), "
	"    (SELECT action = 'GRANTED'" NEWEST_LINE "), "
	"    (SELECT occurred_at" NEWEST_LINE ") "
	"FROM entitlements e "
	"WHERE (user_id, stock_keeping_unit) > (?1, ?2) "
	"ORDER BY user_id, stock_keeping_unit LIMIT ?5";

static const char list_audit_sql[] =
	"SELECT a.user_id, a.stock_keeping_unit, a.action = 'GRANTED', a.version, a.event_id, "
	"    a.occurred_at, "
	"    EXISTS ("
	"      SELECT 1 "
	"      FROM entitlement_audit b "
	"      WHERE " OF_SAME "AND b.version = a.version AND b.event_id <> a.event_id), "
	"    (SELECT b.version "
	"      FROM entitlement_audit b "
	"      WHERE " OF_SAME "AND b.version < a.version "
	"      ORDER BY b.version DESC LIMIT 1), "
	"    EXISTS (SELECT 1 FROM entitlements b WHERE " OF_SAME "), "
	"    o.event_id IS NOT NULL, o.event_type, o.aggregate_key, o.payload "
	"FROM entitlement_audit a "
	"LEFT JOIN outbox_events o ON o.event_id = a.event_id "
	"WHERE (a.user_id, a.stock_keeping_unit, a.version) > (?1, ?2, ?3) "
	"ORDER BY a.user_id, a.stock_keeping_unit, a.version LIMIT ?5";
/* clang-format on */

static void fill_facts(void *row, struct arena *arena, const struct sqlite_query *query)
{
	struct entitlement_facts *facts = row;

	*facts = (struct entitlement_facts){
		.row.user_id = sqlite_query_keep(query, arena, 3),
		.row.unit = sqlite_query_keep(query, arena, 4),
		.has_line = sqlite_query_int(query, 5) != 0,
		.line_is_active = sqlite_query_int(query, 6) != 0,
		.line_version = sqlite_query_int(query, 5),
		.line_us = sqlite_query_int(query, 7),
	};
	fill_row(&facts->row, query);
}

static enum status list_facts(const struct entitlement_repository *repository,
	struct session *session, struct arena *arena, struct row_page *page,
	struct entitlement_facts *rows)
{
	static const struct sqlite_list all = {
		.sql = list_facts_sql,
		.row_size = sizeof(struct entitlement_facts),
		.fill = fill_facts,
	};

	return sqlite_list_rows(session, arena, &all, page, rows);
}

static void fill_line(void *row, struct arena *arena, const struct sqlite_query *query)
{
	*(struct audit_facts *)row = (struct audit_facts){
		.line =
			{
				.user_id = sqlite_query_keep(query, arena, 0),
				.unit = sqlite_query_keep(query, arena, 1),
				.is_active = sqlite_query_int(query, 2) != 0,
				.version = sqlite_query_int(query, 3),
				.event_id = sqlite_query_keep(query, arena, 4),
				.at_us = sqlite_query_int(query, 5),
			},
		.is_repeated = sqlite_query_int(query, 6) != 0,
		.version_before = sqlite_query_int(query, 7),
		.has_row = sqlite_query_int(query, 8) != 0,
		.has_event = sqlite_query_int(query, 9) != 0,
		.event_type = sqlite_query_keep(query, arena, 10),
		.event_key = sqlite_query_keep(query, arena, 11),
		.payload = sqlite_query_keep(query, arena, 12),
	};
}

static enum status list_audit(const struct entitlement_repository *repository,
	struct session *session, struct arena *arena, struct row_page *page,
	struct audit_facts *lines)
{
	static const struct sqlite_list all = {
		.sql = list_audit_sql,
		.row_size = sizeof(struct audit_facts),
		.fill = fill_line,
	};

	return sqlite_list_rows(session, arena, &all, page, lines);
}

/* ---- the audit --------------------------------------------------------------------------- */

static enum status kept_since(struct sqlite_session *session, int keep_months, int64_t *since_us)
{
	enum status status = sqlite_snapshot_begin(session);
	struct sqlite_query query;

	if (status != STATUS_OK)
		return status;
	query = sqlite_query_open(session, kept_sql);
	sqlite_query_start(
		&query, SQLITE_VALUES(sqlite_int(sqlite_now_us(session)), sqlite_int(keep_months)));
	if (sqlite_query_next(&query))
		*since_us = sqlite_query_int(&query, 0);
	status = sqlite_query_close(&query);
	return status == STATUS_OK ? sqlite_snapshot_end(session) : status;
}

static enum status tend_audit(
	const struct entitlement_repository *repository, struct session *base, int keep_months)
{
	size_t deleted = AUDIT_CHUNK;
	int64_t since_us = 0;
	enum status status = STATUS_OK;

	if (keep_months == 0)
		return STATUS_OK;
	status = kept_since(sqlite_session_of(base), keep_months, &since_us);
	while (status == STATUS_OK && deleted == AUDIT_CHUNK)
		status = sqlite_sweep(base, sweep_sql, since_us, AUDIT_CHUNK, &deleted);
	return status;
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

const struct entitlement_repository sqlite_entitlement_repository = {.ops = &ops};
