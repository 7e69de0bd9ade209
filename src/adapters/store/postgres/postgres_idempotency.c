/*
 * Idempotency keys in PostgreSQL. An expired key counts as absent: find() does not see it and put()
 * replaces it. If put() finds a key that has not expired, another transaction has stored it since
 * find(), so the batch runs again.
 */
#include "adapters/store/postgres/postgres_internal.h"
#include "base/text.h"

#define LEASE_US PG_TO_US("lease_until")

/* clang-format off */
static const struct pg_statement find_statement = {
	"quipu_keys_find",
	"SELECT w.n, k.fingerprint, k.status, k.content_type, k.location, k.body, k.owner, "
	"    k.note, k.lease_until <= (SELECT quipu_now()) "
	"FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS w(scope, key, n) "
	"JOIN idempotency_keys k ON k.scope = w.scope AND k.key = w.key "
	"WHERE k.expires_at > (SELECT quipu_now())",
};

/* Inserts new keys, replaces expired keys, and returns a row for each. Skips a key that is already
 * stored and has not expired. */
static const struct pg_statement put_statement = {
	"quipu_keys_put",
	"INSERT INTO idempotency_keys AS k (scope, key, fingerprint, status, content_type, "
	"    location, body, owner, note, lease_until, expires_at) "
	"SELECT scope, key, fingerprint, status, content_type, location, body, owner, note, "
	"    (SELECT quipu_now()) + $10::int8 * interval '1 microsecond', "
	"    (SELECT quipu_now()) + $11::int8 * interval '1 microsecond' "
	"FROM unnest($1::text[], $2::text[], $3::bytea[], $4::int4[], $5::text[], $6::text[], "
	"    $7::bytea[], $8::text[], $9::text[]) AS w(scope, key, fingerprint, status, "
	"    content_type, location, body, owner, note) "
	"ON CONFLICT (scope, key) "
	"DO UPDATE SET fingerprint = excluded.fingerprint, status = excluded.status, "
	"    content_type = excluded.content_type, location = excluded.location, "
	"    body = excluded.body, owner = excluded.owner, note = excluded.note, "
	"    lease_until = excluded.lease_until, expires_at = excluded.expires_at "
	"WHERE k.expires_at <= (SELECT quipu_now()) "
	"RETURNING 1",
};

/* The statements `claim`, `finish`, `forget` and `release` take arrays of scopes, keys and owners;
 * `claim` takes further arrays. Each statement returns, for each key that it changes, the key's
 * position in these arrays, counted from 1. */
#define OWNED_KEYS                                                         \
	"FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY " \
	"    AS w(scope, key, owner, n) "                                  \
	"WHERE k.scope = w.scope AND k.key = w.key "

static const struct pg_statement claim_statement = {
	"quipu_keys_claim",
	"UPDATE idempotency_keys AS k "
	"SET owner = w.owner, note = w.note, status = w.status, "
	"    content_type = w.content_type, location = w.location, body = w.body, "
	"    lease_until = (SELECT quipu_now()) + $9::int8 * interval '1 microsecond' "
	"FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::int4[], $6::text[], "
	"            $7::text[], $8::bytea[]) WITH ORDINALITY "
	"  AS w(scope, key, owner, note, status, content_type, location, body, n) "
	"WHERE k.scope = w.scope AND k.key = w.key "
	"  AND k.owner <> '' AND k.lease_until <= (SELECT quipu_now()) "
	"RETURNING w.n",
};

static const struct pg_statement finish_statement = {
	"quipu_keys_finish",
	"UPDATE idempotency_keys AS k SET owner = '' " OWNED_KEYS
	"  AND k.owner = w.owner "
	"RETURNING w.n",
};

static const struct pg_statement forget_statement = {
	"quipu_keys_forget",
	"DELETE FROM idempotency_keys AS k "
	"USING unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY "
	"    AS w(scope, key, owner, n) "
	"WHERE k.scope = w.scope AND k.key = w.key AND k.owner = w.owner "
	"RETURNING w.n",
};

static const struct pg_statement release_statement = {
	"quipu_keys_release",
	"UPDATE idempotency_keys AS k SET lease_until = (SELECT quipu_now()) " OWNED_KEYS
	"  AND k.owner = w.owner "
	"RETURNING w.n",
};

/* $1 and $2 are the scope and the key of the last row on the previous page. For the first page, $1
 * is the prefix of the scopes to list, and $2 is ''. $3 is greater than every scope to list. $4 is
 * the limit. */
static const struct pg_statement list_statement = {
	"quipu_keys_list",
	"SELECT scope, key, length(fingerprint), status, body, owner, " LEASE_US ", note "
	"FROM idempotency_keys "
	"WHERE (scope, key) > ($1::text, $2::text) AND scope < $3::text "
	"ORDER BY scope, key LIMIT $4::int8",
};

static const struct pg_statement sweep_statement = {
	"quipu_keys_sweep",
	"DELETE FROM idempotency_keys "
	"WHERE (scope, key) IN ("
	"  SELECT scope, key "
	"  FROM idempotency_keys "
	"  WHERE expires_at <= (SELECT quipu_now()) "
	"  ORDER BY scope, key LIMIT $1::int8 FOR UPDATE SKIP LOCKED) "
	"RETURNING 1",
};
/* clang-format on */

static void fill_record(
	struct idempotency_record *record, struct arena *arena, const PGresult *result, int row)
{
	struct slice fingerprint = pg_slice(result, row, 1);

	record->found = true;
	record->same_request = idempotency_is_same(record, fingerprint);
	record->answer.http_status = pg_int4(result, row, 2);
	record->answer.content_type = pg_keep(arena, result, row, 3);
	record->answer.location = pg_keep(arena, result, row, 4);
	record->answer.body = pg_keep(arena, result, row, 5);
	record->owner = pg_keep(arena, result, row, 6);
	record->note = pg_keep(arena, result, row, 7);
	record->lease_is_over = pg_bool(result, row, 8);
}

/* Runs a statement with the first `param_count` of three parameters: scopes, keys, owners. */
static enum status run_on_keys(struct pg_session *session, const struct pg_statement *statement,
	size_t param_count, const struct idempotency_record *records, size_t count)
{
	struct pg_array scopes = pg_array_of(session, PG_OID_TEXT, count);
	struct pg_array keys = pg_array_of(session, PG_OID_TEXT, count);
	struct pg_array owners = pg_array_of(session, PG_OID_TEXT, count);

	for (size_t i = 0; i < count; i++) {
		pg_array_text(&scopes, records[i].scope);
		pg_array_text(&keys, records[i].key);
		pg_array_text(&owners, records[i].owner);
	}
	struct pg_param params[3] = {
		pg_param_array(&scopes), pg_param_array(&keys), pg_param_array(&owners)};

	return pg_run(session, statement, params, param_count);
}

enum status pg_keys_find(
	struct session *base, struct arena *arena, struct idempotency_record *records, size_t count)
{
	struct pg_session *session = pg_session_of(base);
	enum status status = run_on_keys(session, &find_statement, 2, records, count);

	if (status != STATUS_OK)
		return status;
	for (size_t i = 0; i < count; i++)
		records[i].found = false;
	for (int row = 0; row < PQntuples(session->results[0]); row++)
		fill_record(&records[pg_place(session->results[0], row, count)], arena,
			session->results[0], row);
	return STATUS_OK;
}

static enum status change_keys(struct session *base, const struct pg_statement *statement,
	struct idempotency_record *records, size_t count)
{
	struct pg_session *session = pg_session_of(base);
	enum status status = run_on_keys(session, statement, 3, records, count);

	if (status == STATUS_OK)
		pg_flag_places(session->results[0], &records->was_ours, sizeof(*records), count);
	return status;
}

#define CLAIM_COLUMNS 8

enum status pg_keys_claim(struct session *base, struct idempotency_record *records, size_t count)
{
	static const Oid types[CLAIM_COLUMNS] = {PG_OID_TEXT, PG_OID_TEXT, PG_OID_TEXT, PG_OID_TEXT,
		PG_OID_INT4, PG_OID_TEXT, PG_OID_TEXT, PG_OID_BYTEA};
	struct pg_session *session = pg_session_of(base);
	struct pg_array columns[CLAIM_COLUMNS];
	struct pg_param params[CLAIM_COLUMNS + 1];
	enum status status;

	pg_arrays_of(session, types, CLAIM_COLUMNS, count, columns);
	for (size_t i = 0; i < count; i++) {
		pg_array_text(&columns[0], records[i].scope);
		pg_array_text(&columns[1], records[i].key);
		pg_array_text(&columns[2], records[i].owner);
		pg_array_text(&columns[3], records[i].note);
		pg_array_int4(&columns[4], records[i].answer.http_status);
		pg_array_text(&columns[5], records[i].answer.content_type);
		pg_array_text(&columns[6], records[i].answer.location);
		pg_array_text(&columns[7], records[i].answer.body);
	}
	for (size_t i = 0; i < CLAIM_COLUMNS; i++)
		params[i] = pg_param_array(&columns[i]);
	params[CLAIM_COLUMNS] = pg_param_int8(session, IDEMPOTENCY_LEASE_US);
	status = pg_run(session, &claim_statement, params, CLAIM_COLUMNS + 1);
	if (status == STATUS_OK)
		pg_flag_places(session->results[0], &records->was_ours, sizeof(*records), count);
	return status;
}

enum status pg_keys_finish(
	struct session *session, struct idempotency_record *records, size_t count)
{
	return change_keys(session, &finish_statement, records, count);
}

enum status pg_keys_forget(
	struct session *session, struct idempotency_record *records, size_t count)
{
	return change_keys(session, &forget_statement, records, count);
}

enum status pg_keys_release(
	struct session *session, struct idempotency_record *records, size_t count)
{
	return change_keys(session, &release_statement, records, count);
}

#define PUT_COLUMNS 9

enum status pg_keys_put(struct session *base, const struct idempotency_record *records,
	size_t count, int64_t ttl_us)
{
	static const Oid types[PUT_COLUMNS] = {PG_OID_TEXT, PG_OID_TEXT, PG_OID_BYTEA, PG_OID_INT4,
		PG_OID_TEXT, PG_OID_TEXT, PG_OID_BYTEA, PG_OID_TEXT, PG_OID_TEXT};
	struct pg_session *session = pg_session_of(base);
	struct pg_array columns[PUT_COLUMNS];
	struct pg_param params[PUT_COLUMNS + 2];
	enum status status;

	pg_arrays_of(session, types, PUT_COLUMNS, count, columns);
	for (size_t i = 0; i < count; i++) {
		const struct idempotency_record *record = &records[i];

		pg_array_text(&columns[0], record->scope);
		pg_array_text(&columns[1], record->key);
		pg_array_bytes(&columns[2], record->fingerprint, FINGERPRINT_SIZE);
		pg_array_int4(&columns[3], record->answer.http_status);
		pg_array_text(&columns[4], record->answer.content_type);
		pg_array_text(&columns[5], record->answer.location);
		pg_array_text(&columns[6], record->answer.body);
		pg_array_text(&columns[7], record->owner);
		pg_array_text(&columns[8], record->note);
	}
	for (size_t i = 0; i < PUT_COLUMNS; i++)
		params[i] = pg_param_array(&columns[i]);
	params[PUT_COLUMNS] = pg_param_int8(session, IDEMPOTENCY_LEASE_US);
	params[PUT_COLUMNS + 1] = pg_param_int8(session, ttl_us);
	status = pg_run(session, &put_statement, params, PUT_COLUMNS + 2);
	if (status == STATUS_OK && (size_t)PQntuples(session->results[0]) != count) {
		base->ops->rollback(base);
		return STATUS_RERUN;
	}
	return status;
}

static struct kept_answer kept_key_of(struct arena *arena, const PGresult *result, int row)
{
	return (struct kept_answer){
		.scope = pg_keep(arena, result, row, 0),
		.key = pg_keep(arena, result, row, 1),
		.fingerprint_size = (size_t)pg_int4(result, row, 2),
		.http_status = pg_int4(result, row, 3),
		.body = pg_keep(arena, result, row, 4),
		.owner = pg_keep(arena, result, row, 5),
		.lease_us = pg_int8(result, row, 6),
		.note = pg_keep(arena, result, row, 7),
	};
}

enum status pg_keys_list(struct session *base, struct arena *arena, struct slice prefix,
	struct row_page *page, struct kept_answer *keys)
{
	struct pg_session *session = pg_session_of(base);
	struct slice first = page->after[0].len > 0 ? page->after[0] : prefix;
	struct pg_param params[4] = {pg_param_text(first), pg_param_text(page->after[1]),
		pg_param_text(text_prefix_end(arena, prefix))};
	enum status status = pg_list_rows(session, &list_statement, params, 3, page);

	if (status != STATUS_OK)
		return status;
	for (size_t i = 0; i < page->count; i++)
		keys[i] = kept_key_of(arena, session->results[0], (int)i);
	return STATUS_OK;
}

enum status pg_keys_sweep(struct session *base, size_t limit, size_t *deleted)
{
	struct pg_session *session = pg_session_of(base);
	struct pg_param params[1] = {pg_param_int8(session, (int64_t)limit)};
	enum status status = pg_run(session, &sweep_statement, params, 1);

	if (status == STATUS_OK)
		*deleted = (size_t)PQntuples(session->results[0]);
	return status;
}
