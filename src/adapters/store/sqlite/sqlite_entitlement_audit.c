/* Reads pages of one user's audit through the index on user and time. */
#include "adapters/store/sqlite/sqlite_entitlement_audit.h"

#include "adapters/store/sqlite/sqlite_internal.h"

/* clang-format off */
static const char read_audit_sql[] =
	"SELECT stock_keeping_unit, action = 'GRANTED', version, step, reason, "
	"    coalesce(purchase_id, ''), coalesce(event_id, ''), occurred_at "
	"FROM entitlement_audit "
	"WHERE user_id = ?1 "
	"  AND (occurred_at, stock_keeping_unit, version, step) < (?2, ?3, ?4, ?5) "
	"ORDER BY occurred_at DESC, stock_keeping_unit DESC, version DESC, step DESC "
	"LIMIT ?6";
/* clang-format on */

static struct entitlement_audit line_of(
	const struct audit_page *page, struct arena *arena, const struct sqlite_query *query)
{
	return (struct entitlement_audit){
		.user_id = page->user_id,
		.unit = sqlite_query_keep(query, arena, 0),
		.is_active = sqlite_query_int(query, 1) != 0,
		.version = sqlite_query_int(query, 2),
		.step = sqlite_query_int(query, 3),
		.reason = sqlite_query_keep(query, arena, 4),
		.purchase_id = sqlite_query_keep(query, arena, 5),
		.event_id = sqlite_query_keep(query, arena, 6),
		.at_us = sqlite_query_int(query, 7),
	};
}

static enum status read_lines(
	struct sqlite_session *session, struct arena *arena, struct audit_page *page)
{
	struct sqlite_query query = sqlite_query_open(session, read_audit_sql);

	sqlite_query_start(
		&query, SQLITE_VALUES(sqlite_text(page->user_id), sqlite_int(page->before.at_us),
				sqlite_text(page->before.unit), sqlite_int(page->before.version),
				sqlite_int(page->before.step), sqlite_int((int64_t)page->limit)));
	page->count = 0;
	while (sqlite_query_next(&query))
		page->lines[page->count++] = line_of(page, arena, &query);
	return sqlite_query_close(&query);
}

enum status sqlite_entitlement_read_audit(const struct entitlement_repository *repository,
	struct session *base, struct arena *arena, struct audit_page *page)
{
	struct sqlite_session *session = sqlite_session_of(base);
	enum status status = sqlite_snapshot_begin(session);

	if (status == STATUS_OK)
		status = read_lines(session, arena, page);
	if (status == STATUS_OK)
		status = sqlite_snapshot_end(session);
	return status;
}
