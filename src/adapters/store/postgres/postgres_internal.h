/*
 * Declarations shared by the files of this adapter: the session, and how a batch becomes
 * statements.
 *
 * Statements are sent in libpq's pipeline mode: each pg_queue() queues one, and pg_flush() sends
 * all of them with one sync, so that together they cost one round trip. BEGIN is sent with the
 * first statement. A batch is sent as one binary array per column; the statement turns the arrays
 * into rows with unnest().
 */
#ifndef QUIPU_ADAPTERS_STORE_POSTGRES_POSTGRES_INTERNAL_H
#define QUIPU_ADAPTERS_STORE_POSTGRES_POSTGRES_INTERNAL_H

#include <libpq-fe.h>
#include <stdatomic.h>

#include "adapters/store/postgres/postgres_store.h"
#include "base/buffer.h"

#define PG_STATEMENTS_MAX 64
#define PG_PARAMS_MAX 12
#define PG_QUEUE_MAX 6

struct pg_dialect; /* postgres_dialect.h */

/* A statement; always a static object. A session prepares the statement, in the dialect of its
 * connection, when the connection first uses the statement. */
struct pg_statement {
	const char *name;
	const char *sql;
};

/* A protocol message that was sent to the server and whose result has not been read yet. */
struct pg_sent {
	/* the statement that this message prepares; NULL if the message executes a statement */
	const struct pg_statement *preparing;
	PGresult **keep; /* where to store the result; NULL to drop it */
};

struct pg_session {
	struct session base;
	enum session_kind kind;
	PGconn *connection;               /* NULL if not connected */
	const struct pg_dialect *dialect; /* of the connection */
	/* the connection must not be used any more, because the server closed it, was silent for
	 * too long, or sent unreadable data */
	bool is_dead;
	bool is_unreplicated; /* the last COMMIT returned before a standby confirmed it */
	int64_t logged_ns;    /* when an error or a warning was last logged */
	int64_t replan_at_ns; /* when the session next discards its plans */
	int64_t asked_ns;     /* when a statement was last sent */
	const struct pg_statement *prepared[PG_STATEMENTS_MAX];
	size_t prepared_count;

	struct arena arena; /* holds the parameters of the queued statements */
	struct pg_sent sent[PG_QUEUE_MAX * 2 + 6];
	size_t sent_count;
	/* the results of the last flush; the first pg_queue() after that flush clears them */
	PGresult *results[PG_QUEUE_MAX];
	/* how many statements the caller has queued since the last flush */
	size_t queued;
	/* the first failure of a pg_queue() since the last flush; pg_flush() reports it */
	enum status failed;

	bool in_transaction;
	bool must_begin; /* send BEGIN with the next statement */
	/* whether this transaction needs pg_dialect.two_phases, and whether that statement was
	 * already sent */
	bool needs_two_phases, has_two_phases;
	/* send the next statement without BEGIN, so that the server commits it at the sync */
	bool is_single;
	bool is_refused; /* PostgreSQL's own error sets this; run_single() clears it */
	enum transaction_mode mode;
};

/* Casts `session`. Aborts if it is not a PostgreSQL session. */
struct pg_session *pg_session_of(struct session *session);

/* ---- parameters, in the session's arena until the next flush ---- */

struct pg_param {
	const char *data;
	int len;
};

struct pg_array {
	struct buffer bytes;
};

struct pg_array pg_array_of(struct pg_session *session, Oid element, size_t count);
void pg_array_text(struct pg_array *array, struct slice text);
void pg_array_bytes(struct pg_array *array, const void *data, size_t len);
void pg_array_int8(struct pg_array *array, int64_t value);
void pg_array_int4(struct pg_array *array, int32_t value);
void pg_array_null(struct pg_array *array);
struct pg_param pg_param_array(const struct pg_array *array);

/* Creates an array for each column of a batch of `count` rows. */
void pg_arrays_of(struct pg_session *session, const Oid *elements, size_t column_count,
	size_t count, struct pg_array *columns);

struct pg_param pg_param_int8(struct pg_session *session, int64_t value);

/* The text is not copied and must live until the flush. */
struct pg_param pg_param_text(struct slice text);

#define PG_OID_BYTEA 17
#define PG_OID_INT8 20
#define PG_OID_INT4 23
#define PG_OID_TEXT 25

/* ---- statements ---- */

/* Makes Citus commit the transaction in two phases (see postgres_citus.c). Call before a statement
 * that writes a table on the coordinator, if the transaction may also change tables that are spread
 * over the nodes. Has no effect without Citus. */
void pg_need_two_phases(struct pg_session *session);

/* Queues a statement. If that fails, pg_flush() reports the failure. */
void pg_queue(struct pg_session *session, const struct pg_statement *statement,
	const struct pg_param *params, size_t param_count);

/* Like pg_queue(), with an array for each parameter. */
void pg_queue_arrays(struct pg_session *session, const struct pg_statement *statement,
	const struct pg_array *columns, size_t column_count);

/*
 * Sends the queued statements and waits for all results. session->results[i] is then the result of
 * the statement that was queued as number i, from 0. On failure, rolls back the transaction and
 * returns a status that ports/store.h lists.
 */
QP_MUST_CHECK enum status pg_flush(struct pg_session *session);

/* Queues one statement and flushes. If the transaction's mode is TRANSACTION_SINGLE, the call may
 * commit the transaction. */
QP_MUST_CHECK enum status pg_run(struct pg_session *session, const struct pg_statement *statement,
	const struct pg_param *params, size_t param_count);

/*
 * Flushes, and then checks session->results[slot], the result of a statement that returns one row
 * for each row that it inserts or changes. If the result has fewer than `inserts` rows, another
 * session inserted or changed some of the rows first; the function then rolls back and returns
 * RERUN. Checks nothing if `inserts` is 0.
 */
QP_MUST_CHECK enum status pg_flush_inserts(struct pg_session *session, size_t slot, size_t inserts);

/* Return a binary int8, int4 or bool column, which must not be NULL. */
int64_t pg_int8(const PGresult *result, int row, int column);
int32_t pg_int4(const PGresult *result, int row, int column);
bool pg_bool(const PGresult *result, int row, int column);

/* Returns a text or bytea column, valid until the next pg_queue(). */
struct slice pg_slice(const PGresult *result, int row, int column);

/* SQL that turns a timestamptz into microseconds since 1970, and back. */
#define PG_TO_US(expression) "(extract(epoch from " expression ") * 1000000)::int8"
#define PG_FROM_US(expression) "(timestamptz 'epoch' + " expression " * interval '1 microsecond')"

/*
 * SQL that is true if a query finds a row. `query` is the part of the query after FROM, such as
 * "pot p WHERE p.id = c.pot_id". The query runs once for each row of the outer statement. If the
 * macro used EXISTS, the planner might read the whole table into a hash table.
 */
#define PG_FINDS(query) "(SELECT true FROM " query " LIMIT 1) IS NOT NULL"

/* ---- batches of rows ---- */

/* How a batch of structs becomes the arrays of a statement, one per column. */
struct pg_shape {
	const Oid *types; /* of the columns */
	size_t column_count;
	size_t row_size;
	/* offsetof the flag, usually `exists`, by which pg_queue_some() and pg_put_rows() select
	 * rows */
	size_t exists_at;
	/* adds one element to each column */
	void (*add)(struct pg_array *columns, const void *row);
};

/* Queues a statement with all rows of a batch. */
void pg_queue_all(struct pg_session *session, const struct pg_statement *statement,
	const struct pg_shape *shape, const void *rows, size_t count);

/* Queues the statement with the rows whose flag at shape->exists_at equals `exists`. Returns the
 * number of these rows. If it is 0, queues nothing. */
size_t pg_queue_some(struct pg_session *session, const struct pg_statement *statement,
	const struct pg_shape *shape, bool exists, const void *rows, size_t count);

/* How a batch of locked rows is written: existing rows are updated, others are inserted. The
 * statement `insert` returns one row for each row that it inserts. */
struct pg_put {
	struct pg_shape shape;
	struct pg_statement update;
	struct pg_statement insert;
};

/* Writes a batch in one round trip. Returns RERUN if another session inserted one of the rows
 * first. */
QP_MUST_CHECK enum status pg_put_rows(
	struct pg_session *session, const struct pg_put *put, const void *rows, size_t count);

/*
 * Sets a flag in each of `count` structs of `size` bytes. The flag becomes true if the result's
 * first column contains the struct's position in the batch, counted from 1; otherwise it becomes
 * false. `first` points to the flag in the first struct.
 */
void pg_flag_places(const PGresult *result, bool *first, size_t size, size_t count);

/* ---- rows by id ---- */

/* SQL for a table w of the ids in the array $1: w.id is an id, and w.n is the id's position in the
 * array, counted from 1. Write "FROM " PG_PLACES " JOIN … ON … = w.id". */
#define PG_PLACES "unnest($1::text[]) WITH ORDINALITY AS w(id, n)"

#define PG_ID_COLUMNS_MAX 2

/*
 * Describes how structs are looked up by their ids. Each statement takes one text array per id
 * column; the first column of its result is the position of the row's id in these arrays, counted
 * from 1 (see PG_PLACES). `lock` locks rows in the order of the arrays. `lock_free` locks
 * rows in the same order, but skips rows that other sessions have locked.
 */
struct pg_lookup {
	struct pg_statement find;
	struct pg_statement lock;
	struct pg_statement lock_free;
	size_t id_at[PG_ID_COLUMNS_MAX]; /* offsetof each id, a struct slice */
	size_t id_count;
	size_t row_size;
	size_t exists_at; /* offsetof the flag `exists` */
	size_t busy_at;   /* offsetof the flag `busy` */
	/* sets all members of the row except the ids and the flags `exists` and `busy` */
	void (*fill)(void *row, const PGresult *result, int at);
};

/* Looks up rows without locking them. Writes the store's time to `now_us`. */
QP_MUST_CHECK enum status pg_find_rows(struct pg_session *session, const struct pg_lookup *lookup,
	void *rows, size_t count, int64_t *now_us);

/* Locks rows according to the transaction's mode. Writes the store's time to `now_us`. Under
 * TRANSACTION_SKIP, marks a row as busy if the row exists but cannot be locked. */
QP_MUST_CHECK enum status pg_lock_rows(struct pg_session *session, const struct pg_lookup *lookup,
	void *rows, size_t count, int64_t *now_us);

/* Returns a text array with one slice from each of `count` structs of `size` bytes; `first` is the
 * slice in the first struct. */
struct pg_param pg_param_ids(
	struct pg_session *session, const struct slice *first, size_t size, size_t count);

/*
 * Runs a statement that returns the rows of a page, and leaves these rows in session->results[0].
 * The statement's parameters are `params`, followed by page->limit; `params` must have room for one
 * more element. Sets page->count and page->now_us.
 */
QP_MUST_CHECK enum status pg_list_rows(struct pg_session *session,
	const struct pg_statement *statement, struct pg_param *params, size_t param_count,
	struct row_page *page);

/* Returns the index, from 0, of the id to which a result's row belongs: the row's first column
 * minus 1. `count` is the number of ids. */
size_t pg_place(const PGresult *result, int row, size_t count);

/* ---- small things that repositories share ---- */

/* Returns a text or bytea column, copied into `arena`. */
struct slice pg_keep(struct arena *arena, const PGresult *result, int row, int column);

/* Runs a statement that takes `age_us` and `limit` and returns a row for each row that it deletes.
 * Sets `deleted` to the number of these rows. */
QP_MUST_CHECK enum status pg_sweep(struct session *session, const struct pg_statement *statement,
	int64_t age_us, size_t limit, size_t *deleted);

/* Returns true if the text is a uuid in the usual form, with hyphens. Call this before a statement
 * casts the text to uuid, because the cast fails if the text is not a uuid. */
bool pg_is_uuid(struct slice text);

/* Returns the text as a parameter to be cast to uuid, or the smallest uuid if the text is not a
 * uuid. The text is not copied and must live until the flush. */
struct pg_param pg_param_uuid(struct slice text);

/* ---- errors ---- */

/*
 * Returns true if the server closes the connection after this error: the server is starting,
 * shutting down or crashing, the session was idle for too long, an operator has terminated the
 * session, or the connection itself has failed. If the severity is ERROR, these reasons concern
 * another node of a cluster, and the connection stays open.
 */
bool pg_is_farewell(const char *state, const PGresult *result);

/* Returns true if the SQLSTATE says that a link was lost. If a pooler reports that, PostgreSQL may
 * have executed the statement, and committed it if it was sent without BEGIN. */
bool pg_is_lost_link(const char *state);

/* Returns the status of a batch that failed with this SQLSTATE on a connection that still works. */
enum status pg_status_of_state(const char *state);

/* ---- the store ---- */

struct pg_store;

struct pg_store *pg_store_of(struct store *store);

/* Returns a new, configured connection, and sets `dialect` to the connection's dialect. On failure
 * returns NULL with a reason in `why`: the server's error, or that a `quipu copy` to this database
 * is running or unfinished. Blocks. */
PGconn *pg_connect(const struct pg_store *store, enum session_kind kind,
	const struct pg_dialect **dialect, char *why, size_t size);

/* Returns whether libpq can use the URL. If not, writes a sentence to `why` that repeats no part of
 * the URL, because any part may be a secret. Check every URL before its first use. */
QP_MUST_CHECK bool pg_url_check(const char *url, char *why, size_t size);

/* Connects to the first of the URL's hosts that accepts writes. Like PQconnectdb(), blocks, and
 * returns a connection even on failure; the caller checks PQstatus() and calls PQfinish(). */
PGconn *pg_dial(const char *url);

/* Begins to connect without blocking, as PQconnectStart() does. If the URL has several hosts, each
 * call tries only one of them: host number `attempt`, modulo the number of hosts. */
PGconn *pg_dial_start(const char *url, unsigned attempt);

/* Writes the reason for the connection's last failure to `why`, as one line. */
void pg_explain(const PGconn *connection, char *why, size_t size);

/* Waits for the migration lock, which lets only one process at a time change the schema, and holds
 * it until the connection is closed. On failure returns false with a reason in `why`. */
bool pg_migration_lock(PGconn *connection, char *why, size_t size);

/* Takes the migration lock and applies missing migrations. On failure returns false with a reason
 * in `why`. */
bool pg_migrate(PGconn *connection, const char *const *components, char *why, size_t size);

/* Marks the store as down until the store's watcher thread has connected again. Call this after a
 * connection could not be opened. Any thread. */
void pg_store_lost(struct pg_store *store, const char *why);

void pg_store_count_error(struct pg_store *store, enum status kind);

/* The floor of a table is the created_at at which claims begin to read the index on the table's
 * open rows; see postgres_claims.c. */
struct pg_floor {
	const void *table;
	_Atomic int64_t from_us;    /* the scan for rows to claim starts at this created_at */
	_Atomic int64_t look_at_ns; /* monotonic time of the next scan of the whole index */
};

/* Returns the floor of the table that the address `table` identifies. Any thread. */
struct pg_floor *pg_store_floor(struct pg_store *store, const void *table);

/* The session's functions for Idempotency-Keys (struct session_ops), in postgres_idempotency.c. */
enum status pg_keys_find(struct session *session, struct arena *arena,
	struct idempotency_record *records, size_t count);
enum status pg_keys_put(struct session *session, const struct idempotency_record *records,
	size_t count, int64_t ttl_us);
enum status pg_keys_claim(
	struct session *session, struct idempotency_record *records, size_t count);
enum status pg_keys_finish(
	struct session *session, struct idempotency_record *records, size_t count);
enum status pg_keys_forget(
	struct session *session, struct idempotency_record *records, size_t count);
enum status pg_keys_release(
	struct session *session, struct idempotency_record *records, size_t count);
enum status pg_keys_list(struct session *session, struct arena *arena, struct slice prefix,
	struct row_page *page, struct kept_answer *keys);
enum status pg_keys_sweep(struct session *session, size_t limit, size_t *deleted);

/* Functions of postgres_actions.c. pg_record_action() records an operator's action with the current
 * time; call it in a transaction. */
QP_MUST_CHECK enum status pg_record_action(
	struct pg_session *session, const struct operator_record *record);
enum status pg_list_actions(struct session *session, struct arena *arena, struct row_page *page,
	struct operator_record *records);

struct session *pg_session_open(struct store *store, enum session_kind kind);

#endif
