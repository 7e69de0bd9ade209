#include "services/entitlements/notification_verify.h"

#include "admin/verify_claims.h"

static enum status look_at_states(
	const void *context, struct session *session, struct verify_page *page)
{
	static const struct verify_claims words = {
		.busy = "PROCESSING",
		.done = "SENT",
		.done_at = "sent_at",
		.attempts_max = NOTIFICATION_ATTEMPTS_MAX,
	};
	const struct notifications *notifications = context;

	return verify_claims_look(&words, notifications->repository->claims, session, page);
}

static void check_notification(struct verify_page *page, const struct notification_facts *facts)
{
	struct slice id = facts->id;
	int64_t kept_since_us = page->rows.now_us - PROCESSED_KEPT_US + VERIFY_SKEW_US;

	if (!facts->has_event && facts->created_us > kept_since_us)
		verify_differ(page, id, "event-missing",
			"%.*s: the event of the notification is not in processed_events",
			(int)id.len, id.data);
	if (facts->is_failed && !facts->has_letter)
		verify_differ(page, id, "letter-missing",
			"%.*s: the notification was given up, but has no dead letter", (int)id.len,
			id.data);
}

static enum status look_at_others(
	const void *context, struct session *session, struct verify_page *page)
{
	const struct notifications *notifications = context;
	struct notification_facts *rows =
		arena_array(page->arena, struct notification_facts, page->rows.limit);
	enum status status = notifications->repository->ops->list_facts(
		notifications->repository, session, page->arena, &page->rows, rows);

	if (status != STATUS_OK || page->rows.count == 0)
		return status;
	for (size_t i = 0; i < page->rows.count; i++)
		check_notification(page, &rows[i]);
	verify_finish(page, rows[page->rows.count - 1].id, (struct slice){0});
	return STATUS_OK;
}

struct verifier notifications_verifier(const struct notifications *notifications)
{
	static const struct verify_part parts[] = {
		{"states", look_at_states},
		{"others", look_at_others},
	};

	return (struct verifier){
		.name = "notifications",
		.parts = parts,
		.part_count = sizeof(parts) / sizeof(parts[0]),
		.context = notifications,
		.lanes = &notifications->lanes,
	};
}
