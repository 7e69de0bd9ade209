/*
 * Idempotency-Keys in SQLite. An expired key counts as absent: find() skips it and put() replaces
 * it. If put() finds a key that has not expired, another transaction has stored the key since
 * find(), so the batch runs again.
 */
#include "adapters/store/sqlite/sqlite_internal.h"
#include "base/text.h"

/* clang-format off */
static const char find_sql[] =
	"SELECT fingerprint, status, content_type, location, body, owner, note, lease_until "
	"FROM idempotency_keys "
	"WHERE scope = ?1 AND key = ?2 AND expires_at > ?3";

/* Inserts a new key or replaces an expired key. Does not change a key that is already stored and
 * has not expired. ?12 is the current time. */
static const char put_sql[] =
	"INSERT INTO idempotency_keys (scope, key, fingerprint, status, content_type, "
	"    location, body, owner, note, lease_until, expires_at) "
	"VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11) "
	"ON CONFLICT (scope, key) "
	"DO UPDATE SET fingerprint = excluded.fingerprint, status = excluded.status, "
	"    content_type = excluded.content_type, location = excluded.location, "
	"    body = excluded.body, owner = excluded.owner, note = excluded.note, "
	"    lease_until = excluded.lease_until, expires_at = excluded.expires_at "
	"WHERE idempotency_keys.expires_at <= ?12";

/* ?1 and ?2 are the scope and key of the last row of the previous page; for the first page, they
 * are the prefix of the scopes and ''. ?3 is greater than every scope with that prefix. ?4 is the
 * limit. */
static const char list_sql[] =
	"SELECT scope, key, length(fingerprint), status, body, owner, lease_until, note "
	"FROM idempotency_keys "
	"WHERE (scope, key) > (?1, ?2) AND scope < ?3 "
	"ORDER BY scope, key LIMIT ?4";

/* In claim_sql, finish_sql, forget_sql and release_sql, ?1 to ?3 are the scope, the key and the
 * owner. In claim_sql and release_sql, ?4 is the current time. In claim_sql, ?5 is the end of the
 * lease, ?6 the note, and ?7 to ?10 are the answer. */
static const char claim_sql[] =
	"UPDATE idempotency_keys SET owner = ?3, lease_until = ?5, note = ?6, status = ?7, "
	"content_type = ?8, location = ?9, body = ?10 "
	"WHERE scope = ?1 AND key = ?2 AND owner <> '' AND lease_until <= ?4";

static const char finish_sql[] =
	"UPDATE idempotency_keys SET owner = '' "
	"WHERE scope = ?1 AND key = ?2 AND owner = ?3";

static const char forget_sql[] =
	"DELETE FROM idempotency_keys "
	"WHERE scope = ?1 AND key = ?2 AND owner = ?3";

static const char release_sql[] =
	"UPDATE idempotency_keys SET lease_until = ?4 "
	"WHERE scope = ?1 AND key = ?2 AND owner = ?3";

static const char sweep_sql[] =
	"DELETE FROM idempotency_keys "
	"WHERE (scope, key) IN ("
	"  SELECT scope, key "
	"  FROM idempotency_keys "
	"  WHERE expires_at <= ?1 LIMIT ?2)";
/* clang-format on */

static void fill_record(struct idempotency_record *record, struct arena *arena,
	const struct sqlite_query *query, int64_t now_us)
{
	struct slice fingerprint = sqlite_query_bytes(query, 0);

	record->same_request = idempotency_is_same(record, fingerprint);
	record->answer.http_status = (int)sqlite_query_int(query, 1);
	record->answer.content_type = sqlite_query_keep(query, arena, 2);
	record->answer.location = sqlite_query_keep(query, arena, 3);
	record->answer.body = sqlite_query_keep(query, arena, 4);
	record->owner = sqlite_query_keep(query, arena, 5);
	record->note = sqlite_query_keep(query, arena, 6);
	record->lease_is_over = sqlite_query_int(query, 7) <= now_us;
}

enum status sqlite_keys_find(
	struct session *base, struct arena *arena, struct idempotency_record *records, size_t count)
{
	struct sqlite_session *session = sqlite_session_of(base);
	struct sqlite_query query = sqlite_query_open(session, find_sql);
	int64_t now_us = sqlite_now_us(session);

	for (size_t i = 0; i < count; i++) {
		struct idempotency_record *record = &records[i];

		sqlite_query_start(&query, SQLITE_VALUES(sqlite_text(record->scope),
						   sqlite_text(record->key), sqlite_int(now_us)));
		record->found = sqlite_query_next(&query);
		if (record->found)
			fill_record(record, arena, &query, now_us);
	}
	return sqlite_query_close(&query);
}

enum status sqlite_keys_put(struct session *base, const struct idempotency_record *records,
	size_t count, int64_t ttl_us)
{
	struct sqlite_session *session = sqlite_session_of(base);
	struct sqlite_query query = sqlite_query_open(session, put_sql);
	int64_t now_us = sqlite_now_us(session);

	for (size_t i = 0; i < count; i++) {
		const struct idempotency_record *record = &records[i];
		const struct answer *answer = &record->answer;
		struct slice fingerprint = slice_make(record->fingerprint, FINGERPRINT_SIZE);

		sqlite_query_change_one(
			&query, SQLITE_VALUES(sqlite_text(record->scope), sqlite_text(record->key),
					sqlite_blob(fingerprint), sqlite_int(answer->http_status),
					sqlite_text(answer->content_type),
					sqlite_text(answer->location), sqlite_blob(answer->body),
					sqlite_text(record->owner), sqlite_text(record->note),
					sqlite_int(now_us + IDEMPOTENCY_LEASE_US),
					sqlite_int(now_us + ttl_us), sqlite_int(now_us)));
	}
	return sqlite_query_close(&query);
}

/* Runs `sql` for each record. `time_count` is 1 if the statement takes the current time as ?4,
 * otherwise 0. */
static enum status change_keys(struct session *base, const char *sql, size_t time_count,
	struct idempotency_record *records, size_t count)
{
	struct sqlite_session *session = sqlite_session_of(base);
	struct sqlite_query query = sqlite_query_open(session, sql);
	int64_t now_us = sqlite_now_us(session);

	for (size_t i = 0; i < count; i++) {
		const struct sqlite_value values[] = {sqlite_text(records[i].scope),
			sqlite_text(records[i].key), sqlite_text(records[i].owner),
			sqlite_int(now_us)};

		records[i].was_ours = sqlite_query_change(&query, values, 3 + time_count) == 1;
	}
	return sqlite_query_close(&query);
}

enum status sqlite_keys_claim(
	struct session *base, struct idempotency_record *records, size_t count)
{
	struct sqlite_session *session = sqlite_session_of(base);
	struct sqlite_query query = sqlite_query_open(session, claim_sql);
	int64_t now_us = sqlite_now_us(session);

	for (size_t i = 0; i < count; i++) {
		const struct answer *answer = &records[i].answer;

		records[i].was_ours =
			sqlite_query_change(
				&query, SQLITE_VALUES(sqlite_text(records[i].scope),
						sqlite_text(records[i].key),
						sqlite_text(records[i].owner), sqlite_int(now_us),
						sqlite_int(now_us + IDEMPOTENCY_LEASE_US),
						sqlite_text(records[i].note),
						sqlite_int(answer->http_status),
						sqlite_text(answer->content_type),
						sqlite_text(answer->location),
						sqlite_blob(answer->body))) == 1;
	}
	return sqlite_query_close(&query);
}

enum status sqlite_keys_finish(
	struct session *session, struct idempotency_record *records, size_t count)
{
	return change_keys(session, finish_sql, 0, records, count);
}

enum status sqlite_keys_forget(
	struct session *session, struct idempotency_record *records, size_t count)
{
	return change_keys(session, forget_sql, 0, records, count);
}

enum status sqlite_keys_release(
	struct session *session, struct idempotency_record *records, size_t count)
{
	return change_keys(session, release_sql, 1, records, count);
}

static void fill_kept_key(
	struct kept_answer *key, struct arena *arena, const struct sqlite_query *query)
{
	*key = (struct kept_answer){
		.scope = sqlite_query_keep(query, arena, 0),
		.key = sqlite_query_keep(query, arena, 1),
		.fingerprint_size = (size_t)sqlite_query_int(query, 2),
		.http_status = (int32_t)sqlite_query_int(query, 3),
		.body = sqlite_query_keep(query, arena, 4),
		.owner = sqlite_query_keep(query, arena, 5),
		.lease_us = sqlite_query_int(query, 6),
		.note = sqlite_query_keep(query, arena, 7),
	};
}

enum status sqlite_keys_list(struct session *base, struct arena *arena, struct slice prefix,
	struct row_page *page, struct kept_answer *keys)
{
	struct sqlite_session *session = sqlite_session_of(base);
	struct slice first = page->after[0].len > 0 ? page->after[0] : prefix;
	enum status status = sqlite_snapshot_begin(session);
	struct sqlite_query query;

	if (status != STATUS_OK)
		return status;
	page->count = 0;
	query = sqlite_query_open(session, list_sql);
	sqlite_query_start(&query, SQLITE_VALUES(sqlite_text(first), sqlite_text(page->after[1]),
					   sqlite_text(text_prefix_end(arena, prefix)),
					   sqlite_int((int64_t)page->limit)));
	while (sqlite_query_next(&query))
		fill_kept_key(&keys[page->count++], arena, &query);
	status = sqlite_query_close(&query);
	if (status == STATUS_OK)
		status = sqlite_snapshot_end(session);
	page->now_us = sqlite_now_us(session);
	return status;
}

enum status sqlite_keys_sweep(struct session *base, size_t limit, size_t *deleted)
{
	return sqlite_sweep_age(base, sweep_sql, 0, limit, deleted);
}
