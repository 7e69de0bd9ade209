/* Entitlements on Citus: the statements for batches, for lists, and for `quipu verify`. */
#include "adapters/store/postgres/postgres_citus.h"

/* clang-format off */
/* ---- entitlements, by user_id -------------------------------------------------------------- */

#define ENTITLEMENT_COLUMNS                                                                \
	"w.n, e.status = 'ACTIVE', e.version, " CITUS_TO_US("e.updated_at") ", e.step"
#define ENTITLEMENT_IDS                                                                    \
	"unnest($1::text[], $2::text[]) WITH ORDINALITY AS w(user_id, unit, n) "
#define ENTITLEMENT_LOCK                                                                   \
	"UPDATE entitlements AS e SET step = e.step FROM " ENTITLEMENT_IDS                 \
	"WHERE e.user_id = w.user_id AND e.stock_keeping_unit = w.unit "                   \
	CITUS_SHARDS("e.user_id", "$1")                                                          \
	"RETURNING " ENTITLEMENT_COLUMNS
#define SOURCE_OF_ROW "s.user_id = w.user_id AND s.stock_keeping_unit = w.unit "

static const struct pg_statement entitlements[] = {
	{"quipu_entitlements_find",
		"SELECT " ENTITLEMENT_COLUMNS " FROM " ENTITLEMENT_IDS
		"JOIN entitlements e ON e.user_id = w.user_id "
		"  AND e.stock_keeping_unit = w.unit " CITUS_SHARDS("e.user_id", "$1")},
	{"quipu_entitlements_lock", ENTITLEMENT_LOCK},
	{"quipu_entitlements_lock_free", ENTITLEMENT_LOCK},
	{"quipu_entitlements_update",
		"UPDATE entitlements AS e "
		"SET status = w.status, version = w.version, step = w.step, "
		"    updated_at = " CITUS_FROM_US("w.updated_us") " "
		"FROM unnest($1::text[], $2::text[], $3::text[], $4::int8[], $5::int8[], "
		"    $6::int8[]) AS w(user_id, unit, status, version, step, updated_us) "
		"WHERE e.user_id = w.user_id AND e.stock_keeping_unit = w.unit "
		CITUS_SHARDS("e.user_id", "$1")},
	{"quipu_entitlement_sources_find",
		"SELECT w.n, s.status = 'ACTIVE', " CITUS_TO_US("s.granted_at") ", "
		"    coalesce(" CITUS_TO_US("s.revoked_at") ", 0) "
		"FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) "
		"    WITH ORDINALITY AS w(user_id, unit, kind, source_id, n) "
		"JOIN entitlement_sources s ON " SOURCE_OF_ROW
		"  AND s.kind = w.kind AND s.source_id = w.source_id "
		CITUS_SHARDS("s.user_id", "$1")},
	{"quipu_entitlement_sources_count",
		"SELECT w.n, count(*), count(*) FILTER (WHERE s.status = 'ACTIVE') "
		"FROM " ENTITLEMENT_IDS
		"JOIN entitlement_sources s ON " SOURCE_OF_ROW CITUS_SHARDS("s.user_id", "$1")
		"GROUP BY s.user_id, w.n"},
	{"quipu_entitlement_sources_end",
		"UPDATE entitlement_sources AS s "
		"SET status = 'REVOKED', revoked_at = " CITUS_FROM_US("w.updated_us") " "
		"FROM unnest($1::text[], $2::text[], $3::int8[]) "
		"    AS w(user_id, unit, updated_us) "
		"WHERE " SOURCE_OF_ROW "AND s.status = 'ACTIVE' " CITUS_SHARDS("s.user_id", "$1")},
	{"quipu_entitlement_sources_update",
		"UPDATE entitlement_sources AS s "
		"SET status = w.status, granted_at = " CITUS_FROM_US("w.granted_us") ", "
		"    revoked_at = " CITUS_FROM_US("nullif(w.revoked_us, 0)") " "
		"FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], "
		"    $6::text[], $7::int8[], $8::int8[]) AS w(user_id, unit, kind, "
		"    source_id, reason, status, granted_us, revoked_us) "
		"WHERE " SOURCE_OF_ROW "AND s.kind = w.kind AND s.source_id = w.source_id "
		CITUS_SHARDS("s.user_id", "$1")},
	{"quipu_entitlements_list",
		"SELECT n, is_active, version, updated_us, step, stock_keeping_unit "
		"FROM ("
		"  SELECT w.n, e.status = 'ACTIVE' AS is_active, e.version, "
		"    " CITUS_TO_US("e.updated_at") " AS updated_us, e.step, "
		"    e.stock_keeping_unit, w.most, row_number() OVER "
		"      (PARTITION BY e.user_id, w.n ORDER BY e.stock_keeping_unit) AS place "
		"  FROM unnest($1::text[], $2::text[], $3::int8[], $4::text[]) "
		"      WITH ORDINALITY AS w(user_id, after, most, status, n) "
		"  JOIN entitlements e ON e.user_id = w.user_id "
		"    AND e.stock_keeping_unit > w.after "
		"    AND (w.status = '' OR e.status = w.status) "
		"  " CITUS_SHARDS("e.user_id", "$1") ") AS found "
		"WHERE place <= most "
		"ORDER BY n, stock_keeping_unit"},
	{"quipu_entitlements_look",
		"SELECT w.n, e.status = 'ACTIVE', e.version, " CITUS_TO_US("e.updated_at") ", "
		"    e.step, s.kind IS NOT NULL, coalesce(s.kind, ''), "
		"    coalesce(s.source_id, ''), coalesce(s.reason, ''), "
		"    coalesce(s.status = 'ACTIVE', false), "
		"    coalesce(" CITUS_TO_US("s.granted_at") ", 0), "
		"    coalesce(" CITUS_TO_US("s.revoked_at") ", 0) "
		"FROM " ENTITLEMENT_IDS
		"JOIN entitlements e ON e.user_id = w.user_id "
		"  AND e.stock_keeping_unit = w.unit " CITUS_SHARDS("e.user_id", "$1")
		"LEFT JOIN ("
		"  SELECT s.*, row_number() OVER "
		"    (PARTITION BY s.user_id, s.stock_keeping_unit "
		"     ORDER BY s.status, s.granted_at DESC, s.kind, s.source_id) AS place "
		"  FROM entitlement_sources s "
		"  WHERE s.user_id = ANY ($1::text[]) "
		"    AND s.stock_keeping_unit = ANY ($2::text[])) AS s "
		"  ON s.user_id = e.user_id "
		"  AND s.stock_keeping_unit = e.stock_keeping_unit AND s.place <= $3::int8 "
		"ORDER BY w.n, s.status, s.granted_at DESC, s.kind, s.source_id"},
};

/* ---- statements for `quipu verify` ------------------------------------------------------ */

/*
 * Selects the newest audit line of the entitlement e, as an array of `columns`. max() finds the
 * newest line, because arrays are compared element by element and the first column is the version.
 *
 * Do not use a CTE here. Citus would run the CTE as a separate statement before it reads the
 * entitlement, and `quipu verify` would report a change made in between as a difference. Without a
 * CTE, each node is read by one statement, and all rows of a user are on one node.
 */
#define NEWEST_LINE(columns, condition)                                                    \
	"(SELECT max(ARRAY[" columns "]) FROM entitlement_audit b "                        \
	" WHERE b.user_id = e.user_id AND b.stock_keeping_unit = e.stock_keeping_unit " condition ")"

static const struct pg_statement facts[] = {
	{"quipu_entitlements_list_facts",
		"SELECT user_id, is_active, version, updated_us, step, stock_keeping_unit, "
		"    has_source, change IS NOT NULL, coalesce(change[3] = 1, false), "
		"    coalesce(change[1], 0), coalesce(change[2], 0), coalesce(line[1], 0), "
		"    coalesce(line[2], 0) "
		"FROM ("
		"  SELECT e.user_id, e.status = 'ACTIVE' AS is_active, e.version, "
		"    " CITUS_TO_US("e.updated_at") " AS updated_us, e.step, e.stock_keeping_unit, "
		"    EXISTS (SELECT FROM entitlement_sources s "
		"      WHERE s.user_id = e.user_id AND s.status = 'ACTIVE' "
		"        AND s.stock_keeping_unit = e.stock_keeping_unit) AS has_source, "
		"    " NEWEST_LINE("b.version, " CITUS_TO_US("b.occurred_at") ", "
		"      (b.action = 'GRANTED')::int::int8", "AND b.step = 0") " AS change, "
		"    " NEWEST_LINE("b.version, b.step::int8", "") " AS line "
		"  FROM entitlements e "
		"  WHERE (e.user_id, e.stock_keeping_unit) > ($1::text, $2::text) "
		"  ORDER BY e.user_id, e.stock_keeping_unit LIMIT $3::int8) AS page "
		"ORDER BY user_id, stock_keeping_unit"},
	{"quipu_entitlements_list_source_owners",
		"SELECT s.user_id, s.stock_keeping_unit, count(e.user_id) > 0 "
		"FROM entitlement_sources s "
		"LEFT JOIN entitlements e ON e.user_id = s.user_id "
		"  AND e.stock_keeping_unit = s.stock_keeping_unit "
		"WHERE (s.user_id, s.stock_keeping_unit) > ($1::text, $2::text) "
		"GROUP BY s.user_id, s.stock_keeping_unit "
		"ORDER BY s.user_id, s.stock_keeping_unit LIMIT $3::int8"},
	{"quipu_entitlements_list_audit",
		"WITH page AS MATERIALIZED ("
		"  SELECT * "
		"  FROM entitlement_audit "
		"  WHERE (user_id, stock_keeping_unit, version, step) "
		"    > ($1::text, $2::text, $3::int8, $4::int8) "
		"  ORDER BY user_id, stock_keeping_unit, version, step LIMIT $5::int8), "
		"units AS MATERIALIZED ("
		"  SELECT DISTINCT user_id, stock_keeping_unit FROM page), "
		"rows AS MATERIALIZED ("
		"  SELECT e.user_id, e.stock_keeping_unit "
		"  FROM units u "
		"  JOIN entitlements e USING (user_id, stock_keeping_unit)), "
		"numbers AS MATERIALIZED ("
		"  SELECT b.user_id, b.stock_keeping_unit, b.version, b.step, "
		"    count(*) AS line_count "
		"  FROM units u "
		"  JOIN entitlement_audit b USING (user_id, stock_keeping_unit) "
		"  GROUP BY b.user_id, b.stock_keeping_unit, b.version, b.step), "
		"lines AS MATERIALIZED ("
		"  SELECT *, lag(version) OVER history AS version_before, "
		"    lag(step) OVER history AS step_before "
		"  FROM numbers "
		"  WINDOW history AS (PARTITION BY user_id, stock_keeping_unit "
		"    ORDER BY version, step)) "
		"SELECT a.user_id, a.stock_keeping_unit, a.action = 'GRANTED', a.version, "
		"    a.step, coalesce(a.event_id::text, ''), " CITUS_TO_US("a.occurred_at") ", "
		"    l.line_count > 1, coalesce(l.version_before, 0), "
		"    coalesce(l.step_before, 0), r.user_id IS NOT NULL "
		"FROM page a "
		"JOIN lines l USING (user_id, stock_keeping_unit, version, step) "
		"LEFT JOIN rows r USING (user_id, stock_keeping_unit) "
		"ORDER BY a.user_id, a.stock_keeping_unit, a.version, a.step"},
};

/* clang-format on */

const struct pg_statements pg_citus_entitlements = PG_STATEMENTS(entitlements);
const struct pg_statements pg_citus_facts = PG_STATEMENTS(facts);
