/* Idempotency keys in PostgreSQL. */
#include <assert.h>

#include "adapters/postgres/postgres_internal.h"

static const struct pg_statement find_statement = {
	"quipu_keys_find",
	"SELECT w.n, k.fingerprint, k.status, k.content_type, k.location, k.body, k.pending, "
	"k.note "
	"FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS w(scope, key, n) "
	"JOIN idempotency_keys k ON k.scope = w.scope AND k.key = w.key "
	"WHERE k.expires_at > (SELECT quipu_now())",
};

/* An expired key counts as absent, so it is replaced; a live one is left, and not returned. */
static const struct pg_statement put_statement = {
	"quipu_keys_put",
	"INSERT INTO idempotency_keys AS k "
	"(scope, key, fingerprint, status, content_type, location, body, pending, note, "
	"expires_at) "
	"SELECT scope, key, fingerprint, status, content_type, location, body, pending = 1, note, "
	"(SELECT quipu_now()) + $10::int8 * interval '1 microsecond' "
	"FROM unnest($1::text[], $2::text[], $3::bytea[], $4::int4[], $5::text[], $6::text[], "
	"$7::bytea[], $8::int4[], $9::text[]) "
	"AS w(scope, key, fingerprint, status, content_type, location, body, pending, note) "
	"ON CONFLICT (scope, key) DO UPDATE SET fingerprint = excluded.fingerprint, "
	"status = excluded.status, content_type = excluded.content_type, "
	"location = excluded.location, body = excluded.body, pending = excluded.pending, "
	"note = excluded.note, expires_at = excluded.expires_at "
	"WHERE k.expires_at <= (SELECT quipu_now()) "
	"RETURNING 1",
};

static const struct pg_statement finish_statement = {
	"quipu_keys_finish",
	"UPDATE idempotency_keys AS k SET pending = false "
	"FROM unnest($1::text[], $2::text[]) AS w(scope, key) "
	"WHERE k.scope = w.scope AND k.key = w.key AND k.pending",
};

static const struct pg_statement forget_statement = {
	"quipu_keys_forget",
	"DELETE FROM idempotency_keys AS k USING unnest($1::text[], $2::text[]) AS w(scope, key) "
	"WHERE k.scope = w.scope AND k.key = w.key AND k.pending",
};

static const struct pg_statement sweep_statement = {
	"quipu_keys_sweep",
	"DELETE FROM idempotency_keys WHERE (scope, key) IN ("
	"SELECT scope, key FROM idempotency_keys WHERE expires_at <= (SELECT quipu_now()) "
	"ORDER BY scope, key LIMIT $1::int8 FOR UPDATE SKIP LOCKED) RETURNING 1",
};

static struct slice keep(struct arena *arena, const PGresult *result, int row, int column)
{
	return arena_copy(arena, pg_slice(result, row, column));
}

static void fill_record(
	struct key_record *record, struct arena *arena, const PGresult *result, int row)
{
	struct slice fingerprint = pg_slice(result, row, 1);

	record->found = true;
	record->same_request =
		slice_equal(fingerprint, slice_make(record->fingerprint, FINGERPRINT_SIZE));
	record->answer.http_status = pg_int4(result, row, 2);
	record->answer.content_type = keep(arena, result, row, 3);
	record->answer.location = keep(arena, result, row, 4);
	record->answer.body = keep(arena, result, row, 5);
	record->pending = pg_bool(result, row, 6);
	record->note = keep(arena, result, row, 7);
}

/* Runs a statement whose first two parameters are the scopes and keys of the records. */
static enum status run_on_keys(struct pg_session *session, const struct pg_statement *statement,
	const struct key_record *records, size_t count)
{
	struct pg_array scopes = pg_array_of(session, PG_OID_TEXT, count);
	struct pg_array keys = pg_array_of(session, PG_OID_TEXT, count);

	for (size_t i = 0; i < count; i++) {
		pg_array_text(&scopes, records[i].scope);
		pg_array_text(&keys, records[i].key);
	}
	struct pg_param params[2] = {pg_param_array(&scopes), pg_param_array(&keys)};

	return pg_run(session, statement, params, 2);
}

enum status pg_keys_find(
	struct session *base, struct arena *arena, struct key_record *records, size_t count)
{
	struct pg_session *session = pg_session_of(base);
	enum status status = run_on_keys(session, &find_statement, records, count);

	if (status != STATUS_OK)
		return status;
	for (size_t i = 0; i < count; i++)
		records[i].found = false;
	for (int row = 0; row < PQntuples(session->results[0]); row++) {
		int64_t n = pg_int8(session->results[0], row, 0);

		assert(n >= 1 && (size_t)n <= count);
		fill_record(&records[n - 1], arena, session->results[0], row);
	}
	return STATUS_OK;
}

enum status pg_keys_finish(struct session *session, const struct key_record *records, size_t count)
{
	return run_on_keys(pg_session_of(session), &finish_statement, records, count);
}

enum status pg_keys_forget(struct session *session, const struct key_record *records, size_t count)
{
	return run_on_keys(pg_session_of(session), &forget_statement, records, count);
}

#define PUT_COLUMNS 9

enum status pg_keys_put(
	struct session *base, const struct key_record *records, size_t count, int64_t ttl_us)
{
	static const Oid types[PUT_COLUMNS] = {PG_OID_TEXT, PG_OID_TEXT, PG_OID_BYTEA, PG_OID_INT4,
		PG_OID_TEXT, PG_OID_TEXT, PG_OID_BYTEA, PG_OID_INT4, PG_OID_TEXT};
	struct pg_session *session = pg_session_of(base);
	struct pg_array columns[PUT_COLUMNS];
	struct pg_param params[PUT_COLUMNS + 1];
	enum status status;

	for (size_t i = 0; i < PUT_COLUMNS; i++)
		columns[i] = pg_array_of(session, types[i], count);
	for (size_t i = 0; i < count; i++) {
		const struct key_record *record = &records[i];

		pg_array_text(&columns[0], record->scope);
		pg_array_text(&columns[1], record->key);
		pg_array_bytes(&columns[2], record->fingerprint, FINGERPRINT_SIZE);
		pg_array_int4(&columns[3], record->answer.http_status);
		pg_array_text(&columns[4], record->answer.content_type);
		pg_array_text(&columns[5], record->answer.location);
		pg_array_text(&columns[6], record->answer.body);
		pg_array_int4(&columns[7], record->pending);
		pg_array_text(&columns[8], record->note);
	}
	for (size_t i = 0; i < PUT_COLUMNS; i++)
		params[i] = pg_param_array(&columns[i]);
	params[PUT_COLUMNS] = pg_param_int8(session, ttl_us);
	status = pg_run(session, &put_statement, params, PUT_COLUMNS + 1);
	if (status == STATUS_OK && (size_t)PQntuples(session->results[0]) != count) {
		base->ops->rollback(base);
		return STATUS_RERUN;
	}
	return status;
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
