/*
 * The writes of a batch by key: what services decide row by row. Groups are sorted by the bytes of
 * their key, which is the order in which rows are locked; within a group writes keep the order in
 * which they came.
 */
#ifndef QUIPU_FLOW_GROUPS_H
#define QUIPU_FLOW_GROUPS_H

#include "flow/write.h"

struct write_group {
	struct slice key;
	struct write **writes;
	size_t count;
};

/* In memory of the batch's arena. */
struct write_group *write_groups(const struct write_batch *batch, size_t *group_count);

/* The row of the group is held by somebody else: all of its writes are to be parked. */
void write_group_busy(const struct write_group *group);

#endif
