/*
 * The two dialects of SQL that the adapter speaks: PostgreSQL's own, and that of a PostgreSQL with
 * Citus, whose tables may be spread over several nodes. A connection learns from the server which
 * one it needs. All differences between them are data, in postgres_dialect.c and postgres_citus.c.
 */
#ifndef QUIPU_ADAPTERS_STORE_POSTGRES_POSTGRES_DIALECT_H
#define QUIPU_ADAPTERS_STORE_POSTGRES_POSTGRES_DIALECT_H

#include "adapters/store/postgres/postgres_internal.h"

/* A table of statements. */
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
	const char *settings; /* of every session, besides those that all dialects share */
	bool commits_alone;   /* if a statement without BEGIN fails, it has changed nothing */
	const struct pg_statements *const *tables; /* replace statements with the same name; ends
						      with NULL */
};

extern const struct pg_dialect pg_dialect_plain;
extern const struct pg_dialect pg_dialect_citus;

/*
 * Settings that keep locks short and in order: how long a statement waits for a row, and a planner
 * that can only use nested loops with one index lookup per row. Expands to USE(name, value) for
 * each setting. Sessions set them; nodes that run parts of a statement also need them (see
 * postgres_distribute.c).
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

/* SQL that returns a row if the server has Citus. It can follow other statements. */
#define PG_DIALECT_QUERY "SELECT 1 FROM pg_extension WHERE extname = 'citus'"

/* Returns the dialect from the result of PG_DIALECT_QUERY. */
const struct pg_dialect *pg_dialect_of(const PGresult *result);

/* Returns the text of a statement in a dialect. */
const char *pg_dialect_sql(const struct pg_dialect *dialect, const struct pg_statement *statement);

/* ---- distributing tables ---- */

/*
 * Prints the statements that spread the tables over the nodes of a cluster, and executes them
 * unless this is a dry run. Leaves out what has already been done. On failure returns false with a
 * reason in `why`.
 */
QP_MUST_CHECK bool pg_distribute(
	PGconn *connection, bool dry_run, FILE *out, char *why, size_t size);

/* Logs a warning if pg_distribute() still has something to do. */
void pg_distribute_check(PGconn *connection, const char *store);

#endif
