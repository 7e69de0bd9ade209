/* Declarations shared by the files of the faulty store. Tests use faulty_store.h. */
#ifndef QUIPU_TESTS_FAULTY_INTERNAL_H
#define QUIPU_TESTS_FAULTY_INTERNAL_H

#include <assert.h>

#include "faulty_store.h"

/* The SQLite store under a faulty one. When that is freed, this one is emptied and used again. */
struct faulty_file {
	struct store *store;
	struct session *session;   /* for the functions that change rows past all faults */
	struct faulty_store *user; /* NULL while it waits to be used again */
};

/* Open and close an empty store that uses the clock of `user`. */
struct faulty_file *faulty_file_open(struct faulty_store *user);
void faulty_file_close(struct faulty_file *file);

struct faulty_session {
	struct session base;
	struct session *inner;
	enum transaction_mode mode;
	/* its single verb has committed already, so commit() has nothing to do */
	bool is_committed;
};

/* Casts, which abort if the session is of another kind. */
struct faulty_store *faulty_store_of(struct session *session);
struct faulty_session *faulty_session_of(struct session *session);

/* Return the session and the repositories of the SQLite store. */
static inline struct session *faulty_inner(struct session *session)
{
	return faulty_session_of(session)->inner;
}

static inline const struct store_repositories *faulty_repositories(struct session *session)
{
	return faulty_store_of(session)->file->store->repositories;
}

/* Every call of the port calls this. Returns the planned fault if this call is the one that must
 * fail. */
QP_MUST_CHECK enum status faulty_pass(struct session *session);

/* The same for a call inside a transaction, which a fault rolls back. */
QP_MUST_CHECK enum status faulty_step(struct session *session);

/* Rolls back and returns `status`. */
QP_MUST_CHECK enum status faulty_refuse(struct session *session, enum status status);

/* Ends a transaction in the way that is planned for its COMMIT; `status` is what faulty_pass()
 * returned for it. */
QP_MUST_CHECK enum status faulty_end(struct session *session, enum status status);

bool faulty_is_held(struct session *session, struct slice id);

#endif
