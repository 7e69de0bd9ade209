/*
 * Stores the limits of users in the table rate_limit_store, which has one row per user with both
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
	bool busy; /* another session has locked the row; set only under TRANSACTION_SKIP */
	int32_t rate_limit;
	int32_t time_window;     /* in units of --gateway-window-unit */
	int32_t current_count;   /* messages confirmed by the bus in this window */
	int32_t reserved_count;  /* slots reserved in this window and not given back */
	int64_t last_refresh_us; /* when the window started; also identifies the window */
	bool shadow;             /* the limit counts messages but refuses none */
	bool by_default;         /* the row was created from the default limit */
};

/* Says how many of the slots that a user reserved in one window were confirmed or given back.
 * settle() applies it only if the user's row is still in that window. */
struct limit_settlement {
	struct slice user_id;
	int64_t window_start_us;
	int32_t confirmed;
	int32_t given_back;
};

/* Says which rows are idle: those that were created from the default limit and whose window started
 * more than `windows` window lengths ago. */
struct limit_idle {
	int64_t unit_us; /* the length of a window whose time_window is 1 */
	int64_t windows;
};

struct limit_repository;

struct limit_repository_ops {
	/* Locks the rows that exist and fills them in. Sets `*now_us` to the store's time. Must be
	 * called in a transaction. */
	QP_MUST_CHECK enum status (*lock)(const struct limit_repository *repository,
		struct session *session, struct limit_row *rows, size_t count, int64_t *now_us);

	/*
	 * Writes every field of the rows. The caller has locked the rows whose `exists` is true;
	 * the other rows are inserted. Returns RERUN if another session has inserted one of these
	 * other rows first. Must be called in a transaction.
	 */
	QP_MUST_CHECK enum status (*put)(const struct limit_repository *repository,
		struct session *session, const struct limit_row *rows, size_t count);

	/* Deletes the rows of these users. Must be called in the transaction that has locked the
	 * rows. */
	QP_MUST_CHECK enum status (*remove)(const struct limit_repository *repository,
		struct session *session, const struct slice *user_ids, size_t count);

	/* Records how many reserved slots were confirmed or given back. A user may have several
	 * settlements, for different windows. Must be called in a transaction. */
	QP_MUST_CHECK enum status (*settle)(const struct limit_repository *repository,
		struct session *session, const struct limit_settlement *settlements, size_t count);

	/* Deletes up to `limit` rows that are idle (see struct limit_idle), in a transaction of its
	 * own. */
	QP_MUST_CHECK enum status (*sweep)(const struct limit_repository *repository,
		struct session *session, const struct limit_idle *idle, size_t limit,
		size_t *deleted);

	/* Looks up rows without locking them. Sets `*now_us` to the store's time. Must be called
	 * outside a transaction. */
	QP_MUST_CHECK enum status (*find)(const struct limit_repository *repository,
		struct session *session, struct limit_row *rows, size_t count, int64_t *now_us);

	/* Reads a page of the rows of all users, sorted by user_id. Must be called outside a
	 * transaction. */
	QP_MUST_CHECK enum status (*list)(const struct limit_repository *repository,
		struct session *session, struct arena *arena, struct row_page *page,
		struct limit_row *rows);
};

/* Each adapter embeds this struct as the first member of its own repository. */
struct limit_repository {
	const struct limit_repository_ops *ops;
	const struct eraser *eraser;
};

#endif
