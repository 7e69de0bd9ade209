/*
 * Analyzes tables whose size the planner underestimates.
 *
 * To estimate how many rows a table has, the planner multiplies the present number of pages by the
 * rows per page that the last ANALYZE found. An ANALYZE right after all rows were deleted finds
 * zero rows per page. From then on the planner treats the table as empty, however large it becomes,
 * and reads the whole primary key for each row of a batch. Autovacuum analyzes the table within a
 * minute or so, unless autovacuum is switched off or busy.
 *
 * On Citus, the query below finds no distributed tables, because their rows are in shards and not
 * in the coordinator's tables.
 */
#include "adapters/store/postgres/postgres_statistics.h"

#include "base/clock.h"
#include "base/log.h"

#define LOOK_NS (5 * NS_PER_S)

/* Returns the names of the tables for which the planner expects less than a tenth of the rows that
 * they have, and statements that analyze these tables without a timeout. Skips tables with fewer
 * than 1000 rows, and tables that this user may not analyze. */
static const char misjudged[] =
	"SELECT string_agg(c.relname, ', '), "
	"    'SET LOCAL statement_timeout = 0; ' || "
	"    string_agg(format('ANALYZE %s', c.oid::regclass), '; ') "
	"FROM pg_stat_user_tables s "
	"JOIN pg_class c ON c.oid = s.relid "
	"WHERE c.relnamespace = current_schema()::regnamespace AND c.relpages > 0 "
	"  AND s.n_live_tup >= 1000 AND pg_has_role(c.relowner, 'USAGE') "
	"  AND c.reltuples / c.relpages * pg_relation_size(c.oid) "
	"    / current_setting('block_size')::int < s.n_live_tup / 10 "
	"HAVING count(*) > 0";

static void ask(struct pg_statistics *statistics, PGconn *connection, const char *sql)
{
	statistics->is_asked = PQsendQuery(connection, sql) == 1;
}

/* Keeps the result of `misjudged` if it has a row. Drops the results of ANALYZE, which have no
 * rows. */
static void take(struct pg_statistics *statistics, PGresult *result)
{
	if (!statistics->tables && PQntuples(result) == 1)
		statistics->tables = result;
	else
		PQclear(result);
}

/* Called after the last result of a query. */
static void conclude(struct pg_statistics *statistics, PGconn *connection, const char *name)
{
	PGresult *tables = statistics->tables;

	statistics->is_asked = false;
	statistics->tables = NULL;
	if (!tables)
		return;
	log_line(LOG_INFO, "store", "%s: analyzing tables that have grown: %s", name,
		PQgetvalue(tables, 0, 0));
	ask(statistics, connection, PQgetvalue(tables, 0, 1));
	PQclear(tables);
}

void pg_statistics_step(struct pg_statistics *statistics, PGconn *connection, const char *name)
{
	int64_t now_ns = clock_steady_ns(&clock_system);

	if (!statistics->is_asked && now_ns >= statistics->due_at_ns) {
		statistics->due_at_ns = now_ns + LOOK_NS;
		ask(statistics, connection, misjudged);
	}
	while (statistics->is_asked && !PQisBusy(connection)) {
		PGresult *result = PQgetResult(connection);

		if (result)
			take(statistics, result);
		else
			conclude(statistics, connection, name);
	}
}

void pg_statistics_reset(struct pg_statistics *statistics)
{
	PQclear(statistics->tables);
	*statistics = (struct pg_statistics){0};
}
