#include "admin/verify_claims.h"

/* A row, and flags that follow from its status. */
struct checking {
	const struct verify_claims *words;
	struct verify_page *page;
	const struct claim_row *row;
	bool is_busy;
	bool is_done;
	bool is_given_up; /* FAILED or DISCARDED */
};

static void differ(const struct checking *checking, const char *what, const char *why)
{
	const struct claim_row *row = checking->row;

	verify_differ(checking->page, row->id, what, "%.*s: it is %.*s %s", (int)row->id.len,
		row->id.data, (int)row->status.len, row->status.data, why);
}

static void check_lease(const struct checking *checking)
{
	const struct claim_row *row = checking->row;

	if (checking->is_busy && !(row->has_owner && row->has_lock && row->has_lease))
		differ(checking, "lease", "but has no owner or no lease");
	if (!checking->is_busy && row->has_lease)
		differ(checking, "lease", "but has a lease");
	if ((checking->is_busy || checking->is_done) && row->epoch < 1)
		differ(checking, "epoch", "but was never claimed");
}

static void check_end(const struct checking *checking)
{
	const struct claim_row *row = checking->row;

	if (checking->is_done && row->done_us == 0)
		differ(checking, "done", "but has no end time");
	if (!checking->is_done && row->done_us != 0)
		differ(checking, "done", "but has an end time");
	if (checking->is_given_up && !row->has_error)
		differ(checking, "error", "but has no error");
	if ((checking->is_busy || checking->is_done) && row->has_error)
		differ(checking, "error", "but has an error");
	if ((checking->is_done || checking->is_given_up) && row->has_retry)
		differ(checking, "retry", "but is due again");
}

static void check_attempts(const struct checking *checking)
{
	const struct claim_row *row = checking->row;
	int32_t most = checking->words->attempts_max;

	if (row->attempt_count < 0)
		differ(checking, "attempts", "after a negative number of attempts");
	else if (checking->is_given_up && row->attempt_count == 0)
		differ(checking, "attempts", "without an attempt");
	else if (most > 0 && row->attempt_count > most)
		differ(checking, "attempts", "after more attempts than the limit allows");
}

static void check_row(
	const struct verify_claims *words, struct verify_page *page, const struct claim_row *row)
{
	const struct checking checking = {
		.words = words,
		.page = page,
		.row = row,
		.is_busy = slice_is(row->status, words->busy),
		.is_done = slice_is(row->status, words->done),
		.is_given_up =
			slice_is(row->status, "FAILED") || slice_is(row->status, "DISCARDED"),
	};

	if (!checking.is_busy && !checking.is_done && !checking.is_given_up &&
		!slice_is(row->status, "PENDING"))
		differ(&checking, "status", "which is not a state");
	check_lease(&checking);
	check_end(&checking);
	check_attempts(&checking);
	verify_time(page, row->id, "created_at", row->created_us);
	verify_time(page, row->id, words->done_at, row->done_us);
}

enum status verify_claims_look(const struct verify_claims *words,
	const struct claim_repository *repository, struct session *session,
	struct verify_page *page)
{
	struct claim_row *rows = arena_array(page->arena, struct claim_row, page->rows.limit);
	enum status status =
		repository->ops->list(repository, session, page->arena, &page->rows, rows);

	if (status != STATUS_OK || page->rows.count == 0)
		return status;
	for (size_t i = 0; i < page->rows.count; i++)
		check_row(words, page, &rows[i]);
	verify_finish(page, rows[page->rows.count - 1].id, (struct slice){0});
	return STATUS_OK;
}
