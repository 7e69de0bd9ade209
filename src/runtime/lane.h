/*
 * A lane is a queue of commands in front of one consumer thread. It is bounded by the commands'
 * total weight (1 for each change) and by their bytes. A full lane refuses commands at once, so
 * that the queue in front of the database never grows without limit and its length is visible.
 *
 * One key may fill at most three quarters of a lane, so that a popular or flooded key leaves room
 * for other keys.
 */
#ifndef QUIPU_RUNTIME_LANE_H
#define QUIPU_RUNTIME_LANE_H

#include "runtime/command.h"

struct lane;

/* Does not copy `name`, which must outlive the lane. */
struct lane *lane_new(const char *name, size_t depth_max, size_t bytes_max);

/* The lane must be empty, and no thread may still use it. */
void lane_free(struct lane *lane);

const char *lane_name(const struct lane *lane);

/* Returns the weight of the commands that are waiting now. Thread-safe. */
size_t lane_depth(struct lane *lane);

/*
 * Thread-safe; never blocks. Returns OK if the lane now owns the command. Returns OVERLOADED, and
 * leaves the command with the caller, if the lane is full, has no room left for the command's key,
 * or is closed. An empty lane takes a command of any weight.
 */
QP_MUST_CHECK enum status lane_submit(struct lane *lane, struct command *command);

/*
 * For the consumer: appends waiting commands to `out`, up to a total weight of `max`. If the first
 * command alone is heavier than `max`, appends only this command. If no command waits, blocks until
 * a command arrives, the lane is closed, lane_wake() is called, or monotonic time `until_ns` has
 * passed; INT64_MAX waits without limit, 0 does not wait. Returns false if the lane is closed and
 * both the lane and `out` are empty; the consumer can then end. Otherwise returns true.
 */
bool lane_take(struct lane *lane, struct command_list *out, size_t max, int64_t until_ns);

/* Makes a waiting lane_take() return without commands. If no lane_take() is waiting, the next one
 * returns instead of waiting. Thread-safe; never blocks. */
void lane_wake(struct lane *lane);

/* Refuses new commands from now on; commands that already wait can still be taken. Thread-safe. */
void lane_close(struct lane *lane);

#endif
