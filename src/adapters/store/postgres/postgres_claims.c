/*
 * Implements claims in PostgreSQL, and decides at which created_at a claim begins to read the index
 * on open rows.
 *
 * A row that is done leaves a dead entry at the head of the index on open rows. A vacuum removes
 * the entry, but only after a minute, or after hours if a backup holds an old snapshot. A claim
 * that starts at the head of the index reads all dead entries; after a minute at 14,000 events/s,
 * reading them took three quarters of the claim's time. Therefore each store remembers a floor for
 * each table: a time that is SLACK_US before the created_at of the first open row. Claims start at
 * the floor, and each claim raises the floor if a later row is now the first open one.
 *
 * A row can appear below the floor in three cases: it was committed more than SLACK_US after its
 * created_at; another process reopened it; or this process reopened it, but a claim raised the
 * floor again before that change was committed. The row then waits for the next claim that scans
 * the whole index. Such a claim runs every LOOK_LEAST_NS, or less often if it is slow.
 */
#include "adapters/store/postgres/postgres_claims.h"

#include <assert.h>

#include "base/clock.h"
#include "base/text.h"

#define SLACK_US 250000

/* After a scan of the whole index, the next such scan has to wait LOOK_SHARE times as long as the
 * scan took, but at least LOOK_LEAST_NS and at most LOOK_MOST_NS. */
#define LOOK_LEAST_NS NS_PER_S
#define LOOK_MOST_NS (60 * NS_PER_S)
#define LOOK_SHARE 20

static const struct pg_claims *claims_of(const struct claim_repository *repository)
{
	assert(repository->ops == &pg_claims_ops);
	return (const struct pg_claims *)repository;
}

static struct pg_floor *floor_of(struct session *session, const struct pg_claims *claims)
{
	return pg_store_floor(pg_store_of(session->store), claims);
}

void pg_claim_from(struct session *session, const struct pg_claims *claims, int64_t time_us)
{
	struct pg_floor *floor = floor_of(session, claims);
	int64_t from_us = atomic_load(&floor->from_us);

	while (time_us < from_us &&
		!atomic_compare_exchange_weak(&floor->from_us, &from_us, time_us))
		;
}

static void has_looked(struct pg_floor *floor, int64_t start_ns)
{
	int64_t now_ns = clock_steady_ns(&clock_system);
	int64_t wait_ns = (now_ns - start_ns) * LOOK_SHARE;

	if (wait_ns < LOOK_LEAST_NS)
		wait_ns = LOOK_LEAST_NS;
	if (wait_ns > LOOK_MOST_NS)
		wait_ns = LOOK_MOST_NS;
	atomic_store(&floor->look_at_ns, now_ns + wait_ns);
}

/* Raises the floor to `oldest_us` - SLACK_US, or lowers it to that time if the whole index was
 * scanned (`from_us` is 0). The caller has found that no row between `from_us` and `oldest_us` is
 * open. Does nothing if the floor is no longer `was_us`, because another thread may have lowered
 * the floor for a new row. */
static void raise(struct pg_floor *floor, int64_t was_us, int64_t from_us, int64_t oldest_us)
{
	int64_t to_us = oldest_us - SLACK_US;

	if (from_us == 0 || to_us > was_us)
		atomic_compare_exchange_strong(&floor->from_us, &was_us, to_us);
}

static void fill_claim(struct claim *claim, struct arena *arena, const PGresult *result, int row)
{
	*claim = (struct claim){
		.id = pg_keep(arena, result, row, 0),
		.type = pg_keep(arena, result, row, 1),
		.key = pg_keep(arena, result, row, 2),
		.trace = pg_keep(arena, result, row, 3),
		.payload = pg_keep(arena, result, row, 4),
		.occurred_us = pg_int8(result, row, 5),
		.attempt_count = pg_int4(result, row, 6),
		.epoch = pg_int8(result, row, 7),
	};
}

static enum status claim(const struct claim_repository *repository, struct session *base,
	struct arena *arena, const struct claim_terms *terms, struct claim *claims, size_t *count)
{
	const struct pg_claims *table = claims_of(repository);
	struct pg_session *session = pg_session_of(base);
	struct pg_floor *floor = floor_of(base, table);
	int64_t start_ns = clock_steady_ns(&clock_system);
	bool look = start_ns >= atomic_load(&floor->look_at_ns);
	int64_t floor_us = atomic_load(&floor->from_us);
	int64_t from_us = look ? 0 : floor_us;
	const struct pg_param from = pg_param_int8(session, from_us);
	const struct pg_param params[] = {
		pg_param_int8(session, (int64_t)terms->max),
		pg_param_text(terms->owner),
		pg_param_int8(session, terms->lease_us),
		from,
	};
	enum status status;

	pg_queue(session, &table->claim, params, 4);
	pg_queue(session, &table->oldest, &from, 1);
	status = pg_flush(session);
	if (status != STATUS_OK)
		return status;
	if (look)
		has_looked(floor, start_ns);
	raise(floor, floor_us, from_us, pg_int8(session->results[1], 0, 0));
	*count = (size_t)PQntuples(session->results[0]);
	for (size_t i = 0; i < *count; i++)
		fill_claim(&claims[i], arena, session->results[0], (int)i);
	return STATUS_OK;
}

static struct pg_param epochs_of(
	struct pg_session *session, const struct claim *claims, size_t count)
{
	struct pg_array epochs = pg_array_of(session, PG_OID_INT8, count);

	for (size_t i = 0; i < count; i++)
		pg_array_int8(&epochs, claims[i].epoch);
	return pg_param_array(&epochs);
}

/* Runs a statement that returns one row per changed claim: the claim's position in the batch (see
 * PG_CLAIM_IS_OURS). Sets was_ours in every claim: true if the claim's row was changed, otherwise
 * false. */
static enum status run_on_claims(struct pg_session *session, const struct pg_statement *statement,
	const struct pg_param *params, size_t param_count, struct claim *claims, size_t count)
{
	enum status status = pg_run(session, statement, params, param_count);

	if (status != STATUS_OK)
		return status;
	pg_flag_places(session->results[0], &claims->was_ours, sizeof(*claims), count);
	return STATUS_OK;
}

static enum status end(const struct claim_repository *repository, struct session *base,
	struct slice owner, struct claim *claims, size_t count)
{
	static const char *const kinds[] = {
		[CLAIM_DONE] = "done",
		[CLAIM_RETRY] = "retry",
		[CLAIM_DELAYED] = "delayed",
		[CLAIM_FAILED] = "failed",
		[CLAIM_RETURNED] = "returned",
	};
	struct pg_session *session = pg_session_of(base);
	struct pg_array ends = pg_array_of(session, PG_OID_TEXT, count);
	struct pg_array delays = pg_array_of(session, PG_OID_INT8, count);
	struct pg_array errors = pg_array_of(session, PG_OID_TEXT, count);

	for (size_t i = 0; i < count; i++) {
		bool failed = claims[i].end != CLAIM_DONE && claims[i].end != CLAIM_RETURNED;
		struct slice error = failed ? claims[i].error : slice_of("");

		pg_array_text(&ends, slice_of(kinds[claims[i].end]));
		pg_array_int8(&delays, claims[i].delay_us);
		pg_array_text(&errors, text_cut(error, CLAIM_ERROR_MAX));
	}
	const struct pg_param params[] = {pg_param_text(owner),
		pg_param_ids(session, &claims->id, sizeof(*claims), count),
		epochs_of(session, claims, count), pg_param_array(&ends), pg_param_array(&delays),
		pg_param_array(&errors)};

	return run_on_claims(session, &claims_of(repository)->end, params, 6, claims, count);
}

static enum status renew(const struct claim_repository *repository, struct session *base,
	const struct claim_terms *terms, struct claim *claims, size_t count)
{
	struct pg_session *session = pg_session_of(base);
	const struct pg_param params[] = {pg_param_text(terms->owner),
		pg_param_ids(session, &claims->id, sizeof(*claims), count),
		epochs_of(session, claims, count), pg_param_int8(session, terms->lease_us)};

	return run_on_claims(session, &claims_of(repository)->renew, params, 4, claims, count);
}

static enum status count_claims(
	const struct claim_repository *repository, struct session *base, struct claim_stats *stats)
{
	struct pg_session *session = pg_session_of(base);
	enum status status = pg_run(session, &claims_of(repository)->count, NULL, 0);

	if (status != STATUS_OK)
		return status;
	stats->pending = pg_int8(session->results[0], 0, 0);
	stats->busy = pg_int8(session->results[0], 0, 1);
	stats->failed = pg_int8(session->results[0], 0, 2);
	stats->oldest_us = pg_int8(session->results[0], 0, 3);
	return STATUS_OK;
}

static struct claim_row row_of(struct arena *arena, const PGresult *result, int row)
{
	return (struct claim_row){
		.id = pg_keep(arena, result, row, 0),
		.status = pg_keep(arena, result, row, 1),
		.attempt_count = pg_int4(result, row, 2),
		.epoch = pg_int8(result, row, 3),
		.created_us = pg_int8(result, row, 4),
		.done_us = pg_int8(result, row, 5),
		.has_retry = pg_bool(result, row, 6),
		.has_owner = pg_bool(result, row, 7),
		.has_lock = pg_bool(result, row, 8),
		.has_lease = pg_bool(result, row, 9),
		.has_error = pg_bool(result, row, 10),
	};
}

static enum status list(const struct claim_repository *repository, struct session *base,
	struct arena *arena, struct row_page *page, struct claim_row *rows)
{
	struct pg_session *session = pg_session_of(base);
	struct pg_param params[2] = {pg_param_uuid(page->after[0])};
	enum status status = pg_list_rows(session, &claims_of(repository)->list, params, 1, page);

	for (size_t i = 0; status == STATUS_OK && i < page->count; i++)
		rows[i] = row_of(arena, session->results[0], (int)i);
	return status;
}

static enum status sweep(const struct claim_repository *repository, struct session *session,
	int64_t age_us, size_t limit, size_t *deleted)
{
	return pg_sweep(session, &claims_of(repository)->sweep, age_us, limit, deleted);
}

const struct claim_repository_ops pg_claims_ops = {
	.claim = claim,
	.end = end,
	.renew = renew,
	.count = count_claims,
	.sweep = sweep,
	.list = list,
};
