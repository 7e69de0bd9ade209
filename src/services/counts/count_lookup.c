/*
 * All waiting lookups by id become one query. A page has its own query, over a range of ids in the
 * order of the primary key.
 */
#include "services/counts/count_lookup.h"

#include <assert.h>
#include <stdlib.h>

#include "base/text.h"
#include "services/counts/count_answers.h"

/* ---- by id ------------------------------------------------------------------------------- */

const struct command_type count_lookup_type = {"count_lookup", false};

struct count_lookup *count_lookup_new(struct arena *arena)
{
	struct count_lookup *lookup = arena_new(arena, struct count_lookup);

	lookup->read.command.type = &count_lookup_type;
	return lookup;
}

struct count_lookup *count_lookup_of(struct read *read)
{
	command_assert_type(&read->command, &count_lookup_type);
	return (struct count_lookup *)read;
}

static int compare_rows(const void *a, const void *b)
{
	return slice_compare(
		((const struct count_row *)a)->item_id, ((const struct count_row *)b)->item_id);
}

size_t count_rows_unique(struct count_row *rows, size_t count)
{
	size_t kept = 0;

	qsort(rows, count, sizeof(*rows), compare_rows);
	for (size_t i = 0; i < count; i++) {
		if (kept == 0 || compare_rows(&rows[kept - 1], &rows[i]) != 0)
			rows[kept++] = rows[i];
	}
	return kept;
}

const struct count_row *count_rows_find(
	const struct count_row *rows, size_t count, struct slice item_id)
{
	struct count_row wanted = {.item_id = item_id};
	const struct count_row *row = bsearch(&wanted, rows, count, sizeof(*rows), compare_rows);

	assert(row);
	return row;
}

/* Returns the counts that the batch looks up, sorted and without duplicates. */
static struct count_row *wanted_rows(const struct read_batch *batch, size_t *row_count)
{
	struct count_row *rows;
	size_t total = 0;

	for (size_t i = 0; i < batch->count; i++)
		total += count_lookup_of(batch->reads[i])->item_count;
	rows = arena_array(batch->arena, struct count_row, total);
	total = 0;
	for (size_t i = 0; i < batch->count; i++) {
		const struct count_lookup *lookup = count_lookup_of(batch->reads[i]);

		for (size_t k = 0; k < lookup->item_count; k++)
			rows[total++].item_id = lookup->item_ids[k];
	}
	*row_count = count_rows_unique(rows, total);
	return rows;
}

static struct answer answer_lookup(
	const struct count_lookup *lookup, const struct count_row *rows, size_t row_count)
{
	struct arena *arena = lookup->read.command.arena;
	struct buffer body = buffer_make(arena, 96 * lookup->item_count + 8);
	bool first = true;

	if (!lookup->single)
		buffer_char(&body, '[');
	for (size_t i = 0; i < lookup->item_count; i++) {
		const struct count_row *row = count_rows_find(rows, row_count, lookup->item_ids[i]);

		if (!row->exists && lookup->single)
			return count_answer_not_found(arena, row->item_id);
		if (!row->exists)
			continue;
		if (!first)
			buffer_char(&body, ',');
		count_write(&body, row);
		first = false;
	}
	if (!lookup->single)
		buffer_char(&body, ']');
	return answer_json(200, buffer_slice(&body));
}

enum status count_look_up(const struct count_repository *repository, struct session *session,
	const struct read_batch *batch)
{
	size_t row_count;
	struct count_row *rows = wanted_rows(batch, &row_count);
	enum status status = repository->ops->find(repository, session, rows, row_count);

	if (status != STATUS_OK)
		return status;
	for (size_t i = 0; i < batch->count; i++)
		batch->reads[i]->command.answer =
			answer_lookup(count_lookup_of(batch->reads[i]), rows, row_count);
	return STATUS_OK;
}

/* ---- pages ------------------------------------------------------------------------------- */

static const struct command_type count_listing_type = {"count_listing", false};

static struct slice next_page(
	struct arena *arena, const struct count_listing *listing, struct slice last_id)
{
	struct buffer target = buffer_make(
		arena, listing->path.len + 3 * (listing->prefix.len + last_id.len) + 48);

	buffer_add(&target, listing->path);
	buffer_format(&target, "?limit=%zu", listing->limit);
	if (listing->prefix.len > 0) {
		buffer_text(&target, "&prefix=");
		buffer_percent(&target, listing->prefix);
	}
	buffer_text(&target, "&after=");
	buffer_percent(&target, last_id);
	return buffer_slice(&target);
}

static struct answer answer_page(
	const struct count_listing *listing, const struct count_row *rows, size_t count)
{
	struct arena *arena = listing->read.command.arena;
	size_t shown = count < listing->limit ? count : listing->limit;
	struct buffer body = buffer_make(arena, 96 * shown + 8);
	struct answer answer;

	buffer_char(&body, '[');
	for (size_t i = 0; i < shown; i++) {
		if (i > 0)
			buffer_char(&body, ',');
		count_write(&body, &rows[i]);
	}
	buffer_char(&body, ']');
	answer = answer_json(200, buffer_slice(&body));
	if (count > shown)
		answer_link_next(
			&answer, arena, next_page(arena, listing, rows[shown - 1].item_id));
	return answer;
}

static enum status look_up_page(struct read *read, struct session *session, struct arena *arena)
{
	struct count_listing *listing = (struct count_listing *)read;
	struct row_page page = {
		.after = {listing->after},
		.from = listing->prefix,
		.until = text_prefix_end(arena, listing->prefix),
		/* one extra row shows whether there is a next page */
		.limit = listing->limit + 1,
	};
	struct count_row *rows = arena_array(arena, struct count_row, page.limit);
	enum status status;

	command_assert_type(&read->command, &count_listing_type);
	status = listing->repository->ops->list(listing->repository, session, arena, &page, rows);
	if (status == STATUS_OK)
		read->command.answer = answer_page(listing, rows, page.count);
	return status;
}

struct count_listing *count_listing_new(struct arena *arena)
{
	struct count_listing *listing = arena_new(arena, struct count_listing);

	listing->read.command.type = &count_listing_type;
	listing->read.look_up = look_up_page;
	return listing;
}
