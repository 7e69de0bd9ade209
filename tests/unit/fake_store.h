/*
 * A store and a count repository in memory, for unit tests: transactions with rollback, foreign
 * locks, and a fault at any call. Single-threaded.
 */
#ifndef QUIPU_TESTS_FAKE_STORE_H
#define QUIPU_TESTS_FAKE_STORE_H

#include "ports/count_repository.h"
#include "ports/limit_repository.h"
#include "ports/store.h"

struct fake_store;

struct fake_store *fake_store_new(void);
void fake_store_free(struct fake_store *fake);
struct store *fake_store_base(struct fake_store *fake);

extern const struct count_repository fake_count_repository;
extern const struct limit_repository fake_limit_repository;

/* The stored limit, with exists = false where there is none. */
struct limit_row fake_store_get_limit(struct fake_store *fake, struct slice user_id);

/* The stored count, with exists = false where there is none. */
struct count_row fake_store_get(struct fake_store *fake, struct slice item_id);
void fake_store_set(struct fake_store *fake, struct slice item_id, int64_t value);

/* Another session holds this row: LOCK_WAIT fails with LOCK_BUSY, LOCK_SKIP reports it busy. */
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
