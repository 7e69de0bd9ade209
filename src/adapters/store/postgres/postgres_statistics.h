/* Corrects the planner's statistics of tables that have grown since they were last analyzed. */
#ifndef QUIPU_ADAPTERS_STORE_POSTGRES_POSTGRES_STATISTICS_H
#define QUIPU_ADAPTERS_STORE_POSTGRES_POSTGRES_STATISTICS_H

#include "adapters/store/postgres/postgres_internal.h"

/* Belongs to one connection; all zero when the connection is new. */
struct pg_statistics {
	int64_t due_at_ns; /* when to look for wrong statistics again, in monotonic time */
	bool is_asked;     /* a query is under way */
	PGresult *tables;  /* the query's result if it names tables to analyze; otherwise NULL */
};

/*
 * Every few seconds, looks for tables that have more than ten times as many rows as the planner
 * expects, and analyzes them. Never waits for the server: each call begins a query or reads the
 * results that have arrived. Call this function after every PQconsumeInput(). The connection must
 * have no other use. Ignores queries that fail. `name` is the store's name, for the log.
 */
void pg_statistics_step(struct pg_statistics *statistics, PGconn *connection, const char *name);

/* Forgets the query that is under way. Call this when the connection is closed. */
void pg_statistics_reset(struct pg_statistics *statistics);

#endif
