/*
 * A store and repositories in memory, for unit tests: transactions with rollback, foreign
 * locks, and a fault at any call. Single-threaded.
 */
#ifndef QUIPU_TESTS_FAKE_STORE_H
#define QUIPU_TESTS_FAKE_STORE_H

#include "ports/count_repository.h"
#include "ports/limit_repository.h"
#include "ports/pot_repository.h"
#include "ports/store.h"

struct fake_store;

struct fake_store *fake_store_new(void);
void fake_store_free(struct fake_store *fake);
struct store *fake_store_base(struct fake_store *fake);

extern const struct count_repository fake_count_repository;
extern const struct limit_repository fake_limit_repository;
extern const struct pot_repository fake_pot_repository;

/* The stored limit, with exists = false where there is none. */
struct limit_row fake_store_get_limit(struct fake_store *fake, struct slice user_id);

/* A pot with its lock: an empty token where it is free. */
struct fake_pot {
	struct pot_row row;
	struct coins coins;
	char token[UUID_SIZE];
	int64_t lock_until_us;
};

/* The stored pot, with row.exists = false where there is none. */
struct fake_pot fake_store_get_pot(struct fake_store *fake, int32_t pot_id);

/* A pot that exists; returns its id. */
int32_t fake_store_add_pot(struct fake_store *fake, const char *name, int32_t max_coins);

/* Another process holds the lock of this pot until then; "" frees it. */
void fake_store_lock_pot(
	struct fake_store *fake, int32_t pot_id, const char *token, int64_t until_us);

/* How often locks of pots were asked for, and how many kinds of coins were written. */
size_t fake_store_takes(const struct fake_store *fake);
size_t fake_store_kinds_written(const struct fake_store *fake);

/* The stored count, with exists = false where there is none. */
struct count_row fake_store_get(struct fake_store *fake, struct slice item_id);
void fake_store_set(struct fake_store *fake, struct slice item_id, int64_t value);
void fake_store_bound(struct fake_store *fake, struct slice item_id, struct count_bounds bounds);

/* Another session holds this row: TRANSACTION_WAIT fails with LOCK_BUSY, TRANSACTION_SKIP reports
 * it busy. */
void fake_store_hold(struct fake_store *fake, struct slice item_id, bool held);

/* The `n`th call from now (1 = the next) fails with `status`, once. 0: none will. */
void fake_store_fail_at(struct fake_store *fake, int n, enum status status);

/* An OUTCOME_UNKNOWN that strikes at commit: whether the change was made all the same. */
void fake_store_commit_survives(struct fake_store *fake, bool survives);

/* Whether the planned fault has struck. */
bool fake_store_has_failed(const struct fake_store *fake);

/* Every edit of this id is refused as POISON. */
void fake_store_poison(struct fake_store *fake, const char *item_id);

size_t fake_store_commits(const struct fake_store *fake);
void fake_store_set_time(struct fake_store *fake, int64_t now_us);

#endif
