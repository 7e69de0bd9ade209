/*
 * The rules of counts: what a command does to a count, and how several additions to one count
 * become one. Pure: uses no store, no request and no clock.
 */
#ifndef QUIPU_SERVICES_COUNTS_RULES_H
#define QUIPU_SERVICES_COUNTS_RULES_H

#include "ports/count_repository.h"

enum count_verb {
	COUNT_VERB_ADD,
	COUNT_VERB_RESET,
	COUNT_VERB_CREATE,
	COUNT_VERB_PUT,
	COUNT_VERB_REMOVE,
};

struct count_change {
	enum count_verb verb;
	int64_t amount; /* ADD: negative to decrease; CREATE and PUT: the value */

	struct count_bounds bounds; /* for CREATE and PUT */
	bool sets_value;            /* PUT: sets_value, sets_min and sets_max say what to change */
	bool sets_min;
	bool sets_max;
	bool expects_value; /* PUT: refuse the change if the current value is not `expected` */
	int64_t expected;
};

/* The part of a count that the rules use. */
struct count_state {
	bool exists;
	int64_t value;
	struct count_bounds bounds;
};

bool count_is_within(int64_t value, const struct count_bounds *bounds);

/* Returns true if no value is within the bounds, because min is greater than max. */
bool count_bounds_are_empty(const struct count_bounds *bounds);

/*
 * Applies one change to `state` and returns OK. If the change is refused, changes nothing and
 * returns COUNT_NOT_FOUND, COUNT_EXISTS, COUNT_OVERFLOW, COUNT_OUT_OF_BOUNDS or
 * COUNT_VALUE_CONFLICT. The value of a CREATE must be within its bounds.
 */
enum status count_apply(struct count_state *state, const struct count_change *change);

/*
 * Several additions to one count, folded into one: their sum, and the lowest and highest
 * intermediate sum, all relative to the value before the first addition. Initialise with {0}.
 */
struct count_fold {
	int64_t sum;
	int64_t lowest;
	int64_t highest;
};

/* Folds in one more addition. If the sum would overflow int64, the additions cannot be folded:
 * returns false and changes nothing. */
QP_MUST_CHECK bool count_fold_add(struct count_fold *fold, int64_t amount);

#endif
