/*
 * The rules of counts, pure: what a command does to a count, and how many commands on one count
 * become one addition. Nothing here knows a store, a request or the time of day.
 */
#ifndef QUIPU_SERVICES_COUNTS_RULES_H
#define QUIPU_SERVICES_COUNTS_RULES_H

#include "ports/count_repository.h"

enum count_verb { COUNT_VERB_ADD, COUNT_VERB_RESET, COUNT_VERB_CREATE, COUNT_VERB_REMOVE };

struct count_change {
	enum count_verb verb;
	int64_t amount; /* ADD: negative to decrease. CREATE: the initial value. */
};

/* A count as the rules see it. */
struct count_state {
	bool exists;
	int64_t value;
};

/*
 * Applies one change to `state`. OK: it changed, `state->value` is the answer. COUNT_NOT_FOUND,
 * COUNT_EXISTS, COUNT_OVERFLOW: nothing changed.
 */
enum status count_apply(struct count_state *state, const struct count_change *change);

/*
 * A run of additions as one: their sum, and the lowest and highest value on the way, both seen from
 * the start. Begin with {0}.
 */
struct count_fold {
	int64_t sum;
	int64_t lowest;
	int64_t highest;
};

/* Adds one more. false: the sum itself would leave int64, the run cannot be folded. */
QP_MUST_CHECK bool count_fold_add(struct count_fold *fold, int64_t amount);

/* The least and the most a count may hold so that no step of the fold leaves int64. */
int64_t count_fold_least(const struct count_fold *fold);
int64_t count_fold_most(const struct count_fold *fold);

#endif
