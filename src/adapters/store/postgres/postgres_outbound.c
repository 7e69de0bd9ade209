/*
 * Messages on their way to a provider, in PostgreSQL, with their dead letters (outbound_dlq).
 *
 * Invariant: a FAILED message has an unresolved letter with the same id, because one transaction
 * sets the status and writes the letter.
 */
#include "adapters/store/postgres/postgres_repositories.h"

#define OCCURRED_US PG_TO_US("occurred_at")
#define CREATED_US PG_TO_US("created_at")
#define SENT_US PG_TO_US("sent_at")

/* clang-format off */
/* Rows are claimed in the order of created_at. To keep the order of the messages in a batch, each
 * message gets a created_at that is one microsecond after that of the previous message. */
static const struct pg_statement put_statement = {
	"quipu_outbound_put",
	"INSERT INTO outbound_messages (id, message_id, aggregate_key, trace_id, payload, "
	"    occurred_at, created_at) "
	"SELECT id::uuid, message_id, user_id, trace, payload, " PG_FROM_US("occurred_us") ", "
	"    (SELECT quipu_now()) + n * interval '1 microsecond' "
	"FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bytea[], $6::int8[]) "
	"    WITH ORDINALITY AS w(id, message_id, user_id, trace, payload, occurred_us, n) "
	"ON CONFLICT (id) DO NOTHING "
	"RETURNING id::text",
};

/* Compares ids with `= ANY (ARRAY[…])`, so that the planner can only look up ids in the index; see
 * PG_CLAIM_IS_OURS. */
static const struct pg_statement note_statement = {
	"quipu_outbound_note",
	"INSERT INTO queued_messages (id, user_id, created_at) "
	"SELECT id::uuid, user_id, " PG_FROM_US("created_us") " "
	"FROM unnest($1::text[], $2::text[], $3::int8[]) AS w(id, user_id, created_us) "
	"WHERE NOT EXISTS ("
	"  SELECT 1 "
	"  FROM outbound_messages o "
	"  WHERE o.id = ANY (ARRAY[w.id::uuid])) "
	"ON CONFLICT (id) DO NOTHING",
};

static const struct pg_statement unqueue_statement = {
	"quipu_outbound_unqueue",
	"DELETE FROM queued_messages WHERE id = ANY ($1::text[]::uuid[])",
};

/* A transaction does not lock what it does not find in sent_messages. put() therefore looks there
 * after it has inserted the messages and deleted them from queued_messages. These statements wait
 * for an eraser that deletes the same messages; whatever it has added to sent_messages, this
 * statement then sees. */
static const struct pg_statement erased_statement = {
	"quipu_outbound_erased",
	"SELECT 1 FROM sent_messages WHERE message_id = ANY ($1::text[])",
};

static const struct pg_statement know_statement = {
	"quipu_outbound_know",
	"SELECT w.n FROM " PG_PLACES " JOIN outbound_messages o ON o.id = w.id::uuid",
};

static const struct pg_statement find_statement = {
	"quipu_outbound_find",
	"SELECT message_id, aggregate_key, " OCCURRED_US ", status, coalesce(last_error, ''), "
	"    attempt_count, " CREATED_US ", coalesce(" SENT_US ", 0), 1 AS place "
	"FROM outbound_messages "
	"WHERE id = $1::text::uuid "
	"UNION ALL "
	"SELECT id::text, user_id, " CREATED_US ", 'QUEUED', '', 0, 0::int8, 0::int8, 2 "
	"FROM queued_messages "
	"WHERE id = $1::text::uuid "
	"ORDER BY place",
};

/* If note() and put() run for the same message at the same time, note() may insert a row into
 * queued_messages that put() does not see and therefore does not delete. This statement deletes
 * such rows, and all rows of queued_messages that are older than $1 microseconds. */
static const struct pg_statement sweep_statement = {
	"quipu_outbound_sweep_queued",
	"DELETE FROM queued_messages "
	"WHERE id = ANY (ARRAY("
	"    SELECT q.id "
	"    FROM queued_messages q "
	"    WHERE q.created_at < (SELECT quipu_now()) - $1::int8 * interval '1 microsecond' "
	"      OR EXISTS (SELECT 1 FROM outbound_messages o WHERE o.id = q.id) "
	"    LIMIT $2::int8 FOR UPDATE OF q SKIP LOCKED)) "
	"RETURNING 1",
};
/* clang-format on */

static const struct pg_claims claims =
	PG_CLAIMS("outbound_messages", "id", "occurred_at", "SENDING", "SENT", "sent_at",
		"'SENT', 'FAILED', 'DISCARDED'", "coalesce(sent_at, created_at)");

static const Oid put_types[] = {
	PG_OID_TEXT, PG_OID_TEXT, PG_OID_TEXT, PG_OID_TEXT, PG_OID_BYTEA, PG_OID_INT8};

static void add_message(struct pg_array *columns, const void *element)
{
	const struct outbound_message *message = element;

	pg_array_text(&columns[0], message->id);
	pg_array_text(&columns[1], message->message_id);
	pg_array_text(&columns[2], message->user_id);
	pg_array_text(&columns[3], message->trace);
	pg_array_text(&columns[4], message->payload);
	pg_array_int8(&columns[5], message->created_us);
}

static const struct pg_shape put_shape = {
	.types = put_types,
	.column_count = sizeof(put_types) / sizeof(put_types[0]),
	.row_size = sizeof(struct outbound_message),
	.add = add_message,
};

static const Oid note_types[] = {PG_OID_TEXT, PG_OID_TEXT, PG_OID_INT8};

static void add_note(struct pg_array *columns, const void *element)
{
	const struct outbound_message *message = element;

	pg_array_text(&columns[0], message->id);
	pg_array_text(&columns[1], message->user_id);
	pg_array_int8(&columns[2], message->created_us);
}

static const struct pg_shape note_shape = {
	.types = note_types,
	.column_count = sizeof(note_types) / sizeof(note_types[0]),
	.row_size = sizeof(struct outbound_message),
	.add = add_note,
};

static enum status note(const struct outbound_repository *repository, struct session *base,
	const struct outbound_message *messages, size_t count)
{
	struct pg_session *session = pg_session_of(base);

	pg_need_two_phases(session);
	pg_queue_all(session, &note_statement, &note_shape, messages, count);
	return pg_flush(session);
}

/* Sets is_new. `result` has the ids of the new messages, in the order of `messages`. */
static void flag_new(const PGresult *result, struct outbound_message *messages, size_t count)
{
	int row = 0;

	for (size_t i = 0; i < count; i++) {
		messages[i].is_new = row < PQntuples(result) &&
				     slice_equal(pg_slice(result, row, 0), messages[i].id);
		row += messages[i].is_new;
	}
}

static enum status put(const struct outbound_repository *repository, struct session *base,
	struct outbound_message *messages, size_t count)
{
	struct pg_session *session = pg_session_of(base);
	struct pg_param ids = pg_param_ids(session, &messages->id, sizeof(*messages), count);
	struct pg_param message_ids =
		pg_param_ids(session, &messages->message_id, sizeof(*messages), count);
	enum status status;

	pg_queue_all(session, &put_statement, &put_shape, messages, count);
	pg_queue(session, &unqueue_statement, &ids, 1);
	pg_queue(session, &erased_statement, &message_ids, 1);
	status = pg_flush(session);
	if (status != STATUS_OK)
		return status;
	if (PQntuples(session->results[2]) > 0) {
		base->ops->rollback(base);
		return STATUS_RERUN;
	}
	flag_new(session->results[0], messages, count);
	return STATUS_OK;
}

static enum status know(const struct outbound_repository *repository, struct session *base,
	struct outbound_message *messages, size_t count)
{
	struct pg_session *session = pg_session_of(base);
	struct pg_param ids = pg_param_ids(session, &messages->id, sizeof(*messages), count);
	enum status status = pg_run(session, &know_statement, &ids, 1);

	if (status == STATUS_OK)
		pg_flag_places(session->results[0], &messages->exists, sizeof(*messages), count);
	return status;
}

static void fill_message(
	struct outbound_message *message, struct arena *arena, const PGresult *result)
{
	message->exists = true;
	message->message_id = pg_keep(arena, result, 0, 0);
	message->user_id = pg_keep(arena, result, 0, 1);
	message->created_us = pg_int8(result, 0, 2);
	message->status = pg_keep(arena, result, 0, 3);
	message->error = pg_keep(arena, result, 0, 4);
	message->attempt_count = pg_int4(result, 0, 5);
	message->taken_us = pg_int8(result, 0, 6);
	message->sent_us = pg_int8(result, 0, 7);
}

static enum status find(const struct outbound_repository *repository, struct session *base,
	struct arena *arena, struct outbound_message *message)
{
	struct pg_session *session = pg_session_of(base);
	const struct pg_param id = pg_param_text(message->id);
	enum status status;

	message->exists = false;
	if (!pg_is_uuid(message->id))
		return STATUS_OK;
	status = pg_run(session, &find_statement, &id, 1);
	if (status == STATUS_OK && PQntuples(session->results[0]) > 0)
		fill_message(message, arena, session->results[0]);
	return status;
}

static enum status sweep_queued(const struct outbound_repository *repository, struct session *base,
	int64_t age_us, size_t limit, size_t *deleted)
{
	return pg_sweep(base, &sweep_statement, age_us, limit, deleted);
}

/* ---- dead letters ------------------------------------------------------------------------ */

/* clang-format off */
#define PUT_LETTERS_SQL(condition)                                                             \
	"INSERT INTO outbound_dlq AS d (id, kind, event_type, aggregate_key, position, "       \
	"    last_error, payload, attempt_count, created_at) "                                 \
	"SELECT DISTINCT ON (w.id) w.id::uuid, w.kind, w.type, w.key, w.position, w.error, "   \
	"    w.payload, w.attempt_count, (SELECT quipu_now()) "                                \
	"FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], " \
	"    $7::bytea[], $8::int4[]) "                                                        \
	"    AS w(id, kind, type, key, position, error, payload, attempt_count) "              \
	"WHERE w.kind " condition " 'poison' "                                                 \
	"ORDER BY w.id "                                                                       \
	"ON CONFLICT (id) "

#define WAITING_SQL(payload)                                                       \
	"SELECT id::text, kind, event_type, aggregate_key, position, last_error, " \
	"    attempt_count, " CREATED_US ", " payload " "                          \
	"FROM outbound_dlq "                                                       \
	"WHERE resolved_at IS NULL AND kind = $1::text AND id "

static const struct pg_dead_letters dead = {
	.base = {.ops = &pg_dead_letters_ops},
	.target = "outbound_dlq",
	.reopens = &claims,
	/* A message that was replayed and fails again reopens its letter. */
	.put = {"quipu_outbound_dlq_put",
		PUT_LETTERS_SQL("<>")
		"DO UPDATE SET last_error = excluded.last_error, "
		"    attempt_count = excluded.attempt_count, created_at = excluded.created_at, "
		"    resolved_at = NULL, resolution = NULL "
		"WHERE d.resolved_at IS NOT NULL"},
	.put_poison = {"quipu_outbound_dlq_put_poison", PUT_LETTERS_SQL("=") "DO NOTHING"},
	.list = {"quipu_outbound_dlq_list",
		WAITING_SQL("''::bytea") "> $2::text::uuid ORDER BY id LIMIT $3::int8"},
	.find = {"quipu_outbound_dlq_find", WAITING_SQL("payload") "= $2::text::uuid"},
	.row = {"quipu_outbound_dlq_row",
		"UPDATE outbound_messages "
		"SET status = $3::text, next_retry_at = NULL, "
		"    attempt_count = CASE $3::text WHEN 'PENDING' THEN 0 ELSE attempt_count END "
		"WHERE stage = 'FAILED' AND id = $2::text::uuid "
		"  AND EXISTS ("
		"    SELECT 1 "
		"    FROM outbound_dlq d "
		"    WHERE d.resolved_at IS NULL AND d.kind = $1::text AND d.id = $2::text::uuid)"},
	/* A message that has been deleted cannot be replayed; its letter can only be discarded. */
	.letter = {"quipu_outbound_dlq_letter",
		"UPDATE outbound_dlq "
		"SET resolved_at = quipu_now(), "
		"    resolution = CASE $3::text WHEN 'PENDING' THEN 'REPLAYED' ELSE $3::text END "
		"WHERE resolved_at IS NULL AND kind = $1::text AND id = $2::text::uuid "
		"  AND ($3::text = 'DISCARDED' "
		"    OR EXISTS ("
		"      SELECT 1 "
		"      FROM outbound_messages m "
		"      WHERE m.id = $2::text::uuid AND m.status = 'PENDING')) "
		"RETURNING 1"},
	.depth = {"quipu_outbound_dlq_depth",
		"SELECT count(*) "
		"FROM outbound_dlq "
		"WHERE resolved_at IS NULL AND ($1::text = '' OR kind = $1::text)"},
};
/* clang-format on */

static const struct outbound_repository_ops ops = {
	.note = note, .put = put, .know = know, .find = find, .sweep_queued = sweep_queued};

const struct outbound_repository postgres_outbound_repository = {
	.ops = &ops,
	.claims = &claims.base,
	.dead = &dead.base,
};
