/*
 * Implements a session: its connection, pipelines and transactions, and the translation of
 * PostgreSQL's errors.
 *
 * In this file, a round is the statements sent between two syncs. The statements of a round fail
 * together: after the first error, the server skips the remaining statements. An explicit BEGIN
 * joins several rounds into one transaction.
 *
 *   state            event                                 next
 *   idle             begin()                               must_begin
 *   must_begin       a flush, which also sends BEGIN       in a transaction
 *   must_begin       pg_run() that uses run_single()       must_begin; the server has committed
 *   must_begin       commit(), rollback()                  idle; nothing is sent
 *   in a transaction commit(), rollback()                  idle
 *   any              a flush fails                         idle; rolled back
 *   any              the connection is lost                idle; the next statement reconnects
 *
 * Invariant: a connection whose next result is uncertain is never used again (is_dead), because
 * that result could be mistaken for the result of a later statement.
 */
#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>

#include "adapters/store/postgres/postgres_dialect.h"
#include "adapters/store/postgres/postgres_internal.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"

#define SESSION_ARENA_SIZE (64 * 1024)
#define SILENCE_MAX_MS 10000
#define REPLAN_NS NS_PER_S
#define IDLE_NS NS_PER_S

static const struct pg_statement begin_statement = {"quipu_begin", "BEGIN"};
static const struct pg_statement replan_statement = {"quipu_replan", "DISCARD PLANS"};
static const struct pg_statement commit_statement = {"quipu_commit", "COMMIT"};
static const struct pg_statement rollback_statement = {"quipu_rollback", "ROLLBACK"};

static const struct session_ops session_ops;

struct pg_session *pg_session_of(struct session *session)
{
	assert(session->ops == &session_ops);
	return (struct pg_session *)session;
}

struct session *pg_session_open(struct store *store, enum session_kind kind)
{
	struct pg_session *session = qp_calloc(1, sizeof(*session));

	session->base.ops = &session_ops;
	session->base.store = store;
	session->kind = kind;
	arena_init(&session->arena, SESSION_ARENA_SIZE);
	return &session->base;
}

/* ---- connecting -------------------------------------------------------------------------- */

static void clear_results(struct pg_session *session)
{
	for (size_t i = 0; i < PG_QUEUE_MAX; i++) {
		PQclear(session->results[i]);
		session->results[i] = NULL;
	}
}

static void end_round(struct pg_session *session)
{
	session->sent_count = 0;
	session->queued = 0;
	session->failed = STATUS_OK;
	arena_reset(&session->arena);
}

static void end_transaction(struct pg_session *session)
{
	session->in_transaction = false;
	session->must_begin = false;
}

static void disconnect(struct pg_session *session)
{
	clear_results(session);
	end_round(session);
	end_transaction(session);
	PQfinish(session->connection);
	session->connection = NULL;
	session->is_dead = false;
	session->is_unreplicated = false;
	session->prepared_count = 0;
}

/* Returns true at most once per second. Without this limit, a cause that makes every batch fail,
 * such as a full disk, would flood the log. */
static bool may_log(struct pg_session *session)
{
	int64_t now_ns = clock_steady_ns(&clock_system);

	if (session->logged_ns != 0 && now_ns - session->logged_ns < NS_PER_S)
		return false;
	session->logged_ns = now_ns;
	return true;
}

/*
 * libpq calls this for the server's warnings. If someone cancels a COMMIT that waits for a
 * synchronous standby, the COMMIT succeeds with a warning from the server's function
 * SyncRepWaitForLSN. The warning means that perhaps no standby has the transaction.
 */
static void take_notice(void *context, const PGresult *notice)
{
	struct pg_session *session = context;
	const char *from = PQresultErrorField(notice, PG_DIAG_SOURCE_FUNCTION);
	const char *words = PQresultErrorField(notice, PG_DIAG_MESSAGE_PRIMARY);

	if (from && strcmp(from, "SyncRepWaitForLSN") == 0)
		session->is_unreplicated = true;
	if (may_log(session))
		log_line(LOG_WARN, "store", "%s: PostgreSQL warns: %s", session->base.store->name,
			words ? words : "no reason given");
}

static enum status connect_if_needed(struct pg_session *session)
{
	struct store *store = session->base.store;
	struct pg_store *pg_store = pg_store_of(store);
	char why[512] = "cannot enter pipeline mode";

	if (session->connection)
		return STATUS_OK;
	if (!store->ops->is_up(store))
		return STATUS_STORE_UNAVAILABLE;
	session->connection =
		pg_connect(pg_store, session->kind, &session->dialect, why, sizeof(why));
	if (session->connection && PQenterPipelineMode(session->connection)) {
		PQsetNoticeReceiver(session->connection, take_notice, session);
		session->asked_ns = clock_steady_ns(&clock_system);
		return STATUS_OK;
	}
	PQfinish(session->connection);
	session->connection = NULL;
	pg_store_lost(pg_store, why);
	return STATUS_STORE_UNAVAILABLE;
}

static bool is_broken(const struct pg_session *session)
{
	return session->is_dead || PQstatus(session->connection) == CONNECTION_BAD;
}

/* Waits until the next result can be read without blocking. Gives up if the server is silent for
 * too long: the server may hang, or the network may be down. */
static void await_result(struct pg_session *session)
{
	while (PQisBusy(session->connection)) {
		struct pollfd socket = {.fd = PQsocket(session->connection), .events = POLLIN};
		int ready = poll(&socket, 1, SILENCE_MAX_MS);

		if (ready < 0 && errno == EINTR)
			continue;
		if (ready <= 0) {
			session->is_dead = true;
			return;
		}
		if (!PQconsumeInput(session->connection))
			return;
	}
}

static PGresult *next_result(struct pg_session *session)
{
	await_result(session);
	return session->is_dead ? NULL : PQgetResult(session->connection);
}

/* ---- errors ------------------------------------------------------------------------------ */

static void log_error(struct pg_session *session, const char *state, const PGresult *result)
{
	if (!may_log(session))
		return;
	log_line(LOG_ERROR, "store", "%s: PostgreSQL reported error %s: %s",
		session->base.store->name, state,
		PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY));
}

static enum status status_of_error(struct pg_session *session, const PGresult *result)
{
	const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
	enum status status;

	/* An error without an SQLSTATE does not come from the server: the connection is lost, or
	 * libpq could not read the server's reply. The server may still have executed the
	 * statement. */
	if (!state || pg_is_farewell(state, result))
		session->is_dead = true;
	if (state && !pg_is_lost_link(state))
		session->is_refused = true;
	if (is_broken(session))
		return STATUS_RERUN; /* a caller that commits may return OUTCOME_UNKNOWN instead */
	status = pg_status_of_state(state);
	if (status == STATUS_STORE_UNAVAILABLE || status == STATUS_POISON)
		log_error(session, state, result);
	return status;
}

/* ---- pipelines --------------------------------------------------------------------------- */

/* Returns true if the statement is already prepared, or if an earlier message of this round
 * prepares it. */
static bool is_prepared(const struct pg_session *session, const struct pg_statement *statement)
{
	for (size_t i = 0; i < session->prepared_count; i++) {
		if (session->prepared[i] == statement)
			return true;
	}
	for (size_t i = 0; i < session->sent_count; i++) {
		if (session->sent[i].preparing == statement)
			return true;
	}
	return false;
}

static void note_sent(
	struct pg_session *session, const struct pg_statement *preparing, PGresult **keep)
{
	struct pg_sent *sent = &session->sent[session->sent_count++];

	assert(session->sent_count <= sizeof(session->sent) / sizeof(session->sent[0]));
	sent->preparing = preparing;
	sent->keep = keep;
}

static bool send_parse(struct pg_session *session, const struct pg_statement *statement)
{
	if (is_prepared(session, statement))
		return true;
	note_sent(session, statement, NULL);
	return PQsendPrepare(session->connection, statement->name,
		pg_dialect_sql(session->dialect, statement), 0, NULL);
}

static bool send_statement(struct pg_session *session, const struct pg_statement *statement,
	const struct pg_param *params, size_t param_count, PGresult **keep)
{
	const char *values[PG_PARAMS_MAX];
	int lengths[PG_PARAMS_MAX];
	int formats[PG_PARAMS_MAX];

	assert(param_count <= PG_PARAMS_MAX);
	for (size_t i = 0; i < param_count; i++) {
		values[i] = params[i].data;
		lengths[i] = params[i].len;
		formats[i] = 1;
	}
	if (!send_parse(session, statement))
		return false;
	note_sent(session, NULL, keep);
	return PQsendQueryPrepared(session->connection, statement->name, (int)param_count, values,
		lengths, formats, 1);
}

static enum status send_begin(struct pg_session *session)
{
	if (!session->must_begin || session->is_single)
		return STATUS_OK;
	session->must_begin = false;
	return send_statement(session, &begin_statement, NULL, 0, NULL) ? STATUS_OK : STATUS_RERUN;
}

/*
 * Discards the session's plans every REPLAN_NS. Otherwise PostgreSQL would keep a plan until the
 * table is analyzed again. A plan made for a small table may read the whole table for each row of a
 * batch, and the table can grow to any size before the next ANALYZE.
 */
static enum status send_replan(struct pg_session *session)
{
	int64_t now_ns = clock_steady_ns(&clock_system);

	session->asked_ns = now_ns;
	if (now_ns < session->replan_at_ns)
		return STATUS_OK;
	session->replan_at_ns = now_ns + REPLAN_NS;
	return send_statement(session, &replan_statement, NULL, 0, NULL) ? STATUS_OK : STATUS_RERUN;
}

static enum status send_two_phases(struct pg_session *session)
{
	const struct pg_statement *statement = session->dialect->two_phases;

	if (!statement || !session->needs_two_phases || session->has_two_phases)
		return STATUS_OK;
	session->has_two_phases = true;
	return send_statement(session, statement, NULL, 0, NULL) ? STATUS_OK : STATUS_RERUN;
}

void pg_need_two_phases(struct pg_session *session)
{
	session->needs_two_phases = true;
}

void pg_queue(struct pg_session *session, const struct pg_statement *statement,
	const struct pg_param *params, size_t param_count)
{
	size_t slot = session->queued++;

	assert(slot < PG_QUEUE_MAX);
	if (slot == 0)
		clear_results(session);
	if (session->failed == STATUS_OK)
		session->failed = connect_if_needed(session);
	if (session->failed == STATUS_OK)
		session->failed = send_begin(session);
	if (session->failed == STATUS_OK)
		session->failed = send_replan(session);
	if (session->failed == STATUS_OK)
		session->failed = send_two_phases(session);
	if (session->failed == STATUS_OK &&
		!send_statement(session, statement, params, param_count, &session->results[slot]))
		session->failed = STATUS_RERUN;
}

void pg_queue_arrays(struct pg_session *session, const struct pg_statement *statement,
	const struct pg_array *columns, size_t column_count)
{
	struct pg_param params[PG_PARAMS_MAX];

	assert(column_count <= PG_PARAMS_MAX);
	for (size_t i = 0; i < column_count; i++)
		params[i] = pg_param_array(&columns[i]);
	pg_queue(session, statement, params, column_count);
}

/* Reads the result of one message, and the NULL that follows each result in a pipeline. */
static enum status read_one(struct pg_session *session, PGresult **keep)
{
	PGresult *result = next_result(session);
	ExecStatusType kind = PQresultStatus(result);
	enum status status = STATUS_OK;

	if (kind == PGRES_PIPELINE_ABORTED)
		/* an earlier message failed; read_round() returns that message's status */
		status = STATUS_RERUN;
	else if (kind != PGRES_TUPLES_OK && kind != PGRES_COMMAND_OK)
		status = status_of_error(session, result);
	if (result)
		PQclear(next_result(session));
	if (status == STATUS_OK && keep)
		*keep = result;
	else
		PQclear(result);
	return status;
}

static enum status read_sync(struct pg_session *session)
{
	PGresult *result = next_result(session);
	bool ok = PQresultStatus(result) == PGRES_PIPELINE_SYNC;
	const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);

	if (!ok && state)
		log_error(session, state, result);
	PQclear(result);
	return ok ? STATUS_OK : STATUS_RERUN;
}

/* Reads all results up to the sync. Returns the first failure. */
static enum status read_results(struct pg_session *session)
{
	enum status first = STATUS_OK;

	for (size_t i = 0; i < session->sent_count && !is_broken(session); i++) {
		const struct pg_sent *sent = &session->sent[i];
		enum status status = read_one(session, sent->keep);

		if (status == STATUS_OK && sent->preparing) {
			assert(session->prepared_count < PG_STATEMENTS_MAX);
			session->prepared[session->prepared_count++] = sent->preparing;
		}
		if (first == STATUS_OK)
			first = status;
	}
	if (!is_broken(session) && read_sync(session) == STATUS_OK)
		return first;
	/* Not all results were read, so the next result could be mistaken for the result of a later
	 * statement. */
	session->is_dead = true;
	return first == STATUS_OK ? STATUS_RERUN : first;
}

static enum status read_round(struct pg_session *session)
{
	int64_t started_ns = clock_steady_ns(&clock_system);
	enum status status = read_results(session);

	latency_add(session->base.store->latency, clock_steady_ns(&clock_system) - started_ns);
	return status;
}

static enum status finish_round(struct pg_session *session)
{
	if (PQpipelineSync(session->connection))
		return read_round(session);
	session->is_dead = true;
	return STATUS_RERUN;
}

static void rollback(struct session *base);

static enum status round_failed(struct pg_session *session, enum status status)
{
	pg_store_count_error(pg_store_of(session->base.store), status);
	if (is_broken(session) || session->failed != STATUS_OK ||
		status == STATUS_STORE_UNAVAILABLE)
		disconnect(session);
	else
		rollback(&session->base);
	return status;
}

enum status pg_flush(struct pg_session *session)
{
	enum status status = session->failed;

	if (status == STATUS_OK)
		status = finish_round(session);
	if (status != STATUS_OK)
		return round_failed(session, status);
	end_round(session);
	return STATUS_OK;
}

enum status pg_flush_inserts(struct pg_session *session, size_t slot, size_t inserts)
{
	enum status status = pg_flush(session);

	if (status != STATUS_OK || inserts == 0)
		return status;
	if ((size_t)PQntuples(session->results[slot]) == inserts)
		return STATUS_OK;
	rollback(&session->base);
	return STATUS_RERUN;
}

/* ---- transactions ------------------------------------------------------------------------ */

static enum status begin(struct session *base, enum transaction_mode mode)
{
	struct pg_session *session = pg_session_of(base);

	assert(!session->in_transaction);
	session->mode = mode;
	session->needs_two_phases = session->has_two_phases = false;
	session->must_begin = true;
	session->in_transaction = true;
	return STATUS_OK;
}

static void note_unknown(struct pg_session *session, const char *what)
{
	pg_store_count_error(pg_store_of(session->base.store), STATUS_OUTCOME_UNKNOWN);
	log_line(LOG_ERROR, "store", "%s: %s; the outcome is unknown", session->base.store->name,
		what);
}

/* Called if a COMMIT failed but the server may have committed nevertheless. Usually the connection
 * was lost. Only the rows in the database would show whether the server has committed. */
static enum status commit_lost(struct pg_session *session)
{
	note_unknown(session, is_broken(session)
				      ? "the connection was lost during COMMIT"
				      : "the server did not report whether COMMIT succeeded");
	disconnect(session);
	return STATUS_OUTCOME_UNKNOWN;
}

/* Returns the status of a transaction that the server has committed. If the COMMIT returned before
 * a standby confirmed it, the outcome is unknown, because the transaction may be lost if a standby
 * takes over. */
static enum status committed_status(struct pg_session *session)
{
	if (!session->is_unreplicated)
		return STATUS_OK;
	note_unknown(session, "a COMMIT that waited for a synchronous standby was cancelled");
	disconnect(session);
	return STATUS_OUTCOME_UNKNOWN;
}

/*
 * Returns true if the connection is almost certainly open: a statement was sent less than IDLE_NS
 * ago, and there is no unread data from the server. If this function returns false, the transaction
 * starts with BEGIN. If the idle connection has been closed, for example because the server was
 * restarted, BEGIN fails and the batch can simply run again. Without BEGIN, the outcome of the
 * transaction would be unknown.
 */
static bool is_surely_open(const struct pg_session *session)
{
	struct pollfd socket = {.fd = PQsocket(session->connection), .events = POLLIN};

	return clock_steady_ns(&clock_system) - session->asked_ns < IDLE_NS &&
	       poll(&socket, 1, 0) == 0;
}

/*
 * Runs a statement without BEGIN. The server then commits at the sync, so the result of the round
 * is the result of the transaction. If the server reports an error for the statement, the server
 * has committed nothing, even if the error says that an administrator has ended the session. But a
 * pooler that reports a lost link to the server does not know whether the server has committed.
 */
static enum status run_single(struct pg_session *session, const struct pg_statement *statement,
	const struct pg_param *params, size_t param_count)
{
	enum status status;

	session->is_single = true;
	session->is_refused = false;
	pg_queue(session, statement, params, param_count);
	session->is_single = false;
	if (session->failed != STATUS_OK)
		return pg_flush(session); /* no sync was sent, so nothing was committed */
	status = finish_round(session);
	if (status != STATUS_OK && !session->is_refused)
		return commit_lost(session);
	if (status != STATUS_OK)
		return round_failed(session, status);
	end_round(session);
	return committed_status(session);
}

/* Returns true if the transaction needs no BEGIN. This depends on the dialect, which is known only
 * once the session is connected, so the function connects first. */
static bool may_be_single(struct pg_session *session)
{
	if (session->mode != TRANSACTION_SINGLE || !session->must_begin)
		return false;
	if (session->failed == STATUS_OK)
		session->failed = connect_if_needed(session);
	return session->failed == STATUS_OK && session->dialect->commits_alone &&
	       is_surely_open(session);
}

enum status pg_run(struct pg_session *session, const struct pg_statement *statement,
	const struct pg_param *params, size_t param_count)
{
	if (may_be_single(session))
		return run_single(session, statement, params, param_count);
	pg_queue(session, statement, params, param_count);
	return pg_flush(session);
}

static enum status send_commit(struct pg_session *session)
{
	PGresult *result = NULL;
	bool committed;
	enum status status;

	if (!send_statement(session, &commit_statement, NULL, 0, &result) ||
		!PQpipelineSync(session->connection))
		return commit_lost(session);
	status = read_round(session);
	committed = result && strcmp(PQcmdStatus(result), "COMMIT") == 0;
	PQclear(result);
	if (committed)
		return committed_status(session);
	if (is_broken(session) || status == STATUS_STORE_UNAVAILABLE)
		return commit_lost(session);
	/* The server refused to commit and the connection still works, so the server has rolled the
	 * transaction back. */
	return status == STATUS_OK ? STATUS_RERUN : status;
}

static enum status commit(struct session *base)
{
	struct pg_session *session = pg_session_of(base);
	bool anything_sent = !session->must_begin;
	enum status status = STATUS_OK;

	assert(session->in_transaction);
	if (anything_sent)
		status = send_commit(session);
	if (session->connection && is_broken(session))
		disconnect(session);
	end_round(session);
	end_transaction(session);
	return status;
}

static void rollback(struct session *base)
{
	struct pg_session *session = pg_session_of(base);
	bool began = session->in_transaction && !session->must_begin && session->connection;

	end_round(session);
	end_transaction(session);
	if (!began)
		return;
	if (!send_statement(session, &rollback_statement, NULL, 0, NULL) ||
		finish_round(session) != STATUS_OK)
		disconnect(session);
	end_round(session);
}

static void close_session(struct session *base)
{
	struct pg_session *session = pg_session_of(base);

	disconnect(session);
	arena_release(&session->arena);
	free(session);
}

static const struct session_ops session_ops = {
	.begin = begin,
	.commit = commit,
	.rollback = rollback,
	.idempotency_find = pg_keys_find,
	.idempotency_put = pg_keys_put,
	.idempotency_claim = pg_keys_claim,
	.idempotency_finish = pg_keys_finish,
	.idempotency_forget = pg_keys_forget,
	.idempotency_release = pg_keys_release,
	.idempotency_list = pg_keys_list,
	.list_actions = pg_list_actions,
	.idempotency_sweep = pg_keys_sweep,
	.close = close_session,
};
