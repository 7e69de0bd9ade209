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

/* The limit of users without a configuration; rate_limit is 0 if there is none. */
struct limit_default {
	int32_t rate_limit;
	int32_t time_window;
};

/* Whether the window of the row has elapsed. */
bool limit_has_elapsed(const struct limit_row *row, int64_t now_us, int64_t unit_us);

/* Returns the time at which the window ends. */
int64_t limit_reset_us(const struct limit_row *row, int64_t unit_us);

/* Returns how many messages of this window count against the limit. */
int32_t limit_used(const struct limit_row *row);

/* Returns how many more messages this window admits. */
int32_t limit_left(const struct limit_row *row);

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

enum limit_verdict {
	LIMIT_ADMITTED,
	LIMIT_REFUSED,
	LIMIT_SHADOWED, /* over the limit, but the row is in shadow mode: admitted and counted */
};

/*
 * Decides about `amount` messages, all or none: brings the row up to date, and reserves their
 * slots. Sets `slots` to how many slots were reserved: `amount`, or 0 if they are refused or a row
 * in shadow mode can count no further.
 */
enum limit_verdict limit_admit(
	struct limit_row *row, int64_t now_us, int64_t unit_us, int32_t amount, int32_t *slots);

/* Makes the row of a user without a configuration, with a window that begins now. */
void limit_make_default(
	struct limit_row *row, const struct limit_default *standard, int64_t now_us);

/* A row that the default made takes over a default that has changed, in a new window, once its old
 * window has elapsed. */
void limit_follow_default(struct limit_row *row, const struct limit_default *standard,
	int64_t now_us, int64_t unit_us);

#endif
