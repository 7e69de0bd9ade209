/* What the files of the faulty store share. Tests use faulty_store.h. */
#ifndef QUIPU_TESTS_FAULTY_INTERNAL_H
#define QUIPU_TESTS_FAULTY_INTERNAL_H

#include <assert.h>

#include "base/clock.h"
#include "faulty_store.h"

#define HELD_MAX 8
#define TABLES_MAX 16

/* What is planned and counted for one test. */
struct faulty_plan {
	struct slice held[HELD_MAX];
	size_t held_count;
	const char *poison;
	bool survives;
	int fail_at;
	enum status fail_with;
	bool has_failed;
	size_t commits;
	size_t takes;
	size_t kinds_written;
	int64_t now_us;
};

struct faulty_store {
	struct store base;
	struct store *inner;
	struct session *own; /* of the inner store, for the test's own hands */
	struct clock clock;
	char *path;
	struct sqlite3_stmt *empty[TABLES_MAX + 2]; /* delete all rows, in one transaction */
	size_t open_sessions;
	struct faulty_plan plan;
	struct faulty_store *next_spare;
};

struct faulty_session {
	struct session base;
	struct session *inner;
	enum transaction_mode mode;
	bool is_committed; /* by its single verb: commit() has nothing left to do */
};

/* Checked downcasts. */
struct faulty_store *faulty_store_of(struct store *store);
struct faulty_session *faulty_session_of(struct session *session);

static inline struct faulty_plan *faulty_plan_of(struct session *session)
{
	return &faulty_store_of(session->store)->plan;
}

static inline const struct store_repositories *faulty_inner_repositories(struct session *session)
{
	return faulty_store_of(session->store)->inner->repositories;
}

/* Every call of the port passes here, and fails if it is the one that shall. */
QP_MUST_CHECK enum status faulty_pass(struct session *session);

/* The same for a call inside a transaction, which a fault rolls back. */
QP_MUST_CHECK enum status faulty_step(struct session *session);

/* Rolls back and returns `status`. */
QP_MUST_CHECK enum status faulty_refuse(struct session *session, enum status status);

/* Ends a transaction of the inner session as planned for its COMMIT; `status` is what
 * faulty_pass() has returned for it. */
QP_MUST_CHECK enum status faulty_end(struct session *session, enum status status);

bool faulty_is_held(struct session *session, struct slice id);

#endif
