/*
 * Spreads the tables over the nodes of a Citus cluster, for `quipu migrate --distribute`.
 *
 * All distributed tables are divided into shards in the same way. Shards that hold the same range
 * of hashed keys are on the same node, whichever table they belong to, and Citus moves them
 * together (colocation). Therefore all rows of one user are always on one node, and a batch
 * involves only the nodes of its keys. Idempotency-Keys are spread by key. If they were spread by
 * user or item, the use of one key for two users or items would not be detected.
 *
 * A run skips tables that are already distributed, and skips the settings of the workers if all of
 * them are right. Therefore, after an interrupted run, the next run continues where that run
 * stopped.
 */
#include <stdarg.h>
#include <stdlib.h>

#include "adapters/store/postgres/postgres_dialect.h"
#include "base/log.h"

#define STATEMENT_MAX 1024

/* The tables to distribute, and the column by which each is distributed. All other tables stay on
 * the coordinator; postgres_citus.c says why. */
static const struct {
	const char *table;
	const char *column;
} placements[] = {
	{"count_values", "item_id"},
	{"rate_limit_store", "user_id"},
	{"entitlements", "user_id"},
	{"entitlement_sources", "user_id"},
	/* Citus distributes this table's partitions too, including those of later months. */
	{"entitlement_audit", "user_id"},
	{"messages", "receiver_id"},
	{"conversations", "user_id"},
	{"counters", "user_id"},
	{"counter_messages", "user_id"},
	{"idempotency_keys", "key"},
};

#define PLACEMENT_COUNT (sizeof(placements) / sizeof(placements[0]))

static const struct {
	const char *name;
	const char *value;
} node_settings[] = {
#define AS_PAIR(name, value) {name, value},
	PG_LOCK_SETTINGS(AS_PAIR)};

#define NODE_SETTING_COUNT (sizeof(node_settings) / sizeof(node_settings[0]))

struct distribution {
	PGconn *connection;
	bool dry_run;
	FILE *out;
	size_t step_count; /* how many steps were executed, or printed in a dry run */
	char *why;
	size_t why_size;
};

static bool explain(struct distribution *distribution, const char *sql)
{
	snprintf(distribution->why, distribution->why_size, "%s: %s", sql,
		PQerrorMessage(distribution->connection));
	return false;
}

/* Returns the number in a query's only row, or -1 on failure. `parameter` is the value of $1, or
 * NULL if the query has no parameter. */
static int64_t ask(struct distribution *distribution, const char *sql, const char *parameter)
{
	PGresult *result = PQexecParams(
		distribution->connection, sql, parameter ? 1 : 0, NULL, &parameter, NULL, NULL, 0);
	int64_t number = -1;

	if (PQresultStatus(result) == PGRES_TUPLES_OK && PQntuples(result) == 1)
		number = atoll(PQgetvalue(result, 0, 0));
	else
		explain(distribution, sql);
	PQclear(result);
	return number;
}

/* Prints a statement and, unless this is a dry run, executes it. */
static bool QP_PRINTF(2, 3) step(struct distribution *distribution, const char *format, ...)
{
	char sql[STATEMENT_MAX];
	va_list arguments;
	PGresult *result;
	bool ok;

	va_start(arguments, format);
	vsnprintf(sql, sizeof(sql), format, arguments);
	va_end(arguments);
	distribution->step_count++;
	if (distribution->out)
		fprintf(distribution->out, "%s;\n", sql);
	if (distribution->dry_run)
		return true;
	result = PQexec(distribution->connection, sql);
	ok = PQresultStatus(result) == PGRES_COMMAND_OK ||
	     PQresultStatus(result) == PGRES_TUPLES_OK;
	PQclear(result);
	return ok ? true : explain(distribution, sql);
}

/* ---- tables ------------------------------------------------------------------------------ */

/* Returns 0 if the table $1 does not exist, 1 if it is on one node, 2 if it is distributed but its
 * original rows are still on the coordinator, 3 if it is distributed completely. */
#define STATE_SQL                                                                                  \
	"SELECT CASE WHEN to_regclass($1) IS NULL THEN 0 "                                         \
	"WHEN NOT EXISTS (SELECT FROM pg_dist_partition WHERE logicalrelid = to_regclass($1)) "    \
	"THEN 1 WHEN pg_relation_size(to_regclass($1)) > 0 THEN 2 ELSE 3 END"

/*
 * Distributes a table. If `beside` is not NULL, it names a table that is already distributed, and
 * each new shard is stored on the node of the corresponding shard of that table. Citus copies the
 * rows to the shards; the originals stay on the coordinator, invisible, until they are truncated.
 */
static bool distribute_table(struct distribution *distribution, const char *table,
	const char *column, const char *beside)
{
	return step(distribution,
		"SELECT create_distributed_table('%s', '%s', colocate_with => '%s')", table, column,
		beside ? beside : "default");
}

static bool truncate_originals(struct distribution *distribution, const char *table)
{
	return step(
		distribution, "SELECT truncate_local_data_after_distributing_table('%s')", table);
}

static bool distribute_tables(struct distribution *distribution)
{
	const char *beside = NULL;

	for (size_t i = 0; i < PLACEMENT_COUNT; i++) {
		const char *table = placements[i].table;
		int64_t state = ask(distribution, STATE_SQL, table);

		if (state < 0 || (state == 1 && !distribute_table(distribution, table,
							placements[i].column, beside)))
			return false;
		if ((state == 1 || state == 2) && !truncate_originals(distribution, table))
			return false;
		if (state > 0 && !beside)
			beside = table;
	}
	return true;
}

/* ---- settings of the workers ------------------------------------------------------------- */

#define AS_SHOWN(name, value) " || current_setting('" name "') || ' '"
#define AS_EXPECTED(name, value) value " "

/* Returns the number of workers that have a wrong value for one of PG_LOCK_SETTINGS or do not
 * answer. */
#define UNSET_SQL                                                                                  \
	"SELECT count(*) FROM run_command_on_workers($quipu$SELECT ''" PG_LOCK_SETTINGS(           \
		AS_SHOWN) "$quipu$) WHERE result IS DISTINCT FROM '" PG_LOCK_SETTINGS(AS_EXPECTED) "'"

/* Sets the default of a setting for this user in this database, on all workers. */
static bool configure(struct distribution *distribution, const char *role, const char *database,
	const char *name, const char *value)
{
	return step(distribution,
		"SELECT run_command_on_workers($quipu$SET citus.enable_ddl_propagation = off; "
		"ALTER ROLE %s IN DATABASE %s SET %s = '%s'$quipu$)",
		role, database, name, value);
}

static bool configure_all(struct distribution *distribution)
{
	const char *sql = "SELECT quote_ident(current_user), quote_ident(current_database())";
	PGresult *names = PQexec(distribution->connection, sql);
	bool ok = PQresultStatus(names) == PGRES_TUPLES_OK || explain(distribution, sql);

	for (size_t i = 0; ok && i < NODE_SETTING_COUNT; i++)
		ok = configure(distribution, PQgetvalue(names, 0, 0), PQgetvalue(names, 0, 1),
			node_settings[i].name, node_settings[i].value);
	PQclear(names);
	return ok;
}

/*
 * Citus opens its own connections to the workers, as the same user, and does not pass on the
 * session's settings. Therefore this function changes the user's defaults on the workers.
 * run_command_on_workers() succeeds even if a worker refuses the command, so this function reads
 * the settings back to check them.
 */
static bool configure_workers(struct distribution *distribution)
{
	int64_t unset = ask(distribution, UNSET_SQL, NULL);

	if (unset <= 0)
		return unset == 0;
	if (!configure_all(distribution))
		return false;
	if (distribution->dry_run || ask(distribution, UNSET_SQL, NULL) == 0)
		return true;
	snprintf(distribution->why, distribution->why_size,
		"a worker does not have the settings that were just printed; check that the "
		"coordinator can reach all workers as this user");
	return false;
}

/* ---- entry points ------------------------------------------------------------------------ */

bool pg_distribute(PGconn *connection, bool dry_run, FILE *out, char *why, size_t size)
{
	struct distribution distribution = {
		.connection = connection,
		.dry_run = dry_run,
		.out = out,
		.why = why,
		.why_size = size,
	};
	int64_t has_citus = ask(
		&distribution, "SELECT count(*) FROM pg_extension WHERE extname = 'citus'", NULL);

	if (has_citus == 0)
		snprintf(why, size,
			"the database has no Citus; run CREATE EXTENSION citus on every node and "
			"add the workers first (docs/SCALING.md)");
	return has_citus > 0 && distribute_tables(&distribution) &&
	       configure_workers(&distribution);
}

bool pg_distribute_admits(PGconn *connection, char *why, size_t size)
{
	struct distribution distribution = {.connection = connection, .why = why, .why_size = size};
	int64_t admits = ask(&distribution,
		"SELECT (citus_is_coordinator() OR to_regclass('schema_migrations') IS NOT "
		"NULL)::int",
		NULL);

	if (admits == 0)
		snprintf(why, size,
			"the server is a worker of a Citus cluster; name the coordinator in the "
			"URL, or first prepare the workers as docs/SCALING.md describes");
	return admits > 0;
}

void pg_distribute_check(PGconn *connection, const char *store)
{
	char why[256];
	struct distribution distribution = {
		.connection = connection,
		.dry_run = true,
		.why = why,
		.why_size = sizeof(why),
	};

	if (!distribute_tables(&distribution) || !configure_workers(&distribution))
		log_line(LOG_WARN, "store",
			"%s: cannot find out how the tables are distributed: %s", store, why);
	else if (distribution.step_count > 0)
		log_line(LOG_WARN, "store",
			"%s: the database has Citus, but the tables or the workers are not "
			"prepared for it; run \"quipu migrate --distribute\" (with --dry-run, "
			"it only prints the statements)",
			store);
}
