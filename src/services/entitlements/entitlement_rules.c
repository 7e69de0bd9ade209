#include "services/entitlements/entitlement_rules.h"

bool entitlement_needs_purchase(struct slice reason)
{
	return slice_is(reason, "purchase") || slice_is(reason, "refund");
}

/* Sets the status to `is_active` and counts the change: as a new version if the row is new or its
 * status was different, otherwise as a new step. */
static void count_change(struct entitlement_row *row, bool is_active, int64_t now_us)
{
	if (row->version > 0 && row->is_active == is_active) {
		row->step++;
		return;
	}
	row->is_active = is_active;
	row->version++;
	row->step = 0;
	row->updated_us = now_us;
}

static bool is_new(const struct entitlement_source *source)
{
	return source->granted_us == 0;
}

static void end_source(struct entitlement_source *source, int64_t now_us)
{
	source->is_active = false;
	source->revoked_us = now_us;
}

/* Creates a source, or restarts a source that has ended. */
static void begin_source(
	struct entitlement_row *row, struct entitlement_source *source, int64_t now_us)
{
	row->source_count += is_new(source);
	source->is_active = true;
	source->granted_us = now_us;
	source->revoked_us = 0;
}

enum status entitlement_grant(
	struct entitlement_row *row, struct entitlement_source *source, int64_t now_us)
{
	bool grants_once = slice_is(source->kind, ENTITLEMENT_PURCHASE);

	if (!is_new(source) && (source->is_active || grants_once))
		return STATUS_ENTITLEMENT_STATE_CONFLICT;
	if (is_new(source) && row->source_count >= ENTITLEMENT_SOURCES_MAX)
		return STATUS_ENTITLEMENT_TOO_MANY_SOURCES;
	begin_source(row, source, now_us);
	row->active_count++;
	count_change(row, true, now_us);
	return STATUS_OK;
}

enum status entitlement_revoke(struct entitlement_row *row, struct entitlement_source *source,
	struct entitlement_source *migrated, int64_t now_us)
{
	if (row->version == 0)
		return STATUS_ENTITLEMENT_NOT_FOUND;
	if (!row->is_active || (!is_new(source) && !source->is_active))
		return STATUS_ENTITLEMENT_STATE_CONFLICT;
	if (is_new(source) && !migrated->is_active)
		return STATUS_ENTITLEMENT_NOT_FOUND;
	if (is_new(source)) {
		begin_source(row, source, migrated->granted_us);
		source->reason = slice_of(ENTITLEMENT_MIGRATED);
		end_source(migrated, now_us);
	}
	end_source(source, now_us);
	row->active_count--;
	count_change(row, row->active_count > 0, now_us);
	return STATUS_OK;
}

enum status entitlement_revoke_all(struct entitlement_row *row, struct entitlement_source *sources,
	size_t count, int64_t now_us)
{
	if (row->version == 0)
		return STATUS_ENTITLEMENT_NOT_FOUND;
	if (!row->is_active)
		return STATUS_ENTITLEMENT_STATE_CONFLICT;
	for (size_t i = 0; i < count; i++) {
		if (sources[i].is_active)
			end_source(&sources[i], now_us);
	}
	row->ends_sources = true;
	row->active_count = 0;
	count_change(row, false, now_us);
	return STATUS_OK;
}
