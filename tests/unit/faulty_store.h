/*
 * A store that fails when the test says so: a wrapper around an SQLite store on a file of its own,
 * for unit tests. What it injects is what SQLite alone never shows: a fault at any call, a COMMIT
 * whose outcome is unknown, rows that another session holds, and a clock that the test sets. Like
 * PostgreSQL, it commits TRANSACTION_SINGLE together with its verb. It also checks what the port
 * asks of callers: ids in order, and new rows that are new. Single-threaded.
 *
 * It has the repositories of counts, limits and pots; the others are NULL.
 */
#ifndef QUIPU_TESTS_FAULTY_STORE_H
#define QUIPU_TESTS_FAULTY_STORE_H

#include "ports/count_repository.h"
#include "ports/limit_repository.h"
#include "ports/pot_repository.h"
#include "ports/store.h"

struct faulty_store;

/* An empty store whose time is 1000000 µs. It is started. */
struct faulty_store *faulty_store_new(void);

/* After all sessions are closed. */
void faulty_store_free(struct faulty_store *faulty);
struct store *faulty_store_base(struct faulty_store *faulty);
struct session *faulty_store_open_session(struct faulty_store *faulty, enum session_kind kind);

extern const struct count_repository faulty_count_repository;
extern const struct limit_repository faulty_limit_repository;
extern const struct pot_repository faulty_pot_repository;

/* ---- faults ------------------------------------------------------------------------------ */

/* The `n`th call from now (1 = the next) fails with `status`, once. 0: none will. An
 * OUTCOME_UNKNOWN at another call than COMMIT is a RERUN. */
void faulty_store_fail_at(struct faulty_store *faulty, int n, enum status status);

/* An OUTCOME_UNKNOWN that strikes at commit: whether the change was made all the same. */
void faulty_store_commit_survives(struct faulty_store *faulty, bool survives);

/* Whether the planned fault has struck. */
bool faulty_store_has_failed(const struct faulty_store *faulty);

/* Another session holds the row of this count or limit: TRANSACTION_WAIT fails with LOCK_BUSY,
 * TRANSACTION_SKIP reports it busy. */
void faulty_store_hold(struct faulty_store *faulty, struct slice id, bool held);

/* Every edit of this count is refused as POISON. */
void faulty_store_poison(struct faulty_store *faulty, const char *item_id);

void faulty_store_set_time(struct faulty_store *faulty, int64_t now_us);

/* Transactions that were committed, and that their caller was told of. */
size_t faulty_store_commits(const struct faulty_store *faulty);

/* How often locks of pots were taken, and how many kinds of coins were written. */
size_t faulty_store_takes(const struct faulty_store *faulty);
size_t faulty_store_kinds_written(const struct faulty_store *faulty);

/* ---- rows: what is committed, untouched by faults. Outside a transaction. ---------------- */

/* The stored count, with exists = false where there is none. */
struct count_row faulty_store_get(struct faulty_store *faulty, struct slice item_id);
void faulty_store_add_count(struct faulty_store *faulty, const char *item_id, int64_t value);
void faulty_store_add_bounded(struct faulty_store *faulty, const char *item_id, int64_t value,
	struct count_bounds bounds);

/* The stored limit, with exists = false where there is none. */
struct limit_row faulty_store_get_limit(struct faulty_store *faulty, struct slice user_id);

struct faulty_pot {
	bool exists;
	bool is_locked;
	struct coins coins;
};

struct faulty_pot faulty_store_get_pot(struct faulty_store *faulty, int32_t pot_id);

/* Returns the id of the new pot: 1, 2, … */
int32_t faulty_store_add_pot(struct faulty_store *faulty, const char *name, int32_t max_coins);

/* Another process takes the lock of this pot, until then; and gives it back, which fails the test
 * if the lock is no longer its own. */
void faulty_store_lock_pot(
	struct faulty_store *faulty, int32_t pot_id, const char *token, int64_t until_us);
void faulty_store_unlock_pot(struct faulty_store *faulty, int32_t pot_id, const char *token);

#endif
