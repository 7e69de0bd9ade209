/*
 * A lane is a list under one mutex. Submitting a command signals the consumer only if the consumer
 * sleeps, so submitting to a busy consumer needs no system call. The commands that arrive while a
 * batch commits form the next batch.
 *
 * This invariant holds under the lock: for each group g of hash bits (see GROUPS), every waiting
 * command is counted in exactly one element of shares[g].
 */
#include "runtime/lane.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/steady.h"

/*
 * The limit per key works without a table of keys. 16 bits of a key's hash form two groups of 8
 * bits. For each value of each group there is a struct share, which counts the waiting commands
 * whose hash has that value in that group. So a command is counted in two shares, and it exceeds
 * the limit of its key only if both shares are full. A flooded key therefore affects another key
 * only if their hashes agree in all 16 bits (one key in 65,536). The whole hash, modulo the number
 * of lanes, chooses the lane.
 */
#define GROUPS 2
#define GROUP_BITS 8

struct share {
	size_t weight;
	size_t bytes;
};

struct lane {
	const char *name;
	size_t depth_max;
	size_t bytes_max;

	pthread_mutex_t lock; /* guards everything below */
	pthread_cond_t filled;
	struct command_list waiting;
	/* shares[g][v] has the weight and bytes of those commands in `waiting` whose hash has the
	 * value v in its group g of GROUP_BITS bits. */
	struct share shares[GROUPS][1 << GROUP_BITS];
	bool consumer_waits;
	bool woken; /* lane_wake() was called since the consumer last waited */
	bool closed;
};

struct lane *lane_new(const char *name, size_t depth_max, size_t bytes_max)
{
	struct lane *lane = qp_calloc(1, sizeof(*lane));

	assert(depth_max > 0 && bytes_max > 0);
	lane->name = name;
	lane->depth_max = depth_max;
	lane->bytes_max = bytes_max;
	pthread_mutex_init(&lane->lock, NULL);
	steady_cond_init(&lane->filled);
	return lane;
}

void lane_free(struct lane *lane)
{
	assert(!lane->waiting.first);
	pthread_cond_destroy(&lane->filled);
	pthread_mutex_destroy(&lane->lock);
	free(lane);
}

const char *lane_name(const struct lane *lane)
{
	return lane->name;
}

size_t lane_depth(struct lane *lane)
{
	size_t depth;

	pthread_mutex_lock(&lane->lock);
	depth = lane->waiting.weight;
	pthread_mutex_unlock(&lane->lock);
	return depth;
}

static struct share *share_of(struct lane *lane, const struct command *command, size_t group)
{
	uint64_t bits = command->hash >> (32 + group * GROUP_BITS);

	return &lane->shares[group][bits & ((1 << GROUP_BITS) - 1)];
}

static size_t three_quarters(size_t whole)
{
	return whole - whole / 4;
}

static bool share_has_room(
	const struct lane *lane, const struct share *share, const struct command *command)
{
	return share->weight == 0 ||
	       (share->weight + command_weight(command) <= three_quarters(lane->depth_max) &&
		       share->bytes + command->bytes <= three_quarters(lane->bytes_max));
}

static bool has_room(struct lane *lane, const struct command *command)
{
	bool has = command->hash == 0;

	if (lane->closed || lane->waiting.bytes + command->bytes > lane->bytes_max)
		return false;
	if (!weight_fits(lane->waiting.weight, command_weight(command), lane->depth_max))
		return false;
	for (size_t group = 0; group < GROUPS && !has; group++)
		has = share_has_room(lane, share_of(lane, command, group), command);
	return has;
}

static void count_in(struct lane *lane, const struct command *command)
{
	for (size_t group = 0; group < GROUPS; group++) {
		struct share *share = share_of(lane, command, group);

		share->weight += command_weight(command);
		share->bytes += command->bytes;
	}
}

static void count_out(struct lane *lane, const struct command *command)
{
	for (size_t group = 0; group < GROUPS; group++) {
		struct share *share = share_of(lane, command, group);

		share->weight -= command_weight(command);
		share->bytes -= command->bytes;
	}
}

enum status lane_submit(struct lane *lane, struct command *command)
{
	bool wake;

	pthread_mutex_lock(&lane->lock);
	if (!has_room(lane, command)) {
		pthread_mutex_unlock(&lane->lock);
		return STATUS_OVERLOADED;
	}
	command_list_push(&lane->waiting, command);
	count_in(lane, command);
	wake = lane->consumer_waits;
	lane->consumer_waits = false;
	pthread_mutex_unlock(&lane->lock);
	if (wake)
		pthread_cond_signal(&lane->filled);
	return STATUS_OK;
}

/* Waits until a command arrives, the lane is woken or closed, or monotonic time `until_ns` has
 * passed. The caller holds the lock, before and after the call. */
static void wait_for_work(struct lane *lane, int64_t until_ns)
{
	bool in_time = true;

	while (!lane->waiting.first && !lane->closed && !lane->woken && in_time) {
		lane->consumer_waits = true;
		in_time = steady_wait_until(&lane->filled, &lane->lock, until_ns);
	}
	lane->consumer_waits = false;
	lane->woken = false;
}

/* Returns whether the consumer may take `command` in addition to the commands that it has taken so
 * far: `taken` is their weight, and `max` is the limit of the weight. Returns false if `command` is
 * NULL. */
static bool fits(const struct command *command, size_t taken, size_t max)
{
	return command && taken < max && weight_fits(taken, command_weight(command), max);
}

bool lane_take(struct lane *lane, struct command_list *out, size_t max, int64_t until_ns)
{
	size_t taken = 0;
	bool more_may_come;

	pthread_mutex_lock(&lane->lock);
	if (until_ns > 0)
		wait_for_work(lane, until_ns);
	while (fits(lane->waiting.first, taken, max)) {
		struct command *command = command_list_pop(&lane->waiting);

		taken += command_weight(command);
		count_out(lane, command);
		command_list_push(out, command);
	}
	more_may_come = !lane->closed || lane->waiting.first || out->first;
	pthread_mutex_unlock(&lane->lock);
	return more_may_come;
}

void lane_wake(struct lane *lane)
{
	bool wake;

	pthread_mutex_lock(&lane->lock);
	lane->woken = true;
	wake = lane->consumer_waits;
	lane->consumer_waits = false;
	pthread_mutex_unlock(&lane->lock);
	if (wake)
		pthread_cond_signal(&lane->filled);
}

void lane_close(struct lane *lane)
{
	pthread_mutex_lock(&lane->lock);
	lane->closed = true;
	pthread_mutex_unlock(&lane->lock);
	pthread_cond_broadcast(&lane->filled);
}
