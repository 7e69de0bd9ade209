#include "services/counts/count_rules.h"

static enum status add(struct count_state *state, int64_t amount)
{
	if (!state->exists)
		return STATUS_COUNT_NOT_FOUND;
	if (__builtin_add_overflow(state->value, amount, &amount))
		return STATUS_COUNT_OVERFLOW;
	state->value = amount;
	return STATUS_OK;
}

static enum status reset(struct count_state *state)
{
	if (!state->exists)
		return STATUS_COUNT_NOT_FOUND;
	state->value = 0;
	return STATUS_OK;
}

static enum status create(struct count_state *state, int64_t value)
{
	if (state->exists)
		return STATUS_COUNT_EXISTS;
	state->exists = true;
	state->value = value;
	return STATUS_OK;
}

static enum status remove_count(struct count_state *state)
{
	if (!state->exists)
		return STATUS_COUNT_NOT_FOUND;
	state->exists = false;
	state->value = 0;
	return STATUS_OK;
}

enum status count_apply(struct count_state *state, const struct count_change *change)
{
	switch (change->verb) {
	case COUNT_VERB_ADD:
		return add(state, change->amount);
	case COUNT_VERB_RESET:
		return reset(state);
	case COUNT_VERB_CREATE:
		return create(state, change->amount);
	case COUNT_VERB_REMOVE:
		return remove_count(state);
	}
	return STATUS_INTERNAL;
}

bool count_fold_add(struct count_fold *fold, int64_t amount)
{
	int64_t sum;

	if (__builtin_add_overflow(fold->sum, amount, &sum))
		return false;
	fold->sum = sum;
	if (sum < fold->lowest)
		fold->lowest = sum;
	if (sum > fold->highest)
		fold->highest = sum;
	return true;
}
