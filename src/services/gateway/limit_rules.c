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

static bool is_from_the_future(const struct limit_row *row, int64_t now_us)
{
	return row->last_refresh_us > now_us + LIMIT_FUTURE_US;
}

void limit_refresh(struct limit_row *row, int64_t now_us)
{
	/* The start identifies a window, so no two windows of a row may have the same one. */
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

int32_t limit_reserve(struct limit_row *row, int64_t now_us, int64_t unit_us, int32_t wanted)
{
	int32_t used, left;

	limit_update(row, now_us, unit_us);
	used = limit_used(row);
	left = row->rate_limit > used ? row->rate_limit - used : 0;
	if (wanted > left)
		wanted = left;
	row->reserved_count = used + wanted;
	return wanted;
}
