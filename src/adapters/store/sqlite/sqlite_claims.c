/*
 * Claims in SQLite. There is only one writer at a time, so one statement can select the due rows
 * and another can then claim them. The second statement finds rows by rowid, which saves a look-up
 * in the index of ids. The statements that renew or end a claim check its owner and epoch
 * (SQLITE_CLAIM_IS_OURS); `was_ours` says whether the statement has changed the row.
 */
#include "adapters/store/sqlite/sqlite_claims.h"

#include <assert.h>

#include "base/text.h"

static const struct sqlite_claims *claims_of(const struct claim_repository *repository)
{
	assert(repository->ops == &sqlite_claims_ops);
	return (const struct sqlite_claims *)repository;
}

static void fill_claim(struct claim *claim, struct arena *arena, const struct sqlite_query *query)
{
	*claim = (struct claim){
		.id = sqlite_query_keep(query, arena, 0),
		.type = sqlite_query_keep(query, arena, 1),
		.key = sqlite_query_keep(query, arena, 2),
		.trace = sqlite_query_keep(query, arena, 3),
		.payload = sqlite_query_keep(query, arena, 4),
		.occurred_us = sqlite_query_int(query, 5),
		.attempt_count = (int32_t)sqlite_query_int(query, 6),
		.epoch = sqlite_query_int(query, 7),
	};
}

static enum status take(struct sqlite_session *session, const char *sql,
	const struct claim_terms *terms, const int64_t *rowids, size_t count, int64_t now_us)
{
	struct sqlite_query query = sqlite_query_open(session, sql);

	for (size_t i = 0; i < count; i++)
		sqlite_query_change_one(
			&query, SQLITE_VALUES(sqlite_int(rowids[i]), sqlite_text(terms->owner),
					sqlite_int(now_us), sqlite_int(now_us + terms->lease_us)));
	return sqlite_query_close(&query);
}

static enum status claim(const struct claim_repository *repository, struct session *base,
	struct arena *arena, const struct claim_terms *terms, struct claim *claims, size_t *count)
{
	struct sqlite_session *session = sqlite_session_of(base);
	const struct sqlite_claims *table = claims_of(repository);
	struct sqlite_query query = sqlite_query_open(session, table->due);
	int64_t *rowids = arena_array(arena, int64_t, terms->max);
	int64_t now_us = sqlite_now_us(session);
	size_t found = 0;
	enum status status;

	sqlite_query_start(
		&query, SQLITE_VALUES(sqlite_int(now_us), sqlite_int((int64_t)terms->max)));
	while (sqlite_query_next(&query)) {
		rowids[found] = sqlite_query_int(&query, 8);
		fill_claim(&claims[found++], arena, &query);
	}
	status = sqlite_query_close(&query);
	if (status == STATUS_OK)
		status = take(session, table->take, terms, rowids, found, now_us);
	if (status == STATUS_OK)
		*count = found;
	return status;
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
	struct sqlite_session *session = sqlite_session_of(base);
	struct sqlite_query query = sqlite_query_open(session, claims_of(repository)->end);
	int64_t now_us = sqlite_now_us(session);

	for (size_t i = 0; i < count; i++) {
		struct claim *claim = &claims[i];
		bool failed = claim->end != CLAIM_DONE && claim->end != CLAIM_RETURNED;
		struct slice error = failed ? claim->error : slice_of("");

		claim->was_ours =
			sqlite_query_change(&query,
				SQLITE_VALUES(sqlite_text(claim->id), sqlite_text(owner),
					sqlite_int(claim->epoch),
					sqlite_text(slice_of(kinds[claim->end])),
					sqlite_int(now_us), sqlite_int(now_us + claim->delay_us),
					sqlite_text(text_cut(error, CLAIM_ERROR_MAX)))) == 1;
	}
	return sqlite_query_close(&query);
}

static enum status renew(const struct claim_repository *repository, struct session *base,
	const struct claim_terms *terms, struct claim *claims, size_t count)
{
	struct sqlite_session *session = sqlite_session_of(base);
	struct sqlite_query query = sqlite_query_open(session, claims_of(repository)->renew);
	int64_t until_us = sqlite_now_us(session) + terms->lease_us;

	for (size_t i = 0; i < count; i++)
		claims[i].was_ours =
			sqlite_query_change(&query,
				SQLITE_VALUES(sqlite_text(claims[i].id), sqlite_text(terms->owner),
					sqlite_int(claims[i].epoch), sqlite_int(until_us))) == 1;
	return sqlite_query_close(&query);
}

static enum status count_rows(
	struct sqlite_session *session, const char *sql, struct claim_stats *stats)
{
	struct sqlite_query query = sqlite_query_open(session, sql);

	sqlite_query_start(&query, SQLITE_VALUES(sqlite_int(sqlite_now_us(session))));
	if (sqlite_query_next(&query)) {
		stats->pending = sqlite_query_int(&query, 0);
		stats->busy = sqlite_query_int(&query, 1);
		stats->failed = sqlite_query_int(&query, 2);
		stats->oldest_us = sqlite_query_int(&query, 3);
	}
	return sqlite_query_close(&query);
}

static enum status count_claims(
	const struct claim_repository *repository, struct session *base, struct claim_stats *stats)
{
	struct sqlite_session *session = sqlite_session_of(base);
	enum status status = sqlite_snapshot_begin(session);

	if (status == STATUS_OK)
		status = count_rows(session, claims_of(repository)->count, stats);
	if (status == STATUS_OK)
		status = sqlite_snapshot_end(session);
	return status;
}

void sqlite_claim_fill(void *row, struct arena *arena, const struct sqlite_query *query)
{
	*(struct claim_row *)row = (struct claim_row){
		.id = sqlite_query_keep(query, arena, 0),
		.status = sqlite_query_keep(query, arena, 1),
		.attempt_count = (int32_t)sqlite_query_int(query, 2),
		.epoch = sqlite_query_int(query, 3),
		.created_us = sqlite_query_int(query, 4),
		.done_us = sqlite_query_int(query, 5),
		.has_retry = sqlite_query_int(query, 6) != 0,
		.has_owner = sqlite_query_int(query, 7) != 0,
		.has_lock = sqlite_query_int(query, 8) != 0,
		.has_lease = sqlite_query_int(query, 9) != 0,
		.has_error = sqlite_query_int(query, 10) != 0,
	};
}

static enum status sweep(const struct claim_repository *repository, struct session *session,
	int64_t age_us, size_t limit, size_t *deleted)
{
	return sqlite_sweep_age(session, claims_of(repository)->sweep, age_us, limit, deleted);
}

static enum status list(const struct claim_repository *repository, struct session *session,
	struct arena *arena, struct row_page *page, struct claim_row *rows)
{
	return sqlite_list_rows(session, arena, &claims_of(repository)->list, page, rows);
}

const struct claim_repository_ops sqlite_claims_ops = {
	.claim = claim,
	.end = end,
	.renew = renew,
	.count = count_claims,
	.sweep = sweep,
	.list = list,
};
