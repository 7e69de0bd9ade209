/*
 * Implements the tracing store itself: it logs calls, forwards the store's own verbs, and wraps the
 * repositories.
 *
 * Invariant: no code outside this folder gets an inner session, and no inner repository gets a
 * tracing session. If the invariant is broken, a checked cast aborts, here or in the inner store.
 */
#include "adapters/store/tracing/tracing_store.h"

#include <stdio.h>
#include <stdlib.h>

#include "adapters/store/tracing/tracing_internal.h"
#include "base/clock.h"
#include "base/log.h"

struct tracing_store {
	struct store base;
	struct store *inner;
	struct store_repositories repositories;
	struct tracing_counts counts;
	struct tracing_limits limits;
	struct tracing_sent sent;
	struct tracing_outbound outbound;
	struct tracing_entitlements entitlements;
	struct tracing_outbox entitlement_outbox;
	struct tracing_notifications notifications;
	struct tracing_pots pots;
	struct tracing_messages messages;
	struct tracing_outbox dialog_outbox;
	struct tracing_counters counters;
};

static const struct store_ops store_ops;

static struct store *inner_of(struct store *store)
{
	assert(store->ops == &store_ops);
	return ((struct tracing_store *)store)->inner;
}

/* ---- one traced call --------------------------------------------------------------------- */

#define NUMBER_SIZE 24

static int64_t start_clock(void)
{
	return log_enabled(LOG_DEBUG) ? clock_steady_ns(&clock_system) : 0;
}

struct trace trace_begin(struct session *session, const char *group, const char *verb)
{
	return (struct trace){
		.store = session->store->name,
		.group = group,
		.verb = verb,
		.session = tracing_session_inner(session),
		.start_ns = start_clock(),
	};
}

struct trace trace_begin_store(const struct store *store, const char *verb)
{
	return (struct trace){
		.store = store->name,
		.group = "store",
		.verb = verb,
		.start_ns = start_clock(),
	};
}

/* Logs a call. The log leaves out fields that are empty. */
static void log_call(const struct trace *trace, const char *rows, const char *result)
{
	char us[NUMBER_SIZE];

	if (trace->start_ns == 0)
		return;
	snprintf(us, sizeof(us), "%lld",
		(long long)((clock_steady_ns(&clock_system) - trace->start_ns) / 1000));
	const struct log_field fields[] = {
		{.name = "store", .value = slice_of(trace->store)},
		{.name = "rows", .value = slice_of(rows)},
		{.name = "us", .value = slice_of(us)},
		{.name = "result", .value = slice_of(result)},
	};

	log_line_with(LOG_DEBUG, "store", fields, sizeof(fields) / sizeof(fields[0]), "%s.%s",
		trace->group, trace->verb);
}

enum status trace_end(const struct trace *trace, enum status status)
{
	log_call(trace, "", status_code(status));
	return status;
}

enum status trace_end_rows(const struct trace *trace, enum status status, size_t rows)
{
	char text[NUMBER_SIZE];

	snprintf(text, sizeof(text), "%zu", rows);
	log_call(trace, text, status_code(status));
	return status;
}

enum status trace_end_counted(const struct trace *trace, enum status status, const size_t *rows)
{
	return status == STATUS_OK ? trace_end_rows(trace, status, *rows)
				   : trace_end(trace, status);
}

void trace_end_void(const struct trace *trace)
{
	log_call(trace, "", "");
}

/* ---- the store's own verbs --------------------------------------------------------------- */

static bool start(struct store *base, char *why, size_t size)
{
	struct store *inner = inner_of(base);
	struct trace trace = trace_begin_store(base, "start");
	bool started = inner->ops->start(inner, why, size);

	log_call(&trace, "", started ? "OK" : "FAILED");
	return started;
}

static struct session *open_session(struct store *base, enum session_kind kind)
{
	return tracing_session_new(base, inner_of(base), kind);
}

static bool is_up(struct store *base)
{
	struct store *inner = inner_of(base);

	return inner->ops->is_up(inner);
}

static void announce(struct store *base, const char *announcement)
{
	struct store *inner = inner_of(base);
	struct trace trace = trace_begin_store(base, "announce");

	inner->ops->announce(inner, announcement);
	trace_end_void(&trace);
}

static void listen_to(
	struct store *base, const char *announcement, void (*heard)(void *context), void *context)
{
	struct store *inner = inner_of(base);
	struct trace trace = trace_begin_store(base, "listen");

	inner->ops->listen(inner, announcement, heard, context);
	trace_end_void(&trace);
}

static void unlisten(struct store *base, void *context)
{
	struct store *inner = inner_of(base);
	struct trace trace = trace_begin_store(base, "unlisten");

	inner->ops->unlisten(inner, context);
	trace_end_void(&trace);
}

static bool distribute(struct store *base, bool dry_run, FILE *out, char *why, size_t size)
{
	struct store *inner = inner_of(base);
	struct trace trace = trace_begin_store(base, "distribute");
	bool done = store_distribute(inner, dry_run, out, why, size);

	log_call(&trace, "", done ? "OK" : "FAILED");
	return done;
}

static int64_t error_count(struct store *base, enum status kind)
{
	struct store *inner = inner_of(base);

	return inner->ops->error_count(inner, kind);
}

static void free_store(struct store *base)
{
	struct store *inner = inner_of(base);
	struct trace trace = trace_begin_store(base, "free");

	/* The store's name may belong to the inner store, so the line is logged before the inner
	 * store is freed. */
	trace_end_void(&trace);
	inner->ops->free(inner);
	free(base);
}

static const struct store_ops store_ops = {
	.start = start,
	.open_session = open_session,
	.is_up = is_up,
	.announce = announce,
	.listen = listen_to,
	.unlisten = unlisten,
	.distribute = distribute,
	.error_count = error_count,
	.free = free_store,
};

/* ---- creating ---------------------------------------------------------------------------- */

static const struct tracing_outbox_groups entitlement_groups = {
	.outbox = "entitlement_outbox",
	.claims = "entitlement_outbox.claims",
	.dead = "entitlement_outbox.dead",
};

static const struct tracing_outbox_groups dialog_groups = {
	.outbox = "dialog_outbox",
	.claims = "dialog_outbox.claims",
	.dead = "dialog_outbox.dead",
};

static void wrap_repositories(
	struct tracing_store *store, const struct store_repositories *repositories)
{
	store->repositories = (struct store_repositories){
		.counts = tracing_counts_init(&store->counts, repositories->counts),
		.limits = tracing_limits_init(&store->limits, repositories->limits),
		.sent = tracing_sent_init(&store->sent, repositories->sent),
		.outbound = tracing_outbound_init(&store->outbound, repositories->outbound),
		.entitlements =
			tracing_entitlements_init(&store->entitlements, repositories->entitlements),
		.entitlement_outbox = tracing_outbox_init(&store->entitlement_outbox,
			repositories->entitlement_outbox, &entitlement_groups),
		.notifications = tracing_notifications_init(
			&store->notifications, repositories->notifications),
		.pots = tracing_pots_init(&store->pots, repositories->pots),
		.messages = tracing_messages_init(&store->messages, repositories->messages),
		.dialog_outbox = tracing_outbox_init(
			&store->dialog_outbox, repositories->dialog_outbox, &dialog_groups),
		.counters = tracing_counters_init(&store->counters, repositories->counters),
	};
	store->base.repositories = &store->repositories;
}

struct store *tracing_store_new(struct store *inner)
{
	struct tracing_store *store = qp_calloc(1, sizeof(*store));

	store->base = *inner; /* copies name, engine and settings */
	store->base.ops = &store_ops;
	store->inner = inner;
	wrap_repositories(store, inner->repositories);
	return &store->base;
}
