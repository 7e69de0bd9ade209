/*
 * A lane is a queue of commands in front of one worker thread, bounded by count and by bytes. A
 * full lane refuses at once: waiting happens in the open, in front of the database, never without
 * end.
 *
 * One key gets three quarters of a lane at most, so that a key which everybody wants, or an
 * attacker floods, leaves room for the others.
 */
#ifndef QUIPU_RUNTIME_LANE_H
#define QUIPU_RUNTIME_LANE_H

#include "runtime/command.h"

struct lane;

/* `name` is kept, not copied. */
struct lane *lane_new(const char *name, size_t depth_max, size_t bytes_max);
void lane_free(struct lane *lane);

const char *lane_name(const struct lane *lane);

/* How many commands wait now. Any thread. */
size_t lane_depth(struct lane *lane);

/*
 * Any thread, never blocks. OK: the lane owns the command. OVERLOADED: it does not, because the
 * lane is full, or has no more room for the command's key, or is closed.
 */
QP_MUST_CHECK enum status lane_submit(struct lane *lane, struct command *command);

/*
 * The worker's side: appends up to `max` waiting commands to `out`. Waits for the first one until
 * steady time `until_ns` (INT64_MAX: for as long as it takes; 0: not at all). false: the lane is
 * closed and empty, nothing will come any more.
 */
bool lane_take(struct lane *lane, struct command_list *out, size_t max, int64_t until_ns);

/* Nothing more is accepted; what waits can still be taken. Any thread. */
void lane_close(struct lane *lane);

#endif
