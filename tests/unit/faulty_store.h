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
#include "ports/outbound_repository.h"
#include "ports/pot_repository.h"
#include "ports/store.h"

#define FAULTY_HELD_MAX 8

struct faulty_store {
	struct store base;

	/* Planned by the test. */
	bool survives;      /* an OUTCOME_UNKNOWN that strikes at commit has been committed */
	const char *poison; /* every edit of this count is refused as POISON */
	int64_t now_us;     /* begins at 1000000 */

	/* Counted. */
	bool has_failed;      /* the planned fault has struck */
	size_t commits;       /* that their callers were told of */
	size_t takes;         /* of locks of pots */
	size_t kinds_written; /* of coins */

	/* Its own. */
	int fail_at;
	enum status fail_with;
	struct slice held[FAULTY_HELD_MAX];
	size_t held_count;
	size_t open_sessions;
	struct faulty_file *file;
};

/* An empty store, which is started. */
struct faulty_store *faulty_store_new(void);

/* After all sessions are closed. */
void faulty_store_free(struct faulty_store *faulty);

struct session *faulty_store_open_session(struct faulty_store *faulty, enum session_kind kind);

extern const struct count_repository faulty_count_repository;
extern const struct limit_repository faulty_limit_repository;
extern const struct outbound_repository faulty_outbound_repository; /* note() only */
extern const struct pot_repository faulty_pot_repository;

/* The `n`th call from now (1 = the next) fails with `status`, once. 0: none will. An
 * OUTCOME_UNKNOWN at another call than COMMIT is a RERUN. */
void faulty_store_fail_at(struct faulty_store *faulty, int n, enum status status);

/* Another session holds the row of this count or limit: TRANSACTION_WAIT fails with LOCK_BUSY,
 * TRANSACTION_SKIP reports it busy. */
void faulty_store_hold(struct faulty_store *faulty, struct slice id, bool held);

/* ---- rows: what is committed, untouched by faults. Outside a transaction. ---------------- */

/* Looks counts up, all at once: exists = false where there is none. */
void faulty_store_find(struct faulty_store *faulty, struct count_row *rows, size_t count);
struct count_row faulty_store_get(struct faulty_store *faulty, struct slice item_id);

/* Inserts counts, in one transaction; the second form inserts one without bounds. */
void faulty_store_insert(struct faulty_store *faulty, const struct count_row *rows, size_t count);
void faulty_store_add_count(struct faulty_store *faulty, const char *item_id, int64_t value);

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
