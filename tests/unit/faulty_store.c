/*
 * The faulty store and its sessions: where faults happen. Every call counts down to the planned
 * fault (faulty_pass()); the call that reaches it fails with the planned status instead of calling
 * SQLite.
 */
#include "faulty_store.h"

#include <stdlib.h>

#include "faulty_internal.h"

#define START_US 1000000

/* ---- faults ------------------------------------------------------------------------------ */

enum status faulty_pass(struct session *session)
{
	struct faulty_store *faulty = faulty_store_of(session);

	if (faulty->fail_at == 0 || --faulty->fail_at > 0)
		return STATUS_OK;
	faulty->has_failed = true;
	return faulty->fail_with;
}

enum status faulty_refuse(struct session *session, enum status status)
{
	struct session *inner = faulty_inner(session);

	inner->ops->rollback(inner);
	return status;
}

enum status faulty_step(struct session *session)
{
	enum status status = faulty_pass(session);

	if (status == STATUS_OK)
		return STATUS_OK;
	return faulty_refuse(session, status == STATUS_OUTCOME_UNKNOWN ? STATUS_RERUN : status);
}

enum status faulty_end(struct session *session, enum status status)
{
	struct session *inner = faulty_inner(session);
	bool is_made = status == STATUS_OK ||
		       (status == STATUS_OUTCOME_UNKNOWN && faulty_store_of(session)->survives);

	if (!is_made)
		return faulty_refuse(session, status);
	if (inner->ops->commit(inner) != STATUS_OK)
		abort(); /* only the planned fault may fail, never the real store */
	return status;
}

bool faulty_is_held(struct session *session, struct slice id)
{
	const struct faulty_store *faulty = faulty_store_of(session);

	for (size_t i = 0; i < faulty->held_count; i++) {
		if (slice_equal(faulty->held[i], id))
			return true;
	}
	return false;
}

/* ---- sessions ---------------------------------------------------------------------------- */

static const struct session_ops session_ops;

struct faulty_session *faulty_session_of(struct session *session)
{
	assert(session->ops->commit == session_ops.commit); /* tests replace only other verbs */
	return (struct faulty_session *)session;
}

static enum status begin(struct session *base, enum transaction_mode mode)
{
	struct faulty_session *session = faulty_session_of(base);
	enum status status = faulty_step(base);

	session->mode = mode;
	session->is_committed = false;
	return status ? status : session->inner->ops->begin(session->inner, TRANSACTION_WAIT);
}

static enum status commit(struct session *base)
{
	struct faulty_session *session = faulty_session_of(base);
	enum status status =
		session->is_committed ? STATUS_OK : faulty_end(base, faulty_pass(base));

	session->is_committed = false;
	faulty_store_of(base)->commits += status == STATUS_OK;
	return status;
}

static void rollback(struct session *base)
{
	struct session *inner = faulty_inner(base);

	inner->ops->rollback(inner);
}

static enum status idempotency_find(
	struct session *base, struct arena *arena, struct idempotency_record *records, size_t count)
{
	struct session *inner = faulty_inner(base);
	enum status status = faulty_step(base);

	return status ? status : inner->ops->idempotency_find(inner, arena, records, count);
}

static enum status idempotency_put(struct session *base, const struct idempotency_record *records,
	size_t count, int64_t ttl_us)
{
	struct session *inner = faulty_inner(base);
	enum status status = faulty_step(base);

	return status ? status : inner->ops->idempotency_put(inner, records, count, ttl_us);
}

static enum status idempotency_claim(
	struct session *base, struct idempotency_record *records, size_t count)
{
	struct session *inner = faulty_inner(base);
	enum status status = faulty_step(base);

	return status ? status : inner->ops->idempotency_claim(inner, records, count);
}

static enum status idempotency_finish(
	struct session *base, struct idempotency_record *records, size_t count)
{
	struct session *inner = faulty_inner(base);
	enum status status = faulty_step(base);

	return status ? status : inner->ops->idempotency_finish(inner, records, count);
}

static enum status idempotency_forget(
	struct session *base, struct idempotency_record *records, size_t count)
{
	struct session *inner = faulty_inner(base);
	enum status status = faulty_step(base);

	return status ? status : inner->ops->idempotency_forget(inner, records, count);
}

static enum status idempotency_release(
	struct session *base, struct idempotency_record *records, size_t count)
{
	struct session *inner = faulty_inner(base);
	enum status status = faulty_step(base);

	return status ? status : inner->ops->idempotency_release(inner, records, count);
}

static void close_session(struct session *base)
{
	struct faulty_session *session = faulty_session_of(base);

	faulty_store_of(base)->open_sessions--;
	session_close(session->inner);
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
	.close = close_session,
};

/* ---- the store's own verbs --------------------------------------------------------------- */

static const struct store_ops store_ops;

static struct faulty_store *of_store(struct store *store)
{
	assert(store->ops == &store_ops);
	return (struct faulty_store *)store;
}

struct faulty_store *faulty_store_of(struct session *session)
{
	return of_store(session->store);
}

static bool start(struct store *base, char *why, size_t size)
{
	return true;
}

static struct session *open_session(struct store *base, enum session_kind kind)
{
	struct faulty_store *faulty = of_store(base);
	struct store *inner = faulty->file->store;
	struct faulty_session *session = qp_calloc(1, sizeof(*session));

	session->base.ops = &session_ops;
	session->base.store = base;
	session->inner = inner->ops->open_session(inner, kind);
	faulty->open_sessions++;
	return &session->base;
}

static bool is_up(struct store *base)
{
	struct store *inner = of_store(base)->file->store;

	return inner->ops->is_up(inner);
}

static void free_store(struct store *base)
{
	faulty_store_free(of_store(base));
}

static const struct store_ops store_ops = {
	.start = start,
	.open_session = open_session,
	.is_up = is_up,
	.free = free_store,
};

struct faulty_store *faulty_store_new(void)
{
	static const struct store_repositories repositories = {
		.counts = &faulty_count_repository,
		.limits = &faulty_limit_repository,
		.pots = &faulty_pot_repository,
	};
	struct faulty_store *faulty = qp_calloc(1, sizeof(*faulty));

	faulty->now_us = START_US;
	faulty->file = faulty_file_open(faulty);
	faulty->base = *faulty->file->store;
	faulty->base.ops = &store_ops;
	faulty->base.repositories = &repositories;
	faulty->base.engine = "faulty";
	faulty->base.single_saves_a_trip = true;
	return faulty;
}

void faulty_store_free(struct faulty_store *faulty)
{
	assert(faulty->open_sessions == 0);
	faulty_file_close(faulty->file);
	free(faulty);
}

/* ---- what tests plan --------------------------------------------------------------------- */

struct session *faulty_store_open_session(struct faulty_store *faulty, enum session_kind kind)
{
	return open_session(&faulty->base, kind);
}

void faulty_store_fail_at(struct faulty_store *faulty, int n, enum status status)
{
	faulty->fail_at = n;
	faulty->fail_with = status;
	faulty->has_failed = false;
}

void faulty_store_hold(struct faulty_store *faulty, struct slice id, bool held)
{
	size_t kept = 0;

	for (size_t i = 0; i < faulty->held_count; i++) {
		if (!slice_equal(faulty->held[i], id))
			faulty->held[kept++] = faulty->held[i];
	}
	faulty->held_count = kept;
	if (!held)
		return;
	assert(kept < FAULTY_HELD_MAX);
	faulty->held[faulty->held_count++] = id;
}
