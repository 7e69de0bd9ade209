/*
 * Decides whether the limit of a user admits messages. The decision depends only on the row, the
 * time and the number of messages. The two cache adapters implement the same rule for cached
 * copies: the memory adapter in C, the Redis adapter in a Lua script. Pure.
 */
#ifndef QUIPU_SERVICES_GATEWAY_LIMIT_RULES_H
#define QUIPU_SERVICES_GATEWAY_LIMIT_RULES_H

#include "ports/limit_repository.h"

#define TIME_WINDOW_MAX 525600

/*
 * If a row's window begins further in the future than this, the row was written before the clock
 * was set back. A window that begins a little in the future is normal, because limit_refresh()
 * begins each window at least a microsecond after the previous one.
 */
#define LIMIT_FUTURE_US (1 * 1000000LL)

/* The limit of users without a configuration; rate_limit is 0 if there is no default. */
struct limit_default {
	int32_t rate_limit;
	int32_t time_window;
};

/* Returns whether the window of the row has ended. */
bool limit_has_elapsed(const struct limit_row *row, int64_t now_us, int64_t unit_us);

/* Returns the time at which the window ends. */
int64_t limit_reset_us(const struct limit_row *row, int64_t unit_us);

/* Returns how many messages of this window count against the limit. */
int32_t limit_used(const struct limit_row *row);

/* Returns how many more messages this window admits. */
int32_t limit_left(const struct limit_row *row);

/* Begins a new window at `now_us`. If the previous window started at or after `now_us`, but at most
 * LIMIT_FUTURE_US later, the new window begins one microsecond after that start instead. */
void limit_refresh(struct limit_row *row, int64_t now_us);

/*
 * Brings the row up to date: begins a new window if the row's window has ended. If the row's window
 * begins more than LIMIT_FUTURE_US in the future, moves its start to `now_us` and keeps its counts.
 * Therefore setting the clock back frees no quota, and locks nobody out for longer than one window.
 * Returns true if the row has changed.
 */
bool limit_update(struct limit_row *row, int64_t now_us, int64_t unit_us);

enum limit_verdict {
	LIMIT_ADMITTED,
	LIMIT_REFUSED,
	LIMIT_SHADOWED, /* above the limit, but the row is in shadow mode: admitted and counted */
};

/*
 * Brings the row up to date and admits all of `amount` messages, or none. Sets `slots` to the
 * number of slots reserved: `amount`, or 0 if the messages are refused or if the count of a row in
 * shadow mode would overflow.
 */
enum limit_verdict limit_admit(
	struct limit_row *row, int64_t now_us, int64_t unit_us, int32_t amount, int32_t *slots);

/* Creates the row of a user without a configuration, with a window that begins now. */
void limit_make_default(
	struct limit_row *row, const struct limit_default *standard, int64_t now_us);

/* If the row was created from a default that has changed since, and the row's window has ended,
 * begins a new window with the new default. If there is no default any more, does nothing. */
void limit_follow_default(struct limit_row *row, const struct limit_default *standard,
	int64_t now_us, int64_t unit_us);

#endif
