/*
 * The store itself: faults, sessions, and the pool of files.
 *
 * Creating a file and its tables takes milliseconds, and the random tests want a new store for each
 * of thousands of cases. So a store that is freed is emptied and kept as a spare for the next one,
 * and the spares are removed when the program ends.
 */
#include "faulty_store.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "adapters/store/sqlite/sqlite_internal.h"
#include "base/container.h"
#include "faulty_internal.h"

#define START_US 1000000

/* ---- faults ------------------------------------------------------------------------------ */

enum status faulty_pass(struct session *session)
{
	struct faulty_plan *plan = faulty_plan_of(session);

	if (plan->fail_at == 0 || --plan->fail_at > 0)
		return STATUS_OK;
	plan->has_failed = true;
	return plan->fail_with;
}

enum status faulty_refuse(struct session *session, enum status status)
{
	struct session *inner = faulty_session_of(session)->inner;

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
	struct session *inner = faulty_session_of(session)->inner;
	bool is_made = status == STATUS_OK ||
		       (status == STATUS_OUTCOME_UNKNOWN && faulty_plan_of(session)->survives);

	if (!is_made)
		return faulty_refuse(session, status);
	if (inner->ops->commit(inner) != STATUS_OK)
		abort(); /* the real store must not fail */
	return status;
}

bool faulty_is_held(struct session *session, struct slice id)
{
	const struct faulty_plan *plan = faulty_plan_of(session);

	for (size_t i = 0; i < plan->held_count; i++) {
		if (slice_equal(plan->held[i], id))
			return true;
	}
	return false;
}

/* ---- sessions ---------------------------------------------------------------------------- */

static const struct session_ops session_ops;

struct faulty_session *faulty_session_of(struct session *session)
{
	assert(session->ops->commit == session_ops.commit); /* tests replace other verbs */
	return (struct faulty_session *)session;
}

static enum status begin(struct session *base, enum transaction_mode mode)
{
	struct faulty_session *session = faulty_session_of(base);
	enum status status = faulty_step(base);

	session->mode = mode;
	session->is_committed = false;
	return status == STATUS_OK ? session->inner->ops->begin(session->inner, TRANSACTION_WAIT)
				   : status;
}

static enum status commit(struct session *base)
{
	struct faulty_session *session = faulty_session_of(base);
	enum status status =
		session->is_committed ? STATUS_OK : faulty_end(base, faulty_pass(base));

	session->is_committed = false;
	faulty_plan_of(base)->commits += status == STATUS_OK;
	return status;
}

static void rollback(struct session *base)
{
	struct session *inner = faulty_session_of(base)->inner;

	inner->ops->rollback(inner);
}

static enum status idempotency_find(
	struct session *base, struct arena *arena, struct idempotency_record *records, size_t count)
{
	struct session *inner = faulty_session_of(base)->inner;
	enum status status = faulty_step(base);

	return status == STATUS_OK ? inner->ops->idempotency_find(inner, arena, records, count)
				   : status;
}

static enum status idempotency_put(struct session *base, const struct idempotency_record *records,
	size_t count, int64_t ttl_us)
{
	struct session *inner = faulty_session_of(base)->inner;
	enum status status = faulty_step(base);

	return status == STATUS_OK ? inner->ops->idempotency_put(inner, records, count, ttl_us)
				   : status;
}

static enum status idempotency_claim(
	struct session *base, struct idempotency_record *records, size_t count)
{
	struct session *inner = faulty_session_of(base)->inner;
	enum status status = faulty_step(base);

	return status == STATUS_OK ? inner->ops->idempotency_claim(inner, records, count) : status;
}

static enum status idempotency_finish(
	struct session *base, struct idempotency_record *records, size_t count)
{
	struct session *inner = faulty_session_of(base)->inner;
	enum status status = faulty_step(base);

	return status == STATUS_OK ? inner->ops->idempotency_finish(inner, records, count) : status;
}

static enum status idempotency_forget(
	struct session *base, struct idempotency_record *records, size_t count)
{
	struct session *inner = faulty_session_of(base)->inner;
	enum status status = faulty_step(base);

	return status == STATUS_OK ? inner->ops->idempotency_forget(inner, records, count) : status;
}

static enum status idempotency_release(
	struct session *base, struct idempotency_record *records, size_t count)
{
	struct session *inner = faulty_session_of(base)->inner;
	enum status status = faulty_step(base);

	return status == STATUS_OK ? inner->ops->idempotency_release(inner, records, count)
				   : status;
}

static void close_session(struct session *base)
{
	struct faulty_session *session = faulty_session_of(base);

	faulty_store_of(base->store)->open_sessions--;
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

struct faulty_store *faulty_store_of(struct store *store)
{
	assert(store->ops == &store_ops);
	return (struct faulty_store *)store;
}

static bool start(struct store *base, char *why, size_t size)
{
	return true;
}

static struct session *open_session(struct store *base, enum session_kind kind)
{
	struct faulty_store *faulty = faulty_store_of(base);
	struct faulty_session *session = qp_calloc(1, sizeof(*session));

	session->base.ops = &session_ops;
	session->base.store = base;
	session->inner = faulty->inner->ops->open_session(faulty->inner, kind);
	faulty->open_sessions++;
	return &session->base;
}

static bool is_up(struct store *base)
{
	struct store *inner = faulty_store_of(base)->inner;

	return inner->ops->is_up(inner);
}

static void free_store(struct store *base)
{
	faulty_store_free(faulty_store_of(base));
}

static const struct store_ops store_ops = {
	.start = start,
	.open_session = open_session,
	.is_up = is_up,
	.free = free_store,
};

/* ---- files ------------------------------------------------------------------------------- */

static struct faulty_store *spares;

static int64_t wall_us(const struct clock *clock)
{
	return CONTAINER_OF(clock, const struct faulty_store, clock)->plan.now_us;
}

static int64_t steady_ns(const struct clock *clock)
{
	return wall_us(clock) * NS_PER_US;
}

/* In memory, if the machine has a place for such files. */
static char *new_path(void)
{
	const char *parent = getenv("TMPDIR");
	char folder[256], path[300];

	if (!parent)
		parent = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
	snprintf(folder, sizeof(folder), "%s/quipu-faulty-XXXXXX", parent);
	if (!mkdtemp(folder))
		abort();
	snprintf(path, sizeof(path), "%s/store.db", folder);
	return qp_strdup(path);
}

static void remove_file(char *path)
{
	unlink(path); /* the writer has left one file and no WAL */
	*strrchr(path, '/') = '\0';
	rmdir(path);
}

static void remove_spares(void)
{
	while (spares) {
		struct faulty_store *faulty = spares;

		spares = faulty->next_spare;
		session_close(faulty->own);
		for (size_t i = 0; i < TABLES_MAX + 2; i++)
			sqlite3_finalize(faulty->empty[i]);
		faulty->inner->ops->free(faulty->inner);
		remove_file(faulty->path);
		free(faulty->path);
		free(faulty);
	}
}

static sqlite3_stmt *prepare(struct faulty_store *faulty, const char *sql)
{
	sqlite3 *db = sqlite_store_of(faulty->inner)->writer.connection.db;
	sqlite3_stmt *stmt;

	if (sqlite3_prepare_v2(db, sql, -1, &stmt, NULL) != SQLITE_OK)
		abort();
	return stmt;
}

/* The newest tables first, because they refer to older ones. */
static void prepare_empty(struct faulty_store *faulty)
{
	sqlite3_stmt *deletes = prepare(faulty,
		"SELECT 'DELETE FROM ' || name FROM sqlite_schema "
		"WHERE type = 'table' AND name <> 'schema_migrations' ORDER BY rowid DESC");
	size_t count = 0;

	faulty->empty[count++] = prepare(faulty, "BEGIN");
	while (sqlite3_step(deletes) == SQLITE_ROW) {
		assert(count <= TABLES_MAX);
		faulty->empty[count++] =
			prepare(faulty, (const char *)sqlite3_column_text(deletes, 0));
	}
	faulty->empty[count] = prepare(faulty, "COMMIT");
	sqlite3_finalize(deletes);
}

static void empty(struct faulty_store *faulty)
{
	for (size_t i = 0; i < TABLES_MAX + 2 && faulty->empty[i]; i++) {
		if (sqlite3_step(faulty->empty[i]) != SQLITE_DONE)
			abort();
		sqlite3_reset(faulty->empty[i]);
	}
}

static struct faulty_store *create(void)
{
	static const char *const components[] = {"common", "counts", "gateway", "pots", NULL};
	static const struct store_repositories repositories = {
		.counts = &faulty_count_repository,
		.limits = &faulty_limit_repository,
		.pots = &faulty_pot_repository,
	};
	struct faulty_store *faulty = qp_calloc(1, sizeof(*faulty));
	char why[256];

	faulty->clock = (struct clock){.wall_us = wall_us, .steady_ns = steady_ns};
	faulty->path = new_path();
	faulty->inner = sqlite_store_new("faulty-store", faulty->path, components, &faulty->clock);
	if (!faulty->inner->ops->start(faulty->inner, why, sizeof(why))) {
		fprintf(stderr, "%s\n", why);
		abort();
	}
	faulty->own = faulty->inner->ops->open_session(faulty->inner, SESSION_WRITE);
	prepare_empty(faulty);
	faulty->base = *faulty->inner;
	faulty->base.ops = &store_ops;
	faulty->base.repositories = &repositories;
	faulty->base.engine = "faulty";
	faulty->base.single_saves_a_trip = true;
	return faulty;
}

struct faulty_store *faulty_store_new(void)
{
	static bool is_registered;
	struct faulty_store *faulty = spares;

	if (!is_registered)
		atexit(remove_spares);
	is_registered = true;
	if (faulty)
		spares = faulty->next_spare;
	else
		faulty = create();
	faulty->plan = (struct faulty_plan){.now_us = START_US};
	return faulty;
}

void faulty_store_free(struct faulty_store *faulty)
{
	assert(faulty->open_sessions == 0);
	empty(faulty);
	faulty->next_spare = spares;
	spares = faulty;
}

/* ---- what tests ask for ------------------------------------------------------------------ */

struct store *faulty_store_base(struct faulty_store *faulty)
{
	return &faulty->base;
}

struct session *faulty_store_open_session(struct faulty_store *faulty, enum session_kind kind)
{
	return open_session(&faulty->base, kind);
}

void faulty_store_fail_at(struct faulty_store *faulty, int n, enum status status)
{
	faulty->plan.fail_at = n;
	faulty->plan.fail_with = status;
	faulty->plan.has_failed = false;
}

void faulty_store_commit_survives(struct faulty_store *faulty, bool survives)
{
	faulty->plan.survives = survives;
}

bool faulty_store_has_failed(const struct faulty_store *faulty)
{
	return faulty->plan.has_failed;
}

void faulty_store_hold(struct faulty_store *faulty, struct slice id, bool held)
{
	struct faulty_plan *plan = &faulty->plan;
	size_t kept = 0;

	for (size_t i = 0; i < plan->held_count; i++) {
		if (!slice_equal(plan->held[i], id))
			plan->held[kept++] = plan->held[i];
	}
	plan->held_count = kept;
	if (!held)
		return;
	assert(kept < HELD_MAX);
	plan->held[plan->held_count++] = id;
}

void faulty_store_poison(struct faulty_store *faulty, const char *item_id)
{
	faulty->plan.poison = item_id;
}

void faulty_store_set_time(struct faulty_store *faulty, int64_t now_us)
{
	faulty->plan.now_us = now_us;
}

size_t faulty_store_commits(const struct faulty_store *faulty)
{
	return faulty->plan.commits;
}

size_t faulty_store_takes(const struct faulty_store *faulty)
{
	return faulty->plan.takes;
}

size_t faulty_store_kinds_written(const struct faulty_store *faulty)
{
	return faulty->plan.kinds_written;
}
