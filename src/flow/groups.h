/*
 * Groups the writes of a batch by key, for services that decide row by row. Groups are sorted by
 * the bytes of their key, which is the order in which rows are locked; within a group, writes keep
 * the order in which they arrived.
 */
#ifndef QUIPU_FLOW_GROUPS_H
#define QUIPU_FLOW_GROUPS_H

#include "flow/write.h"

struct write_group {
	struct slice key;
	struct write **writes;
	size_t count;
};

/* Returns the groups, allocated from the arena of the batch, and sets `*group_count` to their
 * number. */
struct write_group *write_groups(const struct write_batch *batch, size_t *group_count);

/* Marks all writes of the group as BUSY, because another session holds their row. */
void write_group_busy(const struct write_group *group);

#endif
