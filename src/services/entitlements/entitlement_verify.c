/*
 * Compares each row with its sources and its newest audit lines, looks for sources without a row,
 * and compares each audit line with the line before it and with its event. Then checks the outbox
 * and the Idempotency-Keys. Lines and events that are old enough to have been deleted are not
 * reported as missing; is_kept() decides this by their age, with a margin for clocks that differ.
 */
#include "services/entitlements/entitlement_verify.h"

#include "admin/verify_claims.h"
#include "admin/verify_idempotency.h"
#include "events/entitlement_event.h"

#define LINE_KEPT_US (28 * 24 * 3600 * 1000000LL) /* lines are kept for at least a month */

static struct slice id_of(struct verify_page *page, struct slice user_id, struct slice unit)
{
	return entitlement_aggregate_key(page->arena, user_id, unit);
}

/* Returns whether the status fits the version: odd versions are ACTIVE, even versions are
 * REVOKED. */
static bool is_turn(bool is_active, int64_t version)
{
	return is_active == (version % 2 != 0);
}

/* Returns whether a line or event from this time must still exist if it is kept for `kept_us`. */
static bool is_kept(const struct verify_page *page, int64_t time_us, int64_t kept_us)
{
	return time_us > page->rows.now_us - kept_us + VERIFY_SKEW_US;
}

/* ---- entitlements ------------------------------------------------------------------------ */

static void compare_with_line(
	struct verify_page *page, struct slice id, const struct entitlement_facts *facts)
{
	const struct entitlement_row *row = &facts->row;

	if (!facts->has_line && is_kept(page, row->updated_us, LINE_KEPT_US))
		verify_differ(page, id, "audit-missing",
			"%.*s: the audit has no line for version %lld", (int)id.len, id.data,
			(long long)row->version);
	if (!facts->has_line)
		return;
	if (facts->line_version != row->version || facts->line_is_active != row->is_active ||
		facts->line_us != row->updated_us || facts->newest_version != row->version ||
		facts->newest_step != row->step)
		verify_differ(page, id, "audit-differs",
			"%.*s: the entitlement is %s with version %lld, step %lld, but "
			"according to the audit it was last %s with version %lld, and the newest "
			"line has version %lld, step %lld",
			(int)id.len, id.data, row->is_active ? "active" : "revoked",
			(long long)row->version, (long long)row->step,
			facts->line_is_active ? "granted" : "revoked",
			(long long)facts->line_version, (long long)facts->newest_version,
			(long long)facts->newest_step);
}

static void compare_with_sources(
	struct verify_page *page, struct slice id, const struct entitlement_facts *facts)
{
	if (facts->row.is_active && !facts->has_source)
		verify_differ(page, id, "no-source",
			"%.*s: the entitlement is ACTIVE, but none of its sources is ACTIVE",
			(int)id.len, id.data);
	if (!facts->row.is_active && facts->has_source)
		verify_differ(page, id, "source-left",
			"%.*s: the entitlement is REVOKED, but one of its sources is ACTIVE",
			(int)id.len, id.data);
}

static void check_entitlement(struct verify_page *page, const struct entitlement_facts *facts)
{
	const struct entitlement_row *row = &facts->row;
	struct slice id = id_of(page, row->user_id, row->unit);

	if (row->version < 1)
		verify_differ(page, id, "version", "%.*s: the version is %lld", (int)id.len,
			id.data, (long long)row->version);
	else if (!is_turn(row->is_active, row->version))
		verify_differ(page, id, "status", "%.*s: the status is %s, but the version is %lld",
			(int)id.len, id.data, row->is_active ? "ACTIVE" : "REVOKED",
			(long long)row->version);
	verify_time(page, id, "updated_at", row->updated_us);
	compare_with_sources(page, id, facts);
	compare_with_line(page, id, facts);
}

static enum status look_at_entitlements(
	const void *context, struct session *session, struct verify_page *page)
{
	const struct entitlements *entitlements = context;
	struct entitlement_facts *rows =
		arena_array(page->arena, struct entitlement_facts, page->rows.limit);
	enum status status = entitlements->repository->ops->list_facts(
		entitlements->repository, session, page->arena, &page->rows, rows);
	const struct entitlement_row *last;

	if (status != STATUS_OK || page->rows.count == 0)
		return status;
	for (size_t i = 0; i < page->rows.count; i++)
		check_entitlement(page, &rows[i]);
	last = &rows[page->rows.count - 1].row;
	verify_finish(page, last->user_id, last->unit);
	return STATUS_OK;
}

/* ---- sources ----------------------------------------------------------------------------- */

static enum status look_at_sources(
	const void *context, struct session *session, struct verify_page *page)
{
	const struct entitlements *entitlements = context;
	struct source_owner *owners =
		arena_array(page->arena, struct source_owner, page->rows.limit);
	enum status status = entitlements->repository->ops->list_source_owners(
		entitlements->repository, session, page->arena, &page->rows, owners);
	const struct source_owner *last;

	if (status != STATUS_OK || page->rows.count == 0)
		return status;
	for (size_t i = 0; i < page->rows.count; i++) {
		struct slice id = id_of(page, owners[i].user_id, owners[i].unit);

		if (!owners[i].has_row)
			verify_differ(page, id, "source-alone",
				"%.*s: there are sources, but no entitlement", (int)id.len,
				id.data);
	}
	last = &owners[page->rows.count - 1];
	verify_finish(page, last->user_id, last->unit);
	return STATUS_OK;
}

/* ---- the audit --------------------------------------------------------------------------- */

static void differ_in_line(struct verify_page *page, const struct entitlement_audit *line,
	const char *what, const char *why)
{
	struct slice id = id_of(page, line->user_id, line->unit);

	verify_differ(page, id, what, "%.*s: the audit line with version %lld, step %lld %s",
		(int)id.len, id.data, (long long)line->version, (long long)line->step, why);
}

/* Returns whether the event matches the line. */
static bool event_agrees(struct verify_page *page, const struct audit_facts *facts)
{
	const struct entitlement_audit *line = &facts->line;
	const char *type = line->is_active ? ENTITLEMENT_GRANTED : ENTITLEMENT_REVOKED;
	struct entitlement_event event;

	if (entitlement_event_unpack(page->arena, facts->payload, &event))
		return false;
	return slice_is(facts->event_type, type) && slice_is(event.event_type, type) &&
	       slice_equal(facts->event_key, id_of(page, line->user_id, line->unit)) &&
	       slice_equal(event.event_id, line->event_id) &&
	       slice_equal(event.user_id, line->user_id) && slice_equal(event.unit, line->unit) &&
	       event.version == line->version;
}

/* Returns whether the version of the line fits its action. If the line changes the status, the new
 * status must fit the version. Any other line is written while the entitlement is ACTIVE, so its
 * version must be odd. */
static bool action_fits(const struct entitlement_audit *line)
{
	return line->step == 0 ? is_turn(line->is_active, line->version) : line->version % 2 != 0;
}

static bool follows(const struct audit_facts *facts)
{
	const struct entitlement_audit *line = &facts->line;

	if (facts->version_before == 0)
		return true; /* the lines before this one may have been deleted */
	return line->step == 0 ? facts->version_before == line->version - 1
			       : facts->version_before == line->version &&
					 facts->step_before == line->step - 1;
}

static void check_event(struct verify_page *page, const struct audit_facts *facts)
{
	const struct entitlement_audit *line = &facts->line;

	if (line->step > 0 && line->event_id.len > 0)
		differ_in_line(page, line, "outbox-differs",
			"has an event, although the status did not change");
	if (line->step > 0)
		return;
	if (!facts->has_event && is_kept(page, line->at_us, PUBLISHED_KEPT_US))
		differ_in_line(page, line, "outbox-missing", "has no event in the outbox");
	if (facts->has_event && !event_agrees(page, facts))
		differ_in_line(page, line, "outbox-differs", "has an event that differs from it");
}

static void check_line(struct verify_page *page, const struct audit_facts *facts)
{
	const struct entitlement_audit *line = &facts->line;

	if (!action_fits(line))
		differ_in_line(
			page, line, "audit-action", line->is_active ? "is a grant" : "is a revoke");
	if (facts->is_repeated)
		differ_in_line(page, line, "audit-repeated", "exists twice");
	if (!follows(facts))
		differ_in_line(page, line, "audit-gap", "does not follow the previous line");
	if (!facts->has_row)
		differ_in_line(page, line, "no-entitlement", "belongs to no entitlement");
	check_event(page, facts);
}

static enum status look_at_audit(
	const void *context, struct session *session, struct verify_page *page)
{
	const struct entitlements *entitlements = context;
	struct audit_facts *lines = arena_array(page->arena, struct audit_facts, page->rows.limit);
	enum status status = entitlements->repository->ops->list_audit(
		entitlements->repository, session, page->arena, &page->rows, lines);
	const struct entitlement_audit *last;

	if (status != STATUS_OK || page->rows.count == 0)
		return status;
	for (size_t i = 0; i < page->rows.count; i++)
		check_line(page, &lines[i]);
	last = &lines[page->rows.count - 1].line;
	verify_finish_numbers(page, last->user_id, last->unit, last->version, last->step);
	return STATUS_OK;
}

/* ---- outbox and Idempotency-Keys --------------------------------------------------------- */

static enum status look_at_outbox(
	const void *context, struct session *session, struct verify_page *page)
{
	static const struct verify_claims words = {
		.busy = "IN_FLIGHT", .done = "PUBLISHED", .done_at = "published_at"};
	const struct entitlements *entitlements = context;

	return verify_claims_look(&words, entitlements->outbox->claims, session, page);
}

static enum status look_at_keys(
	const void *context, struct session *session, struct verify_page *page)
{
	static const struct verify_idempotency keys = {.prefix = "POST /v1/entitlements/"};

	return verify_idempotency_look(&keys, context, session, page);
}

struct verifier entitlements_verifier(const struct entitlements *entitlements)
{
	static const struct verify_part parts[] = {
		{"entitlements", look_at_entitlements},
		{"sources", look_at_sources},
		{"audit", look_at_audit},
		{"outbox", look_at_outbox},
		{"keys", look_at_keys},
	};

	return (struct verifier){
		.name = "entitlements",
		.parts = parts,
		.part_count = sizeof(parts) / sizeof(parts[0]),
		.context = entitlements,
		.lanes = &entitlements->lanes,
	};
}
