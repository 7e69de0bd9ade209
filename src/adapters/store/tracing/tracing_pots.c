/* Traces the repository of pots and their coins. */
#include "adapters/store/tracing/tracing_internal.h"

static const struct pot_repository_ops pot_ops;

static const struct pot_repository *pots_of(const struct pot_repository *repository)
{
	assert(repository->ops == &pot_ops);
	return ((const struct tracing_pots *)repository)->inner;
}

static enum status pot_take(const struct pot_repository *repository, struct session *session,
	const struct pot_lock *lock, struct pot_content *pots, size_t count)
{
	const struct pot_repository *inner = pots_of(repository);
	struct trace trace = trace_begin(session, "pots", "take");
	enum status status = inner->ops->take(inner, trace.session, lock, pots, count);

	return trace_end_rows(&trace, status, count);
}

static enum status pot_put(const struct pot_repository *repository, struct session *session,
	const struct pot_lock *lock, const struct pot_change *changes, size_t count)
{
	const struct pot_repository *inner = pots_of(repository);
	struct trace trace = trace_begin(session, "pots", "put");
	enum status status = inner->ops->put(inner, trace.session, lock, changes, count);

	return trace_end_rows(&trace, status, count);
}

static enum status pot_create(const struct pot_repository *repository, struct session *session,
	struct pot_row *pots, size_t count)
{
	const struct pot_repository *inner = pots_of(repository);
	struct trace trace = trace_begin(session, "pots", "create");
	enum status status = inner->ops->create(inner, trace.session, pots, count);

	return trace_end_rows(&trace, status, count);
}

static enum status pot_find(const struct pot_repository *repository, struct session *session,
	struct arena *arena, struct pot_row *pots, size_t count)
{
	const struct pot_repository *inner = pots_of(repository);
	struct trace trace = trace_begin(session, "pots", "find");
	enum status status = inner->ops->find(inner, trace.session, arena, pots, count);

	return trace_end_rows(&trace, status, count);
}

static enum status pot_find_names(const struct pot_repository *repository, struct session *session,
	struct arena *arena, struct pot_row *pots, size_t count)
{
	const struct pot_repository *inner = pots_of(repository);
	struct trace trace = trace_begin(session, "pots", "find_names");
	enum status status = inner->ops->find_names(inner, trace.session, arena, pots, count);

	return trace_end_rows(&trace, status, count);
}

static enum status pot_find_coins(const struct pot_repository *repository, struct session *session,
	struct pot_content *pots, size_t count)
{
	const struct pot_repository *inner = pots_of(repository);
	struct trace trace = trace_begin(session, "pots", "find_coins");
	enum status status = inner->ops->find_coins(inner, trace.session, pots, count);

	return trace_end_rows(&trace, status, count);
}

static enum status pot_list(const struct pot_repository *repository, struct session *session,
	struct arena *arena, struct pot_page *pages, size_t count, int64_t *total)
{
	const struct pot_repository *inner = pots_of(repository);
	struct trace trace = trace_begin(session, "pots", "list");
	enum status status = inner->ops->list(inner, trace.session, arena, pages, count, total);
	size_t rows = 0;

	for (size_t i = 0; status == STATUS_OK && i < count; i++)
		rows += pages[i].count;
	return trace_end_counted(&trace, status, &rows);
}

static enum status pot_list_facts(const struct pot_repository *repository, struct session *session,
	struct arena *arena, struct row_page *page, struct pot_facts *pots)
{
	const struct pot_repository *inner = pots_of(repository);
	struct trace trace = trace_begin(session, "pots", "list_facts");
	enum status status = inner->ops->list_facts(inner, trace.session, arena, page, pots);

	return trace_end_counted(&trace, status, &page->count);
}

static enum status pot_list_coins(const struct pot_repository *repository, struct session *session,
	struct arena *arena, struct row_page *page, struct coin_facts *coins)
{
	const struct pot_repository *inner = pots_of(repository);
	struct trace trace = trace_begin(session, "pots", "list_coins");
	enum status status = inner->ops->list_coins(inner, trace.session, arena, page, coins);

	return trace_end_counted(&trace, status, &page->count);
}

static const struct pot_repository_ops pot_ops = {
	.take = pot_take,
	.put = pot_put,
	.create = pot_create,
	.find = pot_find,
	.find_names = pot_find_names,
	.find_coins = pot_find_coins,
	.list = pot_list,
	.list_facts = pot_list_facts,
	.list_coins = pot_list_coins,
};

const struct pot_repository *tracing_pots_init(
	struct tracing_pots *tracing, const struct pot_repository *inner)
{
	if (!inner)
		return NULL;
	tracing->base.ops = &pot_ops;
	tracing->inner = inner;
	return &tracing->base;
}
