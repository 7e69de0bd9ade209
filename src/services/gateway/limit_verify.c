#include "services/gateway/limit_verify.h"

#include "admin/verify_claims.h"
#include "admin/verify_idempotency.h"
#include "services/gateway/limit_rules.h"
#include "services/gateway/sender.h"

static void check_counts(struct verify_page *page, const struct limit_row *row)
{
	struct slice id = row->user_id;

	if (row->current_count < 0 || row->reserved_count < 0)
		verify_differ(page, id, "negative",
			"%.*s: current_count is %d and reserved_count is %d", (int)id.len, id.data,
			row->current_count, row->reserved_count);
	if (row->current_count > row->reserved_count)
		verify_differ(page, id, "over-reserved",
			"%.*s: current_count %d is more than reserved_count %d", (int)id.len,
			id.data, row->current_count, row->reserved_count);
	if (row->reserved_count > row->rate_limit && !row->shadow)
		verify_differ(page, id, "over-limit",
			"%.*s: reserved_count %d is more than rate_limit %d", (int)id.len, id.data,
			row->reserved_count, row->rate_limit);
}

static void check_limit(struct verify_page *page, const struct limit_row *row)
{
	struct slice id = row->user_id;

	if (row->rate_limit < 1 || row->time_window < 1 || row->time_window > TIME_WINDOW_MAX)
		verify_differ(page, id, "config",
			"%.*s: rate_limit %d with time_window %d is not a valid configuration",
			(int)id.len, id.data, row->rate_limit, row->time_window);
	check_counts(page, row);
	verify_time(page, id, "last_refresh_time", row->last_refresh_us);
}

static enum status look_at_limits(
	const void *context, struct session *session, struct verify_page *page)
{
	const struct gateway *gateway = context;
	struct limit_row *rows = arena_array(page->arena, struct limit_row, page->rows.limit);
	enum status status = gateway->repository->ops->list(
		gateway->repository, session, page->arena, &page->rows, rows);

	if (status != STATUS_OK || page->rows.count == 0)
		return status;
	for (size_t i = 0; i < page->rows.count; i++)
		check_limit(page, &rows[i]);
	verify_finish(page, rows[page->rows.count - 1].user_id, (struct slice){0});
	return STATUS_OK;
}

static enum status look_at_messages(
	const void *context, struct session *session, struct verify_page *page)
{
	static const struct verify_claims words = {
		.busy = "SENDING",
		.done = "SENT",
		.done_at = "sent_at",
		.attempts_max = SENDER_ATTEMPTS_MAX,
	};
	const struct gateway *gateway = context;

	return verify_claims_look(&words, gateway->messages->claims, session, page);
}

static enum status look_at_configs(
	const void *context, struct session *session, struct verify_page *page)
{
	static const struct verify_idempotency configs = {
		.prefix = "POST /api/config", .may_wait = true};

	return verify_idempotency_look(&configs, context, session, page);
}

static enum status look_at_removals(
	const void *context, struct session *session, struct verify_page *page)
{
	static const struct verify_idempotency removals = {
		.prefix = "DELETE /api/config", .may_wait = true};

	return verify_idempotency_look(&removals, context, session, page);
}

static enum status look_at_takes(
	const void *context, struct session *session, struct verify_page *page)
{
	static const struct verify_idempotency takes = {.prefix = "POST /api/limits"};

	return verify_idempotency_look(&takes, context, session, page);
}

static enum status look_at_sends(
	const void *context, struct session *session, struct verify_page *page)
{
	static const struct verify_idempotency sends = {
		.prefix = "POST /api/send", .may_wait = true, .notes_number = true};

	return verify_idempotency_look(&sends, context, session, page);
}

struct verifier limits_verifier(const struct gateway *gateway)
{
	static const struct verify_part parts[] = {
		{"limits", look_at_limits},
		{"configs", look_at_configs},
		{"removals", look_at_removals},
		{"sends", look_at_sends},
		{"takes", look_at_takes},
		{"messages", look_at_messages},
	};

	return (struct verifier){
		.name = "limits",
		.parts = parts,
		.part_count = sizeof(parts) / sizeof(parts[0]),
		.context = gateway,
		.lanes = &gateway->lanes,
	};
}
