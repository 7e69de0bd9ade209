/*
 * The lookups of a batch are merged into sorted entries without duplicates, so that the cache and
 * the store look up each user once. Without a cache, or while the cache is unavailable, all entries
 * come from the store.
 */
#include <assert.h>
#include <stdlib.h>

#include "base/failpoint.h"
#include "services/counters/counter_lookup.h"

const struct command_type counter_lookup_type = {"counter_lookup", false};

struct counter_lookup *counter_lookup_new(struct arena *arena)
{
	struct counter_lookup *lookup = arena_new(arena, struct counter_lookup);

	lookup->read.command.type = &counter_lookup_type;
	return lookup;
}

struct counter_lookup *counter_lookup_of(struct read *read)
{
	command_assert_type(&read->command, &counter_lookup_type);
	return (struct counter_lookup *)read;
}

void counter_write(struct buffer *body, const struct counter_row *row)
{
	buffer_text(body, "{\"userId\":");
	buffer_json_string(body, row->user_id);
	buffer_text(body, ",\"type\":\"" COUNTER_TYPE "\",\"count\":");
	buffer_int(body, row->count);
	buffer_text(body, ",\"lastUpdated\":");
	if (!row->exists) {
		buffer_text(body, "null}");
		return;
	}
	buffer_char(body, '"');
	buffer_time(body, row->updated_us);
	buffer_text(body, "\"}");
}

/* A value to look up: a user's counter, or the list of all counters of the user. */
struct entry {
	struct slice user_id;
	bool is_list;
	bool is_cached;
	int64_t lease; /* the right to write the value into the cache, or 0 without that right */
	struct counter_row row;
};

/* The entries of a batch, sorted and without duplicates. */
struct entries {
	struct counters *counters;
	struct arena *arena;
	struct entry *items;
	size_t count;
};

static int compare_entries(const void *a, const void *b)
{
	const struct entry *left = a, *right = b;
	int order = slice_compare(left->user_id, right->user_id);

	return order ? order : left->is_list - right->is_list;
}

static struct entries make_entries(struct counters *counters, const struct read_batch *batch)
{
	struct entries entries = {.counters = counters, .arena = batch->arena};

	entries.items = arena_array(batch->arena, struct entry, batch->count);
	for (size_t i = 0; i < batch->count; i++) {
		const struct counter_lookup *lookup = counter_lookup_of(batch->reads[i]);

		entries.items[i].user_id = lookup->read.command.key;
		entries.items[i].is_list = lookup->is_list;
	}
	qsort(entries.items, batch->count, sizeof(*entries.items), compare_entries);
	for (size_t i = 0; i < batch->count; i++) {
		if (entries.count == 0 ||
			compare_entries(&entries.items[entries.count - 1], &entries.items[i]) != 0)
			entries.items[entries.count++] = entries.items[i];
	}
	return entries;
}

/* ---- the cache --------------------------------------------------------------------------- */

/* Fills the entries that the cache has, and gets leases for the other entries. */
static void ask_cache(struct entries *entries)
{
	struct cache_session *cache = entries->counters->reader_cache;
	struct cached_counter *asked =
		arena_array(entries->arena, struct cached_counter, entries->count);

	if (!cache)
		return;
	for (size_t i = 0; i < entries->count; i++) {
		asked[i].user_id = entries->items[i].user_id;
		asked[i].is_list = entries->items[i].is_list;
	}
	if (cache->ops->counter_get(cache, asked, entries->count) != STATUS_OK)
		return;
	for (size_t i = 0; i < entries->count; i++) {
		struct entry *entry = &entries->items[i];

		entry->is_cached = asked[i].hit;
		entry->lease = asked[i].hit ? 0 : asked[i].lease;
		entry->row = (struct counter_row){
			.user_id = entry->user_id,
			.exists = asked[i].hit && asked[i].version > 0,
			.count = asked[i].count,
			.version = asked[i].version,
			.updated_us = asked[i].updated_us,
		};
	}
}

/* Writes into the cache the entries that came from the store and have a lease. */
static void fill_cache(const struct entries *entries)
{
	struct cache_session *cache = entries->counters->reader_cache;
	struct cached_counter *filled =
		arena_array(entries->arena, struct cached_counter, entries->count);
	size_t count = 0;
	enum status status;

	for (size_t i = 0; i < entries->count; i++) {
		const struct entry *entry = &entries->items[i];

		if (entry->lease == 0)
			continue;
		filled[count++] = (struct cached_counter){
			.user_id = entry->user_id,
			.is_list = entry->is_list,
			.lease = entry->lease,
			.count = entry->row.count,
			.version = entry->row.version,
			.updated_us = entry->row.updated_us,
		};
	}
	if (count == 0)
		return;
	FAILPOINT("counters.filling");
	status = cache->ops->counter_fill(cache, filled, count);
	(void)status; /* if the fill fails, the entries are just not cached */
}

/* ---- the store --------------------------------------------------------------------------- */

/* Reads from the store the entries that the cache did not have, each user once. */
static enum status ask_store(struct entries *entries, struct session *session)
{
	struct counter_row *rows = arena_array(entries->arena, struct counter_row, entries->count);
	size_t count = 0, row = 0;
	enum status status;

	for (size_t i = 0; i < entries->count; i++) {
		const struct entry *entry = &entries->items[i];

		if (!entry->is_cached &&
			(count == 0 || !slice_equal(rows[count - 1].user_id, entry->user_id)))
			rows[count++].user_id = entry->user_id;
	}
	if (count == 0)
		return STATUS_OK;
	status = entries->counters->repository->ops->find(
		entries->counters->repository, session, rows, count);
	for (size_t i = 0; i < entries->count && status == STATUS_OK; i++) {
		struct entry *entry = &entries->items[i];

		if (entry->is_cached)
			continue;
		while (!slice_equal(rows[row].user_id, entry->user_id))
			row++;
		entry->row = rows[row];
	}
	return status;
}

/* ---- answers ----------------------------------------------------------------------------- */

static void answer(struct counter_lookup *lookup, const struct entries *entries)
{
	struct command *command = &lookup->read.command;
	struct entry wanted = {.user_id = command->key, .is_list = lookup->is_list};
	const struct entry *entry = bsearch(
		&wanted, entries->items, entries->count, sizeof(*entries->items), compare_entries);
	struct buffer body = buffer_make(command->arena, command->key.len + 128);

	assert(entry);
	lookup->version = entry->row.version;
	if (lookup->is_list)
		buffer_char(&body, '[');
	if (entry->row.exists || !lookup->is_list)
		counter_write(&body, &entry->row);
	if (lookup->is_list)
		buffer_char(&body, ']');
	command->answer = answer_json(200, buffer_slice(&body));
}

enum status counter_look_up(
	struct counters *counters, struct session *session, const struct read_batch *batch)
{
	struct entries entries = make_entries(counters, batch);
	enum status status;

	ask_cache(&entries);
	status = ask_store(&entries, session);
	if (status != STATUS_OK)
		return status;
	fill_cache(&entries);
	for (size_t i = 0; i < batch->count; i++)
		answer(counter_lookup_of(batch->reads[i]), &entries);
	return STATUS_OK;
}
