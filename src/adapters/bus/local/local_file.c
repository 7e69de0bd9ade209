/*
 * Opens and closes the SQLite file of the queue. The adapter has only one connection to the file,
 * and that connection locks the file exclusively. Therefore SQLite keeps the index of the
 * write-ahead log in this process's memory instead of in a shared file.
 *
 * After an I/O error the kernel's page cache may show data that the disk does not have, because the
 * kernel reports a failed fsync only once and then treats the pages as written. Therefore the file
 * is closed and reopened before the next use. Reopening recovers the write-ahead log as after a
 * crash and copies all of it into the database.
 */
#include "adapters/bus/local/local_internal.h"

#define CHECKPOINT_FRAMES 1000

static const char pragmas[] = "PRAGMA locking_mode = EXCLUSIVE;" SQLITE_WRITER_PRAGMAS;

static const char lock_sql[] = "BEGIN EXCLUSIVE; COMMIT";
static const char rollback_sql[] = "ROLLBACK";

static int after_commit(void *context, sqlite3 *db, const char *schema, int wal_frames)
{
	struct local_file *file = context;

	(void)db;
	(void)schema;
	file->wal_frames = wal_frames;
	return SQLITE_OK;
}

static int lock_and_settle(sqlite3 *db)
{
	int rc = sqlite3_exec(db, lock_sql, NULL, NULL, NULL);

	if (rc == SQLITE_OK)
		rc = sqlite3_wal_checkpoint_v2(db, "main", SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
	return rc;
}

int local_file_open(struct local_file *file, int flags)
{
	struct sqlite_connection *connection = &file->connection;
	int rc = sqlite_connection_open_writer(connection, file->path, flags, pragmas);

	if (rc != SQLITE_OK)
		return rc;
	rc = lock_and_settle(connection->db);
	if (rc != SQLITE_OK) {
		sqlite_connection_close(connection);
		return rc;
	}
	sqlite3_wal_hook(connection->db, after_commit, file);
	file->wal_frames = 0;
	file->in_doubt = false;
	return SQLITE_OK;
}

void local_file_close(struct local_file *file)
{
	if (file->connection.db && !file->in_doubt)
		sqlite_connection_checkpoint_on_close(&file->connection);
	sqlite_connection_close(&file->connection);
}

/* Runs a checkpoint. No other connection reads the file, so the checkpoint can copy the whole
 * write-ahead log into the database, and the next commit overwrites the log from its beginning. */
static void keep_wal_short(struct local_file *file)
{
	int rc = sqlite3_wal_checkpoint_v2(
		file->connection.db, "main", SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);

	file->wal_frames = 0;
	if (sqlite_is_doubtful(rc))
		file->in_doubt = true;
}

int local_file_prepare(struct local_file *file)
{
	bool is_open = file->connection.db != NULL;

	if (is_open && !file->in_doubt && file->wal_frames >= CHECKPOINT_FRAMES)
		keep_wal_short(file);
	if (is_open && !file->in_doubt)
		return SQLITE_OK;
	local_file_close(file);
	return local_file_open(file, 0);
}

void local_file_undo(struct local_file *file, int rc)
{
	sqlite3 *db = file->connection.db;

	if (sqlite_is_doubtful(rc))
		file->in_doubt = true;
	if (!db || sqlite3_get_autocommit(db))
		return;
	if (sqlite_connection_run(&file->connection, rollback_sql) != SQLITE_OK &&
		!sqlite3_get_autocommit(db))
		file->in_doubt = true;
}
