/*
 * A store that fails when the test wants it to: a wrapper around an SQLite store in a file of its
 * own, for unit tests. It can do what SQLite alone never does: fail at any call, leave the outcome
 * of a COMMIT unknown, have rows that another session holds, and show a time that the test sets.
 * Like PostgreSQL, it commits TRANSACTION_SINGLE together with its verb. It also checks that
 * callers keep the rules of the port: ids are in order, and new rows are new. Single-threaded.
 *
 * It has the repositories of counts, limits and pots; the others are NULL.
 */
#ifndef QUIPU_TESTS_FAULTY_STORE_H
#define QUIPU_TESTS_FAULTY_STORE_H

#include "ports/count_repository.h"
#include "ports/limit_repository.h"
#include "ports/outbound_repository.h"
#include "ports/pot_repository.h"
#include "ports/store.h"

#define FAULTY_HELD_MAX 8

struct faulty_store {
	struct store base;

	/* The test sets these. */
	bool survives;      /* an OUTCOME_UNKNOWN at COMMIT has been committed nevertheless */
	const char *poison; /* every edit of this count fails with POISON */
	int64_t now_us;     /* starts at 1000000 */

	/* The store counts these. */
	bool has_failed;      /* the planned fault has happened */
	size_t commits;       /* commits that were reported to their callers */
	size_t takes;         /* how many locks of pots were taken */
	size_t kinds_written; /* how many kinds of coins were written */

	/* Private to the store. */
	int fail_at;
	enum status fail_with;
	struct slice held[FAULTY_HELD_MAX];
	size_t held_count;
	size_t open_sessions;
	struct faulty_file *file;
};

/* Returns an empty store that is started. */
struct faulty_store *faulty_store_new(void);

/* Call it after all sessions are closed. */
void faulty_store_free(struct faulty_store *faulty);

struct session *faulty_store_open_session(struct faulty_store *faulty, enum session_kind kind);

extern const struct count_repository faulty_count_repository;
extern const struct limit_repository faulty_limit_repository;
extern const struct outbound_repository faulty_outbound_repository; /* note() only */
extern const struct pot_repository faulty_pot_repository;

/* Makes the `n`th call from now (1 is the next) fail with `status`, once; 0 cancels the plan. At
 * any call other than COMMIT, OUTCOME_UNKNOWN becomes RERUN. */
void faulty_store_fail_at(struct faulty_store *faulty, int n, enum status status);

/* Pretends that another session holds the row of this count or limit: TRANSACTION_WAIT fails with
 * LOCK_BUSY, and TRANSACTION_SKIP reports the row as busy. */
void faulty_store_hold(struct faulty_store *faulty, struct slice id, bool held);

/* ---- rows: what is committed, untouched by faults. Outside a transaction. ---------------- */

/* Looks up counts, all at once. Sets exists to false for those that do not exist. */
void faulty_store_find(struct faulty_store *faulty, struct count_row *rows, size_t count);
struct count_row faulty_store_get(struct faulty_store *faulty, struct slice item_id);

/* Insert counts, in one transaction; the second function inserts one without bounds. */
void faulty_store_insert(struct faulty_store *faulty, const struct count_row *rows, size_t count);
void faulty_store_add_count(struct faulty_store *faulty, const char *item_id, int64_t value);

/* Returns the stored limit, or one with exists = false. */
struct limit_row faulty_store_get_limit(struct faulty_store *faulty, struct slice user_id);

struct faulty_pot {
	bool exists;
	bool is_locked;
	struct coins coins;
};

struct faulty_pot faulty_store_get_pot(struct faulty_store *faulty, int32_t pot_id);

/* Creates a pot and returns its id: 1, 2, … */
int32_t faulty_store_add_pot(struct faulty_store *faulty, const char *name, int32_t max_coins);

/* Pretend that another process takes the lock of this pot until `until_us`, and that it releases
 * it. Releasing fails the test if the other process no longer has the lock. */
void faulty_store_lock_pot(
	struct faulty_store *faulty, int32_t pot_id, const char *token, int64_t until_us);
void faulty_store_unlock_pot(struct faulty_store *faulty, int32_t pot_id, const char *token);

#endif
