/* Brings the schema of a file up to date. The table schema_migrations in the file records the
 * migrations that were applied. */
#include <stdio.h>

#include "adapters/store/sqlite/sqlite_internal.h"
#include "base/log.h"
#include "ports/migration.h"

static const char table_sql[] = "CREATE TABLE IF NOT EXISTS schema_migrations ("
				"component TEXT NOT NULL, version INTEGER NOT NULL, "
				"name TEXT NOT NULL, applied_at INTEGER NOT NULL, "
				"PRIMARY KEY (component, version)) STRICT, WITHOUT ROWID";

/* clang-format off */
static const char newest_sql[] =
	"SELECT coalesce(max(version), 0) "
	"FROM schema_migrations "
	"WHERE component = ?1";

static const char record_sql[] =
	"INSERT INTO schema_migrations (component, version, name, applied_at) "
	"VALUES (?1, ?2, ?3, ?4)";
/* clang-format on */

static const char begin_sql[] = "BEGIN IMMEDIATE";
static const char commit_sql[] = "COMMIT";

static int newest_applied(struct sqlite_connection *connection, const char *component, int *version)
{
	sqlite3_stmt *stmt;
	int rc = sqlite_connection_statement(connection, newest_sql, &stmt);

	if (rc == SQLITE_OK)
		rc = sqlite3_bind_text(stmt, 1, component, -1, SQLITE_STATIC);
	if (rc != SQLITE_OK)
		return rc;
	rc = sqlite3_step(stmt);
	if (rc == SQLITE_ROW)
		*version = sqlite3_column_int(stmt, 0);
	sqlite3_reset(stmt);
	sqlite3_clear_bindings(stmt);
	return rc == SQLITE_ROW ? SQLITE_OK : rc;
}

static int record(
	struct sqlite_connection *connection, const struct migration *migration, int64_t now_us)
{
	sqlite3_stmt *stmt;
	int rc = sqlite_connection_statement(connection, record_sql, &stmt);

	if (rc != SQLITE_OK)
		return rc;
	sqlite3_bind_text(stmt, 1, migration->component, -1, SQLITE_STATIC);
	sqlite3_bind_int(stmt, 2, migration->version);
	sqlite3_bind_text(stmt, 3, migration->name, -1, SQLITE_STATIC);
	sqlite3_bind_int64(stmt, 4, now_us);
	rc = sqlite3_step(stmt);
	sqlite3_reset(stmt);
	sqlite3_clear_bindings(stmt);
	return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

/* Applies a migration in one transaction, unless it has already been applied. A failure leaves the
 * transaction open. */
static int apply(struct sqlite_store *store, const struct migration *migration)
{
	struct sqlite_connection *connection = &store->writer.connection;
	int newest = 0;
	int rc = sqlite_connection_run(connection, begin_sql);

	if (rc == SQLITE_OK)
		rc = newest_applied(connection, migration->component, &newest);
	if (rc == SQLITE_OK && migration->version > newest) {
		log_line(LOG_INFO, "store", "%s: applying %s/%04d_%s", store->base.name,
			migration->component, migration->version, migration->name);
		rc = sqlite3_exec(connection->db, migration->sql, NULL, NULL, NULL);
		if (rc == SQLITE_OK)
			rc = record(connection, migration, clock_wall_us(store->clock));
	}
	return rc == SQLITE_OK ? sqlite_connection_run(connection, commit_sql) : rc;
}

static bool is_of(const struct migration *migration, const char *component)
{
	return !strcmp(migration->engine, "sqlite") && !strcmp(migration->component, component);
}

static int newest_known(const char *component)
{
	int newest = 0;

	for (size_t i = 0; i < migration_count; i++) {
		if (is_of(&migrations[i], component) && migrations[i].version > newest)
			newest = migrations[i].version;
	}
	return newest;
}

static int apply_all(struct sqlite_store *store, const char *component)
{
	int rc = SQLITE_OK;

	for (size_t i = 0; i < migration_count && rc == SQLITE_OK; i++) {
		if (is_of(&migrations[i], component))
			rc = apply(store, &migrations[i]);
	}
	return rc;
}

static bool failed(struct sqlite_store *store, int rc, char *why, size_t size)
{
	char words[SQLITE_WORDS_SIZE];

	sqlite_connection_explain(&store->writer.connection, rc, words);
	snprintf(
		why, size, "the schema of %s cannot be brought up to date: %s", store->path, words);
	return false;
}

bool sqlite_migrate(struct sqlite_store *store, char *why, size_t size)
{
	struct sqlite_connection *connection = &store->writer.connection;
	int rc = sqlite_connection_run(connection, table_sql);

	for (const char *const *component = store->components; *component; component++) {
		int newest = 0;

		if (rc == SQLITE_OK)
			rc = newest_applied(connection, *component, &newest);
		if (rc == SQLITE_OK && newest > newest_known(*component)) {
			snprintf(why, size,
				"%s was written by a newer quipu: its schema \"%s\" has version "
				"%d, but this quipu supports only versions up to %d; run the newer "
				"quipu again, or restore a backup from before the upgrade",
				store->path, *component, newest, newest_known(*component));
			return false;
		}
		if (rc == SQLITE_OK)
			rc = apply_all(store, *component);
	}
	return rc == SQLITE_OK || failed(store, rc, why, size);
}
