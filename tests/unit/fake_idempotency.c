/* Idempotency keys in the fake store. */
#include <assert.h>

#include "fake_store_data.h"

static struct fake_key *find_key(struct fake_store *fake, const struct idempotency_record *wanted)
{
	for (size_t i = 0; i < fake->data->key_count; i++) {
		struct fake_key *key = &fake->data->keys[i];

		if (slice_equal(key->record.scope, wanted->scope) &&
			slice_equal(key->record.key, wanted->key))
			return key;
	}
	return NULL;
}

enum status fake_keys_find(struct session *session, struct arena *arena,
	struct idempotency_record *records, size_t count)
{
	struct fake_store *fake = fake_of(session);
	enum status status = fake_step(session);

	(void)arena;
	for (size_t i = 0; i < count && status == STATUS_OK; i++) {
		const struct fake_key *key = find_key(fake, &records[i]);

		records[i].found = key && key->expires_us > fake->now_us;
		if (!records[i].found)
			continue;
		records[i].same_request = idempotency_is_same(
			&records[i], slice_make(key->record.fingerprint, FINGERPRINT_SIZE));
		records[i].owner = key->record.owner;
		records[i].lease_is_over = key->lease_until_us <= fake->now_us;
		records[i].note = key->record.note;
		records[i].answer = key->record.answer;
	}
	return status;
}

static struct idempotency_record keep_record(
	struct fake_store *fake, const struct idempotency_record *record)
{
	struct idempotency_record kept = *record;

	kept.scope = arena_copy(&fake->arena, record->scope);
	kept.key = arena_copy(&fake->arena, record->key);
	kept.answer.content_type = arena_copy(&fake->arena, record->answer.content_type);
	kept.answer.location = arena_copy(&fake->arena, record->answer.location);
	kept.answer.body = arena_copy(&fake->arena, record->answer.body);
	kept.note = arena_copy(&fake->arena, record->note);
	kept.owner = arena_copy(&fake->arena, record->owner);
	return kept;
}

enum status fake_keys_put(struct session *session, const struct idempotency_record *records,
	size_t count, int64_t ttl_us)
{
	struct fake_store *fake = fake_of(session);
	enum status status = fake_step(session);

	for (size_t i = 0; i < count && status == STATUS_OK; i++) {
		struct fake_key *key = find_key(fake, &records[i]);

		if (key && key->expires_us > fake->now_us) {
			fake_rollback(session);
			return STATUS_RERUN;
		}
		if (!key) {
			assert(fake->data->key_count < KEYS_MAX);
			key = &fake->data->keys[fake->data->key_count++];
		}
		key->record = keep_record(fake, &records[i]);
		key->expires_us = fake->now_us + ttl_us;
		key->lease_until_us = fake->now_us + IDEMPOTENCY_LEASE_US;
	}
	return status;
}

enum status fake_keys_claim(
	struct session *session, struct idempotency_record *records, size_t count)
{
	struct fake_store *fake = fake_of(session);
	enum status status = fake_step(session);

	for (size_t i = 0; i < count && status == STATUS_OK; i++) {
		struct fake_key *key = find_key(fake, &records[i]);

		records[i].was_ours =
			key && key->record.owner.len > 0 && key->lease_until_us <= fake->now_us;
		if (!records[i].was_ours)
			continue;
		memcpy(records[i].fingerprint, key->record.fingerprint, FINGERPRINT_SIZE);
		key->record = keep_record(fake, &records[i]);
		key->lease_until_us = fake->now_us + IDEMPOTENCY_LEASE_US;
	}
	return status;
}

/* The key of this owner, NULL where it is not theirs any more. */
static struct fake_key *find_owned(struct fake_store *fake, struct idempotency_record *record)
{
	struct fake_key *key = find_key(fake, record);

	record->was_ours = key && slice_equal(key->record.owner, record->owner);
	return record->was_ours ? key : NULL;
}

enum status fake_keys_finish(
	struct session *session, struct idempotency_record *records, size_t count)
{
	enum status status = fake_step(session);

	for (size_t i = 0; i < count && status == STATUS_OK; i++) {
		struct fake_key *key = find_owned(fake_of(session), &records[i]);

		if (key)
			key->record.owner = (struct slice){0};
	}
	return status;
}

enum status fake_keys_forget(
	struct session *session, struct idempotency_record *records, size_t count)
{
	struct fake_store *fake = fake_of(session);
	enum status status = fake_step(session);

	for (size_t i = 0; i < count && status == STATUS_OK; i++) {
		struct fake_key *key = find_owned(fake, &records[i]);

		if (key)
			*key = fake->data->keys[--fake->data->key_count];
	}
	return status;
}

enum status fake_keys_release(
	struct session *session, struct idempotency_record *records, size_t count)
{
	struct fake_store *fake = fake_of(session);
	enum status status = fake_step(session);

	for (size_t i = 0; i < count && status == STATUS_OK; i++) {
		struct fake_key *key = find_owned(fake, &records[i]);

		if (key)
			key->lease_until_us = fake->now_us;
	}
	return status;
}

enum status fake_keys_sweep(struct session *session, size_t limit, size_t *deleted)
{
	(void)session;
	(void)limit;
	*deleted = 0;
	return STATUS_OK;
}
