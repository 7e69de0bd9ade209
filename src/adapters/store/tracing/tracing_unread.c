/* Traces the repositories of dialogs and counters. */
#include "adapters/store/tracing/tracing_internal.h"

/* ---- messages ----------------------------------------------------------------------------- */

static const struct message_repository_ops message_ops;

static const struct message_repository *messages_of(const struct message_repository *repository)
{
	assert(repository->ops == &message_ops);
	return ((const struct tracing_messages *)repository)->inner;
}

static enum status message_put(const struct message_repository *repository, struct session *session,
	const struct message *messages, size_t count)
{
	const struct message_repository *inner = messages_of(repository);
	struct trace trace = trace_begin(session, "messages", "put");
	enum status status = inner->ops->put(inner, trace.session, messages, count);

	return trace_end_rows(&trace, status, count);
}

static enum status message_mark(const struct message_repository *repository,
	struct session *session, struct message_mark *marks, size_t count)
{
	const struct message_repository *inner = messages_of(repository);
	struct trace trace = trace_begin(session, "messages", "mark");
	enum status status = inner->ops->mark(inner, trace.session, marks, count);

	return trace_end_rows(&trace, status, count);
}

static enum status message_find_unread(const struct message_repository *repository,
	struct session *session, struct arena *arena, struct unread_query *queries, size_t count)
{
	const struct message_repository *inner = messages_of(repository);
	struct trace trace = trace_begin(session, "messages", "find_unread");
	enum status status = inner->ops->find_unread(inner, trace.session, arena, queries, count);
	size_t rows = 0;

	for (size_t i = 0; status == STATUS_OK && i < count; i++)
		rows += queries[i].id_count;
	return trace_end_counted(&trace, status, &rows);
}

static enum status message_list(const struct message_repository *repository,
	struct session *session, struct arena *arena, struct message_query *queries, size_t count)
{
	const struct message_repository *inner = messages_of(repository);
	struct trace trace = trace_begin(session, "messages", "list");
	enum status status = inner->ops->list(inner, trace.session, arena, queries, count);
	size_t rows = 0;

	for (size_t i = 0; status == STATUS_OK && i < count; i++)
		rows += queries[i].message_count;
	return trace_end_counted(&trace, status, &rows);
}

static enum status message_list_conversations(const struct message_repository *repository,
	struct session *session, struct arena *arena, struct conversation_query *queries,
	size_t count)
{
	const struct message_repository *inner = messages_of(repository);
	struct trace trace = trace_begin(session, "messages", "list_conversations");
	enum status status =
		inner->ops->list_conversations(inner, trace.session, arena, queries, count);
	size_t rows = 0;

	for (size_t i = 0; status == STATUS_OK && i < count; i++)
		rows += queries[i].conversation_count;
	return trace_end_counted(&trace, status, &rows);
}

static enum status message_count_unread(const struct message_repository *repository,
	struct session *session, struct arena *arena, struct row_page *page,
	struct unread_count *counts)
{
	const struct message_repository *inner = messages_of(repository);
	struct trace trace = trace_begin(session, "messages", "count_unread");
	enum status status = inner->ops->count_unread(inner, trace.session, arena, page, counts);

	return trace_end_counted(&trace, status, &page->count);
}

static enum status message_list_unread(const struct message_repository *repository,
	struct session *session, struct arena *arena, struct row_page *page,
	struct message *messages)
{
	const struct message_repository *inner = messages_of(repository);
	struct trace trace = trace_begin(session, "messages", "list_unread");
	enum status status = inner->ops->list_unread(inner, trace.session, arena, page, messages);

	return trace_end_counted(&trace, status, &page->count);
}

static enum status message_list_rows(const struct message_repository *repository,
	struct session *session, struct arena *arena, struct row_page *page,
	struct conversation_row *rows)
{
	const struct message_repository *inner = messages_of(repository);
	struct trace trace = trace_begin(session, "messages", "list_rows");
	enum status status = inner->ops->list_rows(inner, trace.session, arena, page, rows);

	return trace_end_counted(&trace, status, &page->count);
}

static enum status message_list_directions(const struct message_repository *repository,
	struct session *session, struct arena *arena, struct row_page *page,
	struct conversation_row *rows)
{
	const struct message_repository *inner = messages_of(repository);
	struct trace trace = trace_begin(session, "messages", "list_directions");
	enum status status = inner->ops->list_directions(inner, trace.session, arena, page, rows);

	return trace_end_counted(&trace, status, &page->count);
}

static enum status message_find_rows(const struct message_repository *repository,
	struct session *session, struct arena *arena, struct conversation_row *rows, size_t count)
{
	const struct message_repository *inner = messages_of(repository);
	struct trace trace = trace_begin(session, "messages", "find_rows");
	enum status status = inner->ops->find_rows(inner, trace.session, arena, rows, count);

	return trace_end_counted(&trace, status, &count);
}

static const struct message_repository_ops message_ops = {
	.put = message_put,
	.mark = message_mark,
	.find_unread = message_find_unread,
	.list = message_list,
	.list_conversations = message_list_conversations,
	.count_unread = message_count_unread,
	.list_unread = message_list_unread,
	.list_rows = message_list_rows,
	.list_directions = message_list_directions,
	.find_rows = message_find_rows,
};

const struct message_repository *tracing_messages_init(
	struct tracing_messages *tracing, const struct message_repository *inner)
{
	if (!inner)
		return NULL;
	tracing->base.ops = &message_ops;
	tracing->base.eraser = tracing_eraser_init(&tracing->eraser, inner->eraser);
	tracing->inner = inner;
	return &tracing->base;
}

/* ---- counters ----------------------------------------------------------------------------- */

static const struct counter_repository_ops counter_ops;

static const struct counter_repository *counters_of(const struct counter_repository *repository)
{
	assert(repository->ops == &counter_ops);
	return ((const struct tracing_counters *)repository)->inner;
}

static enum status counter_lock(const struct counter_repository *repository,
	struct session *session, struct counter_message *messages, size_t count)
{
	const struct counter_repository *inner = counters_of(repository);
	struct trace trace = trace_begin(session, "counters", "lock");
	enum status status = inner->ops->lock(inner, trace.session, messages, count);

	return trace_end_rows(&trace, status, count);
}

static enum status counter_put(const struct counter_repository *repository, struct session *session,
	const struct counter_message *messages, size_t count)
{
	const struct counter_repository *inner = counters_of(repository);
	struct trace trace = trace_begin(session, "counters", "put");
	enum status status = inner->ops->put(inner, trace.session, messages, count);

	return trace_end_rows(&trace, status, count);
}

static enum status counter_add(const struct counter_repository *repository, struct session *session,
	struct counter_row *rows, size_t count)
{
	const struct counter_repository *inner = counters_of(repository);
	struct trace trace = trace_begin(session, "counters", "add");
	enum status status = inner->ops->add(inner, trace.session, rows, count);

	return trace_end_rows(&trace, status, count);
}

static enum status counter_find(const struct counter_repository *repository,
	struct session *session, struct counter_row *rows, size_t count)
{
	const struct counter_repository *inner = counters_of(repository);
	struct trace trace = trace_begin(session, "counters", "find");
	enum status status = inner->ops->find(inner, trace.session, rows, count);

	return trace_end_rows(&trace, status, count);
}

static enum status counter_sweep(const struct counter_repository *repository,
	struct session *session, int64_t age_us, size_t limit, size_t *deleted)
{
	const struct counter_repository *inner = counters_of(repository);
	struct trace trace = trace_begin(session, "counters", "sweep");
	enum status status = inner->ops->sweep(inner, trace.session, age_us, limit, deleted);

	return trace_end_counted(&trace, status, deleted);
}

static enum status counter_list(const struct counter_repository *repository,
	struct session *session, struct arena *arena, struct row_page *page,
	struct counter_row *rows)
{
	const struct counter_repository *inner = counters_of(repository);
	struct trace trace = trace_begin(session, "counters", "list");
	enum status status = inner->ops->list(inner, trace.session, arena, page, rows);

	return trace_end_counted(&trace, status, &page->count);
}

static enum status counter_list_unread(const struct counter_repository *repository,
	struct session *session, struct arena *arena, struct row_page *page,
	struct counter_message *messages)
{
	const struct counter_repository *inner = counters_of(repository);
	struct trace trace = trace_begin(session, "counters", "list_unread");
	enum status status = inner->ops->list_unread(inner, trace.session, arena, page, messages);

	return trace_end_counted(&trace, status, &page->count);
}

static const struct counter_repository_ops counter_ops = {
	.lock = counter_lock,
	.put = counter_put,
	.add = counter_add,
	.find = counter_find,
	.sweep = counter_sweep,
	.list = counter_list,
	.list_unread = counter_list_unread,
};

const struct counter_repository *tracing_counters_init(
	struct tracing_counters *tracing, const struct counter_repository *inner)
{
	if (!inner)
		return NULL;
	tracing->base.ops = &counter_ops;
	tracing->base.eraser = tracing_eraser_init(&tracing->eraser, inner->eraser);
	tracing->inner = inner;
	return &tracing->base;
}
