/*
 * Entitlements, their sources and their audit in SQLite. The audit is one table without partitions,
 * so tend_audit() deletes old months row by row. Each of its transactions deletes at most
 * AUDIT_CHUNK rows, so that other writers need not wait long for their turn.
 */
#include "adapters/store/sqlite/sqlite_repositories.h"

#include "adapters/store/sqlite/sqlite_entitlement_audit.h"
#include "adapters/store/sqlite/sqlite_eraser.h"
#include "adapters/store/sqlite/sqlite_internal.h"
#include "adapters/store/sqlite/sqlite_source_owners.h"

#define AUDIT_CHUNK 5000 /* how many audit lines one transaction deletes at most */

/* clang-format off */
static const char find_sql[] =
	"SELECT status = 'ACTIVE', version, updated_at, step "
	"FROM entitlements "
	"WHERE user_id = ?1 AND stock_keeping_unit = ?2";

static const char put_sql[] =
	"INSERT INTO entitlements (user_id, stock_keeping_unit, status, version, step, "
	"    updated_at) "
	"VALUES (?1, ?2, ?3, ?4, ?5, ?6) "
	"ON CONFLICT (user_id, stock_keeping_unit) "
	"DO UPDATE SET status = excluded.status, version = excluded.version, "
	"    step = excluded.step, updated_at = excluded.updated_at";

static const char audit_sql[] =
	"INSERT INTO entitlement_audit (occurred_at, user_id, stock_keeping_unit, action, "
	"    version, step, reason, purchase_id, event_id) "
	"VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, nullif(?8, ''), nullif(?9, ''))";

static const char find_source_sql[] =
	"SELECT status = 'ACTIVE', granted_at, coalesce(revoked_at, 0) "
	"FROM entitlement_sources "
	"WHERE user_id = ?1 AND stock_keeping_unit = ?2 AND kind = ?3 AND source_id = ?4";

static const char count_sources_sql[] =
	"SELECT count(*), count(*) FILTER (WHERE status = 'ACTIVE') "
	"FROM entitlement_sources "
	"WHERE user_id = ?1 AND stock_keeping_unit = ?2";

static const char end_sources_sql[] =
	"UPDATE entitlement_sources "
	"SET status = 'REVOKED', revoked_at = ?3 "
	"WHERE user_id = ?1 AND stock_keeping_unit = ?2 AND status = 'ACTIVE'";

static const char put_source_sql[] =
	"INSERT INTO entitlement_sources (user_id, stock_keeping_unit, kind, source_id, reason, "
	"    status, granted_at, revoked_at) "
	"VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, nullif(?8, 0)) "
	"ON CONFLICT (user_id, stock_keeping_unit, kind, source_id) "
	"DO UPDATE SET status = excluded.status, granted_at = excluded.granted_at, "
	"    revoked_at = excluded.revoked_at";

static const char list_sources_sql[] =
	"SELECT kind, source_id, reason, status = 'ACTIVE', granted_at, coalesce(revoked_at, 0) "
	"FROM entitlement_sources "
	"WHERE user_id = ?1 AND stock_keeping_unit = ?2 "
	"ORDER BY status, granted_at DESC, kind, source_id LIMIT ?3";

static const char list_sql[] =
	"SELECT status = 'ACTIVE', version, updated_at, step, stock_keeping_unit "
	"FROM entitlements "
	"WHERE user_id = ?1 AND stock_keeping_unit > ?2 AND (?4 = '' OR status = ?4) "
	"ORDER BY stock_keeping_unit LIMIT ?3";

/* ?1 is a time and ?2 a number of months. Returns the beginning of the month that is ?2 months
 * before the month of ?1. */
static const char kept_sql[] =
	"SELECT 1000000 * unixepoch(?1 / 1000000, 'unixepoch', 'start of month', "
	"    '-' || ?2 || ' months')";

static const char sweep_sql[] =
	"DELETE FROM entitlement_audit "
	"WHERE (occurred_at, user_id, stock_keeping_unit, version, step) IN ("
	"  SELECT occurred_at, user_id, stock_keeping_unit, version, step "
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
	row->step = sqlite_query_int(query, 3);
}

static struct sqlite_value status_text(bool is_active)
{
	return sqlite_text(slice_of(is_active ? "ACTIVE" : "REVOKED"));
}

static void find_row(struct entitlement_row *row, struct sqlite_query *query)
{
	sqlite_query_start(query, SQLITE_VALUES(sqlite_text(row->user_id), sqlite_text(row->unit)));
	row->busy = false;
	row->exists = false;
	if (sqlite_query_next(query))
		fill_row(row, query);
}

static enum status lock(const struct entitlement_repository *repository, struct session *base,
	struct entitlement_row *rows, size_t count, int64_t *now_us)
{
	struct sqlite_session *session = sqlite_session_of(base);
	struct sqlite_query query = sqlite_query_open(session, find_sql);

	*now_us = sqlite_now_us(session);
	for (size_t i = 0; i < count; i++)
		find_row(&rows[i], &query);
	return sqlite_query_close(&query);
}

/* ---- sources ----------------------------------------------------------------------------- */

static enum status count_sources(
	struct sqlite_session *session, struct entitlement_row *rows, size_t count)
{
	struct sqlite_query query = sqlite_query_open(session, count_sources_sql);

	for (size_t i = 0; i < count; i++) {
		sqlite_query_start(&query,
			SQLITE_VALUES(sqlite_text(rows[i].user_id), sqlite_text(rows[i].unit)));
		if (!sqlite_query_next(&query))
			break;
		rows[i].source_count = (size_t)sqlite_query_int(&query, 0);
		rows[i].active_count = (size_t)sqlite_query_int(&query, 1);
	}
	return sqlite_query_close(&query);
}

static enum status fill_sources(
	struct sqlite_session *session, struct entitlement_source *sources, size_t count)
{
	struct sqlite_query query = sqlite_query_open(session, find_source_sql);

	for (size_t i = 0; i < count; i++) {
		struct entitlement_source *source = &sources[i];

		sqlite_query_start(&query,
			SQLITE_VALUES(sqlite_text(source->user_id), sqlite_text(source->unit),
				sqlite_text(source->kind), sqlite_text(source->id)));
		source->exists = sqlite_query_next(&query);
		if (!source->exists)
			continue;
		source->is_active = sqlite_query_int(&query, 0) != 0;
		source->granted_us = sqlite_query_int(&query, 1);
		source->revoked_us = sqlite_query_int(&query, 2);
	}
	return sqlite_query_close(&query);
}

static enum status find_sources(const struct entitlement_repository *repository,
	struct session *base, struct entitlement_row *rows, size_t row_count,
	struct entitlement_source *sources, size_t source_count)
{
	struct sqlite_session *session = sqlite_session_of(base);
	enum status status = count_sources(session, rows, row_count);

	return status == STATUS_OK ? fill_sources(session, sources, source_count) : status;
}

static enum status end_sources(
	struct sqlite_session *session, const struct entitlement_row *rows, size_t count)
{
	struct sqlite_query query = sqlite_query_open(session, end_sources_sql);

	for (size_t i = 0; i < count; i++) {
		if (rows[i].ends_sources)
			sqlite_query_change(&query,
				SQLITE_VALUES(sqlite_text(rows[i].user_id),
					sqlite_text(rows[i].unit), sqlite_int(rows[i].updated_us)));
	}
	return sqlite_query_close(&query);
}

static enum status put_sources(
	struct sqlite_session *session, const struct entitlement_source *sources, size_t count)
{
	struct sqlite_query query = sqlite_query_open(session, put_source_sql);

	for (size_t i = 0; i < count; i++) {
		const struct entitlement_source *source = &sources[i];

		sqlite_query_change_one(&query,
			SQLITE_VALUES(sqlite_text(source->user_id), sqlite_text(source->unit),
				sqlite_text(source->kind), sqlite_text(source->id),
				sqlite_text(source->reason), status_text(source->is_active),
				sqlite_int(source->granted_us), sqlite_int(source->revoked_us)));
	}
	return sqlite_query_close(&query);
}

/* ---- writing ----------------------------------------------------------------------------- */

static enum status put_rows(
	struct sqlite_session *session, const struct entitlement_row *rows, size_t count)
{
	struct sqlite_query query = sqlite_query_open(session, put_sql);

	for (size_t i = 0; i < count; i++)
		sqlite_query_change_one(&query,
			SQLITE_VALUES(sqlite_text(rows[i].user_id), sqlite_text(rows[i].unit),
				status_text(rows[i].is_active), sqlite_int(rows[i].version),
				sqlite_int(rows[i].step), sqlite_int(rows[i].updated_us)));
	return sqlite_query_close(&query);
}

static enum status put_lines(
	struct sqlite_session *session, const struct entitlement_audit *lines, size_t count)
{
	struct sqlite_query query = sqlite_query_open(session, audit_sql);

	for (size_t i = 0; i < count; i++) {
		const struct entitlement_audit *line = &lines[i];
		const char *action = line->is_active ? "GRANTED" : "REVOKED";

		sqlite_query_change_one(
			&query, SQLITE_VALUES(sqlite_int(line->at_us), sqlite_text(line->user_id),
					sqlite_text(line->unit), sqlite_text(slice_of(action)),
					sqlite_int(line->version), sqlite_int(line->step),
					sqlite_text(line->reason), sqlite_text(line->purchase_id),
					sqlite_text(line->event_id)));
	}
	return sqlite_query_close(&query);
}

static enum status put(const struct entitlement_repository *repository, struct session *base,
	const struct entitlement_changes *changes)
{
	struct sqlite_session *session = sqlite_session_of(base);
	enum status status = put_rows(session, changes->rows, changes->row_count);

	if (status == STATUS_OK)
		status = end_sources(session, changes->rows, changes->row_count);
	if (status == STATUS_OK)
		status = put_sources(session, changes->sources, changes->source_count);
	if (status == STATUS_OK)
		status = put_lines(session, changes->lines, changes->line_count);
	return status;
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
			       sqlite_int((int64_t)page->limit), sqlite_text(page->status)));
	while (sqlite_query_next(query)) {
		struct entitlement_row row = {
			.user_id = page->user_id,
			.unit = sqlite_query_keep(query, arena, 4),
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

static void fill_look(struct entitlement_look *look, struct arena *arena, size_t source_max,
	struct sqlite_query *query)
{
	size_t room = 0;

	look->sources = NULL;
	look->source_count = 0;
	sqlite_query_start(
		query, SQLITE_VALUES(sqlite_text(look->row.user_id), sqlite_text(look->row.unit),
			       sqlite_int((int64_t)source_max)));
	while (sqlite_query_next(query)) {
		look->sources = sqlite_more_room(
			arena, look->sources, sizeof(*look->sources), look->source_count, &room);
		look->sources[look->source_count++] = (struct entitlement_source){
			.kind = sqlite_query_keep(query, arena, 0),
			.id = sqlite_query_keep(query, arena, 1),
			.exists = true,
			.reason = sqlite_query_keep(query, arena, 2),
			.is_active = sqlite_query_int(query, 3) != 0,
			.granted_us = sqlite_query_int(query, 4),
			.revoked_us = sqlite_query_int(query, 5),
		};
	}
}

static enum status fill_looks(struct sqlite_session *session, struct arena *arena,
	struct entitlement_look *looks, size_t count, size_t source_max)
{
	struct sqlite_query rows = sqlite_query_open(session, find_sql);
	struct sqlite_query sources;
	enum status status;

	for (size_t i = 0; i < count; i++)
		find_row(&looks[i].row, &rows);
	status = sqlite_query_close(&rows);
	if (status != STATUS_OK)
		return status;
	sources = sqlite_query_open(session, list_sources_sql);
	for (size_t i = 0; i < count; i++)
		fill_look(&looks[i], arena, source_max, &sources);
	return sqlite_query_close(&sources);
}

static enum status look(const struct entitlement_repository *repository, struct session *base,
	struct arena *arena, struct entitlement_look *looks, size_t count, size_t source_max)
{
	struct sqlite_session *session = sqlite_session_of(base);
	enum status status = sqlite_snapshot_begin(session);

	if (status == STATUS_OK)
		status = fill_looks(session, arena, looks, count, source_max);
	if (status == STATUS_OK)
		status = sqlite_snapshot_end(session);
	return status;
}

/* ---- verifying --------------------------------------------------------------------------- */

/* clang-format off */
#define OF_ENTITLEMENT "a.user_id = e.user_id AND a.stock_keeping_unit = e.stock_keeping_unit "
#define NEWEST_CHANGE                                    \
	" FROM entitlement_audit a "                     \
	"WHERE " OF_ENTITLEMENT "AND a.step = 0 "        \
	"ORDER BY a.version DESC LIMIT 1"
#define NEWEST_LINE                                      \
	" FROM entitlement_audit a "                     \
	"WHERE " OF_ENTITLEMENT                          \
	"ORDER BY a.version DESC, a.step DESC LIMIT 1"
#define OF_SAME "b.user_id = a.user_id AND b.stock_keeping_unit = a.stock_keeping_unit "
#define LINE_BEFORE                                                       \
	" FROM entitlement_audit b "                                      \
	"WHERE " OF_SAME "AND (b.version, b.step) < (a.version, a.step) " \
	"ORDER BY b.version DESC, b.step DESC LIMIT 1"

static const char list_facts_sql[] =
	"SELECT status = 'ACTIVE', version, updated_at, step, user_id, stock_keeping_unit, "
	"    (SELECT a.version" NEWEST_CHANGE "), "
	"    (SELECT a.action = 'GRANTED'" NEWEST_CHANGE "), "
	"    (SELECT a.occurred_at" NEWEST_CHANGE "), "
	"    (SELECT a.version" NEWEST_LINE "), "
	"    (SELECT a.step" NEWEST_LINE "), "
	"    EXISTS ("
	"      SELECT 1 "
	"      FROM entitlement_sources a "
	"      WHERE " OF_ENTITLEMENT "AND a.status = 'ACTIVE') "
	"FROM entitlements e "
	"WHERE (user_id, stock_keeping_unit) > (?1, ?2) "
	"ORDER BY user_id, stock_keeping_unit LIMIT ?5";

static const char list_audit_sql[] =
	"SELECT a.user_id, a.stock_keeping_unit, a.action = 'GRANTED', a.version, a.step, "
	"    coalesce(a.event_id, ''), a.occurred_at, "
	"    (SELECT count(*) > 1 "
	"      FROM entitlement_audit b "
	"      WHERE " OF_SAME "AND b.version = a.version AND b.step = a.step), "
	"    (SELECT b.version" LINE_BEFORE "), "
	"    (SELECT b.step" LINE_BEFORE "), "
	"    EXISTS (SELECT 1 FROM entitlements b WHERE " OF_SAME "), "
	"    o.event_id IS NOT NULL, o.event_type, o.aggregate_key, o.payload "
	"FROM entitlement_audit a "
	"LEFT JOIN outbox_events o ON o.event_id = a.event_id "
	"WHERE (a.user_id, a.stock_keeping_unit, a.version, a.step) > (?1, ?2, ?3, ?6) "
	"ORDER BY a.user_id, a.stock_keeping_unit, a.version, a.step LIMIT ?5";
/* clang-format on */

static void fill_facts(void *row, struct arena *arena, const struct sqlite_query *query)
{
	struct entitlement_facts *facts = row;

	*facts = (struct entitlement_facts){
		.row.user_id = sqlite_query_keep(query, arena, 4),
		.row.unit = sqlite_query_keep(query, arena, 5),
		.has_line = sqlite_query_int(query, 6) != 0,
		.line_is_active = sqlite_query_int(query, 7) != 0,
		.line_version = sqlite_query_int(query, 6),
		.line_us = sqlite_query_int(query, 8),
		.newest_version = sqlite_query_int(query, 9),
		.newest_step = sqlite_query_int(query, 10),
		.has_source = sqlite_query_int(query, 11) != 0,
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
				.step = sqlite_query_int(query, 4),
				.event_id = sqlite_query_keep(query, arena, 5),
				.at_us = sqlite_query_int(query, 6),
			},
		.is_repeated = sqlite_query_int(query, 7) != 0,
		.version_before = sqlite_query_int(query, 8),
		.step_before = sqlite_query_int(query, 9),
		.has_row = sqlite_query_int(query, 10) != 0,
		.has_event = sqlite_query_int(query, 11) != 0,
		.event_type = sqlite_query_keep(query, arena, 12),
		.event_key = sqlite_query_keep(query, arena, 13),
		.payload = sqlite_query_keep(query, arena, 14),
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
	.find_sources = find_sources,
	.put = put,
	.list = list,
	.look = look,
	.read_audit = sqlite_entitlement_read_audit,
	.list_facts = list_facts,
	.list_audit = list_audit,
	.list_source_owners = sqlite_entitlement_list_source_owners,
	.tend_audit = tend_audit,
};

const struct entitlement_repository sqlite_entitlement_repository = {
	.ops = &ops,
	.eraser = &sqlite_entitlements_eraser.base,
};
