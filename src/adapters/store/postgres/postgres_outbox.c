/*
 * Outboxes in PostgreSQL. An outbox is a table of events, and relays claim its rows. Rows whose
 * status is FAILED are the outbox's dead letters. Writing or reopening rows lowers the floor at
 * which claims start (see postgres_claims.c).
 */
#include "adapters/store/postgres/postgres_repositories.h"

#include <assert.h>

/* How many events one statement resends: few enough for the statement to stay within its
 * timeout. */
#define RESEND_CHUNK 10000

#define CREATED_US PG_TO_US("created_at")
#define CREATED_FROM_US PG_FROM_US("created_us")
#define SINCE PG_FROM_US("$1::int8")
#define LAST_US PG_TO_US("max(published_at)")

/* clang-format off */
#define PUT_SQL(table)                                                                          \
	"INSERT INTO " table " (event_id, event_type, aggregate_key, trace_id, payload, "       \
	"    created_at) "                                                                      \
	"SELECT id::uuid, type, key, trace, payload, " CREATED_FROM_US " "                      \
	"FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bytea[], $6::int8[]) " \
	"    AS w(id, type, key, trace, payload, created_us)"

/* Reopens at most $2 of the events that were published at $1 or later. Returns the number of
 * reopened events, and the published_at of the last one, at which the next chunk starts. */
#define RESEND_SQL(table)                                                     \
	"WITH chosen AS MATERIALIZED ("                                       \
	"  SELECT event_id, published_at "                                    \
	"  FROM " table " "                                                   \
	"  WHERE stage = 'PUBLISHED' AND published_at >= " SINCE " "          \
	"  ORDER BY published_at LIMIT $2::int8 FOR UPDATE), reopened AS ("   \
	"  UPDATE " table " "                                                 \
	"  SET status = 'PENDING', attempt_count = 0, next_retry_at = NULL, " \
	"      published_at = NULL "                                          \
	"  WHERE event_id = ANY (ARRAY(SELECT event_id FROM chosen)) "        \
	"  RETURNING 1) "                                                     \
	"SELECT (SELECT count(*) FROM reopened), coalesce(" LAST_US ", $1) "  \
	"FROM chosen"

#define RESOLVE_SQL(table)                                                                \
	"UPDATE " table " "                                                               \
	"SET status = $3::text, next_retry_at = NULL, "                                   \
	"    attempt_count = CASE $3::text WHEN 'PENDING' THEN 0 ELSE attempt_count END " \
	"WHERE stage = 'FAILED' AND $1::text = 'outbox' AND event_id = $2::text::uuid "   \
	"RETURNING 1"

#define DEAD_SQL(payload, table)                                                    \
	"SELECT event_id::text, 'outbox', event_type, aggregate_key, '', "          \
	"    coalesce(last_error, ''), attempt_count, " CREATED_US ", " payload " " \
	"FROM " table " "                                                           \
	"WHERE stage = 'FAILED' AND $1::text = 'outbox' AND event_id "
/* clang-format on */

#define DEAD_LIST_SQL(table)                                                                       \
	DEAD_SQL("''::bytea", table) "> $2::text::uuid ORDER BY event_id LIMIT $3::int8"

#define DEAD_FIND_SQL(table) DEAD_SQL("payload", table) "= $2::text::uuid"

/* clang-format off */
#define DEPTH_SQL(table)                                        \
	"SELECT count(*) "                                      \
	"FROM " table " "                                       \
	"WHERE stage = 'FAILED' AND $1::text IN ('', 'outbox')"
/* clang-format on */

static const struct outbox_repository_ops ops;

static const struct pg_outbox *outbox_of(const struct outbox_repository *repository)
{
	assert(repository->ops == &ops);
	return (const struct pg_outbox *)repository;
}

static const Oid put_types[] = {
	PG_OID_TEXT, PG_OID_TEXT, PG_OID_TEXT, PG_OID_TEXT, PG_OID_BYTEA, PG_OID_INT8};

static void add_event(struct pg_array *columns, const void *element)
{
	const struct outbox_event *event = element;

	pg_array_text(&columns[0], event->id);
	pg_array_text(&columns[1], event->type);
	pg_array_text(&columns[2], event->key);
	pg_array_text(&columns[3], event->trace);
	pg_array_text(&columns[4], event->payload);
	pg_array_int8(&columns[5], event->occurred_us);
}

static const struct pg_shape put_shape = {
	.types = put_types,
	.column_count = sizeof(put_types) / sizeof(put_types[0]),
	.row_size = sizeof(struct outbox_event),
	.add = add_event,
};

static enum status put(const struct outbox_repository *repository, struct session *base,
	const struct outbox_event *events, size_t count)
{
	struct pg_session *session = pg_session_of(base);
	const struct pg_outbox *outbox = outbox_of(repository);
	int64_t first_us = INT64_MAX;

	for (size_t i = 0; i < count; i++) {
		if (events[i].occurred_us < first_us)
			first_us = events[i].occurred_us;
	}
	pg_claim_from(base, &outbox->claims, first_us);
	pg_need_two_phases(session);
	pg_queue_all(session, &outbox->put, &put_shape, events, count);
	return pg_flush(session);
}

/* Reopens one chunk of events, and moves `since_us` to the start of the next chunk. */
static enum status reopen(
	struct session *base, const struct pg_outbox *outbox, int64_t *since_us, size_t *reopened)
{
	struct pg_session *session = pg_session_of(base);
	const struct pg_param params[] = {
		pg_param_int8(session, *since_us), pg_param_int8(session, RESEND_CHUNK)};
	enum status status = pg_run(session, &outbox->resend, params, 2);

	if (status == STATUS_OK) {
		*reopened = (size_t)pg_int8(session->results[0], 0, 0);
		*since_us = pg_int8(session->results[0], 0, 1);
	}
	return status;
}

static enum status record_resend(struct session *base, const struct pg_outbox *outbox,
	int64_t since_us, struct slice who, size_t count)
{
	struct pg_session *session = pg_session_of(base);
	struct buffer detail = buffer_make(&session->arena, 80);

	buffer_format(&detail, "%zu published since ", count);
	buffer_time(&detail, since_us);
	return pg_record_action(session, &(struct operator_record){
						 .who = who,
						 .action = slice_of("resend"),
						 .target = slice_of(outbox->dead.target),
						 .detail = buffer_slice(&detail),
					 });
}

static enum status resend(const struct outbox_repository *repository, struct session *base,
	int64_t since_us, struct slice who, size_t *count)
{
	const struct pg_outbox *outbox = outbox_of(repository);
	int64_t from_us = since_us;
	size_t sum = 0, reopened;
	enum status status;

	do {
		status = reopen(base, outbox, &from_us, &reopened);
		if (status != STATUS_OK)
			return status;
		sum += reopened;
	} while (reopened == RESEND_CHUNK);
	pg_claim_from(base, &outbox->claims, 0);
	*count = sum;
	return record_resend(base, outbox, since_us, who, sum);
}

static const struct outbox_repository_ops ops = {.put = put, .resend = resend};

/* Initializes the struct pg_outbox `name` for `table`. */
#define PG_OUTBOX(name, table)                                                                     \
	{                                                                                          \
		.base = {.ops = &ops, .claims = &name.claims.base, .dead = &name.dead.base},       \
		.claims = PG_CLAIMS(table, "event_id", "created_at", "IN_FLIGHT", "PUBLISHED",     \
			"published_at", "'PUBLISHED'", "published_at"),                            \
		.dead =                                                                            \
			{                                                                          \
				.base = {.ops = &pg_dead_letters_ops},                             \
				.target = table,                                                   \
				.reopens = &name.claims,                                           \
				.list = {"quipu_" table "_dead_list", DEAD_LIST_SQL(table)},       \
				.find = {"quipu_" table "_dead_find", DEAD_FIND_SQL(table)},       \
				.row = {"quipu_" table "_resolve", RESOLVE_SQL(table)},            \
				.depth = {"quipu_" table "_dead_depth", DEPTH_SQL(table)},         \
			},                                                                         \
		.put = {"quipu_" table "_put", PUT_SQL(table)},                                    \
		.resend = {"quipu_" table "_resend", RESEND_SQL(table)},                           \
	}

const struct pg_outbox postgres_entitlement_outbox =
	PG_OUTBOX(postgres_entitlement_outbox, "outbox_events");
const struct pg_outbox postgres_dialog_outbox =
	PG_OUTBOX(postgres_dialog_outbox, "dialog_outbox_events");
