/*
 * Implements claims (ports/claim_repository.h) for tables in PostgreSQL. All tables whose rows are
 * claimed share the functions in postgres_claims.c. Each table has its own statements; the macros
 * below build them from the names of the table and its columns. For the columns that such a table
 * needs, and for the meaning of `stage`, see sql/postgres/entitlements/0001_entitlements.sql. To
 * add a table, write
 *
 *     static const struct pg_claims claims = PG_CLAIMS("table", "id", …);
 */
#ifndef QUIPU_ADAPTERS_STORE_POSTGRES_POSTGRES_CLAIMS_H
#define QUIPU_ADAPTERS_STORE_POSTGRES_POSTGRES_CLAIMS_H

#include "adapters/store/postgres/postgres_internal.h"
#include "ports/claim_repository.h"

struct pg_claims {
	struct claim_repository base;
	struct pg_statement claim;
	struct pg_statement oldest;
	struct pg_statement end;
	struct pg_statement renew;
	struct pg_statement count;
	struct pg_statement sweep;
	struct pg_statement list;
};

/* SQL for the current time, read once per statement: a statement that begins with "WITH " PG_CLOCK
 * can use PG_CLOCK_NOW. */
#define PG_CLOCK "clock AS MATERIALIZED (SELECT quipu_now() AS now)"
#define PG_CLOCK_NOW "(SELECT now FROM clock)"

/* clang-format off */
/*
 * Claims rows. $1 is the limit, $2 the owner, $3 the length of the lease in microseconds, and $4
 * the created_at to start at, in microseconds since 1970 (see postgres_claims.c). The UPDATE
 * compares ids with an array instead of joining the table with the chosen rows. If such a join were
 * planned while the table was empty, the plan would treat the table as the smaller side of the join
 * and read all of it.
 */
#define PG_CLAIM_SQL(table, id, occurred_at, busy)                                        \
	"WITH " PG_CLOCK ", taken AS ("                                                   \
	"  UPDATE " table " AS e "                                                        \
	"  SET status = '" busy "', locked_by = $2::text, locked_at = " PG_CLOCK_NOW ", " \
	"      lease_until = " PG_CLOCK_NOW " + $3::int8 * interval '1 microsecond', "    \
	"      last_error = NULL, claim_epoch = e.claim_epoch + 1 "                       \
	"  WHERE e." id " = ANY (ARRAY("                                                  \
	"      SELECT " id " "                                                            \
	"      FROM " table " "                                                           \
	"      WHERE stage = 'OPEN' AND created_at >= " PG_FROM_US("$4::int8") " "        \
	"        AND ((status = 'PENDING' "                                               \
	"            AND (next_retry_at IS NULL OR next_retry_at <= " PG_CLOCK_NOW ")) "  \
	"          OR (status = '" busy "' AND lease_until <= " PG_CLOCK_NOW ")) "        \
	"      ORDER BY created_at LIMIT $1::int8 FOR UPDATE SKIP LOCKED)) "              \
	"  RETURNING e.*) "                                                               \
	"SELECT " id "::text, event_type, aggregate_key, trace_id, payload, "             \
	"    " PG_TO_US(occurred_at) ", attempt_count, claim_epoch "                      \
	"FROM taken "                                                                     \
	"ORDER BY created_at"

#define PG_CLAIM_FIRST_OPEN(table)                                             \
	"("                                                                    \
	"  SELECT created_at "                                                 \
	"  FROM " table " "                                                    \
	"  WHERE stage = 'OPEN' AND created_at >= " PG_FROM_US("$1::int8") " " \
	"  ORDER BY created_at LIMIT 1)"

/* Returns the created_at of the first open row at or after $1, or the current time if there is no
 * such row. */
#define PG_CLAIM_OLDEST_SQL(table)                                                  \
	"SELECT " PG_TO_US("coalesce(" PG_CLAIM_FIRST_OPEN(table) ", quipu_now())")

/*
 * Limits an UPDATE to claims that the owner $1 still has. The table w has a row for each claim,
 * with the claim's id, its epoch, and n, its position in the batch, counted from 1. The UPDATE
 * returns the n of each claim whose row it has changed.
 *
 * With `id = w.id`, the planner may read the whole index of the primary key instead of looking up
 * each id. The planner does so if the table was empty when it was last analyzed, however large the
 * table is now. With ANY, the planner can only look up ids.
 */
#define PG_CLAIM_IS_OURS(id, busy)                                            \
	" WHERE e." id " = ANY (ARRAY[w.id::uuid]) AND e.claim_epoch = w.epoch " \
	"  AND e.status = '" busy "' AND e.locked_by = $1::text "             \
	"RETURNING w.n"

#define PG_CLAIM_END_SQL(table, id, busy, done, done_at)                                         \
	"WITH " PG_CLOCK " "                                                                     \
	"UPDATE " table " AS e "                                                                 \
	"SET status = CASE w.kind "                                                              \
	"      WHEN 'done' THEN '" done "' WHEN 'failed' THEN 'FAILED' ELSE 'PENDING' END, "     \
	"    attempt_count = e.attempt_count + (w.kind IN ('retry', 'failed'))::int4, "          \
	"    next_retry_at = CASE WHEN w.kind IN ('retry', 'delayed') "                          \
	"      THEN " PG_CLOCK_NOW " + w.delay_us * interval '1 microsecond' END, "              \
	"    " done_at " = CASE w.kind WHEN 'done' THEN " PG_CLOCK_NOW " END, "                  \
	"    lease_until = NULL, last_error = nullif(w.error, '') "                              \
	"FROM unnest($2::text[], $3::int8[], $4::text[], $5::int8[], $6::text[]) "               \
	"    WITH ORDINALITY AS w(id, epoch, kind, delay_us, error, n)"                          \
	PG_CLAIM_IS_OURS(id, busy)

#define PG_CLAIM_RENEW_SQL(table, id, busy)                                             \
	"UPDATE " table " AS e "                                                        \
	"SET lease_until = (SELECT quipu_now()) + $4::int8 * interval '1 microsecond' " \
	"FROM unnest($2::text[], $3::int8[]) WITH ORDINALITY "                          \
	"    AS w(id, epoch, n)" PG_CLAIM_IS_OURS(id, busy)

#define PG_CLAIM_COUNT_SQL(table, busy)                                   \
	"SELECT count(*) FILTER (WHERE status = 'PENDING'), "             \
	"    count(*) FILTER (WHERE status = '" busy "'), "               \
	"    (SELECT count(*) FROM " table " WHERE stage = 'FAILED'), "   \
	"    greatest(0, " PG_TO_US("quipu_now() - min(created_at)") ") " \
	"FROM " table " "                                                 \
	"WHERE stage = 'OPEN'"

#define PG_CLAIM_SWEEP_SQL(table, id, swept, ended_at)                                         \
	"DELETE FROM " table " "                                                               \
	"WHERE " id " = ANY (ARRAY("                                                           \
	"    SELECT " id " "                                                                   \
	"    FROM " table " "                                                                  \
	"    WHERE stage IN (" swept ") "                                                      \
	"      AND " ended_at " < (SELECT quipu_now()) - $1::int8 * interval '1 microsecond' " \
	"    ORDER BY " ended_at " LIMIT $2::int8 FOR UPDATE SKIP LOCKED)) "                   \
	"RETURNING 1"
/* clang-format on */

#define PG_CLAIM_HAS                                                                               \
	"e.next_retry_at IS NOT NULL, e.locked_by IS NOT NULL, e.locked_at IS NOT NULL, "          \
	"e.lease_until IS NOT NULL, e.last_error IS NOT NULL"
#define PG_CLAIM_CREATED_US PG_TO_US("e.created_at")

/* clang-format off */
/* Returns the id as text, but sorts by the uuid itself, because the index is sorted by uuids. */
#define PG_CLAIM_LIST_SQL(table, id, done_at)                                    \
	"SELECT e." id "::text, e.status, e.attempt_count, e.claim_epoch, "      \
	"    " PG_CLAIM_CREATED_US ", coalesce(" PG_TO_US("e." done_at) ", 0), " \
	"    " PG_CLAIM_HAS " "                                                  \
	"FROM " table " AS e "                                                   \
	"WHERE e." id " > $1::text::uuid "                                       \
	"ORDER BY e." id " LIMIT $2::int8"
/* clang-format on */

extern const struct claim_repository_ops pg_claims_ops;

/*
 * Initializes a struct pg_claims. All arguments are string literals:
 *
 *   table         the table's name; also part of the names of the prepared statements
 *   id            the column with the row's id, a uuid
 *   occurred_at   the column with the time of the event
 *   busy, done    the values of `status` for a claimed row and for a finished row
 *   done_at       the column with the time at which a row became `done`
 *   swept         the stages whose old rows sweep() deletes, as an SQL list: "'SENT', 'FAILED'"
 *   ended_at      an expression for the time from which sweep() counts a row's age
 */
#define PG_CLAIMS(table, id, occurred_at, busy, done, done_at, swept, ended_at)                    \
	{                                                                                          \
		.base = {.ops = &pg_claims_ops},                                                   \
		.claim = {"quipu_" table "_claim", PG_CLAIM_SQL(table, id, occurred_at, busy)},    \
		.oldest = {"quipu_" table "_oldest", PG_CLAIM_OLDEST_SQL(table)},                  \
		.end = {"quipu_" table "_end", PG_CLAIM_END_SQL(table, id, busy, done, done_at)},  \
		.renew = {"quipu_" table "_renew", PG_CLAIM_RENEW_SQL(table, id, busy)},           \
		.count = {"quipu_" table "_count", PG_CLAIM_COUNT_SQL(table, busy)},               \
		.sweep = {"quipu_" table "_sweep",                                                 \
			PG_CLAIM_SWEEP_SQL(table, id, swept, ended_at)},                           \
		.list = {"quipu_" table "_list_rows", PG_CLAIM_LIST_SQL(table, id, done_at)},      \
	}

/* Lowers the table's floor (see postgres_claims.c) to `time_us`, unless the floor is already lower.
 * Call this when a transaction reopens rows, or inserts rows whose created_at may be earlier than
 * the current time; otherwise claims may start above these rows. `time_us` must not be later than
 * the created_at of any of these rows. Any thread. */
void pg_claim_from(struct session *session, const struct pg_claims *claims, int64_t time_us);

#endif
