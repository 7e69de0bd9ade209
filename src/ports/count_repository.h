/*
 * Stores counts for the count service. All functions block, take a session of the same store, and
 * return a status that ports/store.h lists. Ids in arrays are unique and sorted by bytes, which is
 * also the order in which rows are locked.
 */
#ifndef QUIPU_PORTS_COUNT_REPOSITORY_H
#define QUIPU_PORTS_COUNT_REPOSITORY_H

#include "ports/store.h"

/* The lower or the upper bound of a count. If `is_set` is false, only the range of int64 limits the
 * count on this side. */
struct count_bound {
	bool is_set;
	int64_t value;
};

struct count_bounds {
	struct count_bound min;
	struct count_bound max;
};

/*
 * Several additions to one count, folded into one: their sum, and the lowest and highest partial
 * sum (`lowest` <= 0 <= `highest`). The addition applies only if value + lowest and value + highest
 * are within int64 and within the count's bounds; then the value after every single addition is
 * within them, too.
 */
struct count_addition {
	struct slice item_id;
	int64_t sum;
	int64_t lowest;
	int64_t highest;

	bool applied;  /* output: false if the count is missing or would leave its bounds */
	int64_t value; /* output: the value after the addition */
};

struct count_row {
	struct slice item_id;
	bool exists;
	bool busy; /* another session has locked the row; set only under TRANSACTION_SKIP */
	int64_t value;
	int64_t updated_us;
	struct count_bounds bounds;
};

enum count_edit_kind { COUNT_UPDATE, COUNT_INSERT, COUNT_DELETE };

struct count_edit {
	struct slice item_id;
	enum count_edit_kind kind;
	int64_t value; /* `value` and `bounds` replace the value and bounds of the row */
	struct count_bounds bounds;
};

struct count_repository;

struct count_repository_ops {
	/* Applies each addition with an atomic UPDATE, without reading the counts first. Must be
	 * called in a transaction whose mode is not TRANSACTION_SKIP. */
	QP_MUST_CHECK enum status (*add)(const struct count_repository *repository,
		struct session *session, struct count_addition *additions, size_t count);

	/* Locks the rows that exist and fills them in. Sets `*now_us` to the store's time. Must be
	 * called in a transaction. */
	QP_MUST_CHECK enum status (*lock)(const struct count_repository *repository,
		struct session *session, struct count_row *rows, size_t count, int64_t *now_us);

	/* Updates and deletes rows that lock() has found, and inserts new rows. Returns RERUN if
	 * another session inserted one of the new rows first. Must be called in a transaction. */
	QP_MUST_CHECK enum status (*edit)(const struct count_repository *repository,
		struct session *session, const struct count_edit *edits, size_t count,
		int64_t now_us);

	/* Looks up rows without locking them. Must be called outside a transaction. */
	QP_MUST_CHECK enum status (*find)(const struct count_repository *repository,
		struct session *session, struct count_row *rows, size_t count);

	/* Reads a page of all counts, sorted by item_id. Must be called outside a transaction. */
	QP_MUST_CHECK enum status (*list)(const struct count_repository *repository,
		struct session *session, struct arena *arena, struct row_page *page,
		struct count_row *rows);
};

/* Each adapter embeds this struct as the first member of its own repository. */
struct count_repository {
	const struct count_repository_ops *ops;
};

#endif
