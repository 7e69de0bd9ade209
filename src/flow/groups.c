#include "flow/groups.h"

#include <stdlib.h>

static int compare_writes(const void *a, const void *b)
{
	const struct write *left = *(struct write *const *)a;
	const struct write *right = *(struct write *const *)b;
	int order = slice_compare(left->command.key, right->command.key);

	if (order != 0)
		return order;
	return (left->position > right->position) - (left->position < right->position);
}

struct write_group *write_groups(const struct write_batch *batch, size_t *group_count)
{
	struct write **sorted = arena_array(batch->arena, struct write *, batch->count);
	struct write_group *groups = arena_array(batch->arena, struct write_group, batch->count);
	struct write_group *group = NULL;

	memcpy(sorted, batch->writes, batch->count * sizeof(*sorted));
	qsort(sorted, batch->count, sizeof(*sorted), compare_writes);
	*group_count = 0;
	for (size_t i = 0; i < batch->count; i++) {
		if (!group || !slice_equal(group->key, sorted[i]->command.key)) {
			group = &groups[(*group_count)++];
			group->key = sorted[i]->command.key;
			group->writes = &sorted[i];
		}
		group->count++;
	}
	return groups;
}

void write_group_busy(const struct write_group *group)
{
	for (size_t i = 0; i < group->count; i++)
		group->writes[i]->fate = WRITE_BUSY;
}
