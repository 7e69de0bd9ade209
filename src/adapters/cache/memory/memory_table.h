/*
 * What the memory cache remembers: entries by kind and user, each with an end. A bounded number of
 * them is kept; after that the one that was put first goes. No lock.
 */
#ifndef QUIPU_ADAPTERS_CACHE_MEMORY_MEMORY_TABLE_H
#define QUIPU_ADAPTERS_CACHE_MEMORY_MEMORY_TABLE_H

#include <stdint.h>

#include "base/slice.h"

/* A power of two above MEMORY_CACHE_ENTRIES_MAX; chains stay short. */
#define MEMORY_TABLE_BUCKETS 131072

enum memory_kind { MEMORY_LIMIT, MEMORY_COUNTER, MEMORY_LEASE, MEMORY_LIST };

struct memory_limit {
	int64_t rate_limit;
	int64_t current_count;
	int64_t window_start_us;
	int64_t window_us;
};

struct memory_counter {
	int64_t count;
	int64_t version;
	int64_t updated_us;
};

struct memory_entry {
	struct memory_entry *next; /* in its bucket */
	struct memory_entry *older;
	struct memory_entry *newer;
	int64_t ends_at_ns;
	enum memory_kind kind;
	union {
		struct memory_limit limit;
		struct memory_counter counter; /* also of a list */
		int64_t lease;
	};
	size_t user_id_len;
	char user_id[];
};

/* All zero: empty. */
struct memory_table {
	struct memory_entry *buckets[MEMORY_TABLE_BUCKETS];
	struct memory_entry *oldest;
	struct memory_entry *newest;
	size_t count;
};

/* The user's entry of that kind, NULL: there is none, or it has ended. */
struct memory_entry *memory_table_find(
	struct memory_table *table, enum memory_kind kind, struct slice user_id, int64_t now_ns);

/* A new entry, in place of the one that may be there, for the caller to fill in. */
struct memory_entry *memory_table_put(struct memory_table *table, enum memory_kind kind,
	struct slice user_id, int64_t ends_at_ns);

/* Also where there is none. */
void memory_table_remove(struct memory_table *table, enum memory_kind kind, struct slice user_id);

void memory_table_clear(struct memory_table *table);

#endif
