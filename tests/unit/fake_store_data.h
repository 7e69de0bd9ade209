/*
 * What the files of the fake store share: its data, the faults it plans, and the locks that others
 * hold. Tests use fake_store.h.
 */
#ifndef QUIPU_TESTS_FAKE_STORE_DATA_H
#define QUIPU_TESTS_FAKE_STORE_DATA_H

#include "adapters/shared/listeners.h"
#include "fake_store.h"

#define ROWS_MAX 64
#define KEYS_MAX 64

struct fake_key {
	struct idempotency_record record;
	int64_t expires_us;
	int64_t lease_until_us;
};

/* What a transaction can change, so that rollback is a copy back. */
struct fake_data {
	struct count_row rows[ROWS_MAX];
	size_t row_count;
	struct limit_row limits[ROWS_MAX];
	size_t limit_count;
	struct fake_pot pots[ROWS_MAX]; /* of the ids 1, 2, … */
	size_t pot_count;
	struct fake_key keys[KEYS_MAX];
	size_t key_count;
};

struct fake_store {
	struct store base;
	struct fake_data *data;
	struct fake_data *before; /* at begin */
	struct arena arena;       /* ids and answers, for ever */
	struct slice held[ROWS_MAX];
	size_t held_count;
	const char *poison;
	enum transaction_mode mode;
	bool in_transaction;
	bool is_committed; /* by what commits alone: commit() has nothing left to do */
	bool survives;
	int fail_at;
	enum status fail_with;
	bool has_failed;
	size_t commits;
	size_t takes;
	size_t kinds_written;
	int64_t now_us;
	struct listeners listeners;
};

static inline struct fake_store *fake_of(struct session *session)
{
	return (struct fake_store *)session->store;
}

/* Every call of the port passes here, and fails if it is the one that shall. */
enum status fake_pass(struct session *session);

/* The same for a call inside a transaction; unknown outcomes exist at commit only. */
enum status fake_step(struct session *session);

void fake_rollback(struct session *session);

/* Whether another session holds the row of this id; what to return to those who wait for it. */
bool fake_is_held(const struct fake_store *fake, struct slice id);
enum status fake_lock_busy(struct session *session);

/* The part of a session that is about idempotency keys. */
enum status fake_keys_find(struct session *session, struct arena *arena,
	struct idempotency_record *records, size_t count);
enum status fake_keys_put(struct session *session, const struct idempotency_record *records,
	size_t count, int64_t ttl_us);
enum status fake_keys_claim(
	struct session *session, struct idempotency_record *records, size_t count);
enum status fake_keys_finish(
	struct session *session, struct idempotency_record *records, size_t count);
enum status fake_keys_forget(
	struct session *session, struct idempotency_record *records, size_t count);
enum status fake_keys_release(
	struct session *session, struct idempotency_record *records, size_t count);
enum status fake_keys_sweep(struct session *session, size_t limit, size_t *deleted);

#endif
