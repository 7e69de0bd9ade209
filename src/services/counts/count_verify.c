/*
 * Checks the rows, and the stored answers to changes, creations and PUTs, page by page. Answers to
 * creations and PUTs are also compared with their counts. The counts are read after the answers, in
 * another snapshot. The comparison stays valid, because a change in between only makes a count
 * newer, and a count that is newer than an answer is not reported.
 */
#include "services/counts/count_verify.h"

#include "admin/verify_idempotency.h"
#include "base/json.h"
#include "base/text.h"
#include "inbound/input.h"
#include "services/counts/count_batch.h"
#include "services/counts/count_lookup.h"

/* ---- counts ------------------------------------------------------------------------------ */

static void check_count(struct verify_page *page, const struct count_row *row)
{
	struct slice id = row->item_id;

	if (id.len == 0 || id.len > ID_BYTES_MAX || !text_is_utf8(id) || text_has_control(id))
		verify_differ(
			page, id, "id", "%.*s: a count cannot have this id", (int)id.len, id.data);
	if (!count_is_within(row->value, &row->bounds))
		verify_differ(page, id, "out-of-bounds",
			"%.*s: the value %lld is outside the bounds of the count", (int)id.len,
			id.data, (long long)row->value);
	verify_time(page, id, "last_updated_at", row->updated_us);
}

static enum status look_at_counts(
	const void *context, struct session *session, struct verify_page *page)
{
	const struct counts *counts = context;
	struct count_row *rows = arena_array(page->arena, struct count_row, page->rows.limit);
	enum status status = counts->repository->ops->list(
		counts->repository, session, page->arena, &page->rows, rows);

	if (status != STATUS_OK || page->rows.count == 0)
		return status;
	for (size_t i = 0; i < page->rows.count; i++)
		check_count(page, &rows[i]);
	verify_finish(page, rows[page->rows.count - 1].item_id, (struct slice){0});
	return STATUS_OK;
}

/* ---- stored answers ---------------------------------------------------------------------- */

/* The content of a stored answer. Texts are allocated from the arena of the page. */
struct kept_count {
	struct slice item_id;
	int64_t value;
	int64_t updated_us; /* only in answers to creations and PUTs */
};

static struct slice string_of(struct arena *arena, const json_t *object, const char *name)
{
	const json_t *value = json_object_get(object, name);

	return arena_copy(arena, slice_make(json_string_value(value), json_string_length(value)));
}

/* Reads a stored answer. If `is_whole` is true, the request was a creation or a PUT, and the answer
 * contains the whole count; otherwise the request was a change. Returns false if the service never
 * sends an answer of this form to such a request. */
static bool read_kept(
	struct arena *arena, const struct kept_answer *key, bool is_whole, struct kept_count *kept)
{
	char why[JSON_WHY_SIZE];
	json_t *body = json_parse_object(key->body, why);
	const json_t *value = json_object_get(body, is_whole ? "currentValue" : "value");
	bool good = json_is_integer(value);

	kept->value = json_integer_value(value);
	kept->item_id = string_of(arena, body, "itemId");
	if (is_whole)
		good = good &&
		       text_to_time_us(string_of(arena, body, "lastUpdatedAt"), &kept->updated_us);
	json_decref(body);
	return good && kept->item_id.len > 0;
}

static void differ_in_answer(struct verify_page *page, const struct kept_answer *key)
{
	struct slice id = verify_idempotency_id(page, key);

	verify_differ(page, id, "answer", "%.*s: the stored answer does not fit the request",
		(int)id.len, id.data);
}

/* Returns whether the stored answer can be the answer to a batch: a value or a problem for each
 * change. */
static bool is_batch_answer(const struct kept_answer *key)
{
	char why[JSON_WHY_SIZE];
	json_t *body = json_parse_object(key->body, why);
	const json_t *results = json_object_get(body, "results");
	bool good = json_array_size(results) > 0;

	for (size_t i = 0; good && i < json_array_size(results); i++) {
		const json_t *result = json_array_get(results, i);

		good = json_is_string(json_object_get(result, "itemId")) &&
		       json_is_integer(json_object_get(result, "value")) !=
			       json_is_object(json_object_get(result, "problem"));
	}
	json_decref(body);
	return good;
}

/* Returns whether the stored answer can be the answer to a change. */
static bool is_change_answer(struct arena *arena, const struct kept_answer *key)
{
	static const char batch[] = "POST /api/v1/counts/batch";
	static const char reset[] = "POST /api/v1/counts/{itemId}/reset";
	struct kept_count kept;

	if (slice_starts_with(key->scope, batch))
		return is_batch_answer(key);
	return read_kept(arena, key, false, &kept) &&
	       (!slice_starts_with(key->scope, reset) || kept.value == 0);
}

static enum status check_changes(const void *context, struct session *session,
	struct verify_page *page, const struct kept_answer *keys, size_t count)
{
	(void)context;
	(void)session;
	for (size_t i = 0; i < count; i++) {
		if (keys[i].http_status == 200 && !is_change_answer(page->arena, &keys[i]))
			differ_in_answer(page, &keys[i]);
	}
	return STATUS_OK;
}

/* Fills `rows` with the item ids of the answers in `kept`, sorted and without duplicates. Returns
 * how many rows there are. */
static size_t rows_of(const struct kept_count *kept, size_t count, struct count_row *rows)
{
	for (size_t i = 0; i < count; i++)
		rows[i] = (struct count_row){.item_id = kept[i].item_id};
	return count_rows_unique(rows, count);
}

/* Compares stored answers with the current counts. A count that was changed after the answers were
 * read is only newer, and a missing count may have been deleted, so neither is reported. */
static enum status compare_with_counts(const struct counts *counts, struct session *session,
	struct verify_page *page, const struct kept_count *kept, size_t count)
{
	struct count_row *rows = arena_array(page->arena, struct count_row, count);
	size_t row_count = rows_of(kept, count, rows);
	enum status status =
		counts->repository->ops->find(counts->repository, session, rows, row_count);

	for (size_t i = 0; status == STATUS_OK && i < count; i++) {
		const struct count_row *row = count_rows_find(rows, row_count, kept[i].item_id);

		if (row->exists && row->updated_us < kept[i].updated_us - VERIFY_SKEW_US)
			verify_differ(page, row->item_id, "older-than-kept",
				"%.*s: according to a stored answer, the count was created or set "
				"%lld s after the last_updated_at of its row",
				(int)row->item_id.len, row->item_id.data,
				(long long)((kept[i].updated_us - row->updated_us) / 1000000));
	}
	return status;
}

/* Checks the answers that contain a whole count: 201 for creations, 200 for PUTs. */
static enum status check_whole(const void *context, struct session *session,
	struct verify_page *page, const struct kept_answer *keys, size_t count)
{
	struct kept_count *kept = arena_array(page->arena, struct kept_count, count);
	size_t kept_count = 0;

	for (size_t i = 0; i < count; i++) {
		if (keys[i].http_status >= 300)
			continue;
		if (read_kept(page->arena, &keys[i], true, &kept[kept_count]))
			kept_count++;
		else
			differ_in_answer(page, &keys[i]);
	}
	if (kept_count == 0)
		return STATUS_OK;
	return compare_with_counts(context, session, page, kept, kept_count);
}

static enum status look_at_changes(
	const void *context, struct session *session, struct verify_page *page)
{
	static const struct verify_idempotency changes = {
		.prefix = "POST /api/v1/counts/", .check = check_changes};

	return verify_idempotency_look(&changes, context, session, page);
}

static enum status look_at_creations(
	const void *context, struct session *session, struct verify_page *page)
{
	static const struct verify_idempotency creations = {
		.prefix = "POST /api/v1/internal/counts", .check = check_whole};

	return verify_idempotency_look(&creations, context, session, page);
}

static enum status look_at_puts(
	const void *context, struct session *session, struct verify_page *page)
{
	static const struct verify_idempotency puts = {
		.prefix = "PUT /api/v1/internal/counts/", .check = check_whole};

	return verify_idempotency_look(&puts, context, session, page);
}

struct verifier counts_verifier(const struct counts *counts)
{
	static const struct verify_part parts[] = {
		{"counts", look_at_counts},
		{"changes", look_at_changes},
		{"creations", look_at_creations},
		{"puts", look_at_puts},
	};

	return (struct verifier){
		.name = "counts",
		.parts = parts,
		.part_count = sizeof(parts) / sizeof(parts[0]),
		.context = counts,
		.lanes = &counts->lanes,
	};
}
