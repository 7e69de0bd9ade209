/*
 * The writer is the one connection that writes. It opens the file, keeps its WAL short, and reopens
 * the file after an I/O error.
 *
 * By default SQLite would checkpoint at the end of a COMMIT and hide errors of the checkpoint. This
 * writer instead checkpoints before a transaction begins, so that the answers of the previous
 * transaction need not wait for the checkpoint. Long reads can make the WAL grow: a checkpoint
 * cannot copy pages that are newer than the snapshot of a running read, and SQLite cannot overwrite
 * the WAL from its beginning while a read uses the WAL. If the WAL reaches WAL_BYTES_MAX, new reads
 * must wait while a full checkpoint runs.
 *
 * After a failed fsync, calling fsync again is not enough: the kernel reports the failure only
 * once, and marks the pages as clean although they never reached the disk. SQLite does not write
 * these pages again: the next checkpoint skips the pages that an unfinished checkpoint has already
 * copied. So the writer closes all connections and opens the file again. SQLite then reads the WAL
 * from its beginning and has no record of the copied pages, so the next checkpoint copies all pages
 * again.
 *
 * Invariant: a transaction begins only while in_doubt is false.
 */
#include "adapters/store/sqlite/sqlite_internal.h"
#include "base/log.h"

#define CHECKPOINT_FRAMES 4000 /* 16 MiB; with 1000 a busy writer is 2 to 4 % slower */
#define WAL_BYTES_MAX (64 * 1024 * 1024)
#define WAL_FRAME_BYTES (4096 + 24)

void sqlite_writer_init(struct sqlite_writer *writer)
{
	fair_lock_init(&writer->turn);
	writer->checkpoint_step = CHECKPOINT_FRAMES;
	writer->wal_frames_max = WAL_BYTES_MAX / WAL_FRAME_BYTES;
}

/* ---- checkpoints ------------------------------------------------------------------------- */

/* SQLite calls this after a COMMIT that has written something. */
static int after_commit(void *context, sqlite3 *db, const char *schema, int wal_frames)
{
	struct sqlite_store *store = context;
	struct sqlite_writer *writer = &store->writer;

	(void)db;
	(void)schema;
	if (wal_frames < writer->wal_frames)
		writer->checkpoint_at = writer->checkpoint_step;
	writer->wal_frames = wal_frames;
	writer->wal_may_restart = false;
	sqlite_store_worked(store, SESSION_WRITE);
	return SQLITE_OK;
}

/* Runs a checkpoint. Never waits for other programs that use the file: if one of them holds a lock
 * that the checkpoint needs, returns SQLITE_BUSY. */
static int checkpoint(struct sqlite_writer *writer, int mode, int *wal_frames)
{
	sqlite3 *db = writer->connection.db;
	int rc;

	sqlite3_busy_timeout(db, 0);
	rc = sqlite3_wal_checkpoint_v2(db, "main", mode, wal_frames, NULL);
	sqlite3_busy_timeout(db, SQLITE_BUSY_TIMEOUT_MS);
	return rc;
}

static int checkpoint_behind_gate(struct sqlite_store *store)
{
	int rc;

	pthread_rwlock_wrlock(&store->gate);
	rc = checkpoint(&store->writer, SQLITE_CHECKPOINT_TRUNCATE, NULL);
	pthread_rwlock_unlock(&store->gate);
	return rc;
}

/* Logs when checkpoints begin to fail, and when they work again. Such a failure has a log line of
 * its own, because transactions can still work, e.g. on a full disk. */
static void note_checkpoint(struct sqlite_store *store, int rc)
{
	struct sqlite_writer *writer = &store->writer;
	bool failed = rc != SQLITE_OK && sqlite_primary(rc) != SQLITE_BUSY;
	char words[SQLITE_WORDS_SIZE];

	sqlite_connection_explain(&writer->connection, rc, words);
	if (failed && !writer->checkpoint_failing)
		log_line(LOG_WARN, "store", "%s: SQLite cannot checkpoint its WAL: %s (code %d)",
			store->base.name, words, rc);
	if (!failed && writer->checkpoint_failing)
		log_line(LOG_INFO, "store", "%s: SQLite can checkpoint its WAL again",
			store->base.name);
	writer->checkpoint_failing = failed;
}

static void keep_wal_short(struct sqlite_store *store)
{
	struct sqlite_writer *writer = &store->writer;
	int rc;

	if (writer->wal_frames < writer->wal_frames_max)
		rc = checkpoint(writer, SQLITE_CHECKPOINT_PASSIVE, NULL);
	else
		rc = checkpoint_behind_gate(store);
	writer->checkpoint_at = writer->wal_frames + writer->checkpoint_step;
	writer->wal_may_restart = true;
	note_checkpoint(store, rc);
	if (sqlite_is_doubtful(rc))
		writer->in_doubt = true;
}

/* ---- opening ----------------------------------------------------------------------------- */

int sqlite_writer_open(struct sqlite_store *store, int flags)
{
	struct sqlite_writer *writer = &store->writer;
	struct sqlite_connection *connection = &writer->connection;
	int rc = sqlite_connection_open_writer(
		connection, store->path, flags, SQLITE_WRITER_PRAGMAS);

	writer->in_doubt = true;
	if (rc == SQLITE_OK)
		sqlite3_wal_hook(connection->db, after_commit, store);
	return rc;
}

int sqlite_writer_settle(struct sqlite_writer *writer)
{
	int frames = 0;
	int rc = checkpoint(writer, SQLITE_CHECKPOINT_PASSIVE, &frames);

	if (rc == SQLITE_OK)
		rc = checkpoint(writer, SQLITE_CHECKPOINT_TRUNCATE, NULL);
	writer->frames_found = rc == SQLITE_OK ? frames : -1;
	if (rc != SQLITE_OK && sqlite_primary(rc) != SQLITE_BUSY)
		return rc;
	writer->wal_frames = 0;
	writer->wal_may_restart = false;
	writer->checkpoint_at = writer->checkpoint_step;
	writer->in_doubt = false;
	return SQLITE_OK;
}

static int reopen(struct sqlite_store *store)
{
	struct sqlite_session *reader;
	int rc;

	pthread_rwlock_wrlock(&store->gate);
	for (reader = store->readers; reader; reader = reader->next)
		sqlite_connection_close(&reader->own);
	sqlite_connection_close(&store->writer.connection);
	rc = sqlite_writer_open(store, 0);
	if (rc == SQLITE_OK)
		rc = sqlite_writer_settle(&store->writer);
	pthread_rwlock_unlock(&store->gate);
	return rc;
}

int sqlite_writer_prepare(struct sqlite_store *store)
{
	struct sqlite_writer *writer = &store->writer;

	if (!writer->in_doubt && writer->wal_frames >= writer->checkpoint_at)
		keep_wal_short(store);
	return writer->in_doubt ? reopen(store) : SQLITE_OK;
}

/*
 * Compares how many frames the WAL contained before and after the failed COMMIT. reopen() counts
 * the frames and then empties the WAL. The transaction is lost if reopen() has counted no frames,
 * or exactly as many as before the COMMIT. But if a checkpoint had run since the previous COMMIT,
 * an equal number proves nothing, because the failed COMMIT may have overwritten the WAL from its
 * beginning.
 */
bool sqlite_writer_lost_commit(struct sqlite_store *store)
{
	struct sqlite_writer *writer = &store->writer;
	int frames_before = writer->wal_frames;
	bool may_restart = writer->wal_may_restart;

	if (reopen(store) != SQLITE_OK)
		return false;
	return writer->frames_found == 0 || (writer->frames_found == frames_before && !may_restart);
}

void sqlite_writer_close(struct sqlite_writer *writer)
{
	if (writer->connection.db && !writer->in_doubt)
		sqlite_connection_checkpoint_on_close(&writer->connection);
	sqlite_connection_close(&writer->connection);
	fair_lock_release(&writer->turn);
}
