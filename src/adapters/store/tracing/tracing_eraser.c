/* Traces the erasers of all services. */
#include "adapters/store/tracing/tracing_internal.h"

static const struct eraser_ops eraser_ops;

static const struct eraser *eraser_of(const struct eraser *eraser)
{
	assert(eraser->ops == &eraser_ops);
	return ((const struct tracing_eraser *)eraser)->inner;
}

static size_t sum_rows(const struct eraser *eraser, const struct erasure *erasure)
{
	size_t rows = 0;

	for (size_t i = 0; i < eraser->place_count; i++)
		rows += (size_t)erasure->rows[i];
	return rows;
}

static enum status count_rows(
	const struct eraser *eraser, struct session *session, struct erasure *erasure)
{
	const struct eraser *inner = eraser_of(eraser);
	struct trace trace = trace_begin(session, "erasers", "count");
	enum status status = inner->ops->count(inner, trace.session, erasure);
	size_t rows = sum_rows(inner, erasure);

	return trace_end_counted(&trace, status, &rows);
}

static enum status erase(
	const struct eraser *eraser, struct session *session, struct erasure *erasure)
{
	const struct eraser *inner = eraser_of(eraser);
	struct trace trace = trace_begin(session, "erasers", "erase");
	enum status status = inner->ops->erase(inner, trace.session, erasure);
	size_t rows = sum_rows(inner, erasure);

	return trace_end_counted(&trace, status, &rows);
}

static const struct eraser_ops eraser_ops = {.count = count_rows, .erase = erase};

const struct eraser *tracing_eraser_init(struct tracing_eraser *tracing, const struct eraser *inner)
{
	if (!inner)
		return NULL;
	tracing->base = *inner; /* copies service and places */
	tracing->base.ops = &eraser_ops;
	tracing->inner = inner;
	return &tracing->base;
}
