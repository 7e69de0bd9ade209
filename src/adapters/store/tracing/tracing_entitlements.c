/* Traces the repository of entitlements and their audit. */
#include "adapters/store/tracing/tracing_internal.h"

static const struct entitlement_repository_ops entitlement_ops;

static const struct entitlement_repository *entitlements_of(
	const struct entitlement_repository *repository)
{
	assert(repository->ops == &entitlement_ops);
	return ((const struct tracing_entitlements *)repository)->inner;
}

static enum status entitlement_lock(const struct entitlement_repository *repository,
	struct session *session, struct entitlement_row *rows, size_t count, int64_t *now_us)
{
	const struct entitlement_repository *inner = entitlements_of(repository);
	struct trace trace = trace_begin(session, "entitlements", "lock");
	enum status status = inner->ops->lock(inner, trace.session, rows, count, now_us);

	return trace_end_rows(&trace, status, count);
}

static enum status entitlement_find_sources(const struct entitlement_repository *repository,
	struct session *session, struct entitlement_row *rows, size_t row_count,
	struct entitlement_source *sources, size_t source_count)
{
	const struct entitlement_repository *inner = entitlements_of(repository);
	struct trace trace = trace_begin(session, "entitlements", "find_sources");
	enum status status = inner->ops->find_sources(
		inner, trace.session, rows, row_count, sources, source_count);

	return trace_end_rows(&trace, status, source_count);
}

static enum status entitlement_put(const struct entitlement_repository *repository,
	struct session *session, const struct entitlement_changes *changes)
{
	const struct entitlement_repository *inner = entitlements_of(repository);
	struct trace trace = trace_begin(session, "entitlements", "put");
	enum status status = inner->ops->put(inner, trace.session, changes);

	return trace_end_rows(&trace, status, changes->row_count);
}

static enum status entitlement_list(const struct entitlement_repository *repository,
	struct session *session, struct arena *arena, struct entitlement_query *queries,
	size_t count)
{
	const struct entitlement_repository *inner = entitlements_of(repository);
	struct trace trace = trace_begin(session, "entitlements", "list");
	enum status status = inner->ops->list(inner, trace.session, arena, queries, count);
	size_t rows = 0;

	for (size_t i = 0; status == STATUS_OK && i < count; i++)
		rows += queries[i].row_count;
	return trace_end_counted(&trace, status, &rows);
}

static enum status entitlement_look(const struct entitlement_repository *repository,
	struct session *session, struct arena *arena, struct entitlement_look *looks, size_t count,
	size_t source_max)
{
	const struct entitlement_repository *inner = entitlements_of(repository);
	struct trace trace = trace_begin(session, "entitlements", "look");
	enum status status =
		inner->ops->look(inner, trace.session, arena, looks, count, source_max);

	return trace_end_rows(&trace, status, count);
}

static enum status entitlement_read_audit(const struct entitlement_repository *repository,
	struct session *session, struct arena *arena, struct audit_page *page)
{
	const struct entitlement_repository *inner = entitlements_of(repository);
	struct trace trace = trace_begin(session, "entitlements", "read_audit");
	enum status status = inner->ops->read_audit(inner, trace.session, arena, page);

	return trace_end_counted(&trace, status, &page->count);
}

static enum status entitlement_list_facts(const struct entitlement_repository *repository,
	struct session *session, struct arena *arena, struct row_page *page,
	struct entitlement_facts *rows)
{
	const struct entitlement_repository *inner = entitlements_of(repository);
	struct trace trace = trace_begin(session, "entitlements", "list_facts");
	enum status status = inner->ops->list_facts(inner, trace.session, arena, page, rows);

	return trace_end_counted(&trace, status, &page->count);
}

static enum status entitlement_list_audit(const struct entitlement_repository *repository,
	struct session *session, struct arena *arena, struct row_page *page,
	struct audit_facts *lines)
{
	const struct entitlement_repository *inner = entitlements_of(repository);
	struct trace trace = trace_begin(session, "entitlements", "list_audit");
	enum status status = inner->ops->list_audit(inner, trace.session, arena, page, lines);

	return trace_end_counted(&trace, status, &page->count);
}

static enum status entitlement_list_source_owners(const struct entitlement_repository *repository,
	struct session *session, struct arena *arena, struct row_page *page,
	struct source_owner *owners)
{
	const struct entitlement_repository *inner = entitlements_of(repository);
	struct trace trace = trace_begin(session, "entitlements", "list_source_owners");
	enum status status =
		inner->ops->list_source_owners(inner, trace.session, arena, page, owners);

	return trace_end_counted(&trace, status, &page->count);
}

static enum status entitlement_tend_audit(
	const struct entitlement_repository *repository, struct session *session, int keep_months)
{
	const struct entitlement_repository *inner = entitlements_of(repository);
	struct trace trace = trace_begin(session, "entitlements", "tend_audit");
	enum status status = inner->ops->tend_audit(inner, trace.session, keep_months);

	return trace_end(&trace, status);
}

static const struct entitlement_repository_ops entitlement_ops = {
	.lock = entitlement_lock,
	.find_sources = entitlement_find_sources,
	.put = entitlement_put,
	.list = entitlement_list,
	.look = entitlement_look,
	.read_audit = entitlement_read_audit,
	.list_facts = entitlement_list_facts,
	.list_audit = entitlement_list_audit,
	.list_source_owners = entitlement_list_source_owners,
	.tend_audit = entitlement_tend_audit,
};

const struct entitlement_repository *tracing_entitlements_init(
	struct tracing_entitlements *tracing, const struct entitlement_repository *inner)
{
	if (!inner)
		return NULL;
	tracing->base.ops = &entitlement_ops;
	tracing->base.eraser = tracing_eraser_init(&tracing->eraser, inner->eraser);
	tracing->inner = inner;
	return &tracing->base;
}
