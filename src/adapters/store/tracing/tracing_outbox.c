/* Traces the repositories that contain claims: outboxes, notifications and outbound messages. */
#include "adapters/store/tracing/tracing_internal.h"

/* ---- outboxes ----------------------------------------------------------------------------- */

static const struct outbox_repository_ops outbox_ops;

static const struct tracing_outbox *outbox_of(const struct outbox_repository *repository)
{
	assert(repository->ops == &outbox_ops);
	return (const struct tracing_outbox *)repository;
}

static enum status outbox_put(const struct outbox_repository *repository, struct session *session,
	const struct outbox_event *events, size_t count)
{
	const struct tracing_outbox *tracing = outbox_of(repository);
	struct trace trace = trace_begin(session, tracing->group, "put");
	enum status status = tracing->inner->ops->put(tracing->inner, trace.session, events, count);

	return trace_end_rows(&trace, status, count);
}

static enum status outbox_resend(const struct outbox_repository *repository,
	struct session *session, int64_t since_us, struct slice who, size_t *count)
{
	const struct tracing_outbox *tracing = outbox_of(repository);
	struct trace trace = trace_begin(session, tracing->group, "resend");
	enum status status =
		tracing->inner->ops->resend(tracing->inner, trace.session, since_us, who, count);

	return trace_end_counted(&trace, status, count);
}

static const struct outbox_repository_ops outbox_ops = {
	.put = outbox_put,
	.resend = outbox_resend,
};

const struct outbox_repository *tracing_outbox_init(struct tracing_outbox *tracing,
	const struct outbox_repository *inner, const struct tracing_outbox_groups *groups)
{
	if (!inner)
		return NULL;
	tracing->base = (struct outbox_repository){
		.ops = &outbox_ops,
		.claims = tracing_claims_init(&tracing->claims, inner->claims, groups->claims),
		.dead = tracing_dead_letters_init(&tracing->dead, inner->dead, groups->dead),
	};
	tracing->inner = inner;
	tracing->group = groups->outbox;
	return &tracing->base;
}

/* ---- notifications ------------------------------------------------------------------------ */

static const struct notification_repository_ops notification_ops;

static const struct notification_repository *notifications_of(
	const struct notification_repository *repository)
{
	assert(repository->ops == &notification_ops);
	return ((const struct tracing_notifications *)repository)->inner;
}

static enum status notification_put(const struct notification_repository *repository,
	struct session *session, const struct notification *notifications, size_t count)
{
	const struct notification_repository *inner = notifications_of(repository);
	struct trace trace = trace_begin(session, "notifications", "put");
	enum status status = inner->ops->put(inner, trace.session, notifications, count);

	return trace_end_rows(&trace, status, count);
}

static enum status notification_list(const struct notification_repository *repository,
	struct session *session, struct arena *arena, struct row_page *page,
	struct notification *notifications)
{
	const struct notification_repository *inner = notifications_of(repository);
	struct trace trace = trace_begin(session, "notifications", "list");
	enum status status = inner->ops->list(inner, trace.session, arena, page, notifications);

	return trace_end_counted(&trace, status, &page->count);
}

static enum status notification_list_facts(const struct notification_repository *repository,
	struct session *session, struct arena *arena, struct row_page *page,
	struct notification_facts *rows)
{
	const struct notification_repository *inner = notifications_of(repository);
	struct trace trace = trace_begin(session, "notifications", "list_facts");
	enum status status = inner->ops->list_facts(inner, trace.session, arena, page, rows);

	return trace_end_counted(&trace, status, &page->count);
}

static const struct notification_repository_ops notification_ops = {
	.put = notification_put,
	.list = notification_list,
	.list_facts = notification_list_facts,
};

const struct notification_repository *tracing_notifications_init(
	struct tracing_notifications *tracing, const struct notification_repository *inner)
{
	if (!inner)
		return NULL;
	tracing->base = (struct notification_repository){
		.ops = &notification_ops,
		.eraser = tracing_eraser_init(&tracing->eraser, inner->eraser),
		.claims = tracing_claims_init(
			&tracing->claims, inner->claims, "notifications.claims"),
		.dead = tracing_dead_letters_init(
			&tracing->dead, inner->dead, "notifications.dead"),
		.inbox = tracing_inbox_init(&tracing->inbox, inner->inbox, "notifications.inbox"),
	};
	tracing->inner = inner;
	return &tracing->base;
}

/* ---- outbound messages -------------------------------------------------------------------- */

static const struct outbound_repository_ops outbound_ops;

static const struct outbound_repository *outbound_of(const struct outbound_repository *repository)
{
	assert(repository->ops == &outbound_ops);
	return ((const struct tracing_outbound *)repository)->inner;
}

static enum status outbound_note(const struct outbound_repository *repository,
	struct session *session, const struct outbound_message *messages, size_t count)
{
	const struct outbound_repository *inner = outbound_of(repository);
	struct trace trace = trace_begin(session, "outbound", "note");
	enum status status = inner->ops->note(inner, trace.session, messages, count);

	return trace_end_rows(&trace, status, count);
}

static enum status outbound_put(const struct outbound_repository *repository,
	struct session *session, struct outbound_message *messages, size_t count)
{
	const struct outbound_repository *inner = outbound_of(repository);
	struct trace trace = trace_begin(session, "outbound", "put");
	enum status status = inner->ops->put(inner, trace.session, messages, count);

	return trace_end_rows(&trace, status, count);
}

static enum status outbound_know(const struct outbound_repository *repository,
	struct session *session, struct outbound_message *messages, size_t count)
{
	const struct outbound_repository *inner = outbound_of(repository);
	struct trace trace = trace_begin(session, "outbound", "know");
	enum status status = inner->ops->know(inner, trace.session, messages, count);

	return trace_end_rows(&trace, status, count);
}

static enum status outbound_find(const struct outbound_repository *repository,
	struct session *session, struct arena *arena, struct outbound_message *message)
{
	const struct outbound_repository *inner = outbound_of(repository);
	struct trace trace = trace_begin(session, "outbound", "find");
	enum status status = inner->ops->find(inner, trace.session, arena, message);

	return trace_end_rows(&trace, status, status == STATUS_OK && message->exists);
}

static enum status outbound_sweep_queued(const struct outbound_repository *repository,
	struct session *session, int64_t age_us, size_t limit, size_t *deleted)
{
	const struct outbound_repository *inner = outbound_of(repository);
	struct trace trace = trace_begin(session, "outbound", "sweep_queued");
	enum status status = inner->ops->sweep_queued(inner, trace.session, age_us, limit, deleted);

	return trace_end_counted(&trace, status, deleted);
}

static const struct outbound_repository_ops outbound_ops = {
	.note = outbound_note,
	.put = outbound_put,
	.know = outbound_know,
	.find = outbound_find,
	.sweep_queued = outbound_sweep_queued,
};

const struct outbound_repository *tracing_outbound_init(
	struct tracing_outbound *tracing, const struct outbound_repository *inner)
{
	if (!inner)
		return NULL;
	tracing->base = (struct outbound_repository){
		.ops = &outbound_ops,
		.claims = tracing_claims_init(&tracing->claims, inner->claims, "outbound.claims"),
		.dead = tracing_dead_letters_init(&tracing->dead, inner->dead, "outbound.dead"),
	};
	tracing->inner = inner;
	return &tracing->base;
}
