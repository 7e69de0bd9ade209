#include "fake_store_data.h"

#include <assert.h>
#include <stdlib.h>

/* ---- transactions, faults and locks ------------------------------------------------------ */

static void copy_data(struct fake_data *to, const struct fake_data *from)
{
	memcpy(to->rows, from->rows, from->row_count * sizeof(from->rows[0]));
	to->row_count = from->row_count;
	memcpy(to->limits, from->limits, from->limit_count * sizeof(from->limits[0]));
	to->limit_count = from->limit_count;
	memcpy(to->pots, from->pots, from->pot_count * sizeof(from->pots[0]));
	to->pot_count = from->pot_count;
	memcpy(to->keys, from->keys, from->key_count * sizeof(from->keys[0]));
	to->key_count = from->key_count;
}

void fake_rollback(struct session *session)
{
	struct fake_store *fake = fake_of(session);

	if (fake->in_transaction)
		copy_data(fake->data, fake->before);
	fake->in_transaction = false;
}

enum status fake_pass(struct session *session)
{
	struct fake_store *fake = fake_of(session);

	if (fake->fail_at == 0 || --fake->fail_at > 0)
		return STATUS_OK;
	fake->has_failed = true;
	if (fake->fail_with != STATUS_OUTCOME_UNKNOWN)
		fake_rollback(session);
	return fake->fail_with;
}

static enum status begin(struct session *session, enum transaction_mode mode)
{
	struct fake_store *fake = fake_of(session);
	enum status status = fake_pass(session);

	assert(!fake->in_transaction);
	if (status == STATUS_OUTCOME_UNKNOWN)
		return STATUS_RERUN;
	if (status != STATUS_OK)
		return status;
	copy_data(fake->before, fake->data);
	fake->in_transaction = true;
	fake->is_committed = false;
	fake->mode = mode;
	return STATUS_OK;
}

static enum status commit(struct session *session)
{
	struct fake_store *fake = fake_of(session);
	enum status status = fake->is_committed ? STATUS_OK : fake_pass(session);

	if (status == STATUS_OUTCOME_UNKNOWN && !fake->survives)
		fake_rollback(session);
	if (status == STATUS_OK)
		fake->commits++;
	fake->in_transaction = false;
	fake->is_committed = false;
	return status;
}

enum status fake_step(struct session *session)
{
	enum status status = fake_pass(session);

	assert(status != STATUS_OK || fake_of(session)->in_transaction);
	if (status != STATUS_OUTCOME_UNKNOWN)
		return status;
	fake_rollback(session);
	return STATUS_RERUN;
}

bool fake_is_held(const struct fake_store *fake, struct slice item_id)
{
	for (size_t i = 0; i < fake->held_count; i++) {
		if (slice_equal(fake->held[i], item_id))
			return true;
	}
	return false;
}

enum status fake_lock_busy(struct session *session)
{
	fake_rollback(session);
	return STATUS_LOCK_BUSY;
}

/* ---- sessions ---------------------------------------------------------------------------- */

static void close_session(struct session *session)
{
	free(session);
}

static const struct session_ops session_ops = {
	.begin = begin,
	.commit = commit,
	.rollback = fake_rollback,
	.idempotency_find = fake_keys_find,
	.idempotency_put = fake_keys_put,
	.idempotency_claim = fake_keys_claim,
	.idempotency_finish = fake_keys_finish,
	.idempotency_forget = fake_keys_forget,
	.idempotency_release = fake_keys_release,
	.idempotency_sweep = fake_keys_sweep,
	.close = close_session,
};

/* ---- the store --------------------------------------------------------------------------- */

static struct session *open_session(struct store *store, enum session_kind kind)
{
	struct session *session = qp_calloc(1, sizeof(*session));

	(void)kind;
	session->ops = &session_ops;
	session->store = store;
	return session;
}

static bool start(struct store *store, char *why, size_t size)
{
	return true;
}

static bool is_up(struct store *store)
{
	(void)store;
	return true;
}

static void announce(struct store *store, const char *announcement)
{
	listeners_call(&((struct fake_store *)store)->listeners, announcement);
}

static void listen_to(
	struct store *store, const char *announcement, void (*heard)(void *context), void *context)
{
	listeners_add(&((struct fake_store *)store)->listeners, announcement, heard, context);
}

static void unlisten(struct store *store, void *context)
{
	listeners_remove(&((struct fake_store *)store)->listeners, context);
}

static int64_t error_count(struct store *store, enum status kind)
{
	return 0;
}

static void free_store(struct store *store)
{
	fake_store_free((struct fake_store *)store);
}

static const struct store_ops store_ops = {
	.start = start,
	.open_session = open_session,
	.is_up = is_up,
	.announce = announce,
	.listen = listen_to,
	.unlisten = unlisten,
	.error_count = error_count,
	.free = free_store,
};

static const struct store_repositories repositories = {
	.counts = &fake_count_repository,
	.limits = &fake_limit_repository,
	.pots = &fake_pot_repository,
};

struct fake_store *fake_store_new(void)
{
	struct fake_store *fake = qp_calloc(1, sizeof(*fake));

	listeners_init(&fake->listeners);
	fake->base.ops = &store_ops;
	fake->base.repositories = &repositories;
	fake->base.name = "fake-store";
	fake->base.engine = "fake";
	fake->base.lanes_default = 1;
	fake->base.single_saves_a_trip = true;
	fake->data = qp_calloc(1, sizeof(*fake->data));
	fake->before = qp_calloc(1, sizeof(*fake->before));
	fake->now_us = 1000000;
	arena_init(&fake->arena, 4096);
	return fake;
}

void fake_store_free(struct fake_store *fake)
{
	listeners_release(&fake->listeners);
	arena_release(&fake->arena);
	free(fake->data);
	free(fake->before);
	free(fake);
}

struct store *fake_store_base(struct fake_store *fake)
{
	return &fake->base;
}

void fake_store_hold(struct fake_store *fake, struct slice item_id, bool held)
{
	size_t kept = 0;

	for (size_t i = 0; i < fake->held_count; i++) {
		if (!slice_equal(fake->held[i], item_id))
			fake->held[kept++] = fake->held[i];
	}
	fake->held_count = kept;
	if (held)
		fake->held[fake->held_count++] = item_id;
}

void fake_store_fail_at(struct fake_store *fake, int n, enum status status)
{
	fake->fail_at = n;
	fake->fail_with = status;
	fake->has_failed = false;
}

void fake_store_commit_survives(struct fake_store *fake, bool survives)
{
	fake->survives = survives;
}

bool fake_store_has_failed(const struct fake_store *fake)
{
	return fake->has_failed;
}

void fake_store_poison(struct fake_store *fake, const char *item_id)
{
	fake->poison = item_id;
}

size_t fake_store_commits(const struct fake_store *fake)
{
	return fake->commits;
}

void fake_store_set_time(struct fake_store *fake, int64_t now_us)
{
	fake->now_us = now_us;
}
