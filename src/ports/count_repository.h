/*
 * Where counts are kept: the outbound port of the count service. All functions block, take a
 * session of the same engine, and return what ports/store.h lists. Ids in arrays are unique and
 * sorted by bytes, which is the order in which rows are locked.
 */
#ifndef QUIPU_PORTS_COUNT_REPOSITORY_H
#define QUIPU_PORTS_COUNT_REPOSITORY_H

#include "ports/store.h"

/* Many additions to one count, folded. */
struct count_addition {
	struct slice item_id;
	int64_t sum;
	int64_t least; /* apply only where the value lies between these two, */
	int64_t most;  /* so that no step on the way leaves int64 */

	bool applied;  /* out; false: no such count, or outside the bounds */
	int64_t value; /* out: after the addition */
};

struct count_row {
	struct slice item_id;
	bool exists;
	bool busy; /* TRANSACTION_SKIP only: another session holds it */
	int64_t value;
	int64_t updated_us;
};

enum count_edit_kind { COUNT_UPDATE, COUNT_INSERT, COUNT_DELETE };

struct count_edit {
	struct slice item_id;
	enum count_edit_kind kind;
	int64_t value;
};

struct count_repository;

struct count_repository_ops {
	/* In a transaction that is not TRANSACTION_SKIP: the seed's atomic UPDATE, for all at once.
	 * Reads nothing before. */
	QP_MUST_CHECK enum status (*add)(const struct count_repository *repository,
		struct session *session, struct count_addition *additions, size_t count);

	/* In a transaction: locks the rows that exist and fills them in; also the store's time. */
	QP_MUST_CHECK enum status (*lock)(const struct count_repository *repository,
		struct session *session, struct count_row *rows, size_t count, int64_t *now_us);

	/* In a transaction: updates and deletes rows that lock() has found, inserts others. RERUN:
	 * another session inserted one of them first. */
	QP_MUST_CHECK enum status (*edit)(const struct count_repository *repository,
		struct session *session, const struct count_edit *edits, size_t count,
		int64_t now_us);

	/* Outside a transaction: looks rows up, locks nothing. */
	QP_MUST_CHECK enum status (*find)(const struct count_repository *repository,
		struct session *session, struct count_row *rows, size_t count);

	/* Outside a transaction: a page of all counts, by item_id. */
	QP_MUST_CHECK enum status (*list)(const struct count_repository *repository,
		struct session *session, struct arena *arena, struct row_page *page,
		struct count_row *rows);
};

/* The head of each adapter's own repository. */
struct count_repository {
	const struct count_repository_ops *ops;
};

#endif
