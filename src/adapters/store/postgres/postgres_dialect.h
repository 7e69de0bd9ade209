/*
 * The adapter uses two dialects of SQL: one for plain PostgreSQL, and one for PostgreSQL with
 * Citus, where tables may be spread over several nodes. PG_DIALECT_QUERY determines which dialect a
 * new connection uses. The dialects differ in their settings (postgres_dialect.c,
 * postgres_citus.c). In the dialect of Citus, some statements are replaced (postgres_citus*.c).
 */
#ifndef QUIPU_ADAPTERS_STORE_POSTGRES_POSTGRES_DIALECT_H
#define QUIPU_ADAPTERS_STORE_POSTGRES_POSTGRES_DIALECT_H

#include "adapters/store/postgres/postgres_internal.h"

/* A list of statements. */
struct pg_statements {
	const struct pg_statement *all;
	size_t count;
};

#define PG_STATEMENTS(array)                                                                       \
	{                                                                                          \
		(array), sizeof(array) / sizeof((array)[0])                                        \
	}

struct pg_dialect {
	const char *name;
	/* SQL that each session executes to apply the settings that only this dialect needs */
	const char *settings;
	/* a statement without BEGIN is atomic: if it fails, it has changed nothing */
	bool commits_alone;
	/* sent once in each transaction for which pg_need_two_phases() was called; NULL if there is
	 * nothing to send */
	const struct pg_statement *two_phases;
	const struct pg_statements *const *tables; /* see pg_dialect_sql(); NULL-terminated */
};

extern const struct pg_dialect pg_dialect_plain;
extern const struct pg_dialect pg_dialect_citus;

/*
 * Settings that keep locks short and in order: they limit how long a statement waits for a row, and
 * allow the planner only nested loops with one index look-up per row. Expands to USE(name, value)
 * for each setting. Sessions use these settings; nodes that run parts of a statement also need them
 * (see postgres_distribute.c).
 */
#define PG_LOCK_SETTINGS(USE)                                                                      \
	USE("lock_timeout", "100ms")                                                               \
	USE("enable_hashjoin", "off")                                                              \
	USE("enable_mergejoin", "off")                                                             \
	USE("enable_seqscan", "off")                                                               \
	USE("enable_bitmapscan", "off")                                                            \
	USE("enable_material", "off")                                                              \
	USE("enable_memoize", "off")                                                               \
	USE("jit", "off")

/* SQL that returns a row if the server has Citus. It may be the last of several statements that one
 * PQexec() sends, because PQexec() returns the result of the last statement. */
#define PG_DIALECT_QUERY "SELECT 1 FROM pg_extension WHERE extname = 'citus'"

/* Returns the dialect from the result of PG_DIALECT_QUERY. */
const struct pg_dialect *pg_dialect_of(const PGresult *result);

/* Returns the SQL of a statement in a dialect. If dialect->tables has a statement with the same
 * name, that statement replaces `statement`. */
const char *pg_dialect_sql(const struct pg_dialect *dialect, const struct pg_statement *statement);

/* ---- distributing tables ---- */

/*
 * Prints the statements that spread the tables over the nodes of a cluster and that configure the
 * workers, and executes these statements unless this is a dry run. Leaves out tables that are
 * already distributed. Leaves out the settings of the workers if all of them are already right. On
 * failure returns false with a reason in `why`.
 */
QP_MUST_CHECK bool pg_distribute(
	PGconn *connection, bool dry_run, FILE *out, char *why, size_t size);

/*
 * Returns whether Quipu can use the Citus node that `connection` is connected to: the coordinator,
 * or any worker that sees the table schema_migrations (docs/SCALING.md). For any other worker,
 * returns false with the reason in `why`; do not apply migrations then, because they would create
 * tables on that worker only.
 */
QP_MUST_CHECK bool pg_distribute_admits(PGconn *connection, char *why, size_t size);

/* Logs a warning if pg_distribute() still has something to do. */
void pg_distribute_check(PGconn *connection, const char *store);

#endif
