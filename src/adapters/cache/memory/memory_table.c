#include "adapters/cache/memory/memory_table.h"

#include <assert.h>
#include <stdlib.h>

#include "adapters/cache/memory/memory_cache.h"
#include "base/arena.h"
#include "base/hash.h"

static bool is_of(const struct memory_entry *entry, enum memory_kind kind, struct slice user_id)
{
	return entry->kind == kind &&
	       slice_equal(slice_make(entry->user_id, entry->user_id_len), user_id);
}

/* Returns the address of the link that points to the entry. If there is no such entry, returns the
 * address of the NULL link where it would be inserted. */
static struct memory_entry **find_slot(
	struct memory_table *table, enum memory_kind kind, struct slice user_id)
{
	size_t i = (hash_bytes(user_id) + (uint64_t)kind) % MEMORY_TABLE_BUCKETS;
	struct memory_entry **slot = &table->buckets[i];

	while (*slot && !is_of(*slot, kind, user_id))
		slot = &(*slot)->next;
	return slot;
}

static void link_newest(struct memory_table *table, struct memory_entry *entry)
{
	entry->older = table->newest;
	entry->newer = NULL;
	if (table->newest)
		table->newest->newer = entry;
	else
		table->oldest = entry;
	table->newest = entry;
	table->count++;
}

static void unlink_age(struct memory_table *table, struct memory_entry *entry)
{
	assert(table->count > 0);
	if (entry->older)
		entry->older->newer = entry->newer;
	else
		table->oldest = entry->newer;
	if (entry->newer)
		entry->newer->older = entry->older;
	else
		table->newest = entry->older;
	table->count--;
}

static void remove_at(struct memory_table *table, struct memory_entry **slot)
{
	struct memory_entry *entry = *slot;

	if (!entry)
		return;
	*slot = entry->next;
	unlink_age(table, entry);
	free(entry);
}

static void remove_oldest(struct memory_table *table)
{
	struct memory_entry *oldest = table->oldest;

	memory_table_remove(table, oldest->kind, slice_make(oldest->user_id, oldest->user_id_len));
}

struct memory_entry *memory_table_find(
	struct memory_table *table, enum memory_kind kind, struct slice user_id, int64_t now_ns)
{
	struct memory_entry **slot = find_slot(table, kind, user_id);

	if (*slot && (*slot)->ends_at_ns <= now_ns)
		remove_at(table, slot);
	else if (*slot)
		return *slot;
	return NULL;
}

struct memory_entry *memory_table_put(
	struct memory_table *table, enum memory_kind kind, struct slice user_id, int64_t ends_at_ns)
{
	struct memory_entry *entry = qp_calloc(1, sizeof(*entry) + user_id.len);
	struct memory_entry **slot;

	memory_table_remove(table, kind, user_id);
	if (table->count == MEMORY_CACHE_ENTRIES_MAX)
		remove_oldest(table);
	entry->kind = kind;
	entry->ends_at_ns = ends_at_ns;
	entry->user_id_len = user_id.len;
	if (user_id.len > 0)
		memcpy(entry->user_id, user_id.data, user_id.len);
	slot = find_slot(table, kind, user_id);
	assert(!*slot);
	*slot = entry;
	link_newest(table, entry);
	return entry;
}

void memory_table_remove(struct memory_table *table, enum memory_kind kind, struct slice user_id)
{
	remove_at(table, find_slot(table, kind, user_id));
}

void memory_table_clear(struct memory_table *table)
{
	while (table->oldest)
		remove_oldest(table);
}
