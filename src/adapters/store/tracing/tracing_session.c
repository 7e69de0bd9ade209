/*
 * Sessions of the tracing store. A tracing session owns an inner session. The rules for threads and
 * transactions are the same for both.
 */
#include <stdlib.h>

#include "adapters/store/tracing/tracing_internal.h"

struct tracing_session {
	struct session base;
	struct session *inner;
};

static const struct session_ops session_ops;

struct session *tracing_session_inner(struct session *session)
{
	assert(session->ops == &session_ops);
	return ((struct tracing_session *)session)->inner;
}

struct session *tracing_session_new(
	struct store *store, struct store *inner, enum session_kind kind)
{
	struct tracing_session *session = qp_calloc(1, sizeof(*session));
	struct trace trace = trace_begin_store(store, "open_session");

	session->base.ops = &session_ops;
	session->base.store = store;
	session->inner = inner->ops->open_session(inner, kind);
	trace_end_void(&trace);
	return &session->base;
}

static enum status begin(struct session *session, enum transaction_mode mode)
{
	struct trace trace = trace_begin(session, "session", "begin");
	enum status status = trace.session->ops->begin(trace.session, mode);

	return trace_end(&trace, status);
}

static enum status commit(struct session *session)
{
	struct trace trace = trace_begin(session, "session", "commit");
	enum status status = trace.session->ops->commit(trace.session);

	return trace_end(&trace, status);
}

static void rollback(struct session *session)
{
	struct trace trace = trace_begin(session, "session", "rollback");

	trace.session->ops->rollback(trace.session);
	trace_end_void(&trace);
}

static enum status idempotency_find(struct session *session, struct arena *arena,
	struct idempotency_record *records, size_t count)
{
	struct trace trace = trace_begin(session, "idempotency", "find");
	enum status status =
		trace.session->ops->idempotency_find(trace.session, arena, records, count);

	return trace_end_rows(&trace, status, count);
}

static enum status idempotency_put(struct session *session,
	const struct idempotency_record *records, size_t count, int64_t ttl_us)
{
	struct trace trace = trace_begin(session, "idempotency", "put");
	enum status status =
		trace.session->ops->idempotency_put(trace.session, records, count, ttl_us);

	return trace_end_rows(&trace, status, count);
}

static enum status idempotency_claim(
	struct session *session, struct idempotency_record *records, size_t count)
{
	struct trace trace = trace_begin(session, "idempotency", "claim");
	enum status status = trace.session->ops->idempotency_claim(trace.session, records, count);

	return trace_end_rows(&trace, status, count);
}

static enum status idempotency_finish(
	struct session *session, struct idempotency_record *records, size_t count)
{
	struct trace trace = trace_begin(session, "idempotency", "finish");
	enum status status = trace.session->ops->idempotency_finish(trace.session, records, count);

	return trace_end_rows(&trace, status, count);
}

static enum status idempotency_forget(
	struct session *session, struct idempotency_record *records, size_t count)
{
	struct trace trace = trace_begin(session, "idempotency", "forget");
	enum status status = trace.session->ops->idempotency_forget(trace.session, records, count);

	return trace_end_rows(&trace, status, count);
}

static enum status idempotency_release(
	struct session *session, struct idempotency_record *records, size_t count)
{
	struct trace trace = trace_begin(session, "idempotency", "release");
	enum status status = trace.session->ops->idempotency_release(trace.session, records, count);

	return trace_end_rows(&trace, status, count);
}

static enum status idempotency_list(struct session *session, struct arena *arena,
	struct slice prefix, struct row_page *page, struct kept_answer *keys)
{
	struct trace trace = trace_begin(session, "idempotency", "list");
	enum status status =
		trace.session->ops->idempotency_list(trace.session, arena, prefix, page, keys);

	return trace_end_counted(&trace, status, &page->count);
}

static enum status idempotency_sweep(struct session *session, size_t limit, size_t *deleted)
{
	struct trace trace = trace_begin(session, "idempotency", "sweep");
	enum status status = trace.session->ops->idempotency_sweep(trace.session, limit, deleted);

	return trace_end_counted(&trace, status, deleted);
}

static enum status list_actions(struct session *session, struct arena *arena, struct row_page *page,
	struct operator_record *records)
{
	struct trace trace = trace_begin(session, "session", "list_actions");
	enum status status = trace.session->ops->list_actions(trace.session, arena, page, records);

	return trace_end_counted(&trace, status, &page->count);
}

static void close_session(struct session *session)
{
	struct trace trace = trace_begin(session, "session", "close");

	trace.session->ops->close(trace.session);
	trace_end_void(&trace);
	free(session);
}

static const struct session_ops session_ops = {
	.begin = begin,
	.commit = commit,
	.rollback = rollback,
	.idempotency_find = idempotency_find,
	.idempotency_put = idempotency_put,
	.idempotency_claim = idempotency_claim,
	.idempotency_finish = idempotency_finish,
	.idempotency_forget = idempotency_forget,
	.idempotency_release = idempotency_release,
	.idempotency_list = idempotency_list,
	.idempotency_sweep = idempotency_sweep,
	.list_actions = list_actions,
	.close = close_session,
};
