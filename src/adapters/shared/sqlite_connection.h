/*
 * One connection to an SQLite file, with the statements prepared on it, for the two adapters that
 * keep their data in such a file: adapters/store/sqlite and adapters/bus/local. No other adapter
 * may include this header, because it exposes sqlite3.h.
 *
 * A connection is used by one thread at a time. All functions down to sqlite_connection_run() may
 * do I/O and therefore block. Functions marked QP_MUST_CHECK return SQLite's extended result codes.
 */
#ifndef QUIPU_ADAPTERS_SHARED_SQLITE_CONNECTION_H
#define QUIPU_ADAPTERS_SHARED_SQLITE_CONNECTION_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

#define SQLITE_STATEMENTS_MAX 64

/* How long a statement waits for a lock that another program holds, e.g. the sqlite3 shell. */
#define SQLITE_BUSY_TIMEOUT_MS 2000

/*
 * The page cache of a connection grows to the size below and never shrinks. A process with all
 * roles has ten connections that write (seven stores, three local buses) and about as many that
 * read, so their caches together reach 60 MB. With 16 MiB instead of 4 MiB for each writer, the
 * process used twice as much memory and was no faster, because the kernel also caches the pages of
 * the file. If a transaction changes more pages than the cache can hold, SQLite writes some of them
 * to the WAL before the commit.
 */
#define SQLITE_WRITER_CACHE_KIB "4096"
#define SQLITE_READER_CACHE_KIB "2048"

/* The pragmas of a connection that writes. */
#define SQLITE_WRITER_PRAGMAS                                                                      \
	"PRAGMA synchronous = FULL;"                                                               \
	"PRAGMA wal_autocheckpoint = 0;"                                                           \
	"PRAGMA foreign_keys = ON;"                                                                \
	"PRAGMA trusted_schema = OFF;"                                                             \
	"PRAGMA cell_size_check = ON;"                                                             \
	"PRAGMA mmap_size = 0;"                                                                    \
	"PRAGMA cache_size = -" SQLITE_WRITER_CACHE_KIB ";"

struct sqlite_connection {
	sqlite3 *db;  /* NULL while the connection is not open */
	int os_error; /* the errno of the last failure, saved when the connection is closed */
	struct {
		const char *sql;
		sqlite3_stmt *stmt;
	} statements[SQLITE_STATEMENTS_MAX];
	size_t statement_count;
};

/*
 * Opens the file with `flags` of sqlite3_open_v2() and runs `pragmas`. The connection must not be
 * open. On failure it stays closed.
 */
QP_MUST_CHECK int sqlite_connection_open(
	struct sqlite_connection *connection, const char *path, int flags, const char *pragmas);

/*
 * Opens the file for reading and writing and switches it to a write-ahead log. `flags` may add
 * SQLITE_OPEN_CREATE. Returns SQLITE_READONLY if the file cannot be written. On failure the
 * connection stays closed.
 */
QP_MUST_CHECK int sqlite_connection_open_writer(
	struct sqlite_connection *connection, const char *path, int flags, const char *pragmas);

/*
 * Rolls back an open transaction and closes the connection. Does nothing if the connection is not
 * open. Checkpoints only if sqlite_connection_checkpoint_on_close() was called.
 */
void sqlite_connection_close(struct sqlite_connection *connection);

/* Makes sqlite_connection_close() copy the write-ahead log into the database and delete the log. */
void sqlite_connection_checkpoint_on_close(struct sqlite_connection *connection);

/*
 * Sets `*stmt` to the statement for `sql`, which the first call prepares. `sql` must be a static
 * string, because it is recognised by its address. The connection owns the statement.
 */
QP_MUST_CHECK int sqlite_connection_statement(
	struct sqlite_connection *connection, const char *sql, sqlite3_stmt **stmt);

/* Runs a bound statement to its end, ignores its rows, then resets it and clears its bindings. */
QP_MUST_CHECK int sqlite_statement_finish(sqlite3_stmt *stmt);

/* Runs a statement without parameters to its end. */
QP_MUST_CHECK int sqlite_connection_run(struct sqlite_connection *connection, const char *sql);

/* sqlite_connection_explain() writes a text that says what went wrong, e.g. "disk I/O error: No
 * space left on device". The text is never empty, and with its final NUL it fits into this size. */
#define SQLITE_WORDS_SIZE 256
void sqlite_connection_explain(
	const struct sqlite_connection *connection, int rc, char words[SQLITE_WORDS_SIZE]);

/* Writes a sentence for the user that says why the file at `path` could not be opened. */
void sqlite_connection_explain_open(const struct sqlite_connection *connection, const char *path,
	int rc, char *why, size_t size);

/*
 * Returns true if the file must be reopened after SQLite returned this code, because neither the
 * connection nor the kernel's page cache can be trusted any more.
 */
bool sqlite_is_doubtful(int rc);

/* Returns the primary code of an extended result code, e.g. SQLITE_IOERR for SQLITE_IOERR_FSYNC. */
static inline int sqlite_primary(int rc)
{
	return rc & 0xff;
}

#endif
