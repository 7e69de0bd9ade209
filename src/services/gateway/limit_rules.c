#include "services/gateway/limit_rules.h"

int64_t limit_reset_us(const struct limit_row *row, int64_t unit_us)
{
	return row->last_refresh_us + row->time_window * unit_us;
}

bool limit_has_elapsed(const struct limit_row *row, int64_t now_us, int64_t unit_us)
{
	return now_us >= limit_reset_us(row, unit_us);
}

int32_t limit_used(const struct limit_row *row)
{
	return row->current_count > row->reserved_count ? row->current_count : row->reserved_count;
}

int32_t limit_left(const struct limit_row *row)
{
	int32_t used = limit_used(row);

	return row->rate_limit > used ? row->rate_limit - used : 0;
}

static bool is_from_the_future(const struct limit_row *row, int64_t now_us)
{
	return row->last_refresh_us > now_us + LIMIT_FUTURE_US;
}

void limit_refresh(struct limit_row *row, int64_t now_us)
{
	/* The start identifies a window, so no two windows of a row may have the same start. */
	bool is_later = now_us > row->last_refresh_us || is_from_the_future(row, now_us);

	row->last_refresh_us = is_later ? now_us : row->last_refresh_us + 1;
	row->current_count = 0;
	row->reserved_count = 0;
}

bool limit_update(struct limit_row *row, int64_t now_us, int64_t unit_us)
{
	bool is_early = is_from_the_future(row, now_us);

	if (is_early)
		row->last_refresh_us = now_us;
	else if (limit_has_elapsed(row, now_us, unit_us))
		limit_refresh(row, now_us);
	else
		return false;
	return true;
}

enum limit_verdict limit_admit(
	struct limit_row *row, int64_t now_us, int64_t unit_us, int32_t amount, int32_t *slots)
{
	int32_t used;

	limit_update(row, now_us, unit_us);
	used = row->reserved_count = limit_used(row);
	*slots = 0;
	if (amount > limit_left(row) && !row->shadow)
		return LIMIT_REFUSED;
	if (amount <= INT32_MAX - used) {
		row->reserved_count = used + amount;
		*slots = amount;
	}
	return used > row->rate_limit - amount ? LIMIT_SHADOWED : LIMIT_ADMITTED;
}

void limit_make_default(struct limit_row *row, const struct limit_default *standard, int64_t now_us)
{
	limit_refresh(row, now_us);
	row->rate_limit = standard->rate_limit;
	row->time_window = standard->time_window;
	row->shadow = false;
	row->by_default = true;
}

void limit_follow_default(struct limit_row *row, const struct limit_default *standard,
	int64_t now_us, int64_t unit_us)
{
	bool is_current = row->rate_limit == standard->rate_limit &&
			  row->time_window == standard->time_window;

	if (row->by_default && standard->rate_limit > 0 && !is_current &&
		limit_has_elapsed(row, now_us, unit_us))
		limit_make_default(row, standard, now_us);
}
