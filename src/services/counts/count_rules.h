/*
 * The rules of counts: what a command does to a count, and how several additions to one count
 * become one. Pure: nothing here knows a store, a request or the time of day.
 */
#ifndef QUIPU_SERVICES_COUNTS_RULES_H
#define QUIPU_SERVICES_COUNTS_RULES_H

#include "ports/count_repository.h"

enum count_verb { COUNT_VERB_ADD, COUNT_VERB_RESET, COUNT_VERB_CREATE, COUNT_VERB_REMOVE };

struct count_change {
	enum count_verb verb;
	int64_t amount; /* ADD: negative to decrease; CREATE: the initial value */
};

/* A count as the rules see it. */
struct count_state {
	bool exists;
	int64_t value;
};

/*
 * Applies one change to `state` and returns OK; `state->value` is then the answer. Returns
 * COUNT_NOT_FOUND, COUNT_EXISTS or COUNT_OVERFLOW and changes nothing if the change is refused.
 */
enum status count_apply(struct count_state *state, const struct count_change *change);

/*
 * A run of additions folded into one: their sum, and the lowest and highest intermediate sum, all
 * relative to the value before the run. Initialise with {0}.
 */
struct count_fold {
	int64_t sum;
	int64_t lowest;
	int64_t highest;
};

/* Adds one more. Returns false, and changes nothing, if the sum would overflow int64; such a run
 * cannot be folded. */
QP_MUST_CHECK bool count_fold_add(struct count_fold *fold, int64_t amount);

#endif
