/*
 * The SQLite connection. It is the only one: the file is locked exclusively, which also keeps the
 * index of the WAL in this process's memory.
 *
 * After an I/O error the page cache of the kernel may show what the disk does not have (a failed
 * fsync is reported once). So the file is closed and opened anew before the next use, which reads
 * the WAL as after a crash and copies all of it into the database.
 */
#include <stdio.h>

#include "adapters/bus/local/local_internal.h"

#define BUSY_TIMEOUT_MS 2000
#define CHECKPOINT_FRAMES 1000

static const char pragmas[] = "PRAGMA locking_mode = EXCLUSIVE;"
			      "PRAGMA synchronous = FULL;"
			      "PRAGMA wal_autocheckpoint = 0;"
			      "PRAGMA foreign_keys = ON;"
			      "PRAGMA trusted_schema = OFF;"
			      "PRAGMA cell_size_check = ON;"
			      "PRAGMA mmap_size = 0;"
			      "PRAGMA cache_size = -16384;";

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

static int use_wal(sqlite3 *db)
{
	sqlite3_stmt *stmt;
	int rc = sqlite3_prepare_v2(db, "PRAGMA journal_mode = WAL", -1, &stmt, NULL);

	if (rc != SQLITE_OK)
		return rc;
	rc = sqlite3_step(stmt);
	if (rc == SQLITE_ROW) {
		const char *mode = (const char *)sqlite3_column_text(stmt, 0);

		rc = mode && !strcmp(mode, "wal") ? SQLITE_OK : SQLITE_CANTOPEN;
	}
	sqlite3_finalize(stmt);
	return rc == SQLITE_DONE ? SQLITE_CANTOPEN : rc;
}

/* No checkpoint at close: after an error the WAL has to be there for the next open. */
static int configure(struct local_file *file)
{
	sqlite3 *db = file->db;
	int rc = sqlite3_db_config(db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);

	if (rc == SQLITE_OK)
		rc = sqlite3_busy_timeout(db, BUSY_TIMEOUT_MS);
	if (rc == SQLITE_OK)
		rc = sqlite3_exec(db, pragmas, NULL, NULL, NULL);
	if (rc == SQLITE_OK && sqlite3_db_readonly(db, "main") == 1)
		rc = SQLITE_READONLY;
	if (rc == SQLITE_OK)
		rc = use_wal(db);
	if (rc == SQLITE_OK)
		rc = sqlite3_exec(db, lock_sql, NULL, NULL, NULL);
	if (rc == SQLITE_OK)
		rc = sqlite3_wal_checkpoint_v2(db, "main", SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
	return rc;
}

int local_file_open(struct local_file *file, int flags)
{
	int rc;

	assert(!file->db);
	flags |= SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE |
		 SQLITE_OPEN_EXRESCODE;
	rc = sqlite3_open_v2(file->path, &file->db, flags, NULL);
	if (rc == SQLITE_OK)
		rc = configure(file);
	if (rc != SQLITE_OK) {
		local_file_close(file);
		return rc;
	}
	sqlite3_wal_hook(file->db, after_commit, file);
	file->wal_frames = 0;
	file->in_doubt = false;
	return SQLITE_OK;
}

void local_file_close(struct local_file *file)
{
	int rc;

	for (size_t i = 0; i < file->statement_count; i++)
		sqlite3_finalize(file->statements[i].stmt);
	file->statement_count = 0;
	if (file->db && !file->in_doubt)
		sqlite3_db_config(file->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0, NULL);
	rc = sqlite3_close(file->db);
	assert(rc == SQLITE_OK); /* every statement is finalized */
	file->db = NULL;
}

static bool is_doubtful(int rc)
{
	switch (rc & 0xff) {
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

/* Nobody else reads, so a checkpoint copies everything and the WAL starts over. */
static void keep_wal_short(struct local_file *file)
{
	int rc = sqlite3_wal_checkpoint_v2(file->db, "main", SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);

	file->wal_frames = 0;
	if (is_doubtful(rc))
		file->in_doubt = true;
}

int local_file_prepare(struct local_file *file)
{
	if (file->db && !file->in_doubt && file->wal_frames >= CHECKPOINT_FRAMES)
		keep_wal_short(file);
	if (file->db && !file->in_doubt)
		return SQLITE_OK;
	local_file_close(file);
	return local_file_open(file, 0);
}

int local_file_statement(struct local_file *file, const char *sql, sqlite3_stmt **stmt)
{
	size_t count = file->statement_count;
	int rc;

	for (size_t i = 0; i < count; i++) {
		if (file->statements[i].sql == sql) {
			*stmt = file->statements[i].stmt;
			return SQLITE_OK;
		}
	}
	assert(count < LOCAL_STATEMENTS_MAX);
	rc = sqlite3_prepare_v3(file->db, sql, -1, SQLITE_PREPARE_PERSISTENT, stmt, NULL);
	if (rc != SQLITE_OK)
		return rc;
	file->statements[count].sql = sql;
	file->statements[count].stmt = *stmt;
	file->statement_count++;
	return SQLITE_OK;
}

int local_file_step(sqlite3_stmt *stmt)
{
	int rc;

	do {
		rc = sqlite3_step(stmt);
	} while (rc == SQLITE_ROW);
	sqlite3_reset(stmt);
	sqlite3_clear_bindings(stmt);
	return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

int local_file_run(struct local_file *file, const char *sql)
{
	sqlite3_stmt *stmt;
	int rc = local_file_statement(file, sql, &stmt);

	return rc == SQLITE_OK ? local_file_step(stmt) : rc;
}

void local_file_undo(struct local_file *file, int rc)
{
	if (is_doubtful(rc))
		file->in_doubt = true;
	if (!file->db || sqlite3_get_autocommit(file->db))
		return;
	if (local_file_run(file, rollback_sql) != SQLITE_OK && !sqlite3_get_autocommit(file->db))
		file->in_doubt = true;
}

void local_file_explain(const struct local_file *file, int rc, char words[LOCAL_WORDS_SIZE])
{
	bool is_last = file->db && sqlite3_extended_errcode(file->db) == rc;
	int os_error = file->db && (rc & 0xff) == SQLITE_IOERR ? sqlite3_system_errno(file->db) : 0;

	snprintf(words, LOCAL_WORDS_SIZE, "%s%s%s",
		is_last ? sqlite3_errmsg(file->db) : sqlite3_errstr(rc), os_error ? ": " : "",
		os_error ? strerror(os_error) : "");
}
