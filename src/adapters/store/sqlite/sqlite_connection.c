#include <stdio.h>

#include "adapters/store/sqlite/sqlite_internal.h"

/*
 * No checkpoint when the last connection closes: only the writer checkpoints, and after an I/O
 * error the WAL has to be there for the next one who opens the file.
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

void sqlite_connection_close(struct sqlite_connection *connection)
{
	int rc;

	for (size_t i = 0; i < connection->statement_count; i++)
		sqlite3_finalize(connection->statements[i].stmt);
	connection->statement_count = 0;
	if (connection->db)
		connection->os_error = sqlite3_system_errno(connection->db);
	rc = sqlite3_close(connection->db);
	assert(rc == SQLITE_OK); /* every statement is finalized */
	connection->db = NULL;
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

int sqlite_connection_run(struct sqlite_connection *connection, const char *sql)
{
	sqlite3_stmt *stmt;
	int rc = sqlite_connection_statement(connection, sql, &stmt);

	if (rc != SQLITE_OK)
		return rc;
	do {
		rc = sqlite3_step(stmt);
	} while (rc == SQLITE_ROW);
	sqlite3_reset(stmt);
	return rc == SQLITE_DONE ? SQLITE_OK : rc;
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
