/*
 * Reads pages of one user's audit. A page merges rows of the monthly partitions. PostgreSQL reads
 * each partition through its index on user and time, up to the limit, and skips the months that are
 * newer than the page's cursor.
 */
#include "adapters/store/postgres/postgres_entitlement_audit.h"

#include "adapters/store/postgres/postgres_internal.h"

/* clang-format off */
#define BEFORE PG_FROM_US("$2::int8")

/* The comparison of whole rows finds the index entry at which the page begins. PostgreSQL can skip
 * partitions only because the statement also compares occurred_at by itself. */
static const struct pg_statement read_audit_statement = {
	"quipu_entitlements_read_audit",
	"SELECT a.stock_keeping_unit, a.action = 'GRANTED', a.version, a.step, a.reason, "
	"    coalesce(a.purchase_id, ''), coalesce(a.event_id::text, ''), "
	"    " PG_TO_US("a.occurred_at") " "
	"FROM entitlement_audit a "
	"WHERE a.user_id = $1::text AND a.occurred_at <= " BEFORE " "
	"  AND (a.occurred_at, a.stock_keeping_unit, a.version, a.step) "
	"    < (" BEFORE ", $3::text, $4::int8, $5::int8) "
	"ORDER BY a.occurred_at DESC, a.stock_keeping_unit DESC, a.version DESC, a.step DESC "
	"LIMIT $6::int8",
};
/* clang-format on */

static struct entitlement_audit line_of(
	const struct audit_page *page, struct arena *arena, const PGresult *result, int row)
{
	return (struct entitlement_audit){
		.user_id = page->user_id,
		.unit = pg_keep(arena, result, row, 0),
		.is_active = pg_bool(result, row, 1),
		.version = pg_int8(result, row, 2),
		.step = pg_int8(result, row, 3),
		.reason = pg_keep(arena, result, row, 4),
		.purchase_id = pg_keep(arena, result, row, 5),
		.event_id = pg_keep(arena, result, row, 6),
		.at_us = pg_int8(result, row, 7),
	};
}

enum status pg_entitlement_read_audit(const struct entitlement_repository *repository,
	struct session *base, struct arena *arena, struct audit_page *page)
{
	struct pg_session *session = pg_session_of(base);
	const struct pg_param params[] = {
		pg_param_text(page->user_id),
		pg_param_int8(session, page->before.at_us),
		pg_param_text(page->before.unit),
		pg_param_int8(session, page->before.version),
		pg_param_int8(session, page->before.step),
		pg_param_int8(session, (int64_t)page->limit),
	};
	enum status status = pg_run(session, &read_audit_statement, params, 6);

	if (status != STATUS_OK)
		return status;
	page->count = (size_t)PQntuples(session->results[0]);
	for (size_t i = 0; i < page->count; i++)
		page->lines[i] = line_of(page, arena, session->results[0], (int)i);
	return STATUS_OK;
}
