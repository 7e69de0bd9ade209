/*
 * The table of the memory cache: entries by kind and user, each with an expiry. The number of
 * entries is bounded: when the table is full, it evicts the entry that was stored longest ago. The
 * table has no lock of its own.
 */
#ifndef QUIPU_ADAPTERS_CACHE_MEMORY_MEMORY_TABLE_H
#define QUIPU_ADAPTERS_CACHE_MEMORY_MEMORY_TABLE_H

#include <stdint.h>

#include "base/slice.h"

/* A power of two above MEMORY_CACHE_ENTRIES_MAX, so that chains stay short. */
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
	struct memory_entry *next; /* the next entry in its bucket */
	struct memory_entry *older;
	struct memory_entry *newer;
	int64_t ends_at_ns;
	enum memory_kind kind;
	union {
		struct memory_limit limit;
		struct memory_counter counter; /* of a MEMORY_COUNTER or MEMORY_LIST */
		int64_t lease;
	};
	size_t user_id_len;
	char user_id[];
};

/* An empty table is all zero. */
struct memory_table {
	struct memory_entry *buckets[MEMORY_TABLE_BUCKETS];
	struct memory_entry *oldest;
	struct memory_entry *newest;
	size_t count;
};

/* Returns the user's entry of that kind, or NULL if there is none or it has expired. */
struct memory_entry *memory_table_find(
	struct memory_table *table, enum memory_kind kind, struct slice user_id, int64_t now_ns);

/* Adds an entry and returns it; the caller must fill it in. The new entry replaces the user's old
 * entry of that kind, if there is one. */
struct memory_entry *memory_table_put(struct memory_table *table, enum memory_kind kind,
	struct slice user_id, int64_t ends_at_ns);

/* Removes the user's entry of that kind, if there is one. */
void memory_table_remove(struct memory_table *table, enum memory_kind kind, struct slice user_id);

void memory_table_clear(struct memory_table *table);

#endif
