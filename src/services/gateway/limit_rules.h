/*
 * The decision of the limiter: a function of the row, the time and the number of messages wanted.
 * Every path uses it, and the Lua script of the cache grants by the same rule. Pure.
 */
#ifndef QUIPU_SERVICES_GATEWAY_LIMIT_RULES_H
#define QUIPU_SERVICES_GATEWAY_LIMIT_RULES_H

#include "ports/limit_repository.h"

#define TIME_WINDOW_MAX 525600

/*
 * A row whose window begins later than this from now was written before the clock was set back. The
 * slack is for windows that begin a microsecond apart so that they can be told apart.
 */
#define LIMIT_FUTURE_US (1 * 1000000LL)

/* Whether the window of the row has elapsed. */
bool limit_has_elapsed(const struct limit_row *row, int64_t now_us, int64_t unit_us);

/* Returns the time at which the window ends. */
int64_t limit_reset_us(const struct limit_row *row, int64_t unit_us);

/* Returns how many messages of this window count against the limit. */
int32_t limit_used(const struct limit_row *row);

/* Begins a new window at `now_us`. */
void limit_refresh(struct limit_row *row, int64_t now_us);

/*
 * Brings the row up to date: begins a new window if the old one has elapsed. A window that begins
 * in the future begins now instead, and what was used of it stays used: setting the clock back
 * frees no quota, and locks nobody out for longer than one window. Returns whether the row has
 * changed.
 */
bool limit_update(struct limit_row *row, int64_t now_us, int64_t unit_us);

/*
 * Admits up to `wanted` messages: brings the row up to date, and reserves as many slots as the
 * limit leaves. Returns how many.
 */
int32_t limit_reserve(struct limit_row *row, int64_t now_us, int64_t unit_us, int32_t wanted);

#endif
