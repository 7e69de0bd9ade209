/*
 * Where the limits of users are kept: the seed's rate_limit_store, one row a user that is both the
 * configuration and the count. All functions block, take a session of the same engine, and return
 * what ports/store.h lists. User ids in arrays are unique and sorted by bytes.
 */
#ifndef QUIPU_PORTS_LIMIT_REPOSITORY_H
#define QUIPU_PORTS_LIMIT_REPOSITORY_H

#include "ports/store.h"

struct limit_row {
	struct slice user_id;
	bool exists;
	bool busy; /* TRANSACTION_SKIP only: another session holds it */
	int32_t rate_limit;
	int32_t time_window;     /* in units of --gateway-window-unit */
	int32_t current_count;   /* confirmed by the bus in this window */
	int32_t reserved_count;  /* admitted in this window and not given back */
	int64_t last_refresh_us; /* the window's start, and its identity */
};

/* What became of reserved slots of one window. */
struct limit_settlement {
	struct slice user_id;
	int64_t window_start_us; /* applies only while the row is still in this window */
	int32_t confirmed;
	int32_t given_back;
};

struct limit_repository;

struct limit_repository_ops {
	/* In a transaction: locks the rows that exist and fills them in; also the store's time. */
	QP_MUST_CHECK enum status (*lock)(const struct limit_repository *repository,
		struct session *session, struct limit_row *rows, size_t count, int64_t *now_us);

	/*
	 * In a transaction: writes every field of the rows, which are locked (`exists`) or new.
	 * RERUN: another session made one of the new ones first.
	 */
	QP_MUST_CHECK enum status (*put)(const struct limit_repository *repository,
		struct session *session, const struct limit_row *rows, size_t count);

	/* In a transaction. Entries of one user with different windows may follow each other. */
	QP_MUST_CHECK enum status (*settle)(const struct limit_repository *repository,
		struct session *session, const struct limit_settlement *settlements, size_t count);

	/* Outside a transaction: looks rows up, locks nothing; also the store's time. */
	QP_MUST_CHECK enum status (*find)(const struct limit_repository *repository,
		struct session *session, struct limit_row *rows, size_t count, int64_t *now_us);

	/* Outside a transaction: a page of all users, by user_id. */
	QP_MUST_CHECK enum status (*list)(const struct limit_repository *repository,
		struct session *session, struct arena *arena, struct row_page *page,
		struct limit_row *rows);
};

/* The head of each adapter's own repository. */
struct limit_repository {
	const struct limit_repository_ops *ops;
};

#endif
