/*
 * The repository of users' limits: the table rate_limit_store, which has one row per user with both
 * the configuration and the count. All functions block, take a session of the same store, and
 * return a status that ports/store.h lists. User ids in arrays are unique and sorted by bytes.
 */
#ifndef QUIPU_PORTS_LIMIT_REPOSITORY_H
#define QUIPU_PORTS_LIMIT_REPOSITORY_H

#include "ports/eraser.h"
#include "ports/store.h"

struct limit_row {
	struct slice user_id;
	bool exists;
	bool busy; /* another session holds the row; only under TRANSACTION_SKIP */
	int32_t rate_limit;
	int32_t time_window;     /* in units of --gateway-window-unit */
	int32_t current_count;   /* messages confirmed by the bus in this window */
	int32_t reserved_count;  /* messages admitted in this window and not given back */
	int64_t last_refresh_us; /* when the window started; also identifies the window */
	bool shadow;             /* counts messages but refuses none */
	bool by_default;         /* created from the default limit, not by a configuration */
};

/* How many of the slots reserved in one window were used or given back. Applied only if the row is
 * still in that window. */
struct limit_settlement {
	struct slice user_id;
	int64_t window_start_us;
	int32_t confirmed;
	int32_t given_back;
};

/* Says which of the rows created from the default limit are idle. */
struct limit_idle {
	int64_t unit_us; /* length of a time_window of 1 */
	int64_t windows;
};

struct limit_repository;

struct limit_repository_ops {
	/* In a transaction: locks the rows that exist and fills them in. Also returns the store's
	 * time. */
	QP_MUST_CHECK enum status (*lock)(const struct limit_repository *repository,
		struct session *session, struct limit_row *rows, size_t count, int64_t *now_us);

	/*
	 * In a transaction: writes every field of the rows, which are locked (`exists`) or new.
	 * Returns RERUN if another session created one of the new rows first.
	 */
	QP_MUST_CHECK enum status (*put)(const struct limit_repository *repository,
		struct session *session, const struct limit_row *rows, size_t count);

	/* In a transaction: deletes rows, which must be locked. */
	QP_MUST_CHECK enum status (*remove)(const struct limit_repository *repository,
		struct session *session, const struct slice *user_ids, size_t count);

	/* In a transaction: records how many reserved slots were used or given back. A user may
	 * have several entries, for different windows. */
	QP_MUST_CHECK enum status (*settle)(const struct limit_repository *repository,
		struct session *session, const struct limit_settlement *settlements, size_t count);

	/*
	 * In a transaction of its own: deletes up to `limit` rows that were created from the
	 * default limit and whose window started more than `windows` window lengths ago.
	 */
	QP_MUST_CHECK enum status (*sweep)(const struct limit_repository *repository,
		struct session *session, const struct limit_idle *idle, size_t limit,
		size_t *deleted);

	/* Outside a transaction: looks rows up without locking them. Also returns the store's
	 * time. */
	QP_MUST_CHECK enum status (*find)(const struct limit_repository *repository,
		struct session *session, struct limit_row *rows, size_t count, int64_t *now_us);

	/* Outside a transaction: reads a page of all users, by user_id. */
	QP_MUST_CHECK enum status (*list)(const struct limit_repository *repository,
		struct session *session, struct arena *arena, struct row_page *page,
		struct limit_row *rows);
};

/* The first member of each adapter's own repository. */
struct limit_repository {
	const struct limit_repository_ops *ops;
	const struct eraser *eraser;
};

#endif
