/*
 * The window of a group contains messages that were read ahead, messages that a consumer holds, and
 * acknowledged messages that come after an unacknowledged one. Thanks to the window, messages with
 * the same key keep their order even if several consumers share the group.
 *
 * Invariants: offsets grow along the window. Every message up to `head` that is not in the window
 * is acknowledged or skipped; no message after `head` has been read. The hash of a message's key
 * selects one of the group's `slots`. All TAKEN messages of one slot belong to one consumer,
 * slots[].holder, and slots[].count is their number.
 */
#include <stdlib.h>

#include "adapters/bus/local/local_internal.h"
#include "base/hash.h"

static struct local_entry *entry_at(const struct local_group *group, size_t index)
{
	assert(index < group->count);
	return &group->entries[(group->first + index) % LOCAL_WINDOW_MAX];
}

/* ---- members ----------------------------------------------------------------------------- */

static struct local_group *new_group(struct local_channel *channel, const char *name)
{
	struct local_group *group = qp_calloc(1, sizeof(*group));

	group->channel = channel;
	group->name = qp_strdup(name);
	group->subjects = bus_group_subjects(channel->declared, name);
	group->entries = qp_calloc(LOCAL_WINDOW_MAX, sizeof(group->entries[0]));
	return group;
}

struct local_group *local_group_enter(
	struct local_bus *bus, struct local_channel *channel, const char *name)
{
	struct local_group *group = bus->groups;

	while (group && (group->channel != channel || strcmp(group->name, name) != 0))
		group = group->next;
	if (!group) {
		group = new_group(channel, name);
		group->next = bus->groups;
		bus->groups = group;
	}
	group->members++;
	return group;
}

void local_group_leave(struct local_bus *bus, struct local_group *group)
{
	struct local_group **link = &bus->groups;

	assert(group->members > 0);
	if (--group->members > 0)
		return;
	while (*link != group)
		link = &(*link)->next;
	*link = group->next;
	free(group->entries);
	free(group->name);
	free(group);
}

/* ---- growing ----------------------------------------------------------------------------- */

size_t local_group_room(const struct local_group *group)
{
	return LOCAL_WINDOW_MAX - group->count;
}

void local_group_append(struct local_group *group, int64_t offset, struct slice key)
{
	struct local_entry *entry;

	assert(local_group_room(group) > 0 && offset > group->head);
	group->count++;
	entry = entry_at(group, group->count - 1);
	entry->offset = offset;
	entry->slot = (uint16_t)(key.len ? hash_bytes(key) % LOCAL_SLOTS : LOCAL_SLOTS);
	entry->state = LOCAL_FREE;
	group->head = offset;
}

void local_group_skip(struct local_group *group, int64_t offset)
{
	assert(offset > group->head);
	group->head = offset;
	group->skipped++;
}

/* Returns how many messages to read at once: `missing`, but not more than the window can hold. If
 * the group wants only some subjects, the messages that it wants may be rare, so LOCAL_SKIP_MAX
 * replaces a smaller `missing`. */
static size_t scan_limit(const struct local_group *group, size_t missing)
{
	size_t room = local_group_room(group);
	size_t limit = group->subjects && missing < LOCAL_SKIP_MAX ? LOCAL_SKIP_MAX : missing;

	return limit < room ? limit : room;
}

/* Scans in a loop, because one scan may find no message that the consumer can take: the group may
 * not want the messages, or another consumer may hold messages with the same keys. */
int local_group_read_ahead(struct local_bus *bus, struct local_group *group,
	const struct local_consumer *consumer, size_t wanted)
{
	for (;;) {
		size_t takeable;
		size_t limit;
		size_t found;
		int rc;

		pthread_mutex_lock(&bus->lock);
		takeable = local_group_takeable(group, consumer, wanted);
		limit = scan_limit(group, wanted - takeable);
		pthread_mutex_unlock(&bus->lock);
		if (takeable == wanted || limit == 0)
			return SQLITE_OK;
		rc = local_messages_scan(bus, group, limit, &found);
		if (rc != SQLITE_OK || found < limit)
			return rc;
	}
}

/* ---- taking and giving back -------------------------------------------------------------- */

static bool can_take(const struct local_group *group, const struct local_entry *entry,
	const struct local_consumer *consumer)
{
	if (entry->state != LOCAL_FREE)
		return false;
	return entry->slot == LOCAL_SLOTS || group->slots[entry->slot].count == 0 ||
	       group->slots[entry->slot].holder == consumer;
}

size_t local_group_takeable(
	const struct local_group *group, const struct local_consumer *consumer, size_t wanted)
{
	size_t takeable = 0;

	for (size_t i = 0; i < group->count && takeable < wanted; i++)
		takeable += can_take(group, entry_at(group, i), consumer);
	return takeable;
}

size_t local_group_take(struct local_group *group, const struct local_consumer *consumer,
	int64_t *offsets, size_t max)
{
	size_t taken = 0;

	for (size_t i = 0; i < group->count && taken < max; i++) {
		struct local_entry *entry = entry_at(group, i);

		if (!can_take(group, entry, consumer))
			continue;
		entry->state = LOCAL_TAKEN;
		if (entry->slot < LOCAL_SLOTS) {
			group->slots[entry->slot].holder = consumer;
			group->slots[entry->slot].count++;
		}
		offsets[taken++] = entry->offset;
	}
	return taken;
}

static struct local_entry *find(struct local_group *group, int64_t offset)
{
	size_t low = 0;
	size_t high = group->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (entry_at(group, middle)->offset < offset)
			low = middle + 1;
		else
			high = middle;
	}
	assert(low < group->count && entry_at(group, low)->offset == offset);
	return entry_at(group, low);
}

static void change(struct local_group *group, int64_t offset, enum local_state state)
{
	struct local_entry *entry = find(group, offset);

	assert(entry->state == LOCAL_TAKEN);
	entry->state = (uint8_t)state;
	if (entry->slot < LOCAL_SLOTS) {
		assert(group->slots[entry->slot].count > 0);
		group->slots[entry->slot].count--;
	}
}

void local_group_give_back(struct local_group *group, int64_t offset)
{
	change(group, offset, LOCAL_FREE);
}

void local_group_acknowledge(struct local_group *group, int64_t offset)
{
	change(group, offset, LOCAL_ACKED);
}

/* ---- the position ------------------------------------------------------------------------ */

int64_t local_group_position(const struct local_group *group, const int64_t *done, size_t count)
{
	size_t next = 0;

	for (size_t i = 0; i < group->count; i++) {
		const struct local_entry *entry = entry_at(group, i);

		if (next < count && entry->offset == done[next])
			next++;
		else if (entry->state != LOCAL_ACKED)
			return entry->offset - 1;
	}
	return group->head;
}

void local_group_shrink(struct local_group *group)
{
	while (group->count > 0 && entry_at(group, 0)->state == LOCAL_ACKED) {
		group->first = (group->first + 1) % LOCAL_WINDOW_MAX;
		group->count--;
	}
}
