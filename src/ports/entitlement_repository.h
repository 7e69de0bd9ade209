/*
 * What users are entitled to: one row for each user and stock keeping unit, and an audit line for
 * each change. Functions block, take a session of the same store, and return what ports/store.h
 * lists. In an array no row occurs twice, and rows are sorted by the bytes of user_id, then unit.
 */
#ifndef QUIPU_PORTS_ENTITLEMENT_REPOSITORY_H
#define QUIPU_PORTS_ENTITLEMENT_REPOSITORY_H

#include "ports/store.h"

struct entitlement_row {
	struct slice user_id;
	struct slice unit; /* stock_keeping_unit */
	bool exists;
	bool busy;      /* another session holds the row; only under TRANSACTION_SKIP */
	bool is_active; /* status ACTIVE, otherwise REVOKED */
	int64_t version;
	int64_t updated_us;
};

/* One line of entitlement_audit. */
struct entitlement_audit {
	struct slice user_id;
	struct slice unit;
	bool is_active; /* action GRANTED, otherwise REVOKED */
	int64_t version;
	struct slice reason;
	struct slice purchase_id;
	struct slice event_id;
	int64_t at_us;
};

/* A page of one user's entitlements, sorted by unit. */
struct entitlement_query {
	struct slice user_id;
	struct slice after; /* unit of the last row seen; empty to start at the first */
	size_t limit;

	struct entitlement_row *rows; /* out, in memory of the arena; at most `limit` */
	size_t row_count;
};

/* An entitlement and its newest audit line, for `quipu verify`. */
struct entitlement_facts {
	struct entitlement_row row;
	bool has_line;
	bool line_is_active;
	int64_t line_version;
	int64_t line_us;
};

/* An audit line and the rows that belong to it. */
struct audit_facts {
	struct entitlement_audit line; /* without reason and purchase_id */
	bool is_repeated;              /* another line has the same version */
	int64_t version_before;        /* of the line before it; 0 if it is the first */
	bool has_row;                  /* the entitlement exists */
	bool has_event;                /* its event is in the outbox, with the following columns */
	struct slice event_type;
	struct slice event_key;
	struct slice payload;
};

struct entitlement_repository;

struct entitlement_repository_ops {
	/* In a transaction: locks the rows that exist and fills them in. Also returns the store's
	 * time. */
	QP_MUST_CHECK enum status (*lock)(const struct entitlement_repository *repository,
		struct session *session, struct entitlement_row *rows, size_t count,
		int64_t *now_us);

	/*
	 * In a transaction: writes every field of the rows, which are locked (`exists`) or new.
	 * Returns RERUN if another session created one of the new rows first.
	 */
	QP_MUST_CHECK enum status (*put)(const struct entitlement_repository *repository,
		struct session *session, const struct entitlement_row *rows, size_t count);

	/* In a transaction: adds audit lines. */
	QP_MUST_CHECK enum status (*audit)(const struct entitlement_repository *repository,
		struct session *session, const struct entitlement_audit *lines, size_t count);

	/* Outside a transaction: answers several queries at once. */
	QP_MUST_CHECK enum status (*list)(const struct entitlement_repository *repository,
		struct session *session, struct arena *arena, struct entitlement_query *queries,
		size_t count);

	/* Outside a transaction: a page of all entitlements, by user_id and unit (page->after). */
	QP_MUST_CHECK enum status (*list_facts)(const struct entitlement_repository *repository,
		struct session *session, struct arena *arena, struct row_page *page,
		struct entitlement_facts *rows);

	/* Outside a transaction: a page of all audit lines, by user_id, unit and version
	 * (page->after and after_number). */
	QP_MUST_CHECK enum status (*list_audit)(const struct entitlement_repository *repository,
		struct session *session, struct arena *arena, struct row_page *page,
		struct audit_facts *lines);

	/*
	 * In transactions of its own: creates the audit's partitions for this month and the next
	 * three, if the engine has partitions, and drops lines older than `keep_months` unless that
	 * is 0. Called at start and every hour; two processes may call it at once.
	 */
	QP_MUST_CHECK enum status (*tend_audit)(const struct entitlement_repository *repository,
		struct session *session, int keep_months);
};

/* The head of each adapter's own repository. */
struct entitlement_repository {
	const struct entitlement_repository_ops *ops;
};

#endif
