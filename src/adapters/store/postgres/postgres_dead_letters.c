/*
 * Dead letters in PostgreSQL. Resolving a letter takes one or two statements. The first statement
 * changes the row that failed, if that row exists. If letters have a table of their own, a second
 * statement marks the letter as resolved, after it has checked what the first statement did. The
 * statements are sent together. The operator's action is recorded in the same transaction.
 */
#include "adapters/store/postgres/postgres_dead_letters.h"

#include <assert.h>

static const struct pg_dead_letters *letters_of(const struct dead_letter_repository *repository)
{
	assert(repository->ops == &pg_dead_letters_ops);
	return (const struct pg_dead_letters *)repository;
}

static const Oid put_types[] = {PG_OID_TEXT, PG_OID_TEXT, PG_OID_TEXT, PG_OID_TEXT, PG_OID_TEXT,
	PG_OID_TEXT, PG_OID_BYTEA, PG_OID_INT4};

static void add_letter(struct pg_array *columns, const void *element)
{
	const struct dead_letter *letter = element;

	pg_array_text(&columns[0], letter->id);
	pg_array_text(&columns[1], letter->kind);
	pg_array_text(&columns[2], letter->type);
	pg_array_text(&columns[3], letter->key);
	pg_array_text(&columns[4], letter->position);
	pg_array_text(&columns[5], letter->error);
	pg_array_text(&columns[6], letter->payload);
	pg_array_int4(&columns[7], letter->attempt_count);
}

static const struct pg_shape put_shape = {
	.types = put_types,
	.column_count = sizeof(put_types) / sizeof(put_types[0]),
	.row_size = sizeof(struct dead_letter),
	.add = add_letter,
};

static enum status put(const struct dead_letter_repository *repository, struct session *base,
	const struct dead_letter *letters, size_t count)
{
	struct pg_session *session = pg_session_of(base);
	const struct pg_dead_letters *view = letters_of(repository);

	assert(view->put.sql);
	pg_queue_all(session, &view->put, &put_shape, letters, count);
	pg_queue_all(session, &view->put_poison, &put_shape, letters, count);
	return pg_flush(session);
}

static void fill_letter(
	struct dead_letter *letter, struct arena *arena, const PGresult *result, int row)
{
	*letter = (struct dead_letter){
		.id = pg_keep(arena, result, row, 0),
		.kind = pg_keep(arena, result, row, 1),
		.type = pg_keep(arena, result, row, 2),
		.key = pg_keep(arena, result, row, 3),
		.position = pg_keep(arena, result, row, 4),
		.error = pg_keep(arena, result, row, 5),
		.attempt_count = pg_int4(result, row, 6),
		.created_us = pg_int8(result, row, 7),
		.payload = pg_keep(arena, result, row, 8),
	};
}

static enum status list(const struct dead_letter_repository *repository, struct session *base,
	struct arena *arena, const struct dead_letter_page *page, struct dead_letter *letters,
	size_t *count)
{
	struct pg_session *session = pg_session_of(base);
	const struct pg_param params[] = {pg_param_text(page->kind), pg_param_uuid(page->after),
		pg_param_int8(session, (int64_t)page->limit)};
	enum status status = pg_run(session, &letters_of(repository)->list, params, 3);

	if (status != STATUS_OK)
		return status;
	*count = (size_t)PQntuples(session->results[0]);
	for (size_t i = 0; i < *count; i++)
		fill_letter(&letters[i], arena, session->results[0], (int)i);
	return STATUS_OK;
}

static enum status find(const struct dead_letter_repository *repository, struct session *base,
	struct arena *arena, const struct dead_letter_name *name, struct dead_letter *letter,
	bool *found)
{
	struct pg_session *session = pg_session_of(base);
	const struct pg_param params[] = {pg_param_text(name->kind), pg_param_text(name->id)};
	enum status status;

	if (!pg_is_uuid(name->id)) {
		*found = false;
		return STATUS_OK;
	}
	status = pg_run(session, &letters_of(repository)->find, params, 2);
	if (status != STATUS_OK)
		return status;
	*found = PQntuples(session->results[0]) == 1;
	if (*found)
		fill_letter(letter, arena, session->results[0], 0);
	return STATUS_OK;
}

static enum status depth(const struct dead_letter_repository *repository, struct session *base,
	struct slice kind, int64_t *count)
{
	struct pg_session *session = pg_session_of(base);
	const struct pg_param params[] = {pg_param_text(kind)};
	enum status status = pg_run(session, &letters_of(repository)->depth, params, 1);

	if (status == STATUS_OK)
		*count = pg_int8(session->results[0], 0, 0);
	return status;
}

/* Returns the letter's name for operator_actions, such as "outbox_events/7d44…". */
static struct slice name_of(
	struct pg_session *session, const struct pg_dead_letters *view, struct slice id)
{
	struct buffer name = buffer_make(&session->arena, 80);

	buffer_text(&name, view->target);
	buffer_char(&name, '/');
	buffer_add(&name, id);
	return buffer_slice(&name);
}

/* Changes the row that failed and the letter. Sets `found` to whether a letter was resolved. */
static enum status change(struct pg_session *session, const struct pg_dead_letters *view,
	const struct pg_param *params, bool *found)
{
	size_t last = 0;
	enum status status;

	pg_queue(session, &view->row, params, 3);
	if (view->letter.sql) {
		last = session->queued;
		pg_queue(session, &view->letter, params, 3);
	}
	status = pg_flush(session);
	if (status == STATUS_OK)
		*found = PQntuples(session->results[last]) == 1;
	return status;
}

static enum status resolve(const struct dead_letter_repository *repository, struct session *base,
	const struct dead_letter_resolution *resolution, bool *found)
{
	struct pg_session *session = pg_session_of(base);
	const struct pg_dead_letters *view = letters_of(repository);
	struct slice id = resolution->name.id;
	bool replay = resolution->action == DEAD_LETTER_REPLAY;
	const struct pg_param params[] = {pg_param_text(resolution->name.kind), pg_param_text(id),
		pg_param_text(slice_of(replay ? "PENDING" : "DISCARDED"))};
	enum status status = STATUS_OK;

	*found = false;
	if (pg_is_uuid(id))
		status = change(session, view, params, found);
	if (status != STATUS_OK || !*found)
		return status;
	if (replay)
		pg_claim_from(base, view->reopens, 0);
	return pg_record_action(session, &(struct operator_record){
						 .who = resolution->who,
						 .action = slice_of(replay ? "replay" : "discard"),
						 .target = name_of(session, view, id),
						 .detail = resolution->why,
					 });
}

const struct dead_letter_repository_ops pg_dead_letters_ops = {
	.put = put,
	.list = list,
	.find = find,
	.resolve = resolve,
	.depth = depth,
};
