/*
 * What users are entitled to: one row for each user and stock keeping unit, and the history of
 * every change. Functions block, take a session of the same engine, and return what ports/store.h
 * lists. Arrays of rows are unique and sorted by the bytes of user_id, then unit.
 */
#ifndef QUIPU_PORTS_ENTITLEMENT_REPOSITORY_H
#define QUIPU_PORTS_ENTITLEMENT_REPOSITORY_H

#include "ports/store.h"

struct entitlement_row {
	struct slice user_id;
	struct slice unit; /* stock_keeping_unit */
	bool exists;
	bool busy;      /* TRANSACTION_SKIP only: another session holds it */
	bool is_active; /* status ACTIVE, else REVOKED */
	int64_t version;
	int64_t updated_us;
};

/* One line of entitlement_audit. */
struct entitlement_audit {
	struct slice user_id;
	struct slice unit;
	bool is_active; /* action GRANTED, else REVOKED */
	int64_t version;
	struct slice reason;
	struct slice purchase_id;
	struct slice event_id;
	int64_t at_us;
};

/* A page of one user's entitlements, sorted by unit. */
struct entitlement_query {
	struct slice user_id;
	struct slice after; /* unit of the last one seen, empty: from the start */
	size_t limit;

	struct entitlement_row *rows; /* out, in memory of the arena; at most `limit` */
	size_t row_count;
};

/* An entitlement and the newest line of its history, for `quipu verify`. */
struct entitlement_facts {
	struct entitlement_row row;
	bool has_line;
	bool line_is_active;
	int64_t line_version;
	int64_t line_us;
};

/* A line of the history and what belongs to it. */
struct audit_facts {
	struct entitlement_audit line; /* without reason and purchase_id */
	bool is_repeated;              /* another line has the same version */
	int64_t version_before;        /* of the line before it, 0: there is none */
	bool has_row;                  /* there is such an entitlement */
	bool has_event;                /* its event is in the outbox: with these */
	struct slice event_type;
	struct slice event_key;
	struct slice payload;
};

struct entitlement_repository;

struct entitlement_repository_ops {
	/* In a transaction: locks the rows that exist and fills them in; also the store's time. */
	QP_MUST_CHECK enum status (*lock)(const struct entitlement_repository *repository,
		struct session *session, struct entitlement_row *rows, size_t count,
		int64_t *now_us);

	/*
	 * In a transaction: writes every field of the rows, which are locked (`exists`) or new.
	 * RERUN: another session made one of the new ones first.
	 */
	QP_MUST_CHECK enum status (*put)(const struct entitlement_repository *repository,
		struct session *session, const struct entitlement_row *rows, size_t count);

	/* In a transaction. */
	QP_MUST_CHECK enum status (*audit)(const struct entitlement_repository *repository,
		struct session *session, const struct entitlement_audit *lines, size_t count);

	/* Outside a transaction. */
	QP_MUST_CHECK enum status (*list)(const struct entitlement_repository *repository,
		struct session *session, struct arena *arena, struct entitlement_query *queries,
		size_t count);

	/* Outside a transaction: a page of all entitlements, by user_id and unit (page->after). */
	QP_MUST_CHECK enum status (*list_facts)(const struct entitlement_repository *repository,
		struct session *session, struct arena *arena, struct row_page *page,
		struct entitlement_facts *rows);

	/* Outside a transaction: a page of the whole history, by user_id, unit and version
	 * (page->after and after_number). */
	QP_MUST_CHECK enum status (*list_audit)(const struct entitlement_repository *repository,
		struct session *session, struct arena *arena, struct row_page *page,
		struct audit_facts *lines);

	/*
	 * Transactions of its own: makes the partitions of the audit for this month and the next
	 * three where the engine has partitions, and, if `keep_months` is not 0, drops what is
	 * older. Called at start and every hour; two processes may do it at once.
	 */
	QP_MUST_CHECK enum status (*tend_audit)(const struct entitlement_repository *repository,
		struct session *session, int keep_months);
};

/* The head of each adapter's own repository. */
struct entitlement_repository {
	const struct entitlement_repository_ops *ops;
};

#endif
