#include <stdlib.h>

#include "base/failpoint.h"
#include "services/unread/counter_lookup.h"

void counter_write(struct buffer *body, const struct counter_row *row)
{
	buffer_text(body, "{\"userId\":");
	buffer_json_string(body, row->user_id);
	buffer_format(body, ",\"type\":\"" COUNTER_TYPE "\",\"count\":%lld,\"lastUpdated\":",
		(long long)row->count);
	if (!row->exists) {
		buffer_text(body, "null}");
		return;
	}
	buffer_char(body, '"');
	buffer_time(body, row->updated_us);
	buffer_text(body, "\"}");
}

static int compare_rows(const void *a, const void *b)
{
	return slice_compare(
		((const struct counter_row *)a)->user_id, ((const struct counter_row *)b)->user_id);
}

/* The users of a batch, sorted, each once. */
static struct counter_row *wanted_rows(const struct read_batch *batch, size_t *count)
{
	struct counter_row *rows = arena_array(batch->arena, struct counter_row, batch->count);
	size_t kept = 0;

	for (size_t i = 0; i < batch->count; i++)
		rows[i].user_id = batch->reads[i]->command.key;
	qsort(rows, batch->count, sizeof(*rows), compare_rows);
	for (size_t i = 0; i < batch->count; i++) {
		if (kept == 0 || compare_rows(&rows[kept - 1], &rows[i]) != 0)
			rows[kept++] = rows[i];
	}
	*count = kept;
	return rows;
}

/* ---- the cache --------------------------------------------------------------------------- */

/* Takes what the cache has; the others are copied to `missed`. NULL: there is no cache to fill. */
static struct cached_counter *ask_cache(
	struct counters *counters, struct arena *arena, struct counter_row *rows, size_t count)
{
	struct cached_counter *cached = arena_array(arena, struct cached_counter, count);

	if (!counters->reader_cache)
		return NULL;
	for (size_t i = 0; i < count; i++)
		cached[i].user_id = rows[i].user_id;
	if (counters->reader_cache->ops->counter_get(counters->reader_cache, cached, count) !=
		STATUS_OK)
		return NULL;
	for (size_t i = 0; i < count; i++) {
		if (!cached[i].hit)
			continue;
		rows[i].exists = true;
		rows[i].count = cached[i].count;
		rows[i].version = cached[i].version;
		rows[i].updated_us = cached[i].updated_us;
	}
	return cached;
}

/* Those that were missed and found, where we hold the lease. */
static void fill_cache(struct counters *counters, struct cached_counter *cached,
	const struct counter_row *rows, size_t count)
{
	size_t kept = 0;
	enum status status;

	for (size_t i = 0; i < count; i++) {
		if (cached[i].hit || cached[i].lease == 0 || !rows[i].exists)
			continue;
		cached[kept] = cached[i];
		cached[kept].count = rows[i].count;
		cached[kept].version = rows[i].version;
		cached[kept++].updated_us = rows[i].updated_us;
	}
	if (kept == 0)
		return;
	status = counters->reader_cache->ops->counter_fill(counters->reader_cache, cached, kept);
	(void)status; /* then it stays empty */
}

/* ---- the store --------------------------------------------------------------------------- */

static bool is_cached(const struct cached_counter *cached, size_t i)
{
	return cached && cached[i].hit;
}

/* Looks up the rows that the cache did not have. */
static enum status find_missed(const struct counters *counters, struct session *session,
	struct arena *arena, const struct cached_counter *cached, struct counter_row *rows,
	size_t count)
{
	struct counter_row *missed = arena_array(arena, struct counter_row, count);
	size_t missed_count = 0;
	enum status status;

	for (size_t i = 0; i < count; i++) {
		if (!is_cached(cached, i))
			missed[missed_count++] = rows[i];
	}
	if (missed_count == 0)
		return STATUS_OK;
	status = counters->repository->find(session, missed, missed_count);
	missed_count = 0;
	for (size_t i = 0; i < count && status == STATUS_OK; i++) {
		if (!is_cached(cached, i))
			rows[i] = missed[missed_count++];
	}
	return status;
}

static struct answer answer_of(
	const struct counter_lookup *lookup, const struct counter_row *rows, size_t count)
{
	const struct command *command = &lookup->read.command;
	struct counter_row wanted = {.user_id = command->key};
	const struct counter_row *row = bsearch(&wanted, rows, count, sizeof(*rows), compare_rows);
	struct buffer body = buffer_make(command->arena, command->key.len + 128);

	if (lookup->is_list)
		buffer_char(&body, '[');
	if (row->exists || !lookup->is_list)
		counter_write(&body, row);
	if (lookup->is_list)
		buffer_char(&body, ']');
	return answer_json(200, buffer_slice(&body));
}

enum status counter_look_up(void *context, struct session *session, const struct read_batch *batch)
{
	struct counters *counters = context;
	size_t count;
	struct counter_row *rows = wanted_rows(batch, &count);
	struct cached_counter *cached = ask_cache(counters, batch->arena, rows, count);
	enum status status = find_missed(counters, session, batch->arena, cached, rows, count);

	if (status != STATUS_OK)
		return status;
	if (cached) {
		FAILPOINT("counters.filling");
		fill_cache(counters, cached, rows, count);
	}
	for (size_t i = 0; i < batch->count; i++)
		batch->reads[i]->command.answer =
			answer_of((struct counter_lookup *)batch->reads[i], rows, count);
	return STATUS_OK;
}
