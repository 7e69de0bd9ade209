/* Reads entitlements and audit lines, with the rows that belong to them, for `quipu verify`. */
#include "adapters/store/postgres/postgres_entitlement_facts.h"

#include "adapters/store/postgres/postgres_internal.h"

/* clang-format off */
#define UPDATED_US PG_TO_US("e.updated_at")
#define LINE_US PG_TO_US("a.occurred_at")
#define ACTIVE_SOURCE                                         \
	"entitlement_sources s WHERE s.user_id = e.user_id "  \
	"AND s.stock_keeping_unit = e.stock_keeping_unit "    \
	"AND s.status = 'ACTIVE'"

/* This statement is fast, because in the index of each partition, the newest audit lines of an
 * entitlement are the last entries of that entitlement. */
static const struct pg_statement list_facts_statement = {
	"quipu_entitlements_list_facts",
	"SELECT e.user_id, e.status = 'ACTIVE', e.version, " UPDATED_US ", e.step, "
	"    e.stock_keeping_unit, " PG_FINDS(ACTIVE_SOURCE) ", a.version IS NOT NULL, "
	"    coalesce(a.action = 'GRANTED', false), coalesce(a.version, 0), "
	"    coalesce(" LINE_US ", 0), coalesce(b.version, 0), coalesce(b.step, 0) "
	"FROM ("
	"  SELECT * "
	"  FROM entitlements "
	"  WHERE (user_id, stock_keeping_unit) > ($1::text, $2::text) "
	"  ORDER BY user_id, stock_keeping_unit LIMIT $3::int8) AS e "
	"LEFT JOIN LATERAL ("
	"  SELECT action, version, occurred_at "
	"  FROM entitlement_audit "
	"  WHERE user_id = e.user_id AND stock_keeping_unit = e.stock_keeping_unit AND step = 0 "
	"  ORDER BY version DESC LIMIT 1) AS a ON true "
	"LEFT JOIN LATERAL ("
	"  SELECT version, step "
	"  FROM entitlement_audit "
	"  WHERE user_id = e.user_id AND stock_keeping_unit = e.stock_keeping_unit "
	"  ORDER BY version DESC, step DESC LIMIT 1) AS b ON true "
	"ORDER BY e.user_id, e.stock_keeping_unit",
};

#define OF_SAME "b.user_id = a.user_id AND b.stock_keeping_unit = a.stock_keeping_unit "
#define SAME_LINES                                                        \
	"SELECT FROM entitlement_audit b WHERE " OF_SAME                  \
	"AND b.version = a.version AND b.step = a.step LIMIT 2"
#define LINE_BEFORE                                                       \
	"SELECT b.version, b.step FROM entitlement_audit b "              \
	"WHERE " OF_SAME "AND (b.version, b.step) < (a.version, a.step) " \
	"ORDER BY b.version DESC, b.step DESC LIMIT 1"
#define LINE_IS_REPEATED "(SELECT count(*) > 1 FROM (" SAME_LINES ") AS same)"
#define HAS_ROW PG_FINDS("entitlements b WHERE " OF_SAME)

/* For each audit line, looks up the previous line and the other rows that `quipu verify` compares
 * with the line, even if these rows are not on the same page. Therefore a page may end at any
 * line. */
static const struct pg_statement list_audit_statement = {
	"quipu_entitlements_list_audit",
	"SELECT a.user_id, a.stock_keeping_unit, a.action = 'GRANTED', a.version, a.step, "
	"    coalesce(a.event_id::text, ''), " LINE_US ", " LINE_IS_REPEATED ", "
	"    coalesce(p.version, 0), coalesce(p.step, 0), " HAS_ROW " "
	"FROM ("
	"  SELECT * "
	"  FROM entitlement_audit "
	"  WHERE (user_id, stock_keeping_unit, version, step) "
	"    > ($1::text, $2::text, $3::int8, $4::int8) "
	"  ORDER BY user_id, stock_keeping_unit, version, step LIMIT $5::int8) AS a "
	"LEFT JOIN LATERAL (" LINE_BEFORE ") AS p ON true "
	"ORDER BY a.user_id, a.stock_keeping_unit, a.version, a.step",
};

/*
 * The events are looked up after the audit lines, because on Citus events and lines are on
 * different nodes and have no common snapshot. A transaction that puts events into the outbox
 * commits in two phases, on the outbox's node first, so if a line was found, its event has been
 * committed too. Old events may be deleted before they are looked up, but `quipu verify` does not
 * report events of that age as missing: see is_kept() in entitlement_verify.c.
 */
static const struct pg_statement find_events_statement = {
	"quipu_entitlements_find_events",
	"SELECT w.n, o.event_type, o.aggregate_key, o.payload "
	"FROM unnest($1::text[]) WITH ORDINALITY AS w(id, n) "
	"JOIN outbox_events o ON o.event_id = nullif(w.id, '')::uuid",
};

/* Lists the entitlements that occur in entitlement_sources. The statement jumps in the index of that
 * table from each entitlement straight to the next, so its cost does not depend on how many sources
 * an entitlement has. */
static const struct pg_statement list_source_owners_statement = {
	"quipu_entitlements_list_source_owners",
	"WITH RECURSIVE owner AS ("
	"  (SELECT user_id, stock_keeping_unit FROM entitlement_sources "
	"   WHERE (user_id, stock_keeping_unit) > ($1::text, $2::text) "
	"   ORDER BY user_id, stock_keeping_unit LIMIT 1) "
	"  UNION ALL "
	"  SELECT n.user_id, n.stock_keeping_unit "
	"  FROM owner o "
	"  CROSS JOIN LATERAL ("
	"    SELECT s.user_id, s.stock_keeping_unit FROM entitlement_sources s "
	"    WHERE (s.user_id, s.stock_keeping_unit) > (o.user_id, o.stock_keeping_unit) "
	"    ORDER BY s.user_id, s.stock_keeping_unit LIMIT 1) AS n) "
	"SELECT a.user_id, a.stock_keeping_unit, " HAS_ROW " "
	"FROM owner a LIMIT $3::int8",
};
/* clang-format on */

static struct entitlement_facts facts_of(struct arena *arena, const PGresult *result, int row)
{
	return (struct entitlement_facts){
		.row =
			{
				.user_id = pg_keep(arena, result, row, 0),
				.exists = true,
				.is_active = pg_bool(result, row, 1),
				.version = pg_int8(result, row, 2),
				.updated_us = pg_int8(result, row, 3),
				.step = pg_int8(result, row, 4),
				.unit = pg_keep(arena, result, row, 5),
			},
		.has_source = pg_bool(result, row, 6),
		.has_line = pg_bool(result, row, 7),
		.line_is_active = pg_bool(result, row, 8),
		.line_version = pg_int8(result, row, 9),
		.line_us = pg_int8(result, row, 10),
		.newest_version = pg_int8(result, row, 11),
		.newest_step = pg_int8(result, row, 12),
	};
}

enum status pg_entitlement_list_facts(const struct entitlement_repository *repository,
	struct session *base, struct arena *arena, struct row_page *page,
	struct entitlement_facts *rows)
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
				.step = pg_int8(result, row, 4),
				.event_id = pg_keep(arena, result, row, 5),
				.at_us = pg_int8(result, row, 6),
			},
		.is_repeated = pg_bool(result, row, 7),
		.version_before = pg_int8(result, row, 8),
		.step_before = pg_int8(result, row, 9),
		.has_row = pg_bool(result, row, 10),
	};
}

static enum status find_events(
	struct pg_session *session, struct arena *arena, struct audit_facts *lines, size_t count)
{
	const struct pg_param ids =
		pg_param_ids(session, &lines->line.event_id, sizeof(*lines), count);
	enum status status = pg_run(session, &find_events_statement, &ids, 1);
	const PGresult *result = session->results[0];

	for (int i = 0; status == STATUS_OK && i < PQntuples(result); i++) {
		struct audit_facts *facts = &lines[pg_place(result, i, count)];

		facts->has_event = true;
		facts->event_type = pg_keep(arena, result, i, 1);
		facts->event_key = pg_keep(arena, result, i, 2);
		facts->payload = pg_keep(arena, result, i, 3);
	}
	return status;
}

enum status pg_entitlement_list_audit(const struct entitlement_repository *repository,
	struct session *base, struct arena *arena, struct row_page *page, struct audit_facts *lines)
{
	struct pg_session *session = pg_session_of(base);
	struct pg_param params[5] = {pg_param_text(page->after[0]), pg_param_text(page->after[1]),
		pg_param_int8(session, page->after_number),
		pg_param_int8(session, page->after_minor)};
	enum status status = pg_list_rows(session, &list_audit_statement, params, 4, page);

	for (size_t i = 0; status == STATUS_OK && i < page->count; i++)
		lines[i] = line_of(arena, session->results[0], (int)i);
	if (status != STATUS_OK || page->count == 0)
		return status;
	return find_events(session, arena, lines, page->count);
}

enum status pg_entitlement_list_source_owners(const struct entitlement_repository *repository,
	struct session *base, struct arena *arena, struct row_page *page,
	struct source_owner *owners)
{
	struct pg_session *session = pg_session_of(base);
	struct pg_param params[3] = {pg_param_text(page->after[0]), pg_param_text(page->after[1])};
	enum status status = pg_list_rows(session, &list_source_owners_statement, params, 2, page);
	const PGresult *result = session->results[0];

	for (int i = 0; status == STATUS_OK && i < (int)page->count; i++)
		owners[i] = (struct source_owner){
			.user_id = pg_keep(arena, result, i, 0),
			.unit = pg_keep(arena, result, i, 1),
			.has_row = pg_bool(result, i, 2),
		};
	return status;
}
