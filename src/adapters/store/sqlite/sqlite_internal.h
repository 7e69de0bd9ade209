/*
 * Declarations shared by the files of this adapter. This header exposes sqlite3.h, so no other
 * folder of src/ includes it.
 *
 *   writer       the one connection that writes and checkpoints, and its lock (the turn)
 *   session      uses the writer's connection or, if it only reads, a connection of its own
 *   query        one statement, run for each row of a batch; repositories consist of queries
 *
 * There are two locks: the writer's turn, held during a transaction of a write session, and the
 * store's gate, held shared during a transaction of a read session. A thread that holds the turn
 * may also take the gate exclusively. But a thread that holds the gate never waits for the turn.
 * Therefore the two locks cannot cause a deadlock.
 */
#ifndef QUIPU_ADAPTERS_STORE_SQLITE_SQLITE_INTERNAL_H
#define QUIPU_ADAPTERS_STORE_SQLITE_SQLITE_INTERNAL_H

#include <assert.h>
#include <pthread.h>

#include "adapters/shared/listeners.h"
#include "adapters/shared/sqlite_connection.h"
#include "adapters/store/sqlite/fair_lock.h"
#include "adapters/store/sqlite/sqlite_store.h"
#include "base/metrics.h"

/* ---- the store --------------------------------------------------------------------------- */

struct sqlite_writer {
	struct fair_lock turn; /* guards the members below */
	struct sqlite_connection connection;
	/* before the next transaction, the file must be reopened and its WAL copied into the
	 * database */
	bool in_doubt;
	/* how many frames the WAL had when sqlite_writer_settle() last ran; −1 if that run could
	 * not empty the WAL */
	int frames_found;

	int wal_frames; /* frames in the WAL after the last commit */
	/* a checkpoint has run since the last commit, so the next commit may overwrite the WAL from
	 * its beginning */
	bool wal_may_restart;
	int checkpoint_at;       /* checkpoint when the WAL has this many frames */
	bool checkpoint_failing; /* the last checkpoint failed */

	/* Constants, except that tests lower them. checkpoint_step is how many frames are written
	 * between two checkpoints. Once the WAL has wal_frames_max frames, new reads have to wait
	 * for a full checkpoint. */
	int checkpoint_step;
	int wal_frames_max;
};

struct sqlite_store {
	struct store base;
	const char *path;
	const char *const *components;
	const struct clock *clock;
	_Atomic bool started;
	struct listeners listeners;
	struct sqlite_writer writer;

	/* Held shared while a read runs. Its exclusive holder may change the list of readers and
	 * close their connections. */
	pthread_rwlock_t gate;
	struct sqlite_session *readers;

	/* for each kind of session, the monotonic time of the last failure; 0 while such sessions
	 * work */
	_Atomic int64_t failed_at_ns[2];
	struct tally errors[STATUS_COUNT];
	struct latency latency; /* how long COMMIT takes, including its fsync */
};

/* Casts, and aborts if `store` is not a SQLite store. */
struct sqlite_store *sqlite_store_of(struct store *store);

/* These functions record whether sessions of this kind fail or work, so that is_up() can report it,
 * and log each change. Any thread may call them. */
void sqlite_store_failed(struct sqlite_store *store, enum session_kind kind, enum status status,
	int rc, const struct sqlite_connection *connection);
void sqlite_store_worked(struct sqlite_store *store, enum session_kind kind);

/* Translate a result code of SQLite into a status; sqlite_commit_status() is for COMMIT,
 * sqlite_status() for all other calls. */
enum status sqlite_status(int rc);
enum status sqlite_commit_status(int rc);

/* Applies the migrations of the store's components. On failure returns false with a reason in
 * `why`. */
QP_MUST_CHECK bool sqlite_migrate(struct sqlite_store *store, char *why, size_t size);

/* ---- the writer: hold its lock (`turn`) during these calls, unless no other thread runs yet -- */

void sqlite_writer_init(struct sqlite_writer *writer);

/* Opens the file. The writer is in doubt until sqlite_writer_settle() succeeds. `flags` may contain
 * SQLITE_OPEN_CREATE. On failure the file stays closed. */
QP_MUST_CHECK int sqlite_writer_open(struct sqlite_store *store, int flags);

/* Copies the WAL into the database, syncs the database, and empties the WAL. If this succeeds, the
 * writer is no longer in doubt. Also succeeds if another program that uses the file prevents SQLite
 * from copying or emptying the WAL completely. */
QP_MUST_CHECK int sqlite_writer_settle(struct sqlite_writer *writer);

/* Called before each transaction: checkpoints if a checkpoint is due, and reopens the file after an
 * I/O error. */
QP_MUST_CHECK int sqlite_writer_prepare(struct sqlite_store *store);

/*
 * Called after a COMMIT has failed: reopens the file, while reads have to wait. Returns true if the
 * transaction is certainly not in the file and never will be. Returns false if the transaction may
 * be in the file.
 */
QP_MUST_CHECK bool sqlite_writer_lost_commit(struct sqlite_store *store);

/* Closes the writer for good. If possible, leaves only the database file and no WAL. */
void sqlite_writer_close(struct sqlite_writer *writer);

/* ---- sessions ---------------------------------------------------------------------------- */

struct sqlite_session {
	struct session base;
	enum session_kind kind;
	/* true during a transaction; a write session then holds the turn, and a read session holds
	 * the gate */
	bool active;
	struct sqlite_connection own; /* the connection of a read session */
	struct sqlite_session *next;  /* next in store->readers */
};

/* Casts, and aborts if `session` is not a SQLite session. */
struct sqlite_session *sqlite_session_of(struct session *session);

struct session *sqlite_session_open(struct store *store, enum session_kind kind);

/* Returns the connection that the session uses: the writer's, or the session's own. */
struct sqlite_connection *sqlite_session_connection(struct sqlite_session *session);

/* Rolls back, releases the turn or the gate, and returns the status for `rc`. */
QP_MUST_CHECK enum status sqlite_session_fail(struct sqlite_session *session, int rc);

/* Rolls back, releases the turn or the gate, and returns RERUN. Call this if the batch must run
 * again although SQLite reported no error. */
QP_MUST_CHECK enum status sqlite_session_rerun(struct sqlite_session *session);

/* sqlite_snapshot_begin() begins a transaction that only reads, and sqlite_snapshot_end() ends it.
 * The session may be of either kind. The transaction sees one committed state. */
QP_MUST_CHECK enum status sqlite_snapshot_begin(struct sqlite_session *session);
QP_MUST_CHECK enum status sqlite_snapshot_end(struct sqlite_session *session);

/* The session's functions for Idempotency-Keys, in sqlite_idempotency.c; see ports/store.h. */
enum status sqlite_keys_find(struct session *session, struct arena *arena,
	struct idempotency_record *records, size_t count);
enum status sqlite_keys_put(struct session *session, const struct idempotency_record *records,
	size_t count, int64_t ttl_us);
enum status sqlite_keys_claim(
	struct session *session, struct idempotency_record *records, size_t count);
enum status sqlite_keys_finish(
	struct session *session, struct idempotency_record *records, size_t count);
enum status sqlite_keys_forget(
	struct session *session, struct idempotency_record *records, size_t count);
enum status sqlite_keys_release(
	struct session *session, struct idempotency_record *records, size_t count);
enum status sqlite_keys_list(struct session *session, struct arena *arena, struct slice prefix,
	struct row_page *page, struct kept_answer *keys);
enum status sqlite_keys_sweep(struct session *session, size_t limit, size_t *deleted);

/* Functions of sqlite_actions.c. sqlite_record_action() records an operator's action with the
 * current time; call it in a transaction. */
QP_MUST_CHECK enum status sqlite_record_action(
	struct sqlite_session *session, const struct operator_record *record);
enum status sqlite_list_actions(struct session *session, struct arena *arena, struct row_page *page,
	struct operator_record *records);

/* Returns the current time, for storing it and for comparing it with stored times. */
int64_t sqlite_now_us(const struct sqlite_session *session);

/* ---- queries ----------------------------------------------------------------------------- */

struct sqlite_value {
	enum { SQLITE_VALUE_INT, SQLITE_VALUE_TEXT, SQLITE_VALUE_BLOB, SQLITE_VALUE_NULL } kind;
	int64_t number;
	/* not copied; must stay valid until the query is started again or closed */
	struct slice bytes;
};

static inline struct sqlite_value sqlite_int(int64_t number)
{
	return (struct sqlite_value){.kind = SQLITE_VALUE_INT, .number = number};
}

static inline struct sqlite_value sqlite_text(struct slice text)
{
	return (struct sqlite_value){.kind = SQLITE_VALUE_TEXT, .bytes = text};
}

static inline struct sqlite_value sqlite_blob(struct slice bytes)
{
	return (struct sqlite_value){.kind = SQLITE_VALUE_BLOB, .bytes = bytes};
}

static inline struct sqlite_value sqlite_null(void)
{
	return (struct sqlite_value){.kind = SQLITE_VALUE_NULL};
}

/* Expands to the arguments `values` and `count` of the functions below: the values of ?1, ?2, … and
 * their number. */
#define SQLITE_VALUES(...)                                                                         \
	(const struct sqlite_value[]){__VA_ARGS__},                                                \
		sizeof((const struct sqlite_value[]){__VA_ARGS__}) / sizeof(struct sqlite_value)

/*
 * A query remembers its first failure. From then on the functions below do nothing, except that
 * sqlite_query_close() returns the status of the failure. So a loop over a batch needs no checks.
 */
struct sqlite_query {
	struct sqlite_session *session;
	sqlite3_stmt *stmt;
	bool bound; /* values were bound since the last reset */
	int rc;
	bool running;
	bool rerun; /* sqlite_query_change_one() did not change exactly one row */
};

/* Opens a query. Call this in a transaction. `sql` must be static. */
struct sqlite_query sqlite_query_open(struct sqlite_session *session, const char *sql);

/* Ends the previous run and starts a new one with these values. */
void sqlite_query_start(
	struct sqlite_query *query, const struct sqlite_value *values, size_t count);

/* Moves to the next row of the run. Returns false at the end. */
bool sqlite_query_next(struct sqlite_query *query);

/* Return a column of the current row, i.e. the row to which the last sqlite_query_next() moved. */
int64_t sqlite_query_int(const struct sqlite_query *query, int column);
bool sqlite_query_is_null(const struct sqlite_query *query, int column);

/* Returns a column of text or bytes, which is valid until the following sqlite_query_next() or
 * sqlite_query_start(). */
struct slice sqlite_query_bytes(const struct sqlite_query *query, int column);

/* Returns a column of text or bytes, copied into `arena`. */
struct slice sqlite_query_keep(const struct sqlite_query *query, struct arena *arena, int column);

/* Runs the statement to completion. Returns how many rows it changed. */
int sqlite_query_change(
	struct sqlite_query *query, const struct sqlite_value *values, size_t count);

/* Runs a statement that must change exactly one row. If it does not, sqlite_query_close() returns
 * RERUN. */
void sqlite_query_change_one(
	struct sqlite_query *query, const struct sqlite_value *values, size_t count);

/* Ends the query and returns its status. If the status is not OK, the transaction has been rolled
 * back. */
QP_MUST_CHECK enum status sqlite_query_close(struct sqlite_query *query);

/*
 * A statement that reads a page of rows, and the function that fills a row. The parameters are ?1
 * page->after[0], ?2 page->after[1], ?3 page->after_number, ?4 page->user_id, ?5 page->limit, ?6
 * page->after_minor, ?7 page->from, and ?8 page->until. A statement need not use all of them.
 */
struct sqlite_list {
	const char *sql;
	size_t row_size;
	void (*fill)(void *row, struct arena *arena, const struct sqlite_query *query);
};

/* Fills `rows` and the page's count and time. Call this outside a transaction. */
QP_MUST_CHECK enum status sqlite_list_rows(struct session *session, struct arena *arena,
	const struct sqlite_list *list, struct row_page *page, void *rows);

/* Ensures that an array that has `count` elements can hold one more element. `*room` is the
 * capacity of the array, in elements. Returns the array, which is allocated from `arena` and may
 * have moved. For the first element, pass NULL and a `*room` of 0. */
void *sqlite_more_room(
	struct arena *arena, void *elements, size_t size, size_t count, size_t *room);

/* Runs `sql` in a transaction of its own. `sql` must delete at most ?2 (`limit`) rows from before
 * the time ?1 (`before_us`). Sets `deleted` to the number of deleted rows. */
QP_MUST_CHECK enum status sqlite_sweep(
	struct session *session, const char *sql, int64_t before_us, size_t limit, size_t *deleted);

/* Like sqlite_sweep(), except that ?1 is the time `age_us` before the current time. */
QP_MUST_CHECK enum status sqlite_sweep_age(
	struct session *session, const char *sql, int64_t age_us, size_t limit, size_t *deleted);

#endif
