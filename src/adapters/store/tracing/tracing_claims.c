/* Traces the repositories inside other repositories: claims, dead letters, the inbox. Log lines
 * name the outer repository, because several repositories of a store have claims and dead
 * letters. */
#include "adapters/store/tracing/tracing_internal.h"

/* ---- claims ------------------------------------------------------------------------------- */

static const struct claim_repository_ops claim_ops;

static const struct tracing_claims *claims_of(const struct claim_repository *repository)
{
	assert(repository->ops == &claim_ops);
	return (const struct tracing_claims *)repository;
}

static enum status claim_claim(const struct claim_repository *repository, struct session *session,
	struct arena *arena, const struct claim_terms *terms, struct claim *claims, size_t *count)
{
	const struct tracing_claims *tracing = claims_of(repository);
	struct trace trace = trace_begin(session, tracing->group, "claim");
	enum status status = tracing->inner->ops->claim(
		tracing->inner, trace.session, arena, terms, claims, count);

	return trace_end_counted(&trace, status, count);
}

static enum status claim_end(const struct claim_repository *repository, struct session *session,
	struct slice owner, struct claim *claims, size_t count)
{
	const struct tracing_claims *tracing = claims_of(repository);
	struct trace trace = trace_begin(session, tracing->group, "end");
	enum status status =
		tracing->inner->ops->end(tracing->inner, trace.session, owner, claims, count);

	return trace_end_rows(&trace, status, count);
}

static enum status claim_renew(const struct claim_repository *repository, struct session *session,
	const struct claim_terms *terms, struct claim *claims, size_t count)
{
	const struct tracing_claims *tracing = claims_of(repository);
	struct trace trace = trace_begin(session, tracing->group, "renew");
	enum status status =
		tracing->inner->ops->renew(tracing->inner, trace.session, terms, claims, count);

	return trace_end_rows(&trace, status, count);
}

static enum status claim_count(const struct claim_repository *repository, struct session *session,
	struct claim_stats *stats)
{
	const struct tracing_claims *tracing = claims_of(repository);
	struct trace trace = trace_begin(session, tracing->group, "count");
	enum status status = tracing->inner->ops->count(tracing->inner, trace.session, stats);

	return trace_end(&trace, status);
}

static enum status claim_sweep(const struct claim_repository *repository, struct session *session,
	int64_t age_us, size_t limit, size_t *deleted)
{
	const struct tracing_claims *tracing = claims_of(repository);
	struct trace trace = trace_begin(session, tracing->group, "sweep");
	enum status status =
		tracing->inner->ops->sweep(tracing->inner, trace.session, age_us, limit, deleted);

	return trace_end_counted(&trace, status, deleted);
}

static enum status claim_list(const struct claim_repository *repository, struct session *session,
	struct arena *arena, struct row_page *page, struct claim_row *rows)
{
	const struct tracing_claims *tracing = claims_of(repository);
	struct trace trace = trace_begin(session, tracing->group, "list");
	enum status status =
		tracing->inner->ops->list(tracing->inner, trace.session, arena, page, rows);

	return trace_end_counted(&trace, status, &page->count);
}

static const struct claim_repository_ops claim_ops = {
	.claim = claim_claim,
	.end = claim_end,
	.renew = claim_renew,
	.count = claim_count,
	.sweep = claim_sweep,
	.list = claim_list,
};

const struct claim_repository *tracing_claims_init(
	struct tracing_claims *tracing, const struct claim_repository *inner, const char *group)
{
	if (!inner)
		return NULL;
	tracing->base.ops = &claim_ops;
	tracing->inner = inner;
	tracing->group = group;
	return &tracing->base;
}

/* ---- dead letters ------------------------------------------------------------------------- */

static const struct dead_letter_repository_ops dead_letter_ops;

static const struct tracing_dead_letters *dead_letters_of(
	const struct dead_letter_repository *repository)
{
	assert(repository->ops == &dead_letter_ops);
	return (const struct tracing_dead_letters *)repository;
}

static enum status dead_letter_put(const struct dead_letter_repository *repository,
	struct session *session, const struct dead_letter *letters, size_t count)
{
	const struct tracing_dead_letters *tracing = dead_letters_of(repository);
	struct trace trace = trace_begin(session, tracing->group, "put");
	enum status status =
		tracing->inner->ops->put(tracing->inner, trace.session, letters, count);

	return trace_end_rows(&trace, status, count);
}

static enum status dead_letter_list(const struct dead_letter_repository *repository,
	struct session *session, struct arena *arena, const struct dead_letter_page *page,
	struct dead_letter *letters, size_t *count)
{
	const struct tracing_dead_letters *tracing = dead_letters_of(repository);
	struct trace trace = trace_begin(session, tracing->group, "list");
	enum status status = tracing->inner->ops->list(
		tracing->inner, trace.session, arena, page, letters, count);

	return trace_end_counted(&trace, status, count);
}

static enum status dead_letter_find(const struct dead_letter_repository *repository,
	struct session *session, struct arena *arena, const struct dead_letter_name *name,
	struct dead_letter *letter, bool *found)
{
	const struct tracing_dead_letters *tracing = dead_letters_of(repository);
	struct trace trace = trace_begin(session, tracing->group, "find");
	enum status status = tracing->inner->ops->find(
		tracing->inner, trace.session, arena, name, letter, found);

	return trace_end(&trace, status);
}

static enum status dead_letter_resolve(const struct dead_letter_repository *repository,
	struct session *session, const struct dead_letter_resolution *resolution, bool *found)
{
	const struct tracing_dead_letters *tracing = dead_letters_of(repository);
	struct trace trace = trace_begin(session, tracing->group, "resolve");
	enum status status =
		tracing->inner->ops->resolve(tracing->inner, trace.session, resolution, found);

	return trace_end(&trace, status);
}

static enum status dead_letter_depth(const struct dead_letter_repository *repository,
	struct session *session, struct slice kind, int64_t *count)
{
	const struct tracing_dead_letters *tracing = dead_letters_of(repository);
	struct trace trace = trace_begin(session, tracing->group, "depth");
	enum status status = tracing->inner->ops->depth(tracing->inner, trace.session, kind, count);

	return trace_end(&trace, status);
}

static const struct dead_letter_repository_ops dead_letter_ops = {
	.put = dead_letter_put,
	.list = dead_letter_list,
	.find = dead_letter_find,
	.resolve = dead_letter_resolve,
	.depth = dead_letter_depth,
};

const struct dead_letter_repository *tracing_dead_letters_init(struct tracing_dead_letters *tracing,
	const struct dead_letter_repository *inner, const char *group)
{
	if (!inner)
		return NULL;
	tracing->base.ops = &dead_letter_ops;
	tracing->inner = inner;
	tracing->group = group;
	return &tracing->base;
}

/* ---- inbox -------------------------------------------------------------------------------- */

static const struct inbox_repository_ops inbox_ops;

static const struct tracing_inbox *inbox_of(const struct inbox_repository *repository)
{
	assert(repository->ops == &inbox_ops);
	return (const struct tracing_inbox *)repository;
}

static enum status inbox_put(const struct inbox_repository *repository, struct session *session,
	struct inbox_event *events, size_t count)
{
	const struct tracing_inbox *tracing = inbox_of(repository);
	struct trace trace = trace_begin(session, tracing->group, "put");
	enum status status = tracing->inner->ops->put(tracing->inner, trace.session, events, count);

	return trace_end_rows(&trace, status, count);
}

static enum status inbox_sweep(const struct inbox_repository *repository, struct session *session,
	int64_t age_us, size_t limit, size_t *deleted)
{
	const struct tracing_inbox *tracing = inbox_of(repository);
	struct trace trace = trace_begin(session, tracing->group, "sweep");
	enum status status =
		tracing->inner->ops->sweep(tracing->inner, trace.session, age_us, limit, deleted);

	return trace_end_counted(&trace, status, deleted);
}

static const struct inbox_repository_ops inbox_ops = {
	.put = inbox_put,
	.sweep = inbox_sweep,
};

const struct inbox_repository *tracing_inbox_init(
	struct tracing_inbox *tracing, const struct inbox_repository *inner, const char *group)
{
	if (!inner)
		return NULL;
	tracing->base.ops = &inbox_ops;
	tracing->inner = inner;
	tracing->group = group;
	return &tracing->base;
}
