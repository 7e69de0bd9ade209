/* Traces the repository of counts, and the gateway's repositories: limits and sent messages. */
#include "adapters/store/tracing/tracing_internal.h"

/* ---- counts ------------------------------------------------------------------------------- */

static const struct count_repository_ops count_ops;

static const struct count_repository *counts_of(const struct count_repository *repository)
{
	assert(repository->ops == &count_ops);
	return ((const struct tracing_counts *)repository)->inner;
}

static enum status count_add(const struct count_repository *repository, struct session *session,
	struct count_addition *additions, size_t count)
{
	const struct count_repository *inner = counts_of(repository);
	struct trace trace = trace_begin(session, "counts", "add");
	enum status status = inner->ops->add(inner, trace.session, additions, count);

	return trace_end_rows(&trace, status, count);
}

static enum status count_lock(const struct count_repository *repository, struct session *session,
	struct count_row *rows, size_t count, int64_t *now_us)
{
	const struct count_repository *inner = counts_of(repository);
	struct trace trace = trace_begin(session, "counts", "lock");
	enum status status = inner->ops->lock(inner, trace.session, rows, count, now_us);

	return trace_end_rows(&trace, status, count);
}

static enum status count_edit(const struct count_repository *repository, struct session *session,
	const struct count_edit *edits, size_t count, int64_t now_us)
{
	const struct count_repository *inner = counts_of(repository);
	struct trace trace = trace_begin(session, "counts", "edit");
	enum status status = inner->ops->edit(inner, trace.session, edits, count, now_us);

	return trace_end_rows(&trace, status, count);
}

static enum status count_find(const struct count_repository *repository, struct session *session,
	struct count_row *rows, size_t count)
{
	const struct count_repository *inner = counts_of(repository);
	struct trace trace = trace_begin(session, "counts", "find");
	enum status status = inner->ops->find(inner, trace.session, rows, count);

	return trace_end_rows(&trace, status, count);
}

static enum status count_list(const struct count_repository *repository, struct session *session,
	struct arena *arena, struct row_page *page, struct count_row *rows)
{
	const struct count_repository *inner = counts_of(repository);
	struct trace trace = trace_begin(session, "counts", "list");
	enum status status = inner->ops->list(inner, trace.session, arena, page, rows);

	return trace_end_counted(&trace, status, &page->count);
}

static const struct count_repository_ops count_ops = {
	.add = count_add,
	.lock = count_lock,
	.edit = count_edit,
	.find = count_find,
	.list = count_list,
};

const struct count_repository *tracing_counts_init(
	struct tracing_counts *tracing, const struct count_repository *inner)
{
	if (!inner)
		return NULL;
	tracing->base.ops = &count_ops;
	tracing->inner = inner;
	return &tracing->base;
}

/* ---- limits ------------------------------------------------------------------------------- */

static const struct limit_repository_ops limit_ops;

static const struct limit_repository *limits_of(const struct limit_repository *repository)
{
	assert(repository->ops == &limit_ops);
	return ((const struct tracing_limits *)repository)->inner;
}

static enum status limit_lock(const struct limit_repository *repository, struct session *session,
	struct limit_row *rows, size_t count, int64_t *now_us)
{
	const struct limit_repository *inner = limits_of(repository);
	struct trace trace = trace_begin(session, "limits", "lock");
	enum status status = inner->ops->lock(inner, trace.session, rows, count, now_us);

	return trace_end_rows(&trace, status, count);
}

static enum status limit_put(const struct limit_repository *repository, struct session *session,
	const struct limit_row *rows, size_t count)
{
	const struct limit_repository *inner = limits_of(repository);
	struct trace trace = trace_begin(session, "limits", "put");
	enum status status = inner->ops->put(inner, trace.session, rows, count);

	return trace_end_rows(&trace, status, count);
}

static enum status limit_remove(const struct limit_repository *repository, struct session *session,
	const struct slice *user_ids, size_t count)
{
	const struct limit_repository *inner = limits_of(repository);
	struct trace trace = trace_begin(session, "limits", "remove");
	enum status status = inner->ops->remove(inner, trace.session, user_ids, count);

	return trace_end_rows(&trace, status, count);
}

static enum status limit_settle(const struct limit_repository *repository, struct session *session,
	const struct limit_settlement *settlements, size_t count)
{
	const struct limit_repository *inner = limits_of(repository);
	struct trace trace = trace_begin(session, "limits", "settle");
	enum status status = inner->ops->settle(inner, trace.session, settlements, count);

	return trace_end_rows(&trace, status, count);
}

static enum status limit_sweep(const struct limit_repository *repository, struct session *session,
	const struct limit_idle *idle, size_t limit, size_t *deleted)
{
	const struct limit_repository *inner = limits_of(repository);
	struct trace trace = trace_begin(session, "limits", "sweep");
	enum status status = inner->ops->sweep(inner, trace.session, idle, limit, deleted);

	return trace_end_counted(&trace, status, deleted);
}

static enum status limit_find(const struct limit_repository *repository, struct session *session,
	struct limit_row *rows, size_t count, int64_t *now_us)
{
	const struct limit_repository *inner = limits_of(repository);
	struct trace trace = trace_begin(session, "limits", "find");
	enum status status = inner->ops->find(inner, trace.session, rows, count, now_us);

	return trace_end_rows(&trace, status, count);
}

static enum status limit_list(const struct limit_repository *repository, struct session *session,
	struct arena *arena, struct row_page *page, struct limit_row *rows)
{
	const struct limit_repository *inner = limits_of(repository);
	struct trace trace = trace_begin(session, "limits", "list");
	enum status status = inner->ops->list(inner, trace.session, arena, page, rows);

	return trace_end_counted(&trace, status, &page->count);
}

static const struct limit_repository_ops limit_ops = {
	.lock = limit_lock,
	.put = limit_put,
	.remove = limit_remove,
	.settle = limit_settle,
	.sweep = limit_sweep,
	.find = limit_find,
	.list = limit_list,
};

const struct limit_repository *tracing_limits_init(
	struct tracing_limits *tracing, const struct limit_repository *inner)
{
	if (!inner)
		return NULL;
	tracing->base.ops = &limit_ops;
	tracing->base.eraser = tracing_eraser_init(&tracing->eraser, inner->eraser);
	tracing->inner = inner;
	return &tracing->base;
}

/* ---- sent messages ------------------------------------------------------------------------ */

static const struct sent_repository_ops sent_ops;

static const struct sent_repository *sent_of(const struct sent_repository *repository)
{
	assert(repository->ops == &sent_ops);
	return ((const struct tracing_sent *)repository)->inner;
}

static enum status sent_find(const struct sent_repository *repository, struct session *session,
	struct sent_message *messages, size_t count)
{
	const struct sent_repository *inner = sent_of(repository);
	struct trace trace = trace_begin(session, "sent", "find");
	enum status status = inner->ops->find(inner, trace.session, messages, count);

	return trace_end_rows(&trace, status, count);
}

static enum status sent_sweep(const struct sent_repository *repository, struct session *session,
	int64_t age_us, size_t limit, size_t *deleted)
{
	const struct sent_repository *inner = sent_of(repository);
	struct trace trace = trace_begin(session, "sent", "sweep");
	enum status status = inner->ops->sweep(inner, trace.session, age_us, limit, deleted);

	return trace_end_counted(&trace, status, deleted);
}

static const struct sent_repository_ops sent_ops = {
	.find = sent_find,
	.sweep = sent_sweep,
};

const struct sent_repository *tracing_sent_init(
	struct tracing_sent *tracing, const struct sent_repository *inner)
{
	if (!inner)
		return NULL;
	tracing->base.ops = &sent_ops;
	tracing->inner = inner;
	return &tracing->base;
}
