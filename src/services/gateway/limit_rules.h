/*
 * The limiter's decision, pure: one function of the row, the time and what is wanted, used by every
 * path. The Lua script of the cache grants by the same rule.
 */
#ifndef QUIPU_SERVICES_GATEWAY_LIMIT_RULES_H
#define QUIPU_SERVICES_GATEWAY_LIMIT_RULES_H

#include "ports/limit_repository.h"

#define TIME_WINDOW_MAX 525600

/* Whether the window of the row has elapsed. Time that runs backwards has not elapsed. */
bool limit_has_elapsed(const struct limit_row *row, int64_t now_us, int64_t unit_us);

/* When the window ends. */
int64_t limit_reset_us(const struct limit_row *row, int64_t unit_us);

/* What was admitted in this window and counts against the limit. */
int32_t limit_used(const struct limit_row *row);

/* Begins a new window at `now_us`. */
void limit_refresh(struct limit_row *row, int64_t now_us);

/*
 * Admits up to `wanted`: begins a new window if the old one has elapsed, grants what the limit
 * leaves, and reserves it. Returns how many were granted.
 */
int32_t limit_reserve(struct limit_row *row, int64_t now_us, int64_t unit_us, int32_t wanted);

#endif
