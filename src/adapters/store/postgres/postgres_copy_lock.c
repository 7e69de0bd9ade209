/*
 * Quipu's servers and `quipu copy` never use the tables of a database at the same time: every
 * connection through which a server uses tables holds a lock in shared mode, and a copy holds the
 * same lock in exclusive mode. The connection of each session holds the lock, in addition to the
 * connection of the store's watcher thread, so a copy cannot begin while any session could still
 * write. (The connection that carries announcements, in postgres_waker.c, does not hold the lock,
 * because it uses no tables.) PostgreSQL releases the lock when the connection ends, however the
 * process ends. On Citus, each node has a lock of its own, so a copy does not detect servers that
 * are connected to other nodes (docs/SCALING.md).
 *
 * The lock protects the database while a copy runs. After an interrupted copy, the copy's row in
 * quipu_copy keeps servers out. A server first takes the lock and then checks that row, so no copy
 * can begin after the check.
 *
 * No process waits in PostgreSQL's queue for the lock. If a copy waited in that queue, new sessions
 * of a running server could no longer take the lock. A copy that was started with the wrong URL by
 * mistake must not disturb a server in this way.
 */
#include "adapters/store/postgres/postgres_copy_lock.h"

#include <time.h>

#include "base/clock.h"

/* An arbitrary number, the same in every Quipu process. */
#define COPY_LOCK "7310579613"

/* A copy tries to take the lock several times, for two reasons: the connections of a process that
 * has just ended may still hold the lock; and a server that waits until an interrupted copy is
 * finished takes the lock briefly each time it tries to connect. */
#define TRIES 20
#define TRY_AGAIN_MS 100

/* Runs a query that returns one boolean, and sets `answer` to it. If the query fails, returns false
 * with a reason in `why`. */
static bool ask(PGconn *connection, const char *sql, bool *answer, char *why, size_t size)
{
	PGresult *result = PQexec(connection, sql);
	bool ok = PQresultStatus(result) == PGRES_TUPLES_OK && PQntuples(result) == 1;

	if (ok)
		*answer = strcmp(PQgetvalue(result, 0, 0), "t") == 0;
	else
		pg_explain(connection, why, size);
	PQclear(result);
	return ok;
}

/* ---- servers ----------------------------------------------------------------------------- */

static bool no_copy_runs(PGconn *connection, char *why, size_t size)
{
	bool is_shared;

	if (!ask(connection, "SELECT pg_try_advisory_lock_shared(" COPY_LOCK ")", &is_shared, why,
		    size))
		return false;
	if (!is_shared)
		snprintf(why, size, "quipu copy is writing to this database");
	return is_shared;
}

/* Returns true if every copy to this database is finished. The connection must hold the lock. */
static bool is_whole(PGconn *connection, char *why, size_t size)
{
	bool may_be_half, is_whole;
	PGresult *result;

	if (!ask(connection, "SELECT to_regclass('quipu_copy') IS NOT NULL", &may_be_half, why,
		    size))
		return false;
	if (!may_be_half)
		return true;
	result = PQexec(connection, "SELECT source FROM quipu_copy WHERE finished_at IS NULL");
	is_whole = PQresultStatus(result) == PGRES_TUPLES_OK && PQntuples(result) == 0;
	if (PQresultStatus(result) != PGRES_TUPLES_OK)
		pg_explain(connection, why, size);
	else if (!is_whole)
		snprintf(why, size,
			"the copy from %s to this database is not finished; run quipu copy again",
			PQgetvalue(result, 0, 0));
	PQclear(result);
	return is_whole;
}

bool pg_admit_server(PGconn *connection, char *why, size_t size)
{
	return no_copy_runs(connection, why, size) && is_whole(connection, why, size);
}

/* ---- the copy ---------------------------------------------------------------------------- */

/* Writes to `why` which kind of process holds the lock. */
static void explain_lock(PGconn *connection, char *why, size_t size)
{
	bool is_copy;

	if (ask(connection,
		    "SELECT coalesce(bool_or(mode = 'ExclusiveLock'), false) FROM pg_locks "
		    "WHERE locktype = 'advisory' AND objsubid = 1 AND granted "
		    "AND database = (SELECT oid FROM pg_database "
		    "WHERE datname = current_database()) "
		    "AND classid = (" COPY_LOCK " >> 32)::oid "
		    "AND objid = (" COPY_LOCK " & 4294967295)::oid",
		    &is_copy, why, size))
		snprintf(why, size, "%s",
			is_copy ? "another quipu copy is writing to this database"
				: "a Quipu server uses this database; stop it first");
}

bool pg_admit_copy(PGconn *connection, char *why, size_t size)
{
	const struct timespec pause = {.tv_nsec = TRY_AGAIN_MS * NS_PER_MS};
	bool is_alone = false;

	for (int i = 0; i < TRIES && !is_alone; i++) {
		if (i > 0)
			nanosleep(&pause, NULL);
		if (!ask(connection, "SELECT pg_try_advisory_lock(" COPY_LOCK ")", &is_alone, why,
			    size))
			return false;
	}
	if (!is_alone)
		explain_lock(connection, why, size);
	return is_alone;
}
