/*
 * Opens and uses one SQLite connection, and explains its failures.
 *
 * Each statement is prepared once and then found by the address of its SQL text, so callers need
 * not keep the statement. Invariant: a connection whose `db` is NULL has no statements.
 * sqlite3_close() cannot fail, because sqlite_connection_close() first finalizes every statement.
 */
#include "adapters/shared/sqlite_connection.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/*
 * Configures a new connection. By default SQLite checkpoints when the last connection is closed.
 * This function switches that off for two reasons: only the writer may checkpoint, and the
 * write-ahead log is still needed when the file is reopened after an I/O error.
 */
static int configure(sqlite3 *db, const char *pragmas)
{
	int rc = sqlite3_db_config(db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);

	if (rc == SQLITE_OK)
		rc = sqlite3_busy_timeout(db, SQLITE_BUSY_TIMEOUT_MS);
	if (rc == SQLITE_OK)
		rc = sqlite3_exec(db, pragmas, NULL, NULL, NULL);
	return rc;
}

int sqlite_connection_open(
	struct sqlite_connection *connection, const char *path, int flags, const char *pragmas)
{
	int rc;

	assert(!connection->db);
	flags |= SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE | SQLITE_OPEN_EXRESCODE;
	rc = sqlite3_open_v2(path, &connection->db, flags, NULL);
	if (rc == SQLITE_OK)
		rc = configure(connection->db, pragmas);
	if (rc != SQLITE_OK)
		sqlite_connection_close(connection);
	return rc;
}

/* Switches to the write-ahead log. Returns SQLITE_IOERR_SHMOPEN if SQLite stays in another journal
 * mode. */
static int use_wal(sqlite3 *db)
{
	sqlite3_stmt *stmt;
	int rc = sqlite3_prepare_v2(db, "PRAGMA journal_mode = WAL", -1, &stmt, NULL);

	if (rc != SQLITE_OK)
		return rc;
	rc = sqlite3_step(stmt);
	if (rc == SQLITE_ROW) {
		const char *mode = (const char *)sqlite3_column_text(stmt, 0);

		rc = mode && !strcmp(mode, "wal") ? SQLITE_OK : SQLITE_IOERR_SHMOPEN;
	}
	sqlite3_finalize(stmt);
	return rc == SQLITE_DONE ? SQLITE_IOERR_SHMOPEN : rc;
}

int sqlite_connection_open_writer(
	struct sqlite_connection *connection, const char *path, int flags, const char *pragmas)
{
	int rc = sqlite_connection_open(connection, path, SQLITE_OPEN_READWRITE | flags, pragmas);

	if (rc != SQLITE_OK)
		return rc;
	if (sqlite3_db_readonly(connection->db, "main") == 1)
		rc = SQLITE_READONLY;
	if (rc == SQLITE_OK)
		rc = use_wal(connection->db);
	if (rc != SQLITE_OK)
		sqlite_connection_close(connection);
	return rc;
}

void sqlite_connection_close(struct sqlite_connection *connection)
{
	int rc;

	for (size_t i = 0; i < connection->statement_count; i++)
		sqlite3_finalize(connection->statements[i].stmt);
	connection->statement_count = 0;
	if (connection->db)
		connection->os_error = sqlite3_system_errno(connection->db);
	rc = sqlite3_close(connection->db);
	assert(rc == SQLITE_OK); /* all statements are finalized */
	connection->db = NULL;
}

void sqlite_connection_checkpoint_on_close(struct sqlite_connection *connection)
{
	sqlite3_db_config(connection->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0, NULL);
}

int sqlite_connection_statement(
	struct sqlite_connection *connection, const char *sql, sqlite3_stmt **stmt)
{
	size_t count = connection->statement_count;
	int rc;

	for (size_t i = 0; i < count; i++) {
		if (connection->statements[i].sql == sql) {
			*stmt = connection->statements[i].stmt;
			return SQLITE_OK;
		}
	}
	assert(count < SQLITE_STATEMENTS_MAX);
	rc = sqlite3_prepare_v3(connection->db, sql, -1, SQLITE_PREPARE_PERSISTENT, stmt, NULL);
	if (rc != SQLITE_OK)
		return rc;
	connection->statements[count].sql = sql;
	connection->statements[count].stmt = *stmt;
	connection->statement_count++;
	return SQLITE_OK;
}

int sqlite_statement_finish(sqlite3_stmt *stmt)
{
	int rc;

	do {
		rc = sqlite3_step(stmt);
	} while (rc == SQLITE_ROW);
	sqlite3_reset(stmt);
	sqlite3_clear_bindings(stmt);
	return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

int sqlite_connection_run(struct sqlite_connection *connection, const char *sql)
{
	sqlite3_stmt *stmt;
	int rc = sqlite_connection_statement(connection, sql, &stmt);

	return rc == SQLITE_OK ? sqlite_statement_finish(stmt) : rc;
}

void sqlite_connection_explain(
	const struct sqlite_connection *connection, int rc, char words[SQLITE_WORDS_SIZE])
{
	sqlite3 *db = connection->db;
	bool is_last = db && sqlite3_extended_errcode(db) == rc;
	int primary = sqlite_primary(rc);
	int os_error = 0;

	if (primary == SQLITE_IOERR || primary == SQLITE_CANTOPEN)
		os_error = db ? sqlite3_system_errno(db) : connection->os_error;
	snprintf(words, SQLITE_WORDS_SIZE, "%s%s%s",
		is_last ? sqlite3_errmsg(db) : sqlite3_errstr(rc), os_error ? ": " : "",
		os_error ? strerror(os_error) : "");
}

void sqlite_connection_explain_open(const struct sqlite_connection *connection, const char *path,
	int rc, char *why, size_t size)
{
	char words[SQLITE_WORDS_SIZE];

	switch (sqlite_primary(rc)) {
	case SQLITE_NOTADB:
		snprintf(why, size, "%s is not an SQLite database", path);
		break;
	case SQLITE_READONLY:
	case SQLITE_PERM:
		snprintf(why, size, "%s cannot be written: check its owner and permissions", path);
		break;
	case SQLITE_BUSY:
		snprintf(why, size, "%s is in use by another program", path);
		break;
	default:
		sqlite_connection_explain(connection, rc, words);
		snprintf(why, size, "%s cannot be used: %s", path, words);
		break;
	}
}

bool sqlite_is_doubtful(int rc)
{
	switch (sqlite_primary(rc)) {
	case SQLITE_IOERR:
	case SQLITE_CANTOPEN:
	case SQLITE_READONLY:
	case SQLITE_CORRUPT:
	case SQLITE_NOTADB:
	case SQLITE_PERM:
	case SQLITE_NOMEM:
	case SQLITE_PROTOCOL:
		return true;
	default:
		return false;
	}
}
