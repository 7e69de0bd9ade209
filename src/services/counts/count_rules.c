#include "services/counts/count_rules.h"

#include <assert.h>

bool count_is_within(int64_t value, const struct count_bounds *bounds)
{
	return !(bounds->min.is_set && value < bounds->min.value) &&
	       !(bounds->max.is_set && value > bounds->max.value);
}

bool count_bounds_are_empty(const struct count_bounds *bounds)
{
	return bounds->min.is_set && bounds->max.is_set && bounds->min.value > bounds->max.value;
}

static enum status set_value(struct count_state *state, int64_t value)
{
	if (!count_is_within(value, &state->bounds))
		return STATUS_COUNT_OUT_OF_BOUNDS;
	state->value = value;
	return STATUS_OK;
}

/* A sum that overflows int64 upwards also exceeds the count's max, and a sum that overflows
 * downwards is also below its min. If the count has that bound, the change is therefore refused
 * with OUT_OF_BOUNDS; otherwise it is refused with OVERFLOW. */
static enum status add(struct count_state *state, int64_t amount)
{
	const struct count_bound *bound = amount < 0 ? &state->bounds.min : &state->bounds.max;
	int64_t sum;

	if (!state->exists)
		return STATUS_COUNT_NOT_FOUND;
	if (__builtin_add_overflow(state->value, amount, &sum))
		return bound->is_set ? STATUS_COUNT_OUT_OF_BOUNDS : STATUS_COUNT_OVERFLOW;
	return set_value(state, sum);
}

static enum status reset(struct count_state *state)
{
	return state->exists ? set_value(state, 0) : STATUS_COUNT_NOT_FOUND;
}

static enum status create(struct count_state *state, const struct count_change *change)
{
	assert(count_is_within(change->amount, &change->bounds));
	if (state->exists)
		return STATUS_COUNT_EXISTS;
	*state = (struct count_state){
		.exists = true, .value = change->amount, .bounds = change->bounds};
	return STATUS_OK;
}

static enum status put(struct count_state *state, const struct count_change *change)
{
	struct count_state next = *state;

	if (!state->exists)
		return STATUS_COUNT_NOT_FOUND;
	if (change->expects_value && state->value != change->expected)
		return STATUS_COUNT_VALUE_CONFLICT;
	if (change->sets_value)
		next.value = change->amount;
	if (change->sets_min)
		next.bounds.min = change->bounds.min;
	if (change->sets_max)
		next.bounds.max = change->bounds.max;
	if (!count_is_within(next.value, &next.bounds))
		return STATUS_COUNT_OUT_OF_BOUNDS;
	*state = next;
	return STATUS_OK;
}

static enum status remove_count(struct count_state *state)
{
	if (!state->exists)
		return STATUS_COUNT_NOT_FOUND;
	*state = (struct count_state){0};
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
		return create(state, change);
	case COUNT_VERB_PUT:
		return put(state, change);
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
