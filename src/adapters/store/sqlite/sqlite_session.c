/*
 * Sessions and their transactions. All write sessions share the writer's connection; each read
 * session has a connection of its own.
 *
 *   state     event                            next      lock held
 *   idle      begin, snapshot_begin            active    write: the writer's turn; read: the gate
 *   active    commit, rollback, snapshot_end   idle
 *   active    any failure                      idle, rolled back
 *
 * Every failure ends in fail() or sqlite_session_rerun(). Both functions roll back, release the
 * turn or the gate, and decide whether the connection can still be trusted.
 */
#include <stdlib.h>

#include "adapters/store/sqlite/sqlite_internal.h"

static const char begin_sql[] = "BEGIN IMMEDIATE";
static const char snapshot_sql[] = "BEGIN";
static const char commit_sql[] = "COMMIT";
static const char rollback_sql[] = "ROLLBACK";

static const char reader_pragmas[] = "PRAGMA query_only = ON;"
				     "PRAGMA wal_autocheckpoint = 0;"
				     "PRAGMA trusted_schema = OFF;"
				     "PRAGMA cell_size_check = ON;"
				     "PRAGMA mmap_size = 0;"
				     "PRAGMA cache_size = -" SQLITE_READER_CACHE_KIB ";";

static const struct session_ops session_ops;

struct sqlite_session *sqlite_session_of(struct session *session)
{
	assert(session->ops == &session_ops);
	return (struct sqlite_session *)session;
}

static struct sqlite_store *store_of(const struct sqlite_session *session)
{
	return sqlite_store_of(session->base.store);
}

int64_t sqlite_now_us(const struct sqlite_session *session)
{
	return clock_wall_us(store_of(session)->clock);
}

struct sqlite_connection *sqlite_session_connection(struct sqlite_session *session)
{
	return session->kind == SESSION_WRITE ? &store_of(session)->writer.connection
					      : &session->own;
}

/* ---- the turn and the gate --------------------------------------------------------------- */

static int enter(struct sqlite_session *session)
{
	struct sqlite_store *store = store_of(session);

	assert(!session->active);
	session->active = true;
	if (session->kind == SESSION_WRITE) {
		fair_lock_take(&store->writer.turn);
		return sqlite_writer_prepare(store);
	}
	pthread_rwlock_rdlock(&store->gate);
	if (session->own.db)
		return SQLITE_OK;
	return sqlite_connection_open(
		&session->own, store->path, SQLITE_OPEN_READWRITE, reader_pragmas);
}

static void leave(struct sqlite_session *session)
{
	struct sqlite_store *store = store_of(session);

	assert(session->active);
	session->active = false;
	if (session->kind == SESSION_WRITE)
		fair_lock_give(&store->writer.turn);
	else
		pthread_rwlock_unlock(&store->gate);
}

/* Rolls back the transaction, if SQLite has not already rolled it back after a failed statement.
 * Returns false if the rollback failed. */
static bool undo(struct sqlite_connection *connection)
{
	if (!connection->db || sqlite3_get_autocommit(connection->db))
		return true;
	return sqlite_connection_run(connection, rollback_sql) == SQLITE_OK ||
	       sqlite3_get_autocommit(connection->db);
}

static void distrust_connection(struct sqlite_session *session)
{
	if (session->kind == SESSION_WRITE)
		store_of(session)->writer.in_doubt = true;
	else
		sqlite_connection_close(&session->own);
}

/* Rolls back. If `in_doubt` is true or the rollback fails, the connection must be reopened before
 * its next use. */
static void abandon(struct sqlite_session *session, bool in_doubt)
{
	bool undone = undo(sqlite_session_connection(session));

	if (!undone || in_doubt)
		distrust_connection(session);
}

static enum status fail(struct sqlite_session *session, int rc, enum status status)
{
	struct sqlite_store *store = store_of(session);
	bool unknown = status == STATUS_OUTCOME_UNKNOWN;

	sqlite_store_failed(store, session->kind, status, rc, sqlite_session_connection(session));
	abandon(session, unknown || sqlite_is_doubtful(rc));
	if (unknown && sqlite_writer_lost_commit(store))
		status = STATUS_STORE_UNAVAILABLE;
	tally_add(&store->errors[status], 1);
	leave(session);
	return status;
}

enum status sqlite_session_fail(struct sqlite_session *session, int rc)
{
	return fail(session, rc, sqlite_status(rc));
}

enum status sqlite_session_rerun(struct sqlite_session *session)
{
	abandon(session, false);
	leave(session);
	return STATUS_RERUN;
}

/* ---- transactions ------------------------------------------------------------------------ */

static enum status start(struct sqlite_session *session, const char *sql)
{
	int rc = enter(session);

	if (rc == SQLITE_OK)
		rc = sqlite_connection_run(sqlite_session_connection(session), sql);
	return rc == SQLITE_OK ? STATUS_OK : sqlite_session_fail(session, rc);
}

enum status sqlite_snapshot_begin(struct sqlite_session *session)
{
	return start(session, snapshot_sql);
}

enum status sqlite_snapshot_end(struct sqlite_session *session)
{
	int rc = sqlite_connection_run(sqlite_session_connection(session), commit_sql);

	if (rc != SQLITE_OK)
		return sqlite_session_fail(session, rc);
	sqlite_store_worked(store_of(session), SESSION_READ);
	leave(session);
	return STATUS_OK;
}

static enum status begin(struct session *base, enum transaction_mode mode)
{
	struct sqlite_session *session = sqlite_session_of(base);

	(void)mode; /* the mode does not matter, because only one session writes at a time */
	assert(session->kind == SESSION_WRITE);
	return start(session, begin_sql);
}

static enum status commit(struct session *base)
{
	struct sqlite_session *session = sqlite_session_of(base);
	int64_t started_ns = clock_steady_ns(&clock_system);
	int rc;

	assert(session->active);
	rc = sqlite_connection_run(sqlite_session_connection(session), commit_sql);
	latency_add(&store_of(session)->latency, clock_steady_ns(&clock_system) - started_ns);
	if (rc != SQLITE_OK)
		return fail(session, rc, sqlite_commit_status(rc));
	leave(session);
	return STATUS_OK;
}

static void rollback(struct session *base)
{
	struct sqlite_session *session = sqlite_session_of(base);

	if (!session->active)
		return;
	abandon(session, false);
	leave(session);
}

/* ---- opening and closing ----------------------------------------------------------------- */

struct session *sqlite_session_open(struct store *base, enum session_kind kind)
{
	struct sqlite_store *store = sqlite_store_of(base);
	struct sqlite_session *session = qp_calloc(1, sizeof(*session));

	session->base.ops = &session_ops;
	session->base.store = base;
	session->kind = kind;
	if (kind == SESSION_READ) {
		pthread_rwlock_wrlock(&store->gate);
		session->next = store->readers;
		store->readers = session;
		pthread_rwlock_unlock(&store->gate);
	}
	return &session->base;
}

static void leave_readers(struct sqlite_session *session)
{
	struct sqlite_store *store = store_of(session);
	struct sqlite_session **link = &store->readers;

	pthread_rwlock_wrlock(&store->gate);
	while (*link != session)
		link = &(*link)->next;
	*link = session->next;
	sqlite_connection_close(&session->own);
	pthread_rwlock_unlock(&store->gate);
}

static void close_session(struct session *base)
{
	struct sqlite_session *session = sqlite_session_of(base);

	rollback(base);
	if (session->kind == SESSION_READ)
		leave_readers(session);
	free(session);
}

static const struct session_ops session_ops = {
	.begin = begin,
	.commit = commit,
	.rollback = rollback,
	.idempotency_find = sqlite_keys_find,
	.idempotency_put = sqlite_keys_put,
	.idempotency_claim = sqlite_keys_claim,
	.idempotency_finish = sqlite_keys_finish,
	.idempotency_forget = sqlite_keys_forget,
	.idempotency_release = sqlite_keys_release,
	.idempotency_list = sqlite_keys_list,
	.list_actions = sqlite_list_actions,
	.idempotency_sweep = sqlite_keys_sweep,
	.close = close_session,
};
