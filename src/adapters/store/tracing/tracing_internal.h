/*
 * Declarations shared by the files of the tracing store. A tracing session or repository is a
 * wrapper: it consists of the port's struct, followed by a pointer to the inner object, i.e. the
 * session or repository that it wraps. Most functions of a tracing repository have the same four
 * lines:
 *
 *     inner = …_of(repository);                              the checked cast
 *     trace = trace_begin(session, "counts", "add");         unwraps the session
 *     status = inner->ops->add(inner, trace.session, …);
 *     return trace_end_rows(&trace, status, count);          logs
 */
#ifndef QUIPU_ADAPTERS_STORE_TRACING_TRACING_INTERNAL_H
#define QUIPU_ADAPTERS_STORE_TRACING_TRACING_INTERNAL_H

#include <assert.h>

#include "adapters/store/tracing/tracing_store.h"
#include "ports/count_repository.h"
#include "ports/counter_repository.h"
#include "ports/entitlement_repository.h"
#include "ports/limit_repository.h"
#include "ports/message_repository.h"
#include "ports/notification_repository.h"
#include "ports/outbound_repository.h"
#include "ports/outbox_repository.h"
#include "ports/pot_repository.h"
#include "ports/sent_repository.h"

/* ---- one traced call --------------------------------------------------------------------- */

struct trace {
	const char *store; /* the store's name */
	const char *group; /* the verb's repository or object, e.g. "counts"; a static string */
	const char *verb;  /* e.g. "add"; a static string */
	/* the inner session, on which the call runs; NULL for verbs of the store */
	struct session *session;
	int64_t start_ns; /* when the call began; 0 if debug lines are not logged */
};

/* Begins to trace a call. `session` is a tracing session that the calling thread may use. */
struct trace trace_begin(struct session *session, const char *group, const char *verb);

/* Like trace_begin(), for verbs of the store itself. */
struct trace trace_begin_store(const struct store *store, const char *verb);

/* The trace_end functions log the call and return `status`. trace_end_counted() reads `*rows` only
 * if the call succeeded, because a failed call may leave `*rows` unset. */
QP_MUST_CHECK enum status trace_end(const struct trace *trace, enum status status);
QP_MUST_CHECK enum status trace_end_rows(
	const struct trace *trace, enum status status, size_t rows);
QP_MUST_CHECK enum status trace_end_counted(
	const struct trace *trace, enum status status, const size_t *rows);

/* Logs a call that cannot fail. */
void trace_end_void(const struct trace *trace);

/* ---- sessions ---------------------------------------------------------------------------- */

/* Opens a session of the inner store and wraps it. `store` is the tracing store. */
struct session *tracing_session_new(
	struct store *store, struct store *inner, enum session_kind kind);

/* Returns the inner session. Aborts if `session` is not a tracing session. */
struct session *tracing_session_inner(struct session *session);

/* ---- repositories ------------------------------------------------------------------------ */

struct tracing_eraser {
	struct eraser base;
	const struct eraser *inner;
};

struct tracing_counts {
	struct count_repository base;
	const struct count_repository *inner;
};

struct tracing_limits {
	struct limit_repository base;
	const struct limit_repository *inner;
	struct tracing_eraser eraser;
};

struct tracing_sent {
	struct sent_repository base;
	const struct sent_repository *inner;
};

struct tracing_entitlements {
	struct entitlement_repository base;
	const struct entitlement_repository *inner;
	struct tracing_eraser eraser;
};

struct tracing_pots {
	struct pot_repository base;
	const struct pot_repository *inner;
};

struct tracing_messages {
	struct message_repository base;
	const struct message_repository *inner;
	struct tracing_eraser eraser;
};

struct tracing_counters {
	struct counter_repository base;
	const struct counter_repository *inner;
	struct tracing_eraser eraser;
};

struct tracing_claims {
	struct claim_repository base;
	const struct claim_repository *inner;
	const char *group; /* the name in log lines, e.g. "dialog_outbox.claims" */
};

struct tracing_dead_letters {
	struct dead_letter_repository base;
	const struct dead_letter_repository *inner;
	const char *group;
};

struct tracing_inbox {
	struct inbox_repository base;
	const struct inbox_repository *inner;
	const char *group;
};

struct tracing_outbox {
	struct outbox_repository base;
	const struct outbox_repository *inner;
	const char *group;
	struct tracing_claims claims;
	struct tracing_dead_letters dead;
};

struct tracing_notifications {
	struct notification_repository base;
	const struct notification_repository *inner;
	struct tracing_eraser eraser;
	struct tracing_claims claims;
	struct tracing_dead_letters dead;
	struct tracing_inbox inbox;
};

struct tracing_outbound {
	struct outbound_repository base;
	const struct outbound_repository *inner;
	struct tracing_claims claims;
	struct tracing_dead_letters dead;
};

/* The names that log lines use for an outbox, its claims and its dead letters. Static strings. */
struct tracing_outbox_groups {
	const char *outbox;
	const char *claims;
	const char *dead;
};

/*
 * The _init functions wrap `inner` in the struct `tracing` and return a pointer into that struct,
 * so the caller must keep the struct as long as it uses the result. They return NULL if `inner` is
 * NULL, which means that the engine has no such repository.
 */
const struct eraser *tracing_eraser_init(
	struct tracing_eraser *tracing, const struct eraser *inner);
const struct count_repository *tracing_counts_init(
	struct tracing_counts *tracing, const struct count_repository *inner);
const struct limit_repository *tracing_limits_init(
	struct tracing_limits *tracing, const struct limit_repository *inner);
const struct outbound_repository *tracing_outbound_init(
	struct tracing_outbound *tracing, const struct outbound_repository *inner);
const struct sent_repository *tracing_sent_init(
	struct tracing_sent *tracing, const struct sent_repository *inner);
const struct entitlement_repository *tracing_entitlements_init(
	struct tracing_entitlements *tracing, const struct entitlement_repository *inner);
const struct pot_repository *tracing_pots_init(
	struct tracing_pots *tracing, const struct pot_repository *inner);
const struct message_repository *tracing_messages_init(
	struct tracing_messages *tracing, const struct message_repository *inner);
const struct counter_repository *tracing_counters_init(
	struct tracing_counters *tracing, const struct counter_repository *inner);
const struct claim_repository *tracing_claims_init(
	struct tracing_claims *tracing, const struct claim_repository *inner, const char *group);
const struct dead_letter_repository *tracing_dead_letters_init(struct tracing_dead_letters *tracing,
	const struct dead_letter_repository *inner, const char *group);
const struct inbox_repository *tracing_inbox_init(
	struct tracing_inbox *tracing, const struct inbox_repository *inner, const char *group);
const struct outbox_repository *tracing_outbox_init(struct tracing_outbox *tracing,
	const struct outbox_repository *inner, const struct tracing_outbox_groups *groups);
const struct notification_repository *tracing_notifications_init(
	struct tracing_notifications *tracing, const struct notification_repository *inner);

#endif
