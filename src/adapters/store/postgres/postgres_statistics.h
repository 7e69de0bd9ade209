/* Keeps PostgreSQL's planner from taking a table that has grown for an empty one. */
#ifndef QUIPU_ADAPTERS_STORE_POSTGRES_POSTGRES_STATISTICS_H
#define QUIPU_ADAPTERS_STORE_POSTGRES_POSTGRES_STATISTICS_H

#include "adapters/store/postgres/postgres_internal.h"

/* Belongs to one connection; all zero when the connection is new. */
struct pg_statistics {
	int64_t due_at_ns; /* when to look again, in monotonic time */
	bool is_asked;     /* a query is under way */
	PGresult *tables;  /* its row that names the tables to analyze; or NULL */
};

/*
 * Every few seconds, looks for tables whose statistics miss most of their rows, and analyzes them.
 * Never waits for the server: each call begins a query or takes what has arrived, so call it
 * whenever input of the connection was consumed. The connection must have no other use. A failure
 * changes nothing. `name` is the store's, for the log.
 */
void pg_statistics_step(struct pg_statistics *statistics, PGconn *connection, const char *name);

/* Forgets what was under way when the connection is closed. */
void pg_statistics_reset(struct pg_statistics *statistics);

#endif
