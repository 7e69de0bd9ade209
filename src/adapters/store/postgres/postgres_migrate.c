/* Applies the migrations that are built into the program. An advisory lock makes processes that
 * start at the same time take turns. */
#include <stdlib.h>

#include "adapters/store/postgres/postgres_internal.h"
#include "base/log.h"
#include "ports/migration.h"

/* An arbitrary number, the same in every Quipu process. */
#define MIGRATION_LOCK "7310579611"

static bool execute(PGconn *connection, const char *sql, char *why, size_t size)
{
	PGresult *result = PQexec(connection, sql);
	ExecStatusType status = PQresultStatus(result);

	PQclear(result);
	if (status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK)
		return true;
	pg_explain(connection, why, size);
	return false;
}

/* Returns the number of the component's last migration that has been applied, 0 if none has been
 * applied, or -1 on failure. */
static int applied_version(PGconn *connection, const char *component, char *why, size_t size)
{
	PGresult *result = PQexecParams(connection,
		"SELECT coalesce(max(version), 0) FROM schema_migrations WHERE component = $1", 1,
		NULL, &component, NULL, NULL, 0);
	int version = -1;

	if (PQresultStatus(result) == PGRES_TUPLES_OK)
		version = atoi(PQgetvalue(result, 0, 0));
	else
		pg_explain(connection, why, size);
	PQclear(result);
	return version;
}

static bool record(PGconn *connection, const struct migration *migration, char *why, size_t size)
{
	char version[16];
	const char *values[3] = {migration->component, version, migration->name};
	PGresult *result;
	bool ok;

	snprintf(version, sizeof(version), "%d", migration->version);
	result = PQexecParams(connection,
		"INSERT INTO schema_migrations (component, version, name) VALUES ($1, $2, $3)", 3,
		NULL, values, NULL, NULL, 0);
	ok = PQresultStatus(result) == PGRES_COMMAND_OK;
	if (!ok)
		pg_explain(connection, why, size);
	PQclear(result);
	return ok;
}

static bool apply(PGconn *connection, const struct migration *migration, char *why, size_t size)
{
	char ignored[256];

	if (execute(connection, "BEGIN", why, size) &&
		execute(connection, migration->sql, why, size) &&
		record(connection, migration, why, size) &&
		execute(connection, "COMMIT", why, size)) {
		log_line(LOG_INFO, "store", "migration %s/%04d %s applied", migration->component,
			migration->version, migration->name);
		return true;
	}
	if (!execute(connection, "ROLLBACK", ignored, sizeof(ignored)))
		log_line(LOG_WARN, "store", "a failed migration could not be rolled back: %s",
			ignored);
	return false;
}

static bool migrate_component(PGconn *connection, const char *component, char *why, size_t size)
{
	int applied = applied_version(connection, component, why, size);
	int known = 0;

	if (applied < 0)
		return false;
	for (size_t i = 0; i < migration_count; i++) {
		const struct migration *migration = &migrations[i];

		if (strcmp(migration->engine, "postgres") != 0 ||
			strcmp(migration->component, component) != 0)
			continue;
		known = migration->version;
		if (migration->version > applied && !apply(connection, migration, why, size))
			return false;
	}
	if (applied > known) {
		snprintf(why, size,
			"the schema of %s is version %d, newer than this program knows (%d); run "
			"the newer version, or restore a backup from before the upgrade",
			component, applied, known);
		return false;
	}
	return true;
}

bool pg_migration_lock(PGconn *connection, char *why, size_t size)
{
	return execute(connection,
		"SET lock_timeout = 0; SET statement_timeout = 0; "
		"SELECT pg_advisory_lock(" MIGRATION_LOCK ")",
		why, size);
}

bool pg_migrate(PGconn *connection, const char *const *components, char *why, size_t size)
{
	bool ok = pg_migration_lock(connection, why, size) &&
		  execute(connection,
			  "CREATE TABLE IF NOT EXISTS schema_migrations (component text NOT NULL, "
			  "version integer NOT NULL, name text NOT NULL, "
			  "applied_at timestamptz NOT NULL DEFAULT now(), "
			  "PRIMARY KEY (component, version))",
			  why, size);

	for (; ok && *components; components++)
		ok = migrate_component(connection, *components, why, size);
	return ok;
}
