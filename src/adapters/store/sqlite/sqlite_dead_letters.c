/*
 * Dead letters in SQLite. A letter is resolved with one or two statements. The first statement
 * changes the row that failed, if that row still exists (a poison message never has a row). If the
 * letters have a table of their own, a second statement changes the letter itself. When an operator
 * replays a failed row, the second statement changes the letter only if the first statement has set
 * the row to PENDING. The operator's action is recorded in the same transaction.
 */
#include "adapters/store/sqlite/sqlite_dead_letters.h"

#include <assert.h>
#include <stdio.h>

#define TARGET_SIZE 128 /* enough for the name of a table and a UUID */

static const struct sqlite_dead_letters *letters_of(const struct dead_letter_repository *repository)
{
	assert(repository->ops == &sqlite_dead_letters_ops);
	return (const struct sqlite_dead_letters *)repository;
}

static enum status put(const struct dead_letter_repository *repository, struct session *base,
	const struct dead_letter *letters, size_t count)
{
	struct sqlite_session *session = sqlite_session_of(base);
	struct sqlite_query query = sqlite_query_open(session, letters_of(repository)->put);
	int64_t now_us = sqlite_now_us(session);

	for (size_t i = 0; i < count; i++) {
		const struct dead_letter *letter = &letters[i];

		sqlite_query_change(
			&query, SQLITE_VALUES(sqlite_text(letter->id), sqlite_text(letter->kind),
					sqlite_text(letter->type), sqlite_text(letter->key),
					sqlite_text(letter->position), sqlite_text(letter->error),
					sqlite_blob(letter->payload),
					sqlite_int(letter->attempt_count), sqlite_int(now_us)));
	}
	return sqlite_query_close(&query);
}

static void fill_letter(
	struct dead_letter *letter, struct arena *arena, const struct sqlite_query *query)
{
	*letter = (struct dead_letter){
		.id = sqlite_query_keep(query, arena, 0),
		.kind = sqlite_query_keep(query, arena, 1),
		.type = sqlite_query_keep(query, arena, 2),
		.key = sqlite_query_keep(query, arena, 3),
		.position = sqlite_query_keep(query, arena, 4),
		.error = sqlite_query_keep(query, arena, 5),
		.attempt_count = (int32_t)sqlite_query_int(query, 6),
		.created_us = sqlite_query_int(query, 7),
		.payload = sqlite_query_keep(query, arena, 8),
	};
}

static enum status read_page(struct sqlite_session *session, const char *sql, struct arena *arena,
	const struct dead_letter_page *page, struct dead_letter *letters, size_t *count)
{
	struct sqlite_query query = sqlite_query_open(session, sql);

	*count = 0;
	sqlite_query_start(&query, SQLITE_VALUES(sqlite_text(page->kind), sqlite_text(page->after),
					   sqlite_int((int64_t)page->limit)));
	while (sqlite_query_next(&query))
		fill_letter(&letters[(*count)++], arena, &query);
	return sqlite_query_close(&query);
}

static enum status list(const struct dead_letter_repository *repository, struct session *base,
	struct arena *arena, const struct dead_letter_page *page, struct dead_letter *letters,
	size_t *count)
{
	struct sqlite_session *session = sqlite_session_of(base);
	enum status status = sqlite_snapshot_begin(session);

	if (status == STATUS_OK)
		status = read_page(
			session, letters_of(repository)->list, arena, page, letters, count);
	if (status == STATUS_OK)
		status = sqlite_snapshot_end(session);
	return status;
}

static enum status find(const struct dead_letter_repository *repository, struct session *base,
	struct arena *arena, const struct dead_letter_name *name, struct dead_letter *letter,
	bool *found)
{
	struct sqlite_session *session = sqlite_session_of(base);
	bool alone = !session->active;
	enum status status = alone ? sqlite_snapshot_begin(session) : STATUS_OK;
	struct sqlite_query query;

	if (status != STATUS_OK)
		return status;
	query = sqlite_query_open(session, letters_of(repository)->find);
	sqlite_query_start(&query, SQLITE_VALUES(sqlite_text(name->kind), sqlite_text(name->id)));
	*found = sqlite_query_next(&query);
	if (*found)
		fill_letter(letter, arena, &query);
	status = sqlite_query_close(&query);
	if (status == STATUS_OK && alone)
		status = sqlite_snapshot_end(session);
	return status;
}

static enum status read_depth(
	struct sqlite_session *session, const char *sql, struct slice kind, int64_t *count)
{
	struct sqlite_query query = sqlite_query_open(session, sql);

	sqlite_query_start(&query, SQLITE_VALUES(sqlite_text(kind)));
	if (sqlite_query_next(&query))
		*count = sqlite_query_int(&query, 0);
	return sqlite_query_close(&query);
}

static enum status depth(const struct dead_letter_repository *repository, struct session *base,
	struct slice kind, int64_t *count)
{
	struct sqlite_session *session = sqlite_session_of(base);
	enum status status = sqlite_snapshot_begin(session);

	if (status == STATUS_OK)
		status = read_depth(session, letters_of(repository)->depth, kind, count);
	if (status == STATUS_OK)
		status = sqlite_snapshot_end(session);
	return status;
}

/* Records the operator's action. Its target looks like "outbox_events/7d44…". */
static enum status record(struct sqlite_session *session, const struct sqlite_dead_letters *view,
	const struct dead_letter_resolution *resolution)
{
	struct slice id = resolution->name.id;
	char target[TARGET_SIZE];

	snprintf(target, sizeof(target), "%s/%.*s", view->target, (int)id.len, id.data);
	return sqlite_record_action(session,
		&(struct operator_record){
			.who = resolution->who,
			.action = slice_of(
				resolution->action == DEAD_LETTER_REPLAY ? "replay" : "discard"),
			.target = slice_of(target),
			.detail = resolution->why,
		});
}

static enum status change(struct sqlite_session *session, const char *sql,
	const struct sqlite_value *values, size_t count, bool *found)
{
	struct sqlite_query query = sqlite_query_open(session, sql);

	*found = sqlite_query_change(&query, values, count) == 1;
	return sqlite_query_close(&query);
}

static enum status resolve(const struct dead_letter_repository *repository, struct session *base,
	const struct dead_letter_resolution *resolution, bool *found)
{
	struct sqlite_session *session = sqlite_session_of(base);
	const struct sqlite_dead_letters *view = letters_of(repository);
	bool replay = resolution->action == DEAD_LETTER_REPLAY;
	const struct sqlite_value values[] = {sqlite_text(resolution->name.kind),
		sqlite_text(resolution->name.id),
		sqlite_text(slice_of(replay ? "PENDING" : "DISCARDED")),
		sqlite_int(sqlite_now_us(session))};
	enum status status = change(session, view->row, values, 3, found);

	if (status == STATUS_OK && view->letter)
		status = change(session, view->letter, values, 4, found);
	if (status == STATUS_OK && *found)
		status = record(session, view, resolution);
	return status;
}

const struct dead_letter_repository_ops sqlite_dead_letters_ops = {
	.put = put,
	.list = list,
	.find = find,
	.resolve = resolve,
	.depth = depth,
};
