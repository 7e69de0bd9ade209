/*
 * Implements claims (ports/claim_repository.h) for tables in SQLite. All tables whose rows are
 * claimed share the functions in sqlite_claims.c, but each table has its own statements: the macros
 * below build them from the names of the table and its columns. For the columns and indexes that a
 * table needs, see outbox_events in sql/sqlite/entitlements/0001_entitlements.sql. To add a table,
 * write
 *
 *     static const struct sqlite_claims claims = SQLITE_CLAIMS("table", "id", …);
 */
#ifndef QUIPU_ADAPTERS_STORE_SQLITE_SQLITE_CLAIMS_H
#define QUIPU_ADAPTERS_STORE_SQLITE_SQLITE_CLAIMS_H

#include "adapters/store/sqlite/sqlite_internal.h"
#include "ports/claim_repository.h"

struct sqlite_claims {
	struct claim_repository base;
	const char *due;
	const char *take;
	const char *end;
	const char *renew;
	const char *count;
	const char *sweep;
	struct sqlite_list list;
};

/* clang-format off */
/* Repeats the condition of the index <table>_open word for word, because otherwise SQLite could not
 * use the index. */
#define SQLITE_CLAIM_OPEN(table, busy)               \
	" FROM " table " INDEXED BY " table "_open " \
	"WHERE status IN ('PENDING', '" busy "') "

/* Selects the rows that can be claimed. ?1 is the current time, ?2 the limit. */
#define SQLITE_CLAIM_DUE_SQL(table, id, occurred_at, busy)                               \
	"SELECT " id ", event_type, aggregate_key, trace_id, payload, " occurred_at ", " \
	"    attempt_count, claim_epoch + 1, rowid" SQLITE_CLAIM_OPEN(table, busy)       \
	"  AND ((status = 'PENDING' "                                                    \
	"      AND (next_retry_at IS NULL OR next_retry_at <= ?1)) "                     \
	"    OR (status = '" busy "' AND lease_until <= ?1)) "                           \
	"ORDER BY created_at LIMIT ?2"

/* Claims a row. ?1 is the rowid, ?2 the owner, ?3 the current time, ?4 the end of the lease. */
#define SQLITE_CLAIM_TAKE_SQL(table, busy)                                            \
	"UPDATE " table " "                                                           \
	"SET status = '" busy "', locked_by = ?2, locked_at = ?3, lease_until = ?4, " \
	"    last_error = NULL, claim_epoch = claim_epoch + 1 "                       \
	"WHERE rowid = ?1"

/* Selects the row with the id ?1, but only while the owner ?2 still has its claim with the epoch
 * ?3. */
#define SQLITE_CLAIM_IS_OURS(id, busy)                                     \
	" WHERE " id " = ?1 AND claim_epoch = ?3 AND status = '" busy "' " \
	"  AND locked_by = ?2"

/* Ends a claim. ?1 to ?3 are as in SQLITE_CLAIM_IS_OURS. ?4 says how the claim ends: 'done',
 * 'retry', 'delayed', 'failed' or 'returned'. ?5 is the current time, ?6 the time at which the row
 * is due again, ?7 the error. */
#define SQLITE_CLAIM_END_SQL(table, id, busy, done, done_at)                                 \
	"UPDATE " table " "                                                                  \
	"SET status = CASE ?4 "                                                              \
	"      WHEN 'done' THEN '" done "' WHEN 'failed' THEN 'FAILED' ELSE 'PENDING' END, " \
	"    attempt_count = attempt_count + (?4 IN ('retry', 'failed')), "                  \
	"    next_retry_at = CASE WHEN ?4 IN ('retry', 'delayed') THEN ?6 END, "             \
	"    " done_at " = CASE ?4 WHEN 'done' THEN ?5 END, "                                \
	"    lease_until = NULL, last_error = nullif(?7, '')" SQLITE_CLAIM_IS_OURS(id, busy)

/* Renews a lease. ?1 to ?3 are as in SQLITE_CLAIM_IS_OURS. ?4 is the new end of the lease. */
#define SQLITE_CLAIM_RENEW_SQL(table, id, busy)                                \
	"UPDATE " table " SET lease_until = ?4" SQLITE_CLAIM_IS_OURS(id, busy)

/* Counts pending, claimed and failed rows, and computes the age of the oldest row that is pending
 * or claimed. ?1 is the current time. */
#define SQLITE_CLAIM_COUNT_SQL(table, busy)                                                    \
	"SELECT coalesce(sum(status = 'PENDING'), 0), coalesce(sum(status = '" busy "'), 0), " \
	"    (SELECT count(*) FROM " table " WHERE status = 'FAILED'), "                       \
	"    coalesce(max(0, ?1 - min(created_at)), 0)" SQLITE_CLAIM_OPEN(table, busy)

/* Deletes rows whose `ended_at` is before ?1; ?2 is the limit. */
#define SQLITE_CLAIM_SWEEP_SQL(table, swept, ended_at) \
	"DELETE FROM " table " "                       \
	"WHERE rowid IN ("                             \
	"  SELECT rowid "                              \
	"  FROM " table " INDEXED BY " table "_ended " \
	"  WHERE " swept " AND " ended_at " < ?1 "     \
	"  ORDER BY " ended_at " LIMIT ?2)"

#define SQLITE_CLAIM_LIST_SQL(table, id, done_at)                                          \
	"SELECT " id ", status, attempt_count, claim_epoch, created_at, "                  \
	"    coalesce(" done_at ", 0), next_retry_at IS NOT NULL, locked_by IS NOT NULL, " \
	"    locked_at IS NOT NULL, lease_until IS NOT NULL, last_error IS NOT NULL "      \
	"FROM " table " "                                                                  \
	"WHERE " id " > ?1 "                                                               \
	"ORDER BY " id " LIMIT ?5"
/* clang-format on */

/* The `fill` function of the list; see struct sqlite_list. */
void sqlite_claim_fill(void *row, struct arena *arena, const struct sqlite_query *query);

extern const struct claim_repository_ops sqlite_claims_ops;

/*
 * Initializes a struct sqlite_claims. All arguments are string literals:
 *
 *   table         the table's name; it has the indexes <table>_open and <table>_ended
 *   id            the column with the row's id
 *   occurred_at   the column with the time of the event
 *   busy, done    the values of `status` for a claimed row and for a finished row
 *   done_at       the column with the time at which a row became `done`
 *   swept         the condition for rows that sweep() deletes, word for word as in the index
 *                 <table>_ended
 *   ended_at      an expression for the time from which sweep() counts the age of a row
 */
#define SQLITE_CLAIMS(table, id, occurred_at, busy, done, done_at, swept, ended_at)                \
	{                                                                                          \
		.base = {.ops = &sqlite_claims_ops},                                               \
		.due = SQLITE_CLAIM_DUE_SQL(table, id, occurred_at, busy),                         \
		.take = SQLITE_CLAIM_TAKE_SQL(table, busy),                                        \
		.end = SQLITE_CLAIM_END_SQL(table, id, busy, done, done_at),                       \
		.renew = SQLITE_CLAIM_RENEW_SQL(table, id, busy),                                  \
		.count = SQLITE_CLAIM_COUNT_SQL(table, busy),                                      \
		.sweep = SQLITE_CLAIM_SWEEP_SQL(table, swept, ended_at),                           \
		.list = {.sql = SQLITE_CLAIM_LIST_SQL(table, id, done_at),                         \
			.row_size = sizeof(struct claim_row),                                      \
			.fill = sqlite_claim_fill},                                                \
	}

#endif
