/*
 * The repository of counts: the outbound port of the count service. All functions block, take a
 * session of the same store, and return a status that ports/store.h lists. Ids in arrays are unique
 * and sorted by bytes, which is also the order in which rows are locked.
 */
#ifndef QUIPU_PORTS_COUNT_REPOSITORY_H
#define QUIPU_PORTS_COUNT_REPOSITORY_H

#include "ports/store.h"

/* One end of the range in which a count must stay. If it is not set, only int64 limits the
 * count. */
struct count_bound {
	bool is_set;
	int64_t value;
};

struct count_bounds {
	struct count_bound min;
	struct count_bound max;
};

/*
 * Several additions to one count, folded into one: their sum, and the lowest and highest sum after
 * any step (`lowest` <= 0 <= `highest`). The addition applies only if value + lowest and value +
 * highest are within int64 and within the count's bounds; then so is every single step.
 */
struct count_addition {
	struct slice item_id;
	int64_t sum;
	int64_t lowest;
	int64_t highest;

	bool applied;  /* out; false if there is no such count or a step would leave the bounds */
	int64_t value; /* out: the value after the addition */
};

struct count_row {
	struct slice item_id;
	bool exists;
	bool busy; /* another session holds the row; only under TRANSACTION_SKIP */
	int64_t value;
	int64_t updated_us;
	struct count_bounds bounds;
};

enum count_edit_kind { COUNT_UPDATE, COUNT_INSERT, COUNT_DELETE };

struct count_edit {
	struct slice item_id;
	enum count_edit_kind kind;
	int64_t value; /* the new value; it and the bounds replace those of the row */
	struct count_bounds bounds;
};

struct count_repository;

struct count_repository_ops {
	/* In a transaction that is not TRANSACTION_SKIP: applies all additions with one atomic
	 * UPDATE, without reading the counts first. */
	QP_MUST_CHECK enum status (*add)(const struct count_repository *repository,
		struct session *session, struct count_addition *additions, size_t count);

	/* In a transaction: locks the rows that exist and fills them in. Also returns the store's
	 * time. */
	QP_MUST_CHECK enum status (*lock)(const struct count_repository *repository,
		struct session *session, struct count_row *rows, size_t count, int64_t *now_us);

	/* In a transaction: updates and deletes rows that lock() has found, and inserts other rows.
	 * Returns RERUN if another session inserted one of them first. */
	QP_MUST_CHECK enum status (*edit)(const struct count_repository *repository,
		struct session *session, const struct count_edit *edits, size_t count,
		int64_t now_us);

	/* Outside a transaction: looks rows up without locking them. */
	QP_MUST_CHECK enum status (*find)(const struct count_repository *repository,
		struct session *session, struct count_row *rows, size_t count);

	/* Outside a transaction: reads a page of all counts, by item_id. */
	QP_MUST_CHECK enum status (*list)(const struct count_repository *repository,
		struct session *session, struct arena *arena, struct row_page *page,
		struct count_row *rows);
};

/* The first member of each adapter's own repository. */
struct count_repository {
	const struct count_repository_ops *ops;
};

#endif
