/*
 * The decision of the limiter: a function of the row, the time and the number of messages wanted.
 * Every path uses it, and the Lua script of the cache grants by the same rule. Pure.
 */
#ifndef QUIPU_SERVICES_GATEWAY_LIMIT_RULES_H
#define QUIPU_SERVICES_GATEWAY_LIMIT_RULES_H

#include "ports/limit_repository.h"

#define TIME_WINDOW_MAX 525600

/* Whether the window of the row has elapsed. A clock that was set back does not end a window. */
bool limit_has_elapsed(const struct limit_row *row, int64_t now_us, int64_t unit_us);

/* Returns the time at which the window ends. */
int64_t limit_reset_us(const struct limit_row *row, int64_t unit_us);

/* Returns how many messages of this window count against the limit. */
int32_t limit_used(const struct limit_row *row);

/* Begins a new window at `now_us`. */
void limit_refresh(struct limit_row *row, int64_t now_us);

/*
 * Admits up to `wanted` messages: begins a new window if the old one has elapsed, and reserves as
 * many slots as the limit leaves. Returns how many.
 */
int32_t limit_reserve(struct limit_row *row, int64_t now_us, int64_t unit_us, int32_t wanted);

#endif
