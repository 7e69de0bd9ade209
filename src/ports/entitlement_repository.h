/*
 * Stores what users are entitled to. An entitlement is one row for a user and a stock keeping unit
 * (`unit`), with the sources that it comes from and an audit line for each change. Functions block,
 * take a session of the same store, and return a status that ports/store.h lists. Arrays have no
 * duplicates. Rows are sorted by the bytes of user_id, then unit; sources are sorted by the bytes
 * of user_id, unit, kind and id.
 *
 * A session that has locked a row may also read and write the row's sources, which have no locks of
 * their own.
 */
#ifndef QUIPU_PORTS_ENTITLEMENT_REPOSITORY_H
#define QUIPU_PORTS_ENTITLEMENT_REPOSITORY_H

#include "ports/eraser.h"
#include "ports/store.h"

struct entitlement_row {
	struct slice user_id;
	struct slice unit; /* stock_keeping_unit */
	bool exists;
	bool busy;       /* another session has locked the row; set only under TRANSACTION_SKIP */
	bool is_active;  /* true if the status is ACTIVE, false if it is REVOKED */
	int64_t version; /* counts how often the status changed */
	/* counts the changes of sources since the status last changed */
	int64_t step;
	int64_t updated_us;

	/* How many sources the row has, and how many of them are active; set only by
	 * find_sources(). */
	size_t source_count;
	size_t active_count;

	/* Input: if true, put() revokes all active sources of the row before it writes the sources
	 * of struct entitlement_changes. */
	bool ends_sources;
};

/* The kinds of sources. MIGRATED stands for an unknown origin: the entitlement is older than the
 * table of sources, and its audit lines were already deleted when that table was created. The id of
 * a MIGRATED source is also "migrated". */
#define ENTITLEMENT_PURCHASE "purchase"
#define ENTITLEMENT_REASON "reason"
#define ENTITLEMENT_MIGRATED "migrated"

/* What an entitlement comes from: a purchase, or a reason if there was no purchase. */
struct entitlement_source {
	struct slice user_id;
	struct slice unit;
	struct slice kind;
	struct slice id;
	bool exists;
	bool is_active; /* true if the status is ACTIVE, false if it is REVOKED */
	/* the reason of the grant that created the source; put() does not change the reason of an
	 * existing source */
	struct slice reason;
	int64_t granted_us; /* 0 if the source was never granted */
	int64_t revoked_us; /* 0 if the source is active */
};

/* One line of entitlement_audit. The lines of an entitlement are numbered by version and step. */
struct entitlement_audit {
	struct slice user_id;
	struct slice unit;
	bool is_active;  /* true if the action is GRANTED, false if it is REVOKED */
	int64_t version; /* the version of the entitlement after the change */
	int64_t step;    /* 0 for the line that changed the status and so began the version; the
			  * later lines of the version are numbered from 1 */
	struct slice reason;
	struct slice purchase_id; /* may be empty */
	/* empty if there is no event, because the status did not change */
	struct slice event_id;
	int64_t at_us;
};

/* Everything that one transaction writes. */
struct entitlement_changes {
	const struct entitlement_row *rows; /* locked if `exists` is true, otherwise new */
	size_t row_count;
	/* sources of these rows; `exists` is true if find_sources() has found the source */
	const struct entitlement_source *sources;
	size_t source_count;
	const struct entitlement_audit *lines;
	size_t line_count;
};

/* One entitlement with its sources. */
struct entitlement_look {
	struct entitlement_row row; /* the caller sets user_id and unit; look() sets the rest */
	/* output, allocated from the arena: active sources, newest first, then revoked sources,
	 * newest first */
	struct entitlement_source *sources;
	size_t source_count;
};

/* A page of one user's entitlements, sorted by unit. */
struct entitlement_query {
	struct slice user_id;
	struct slice after;  /* unit of the last row seen; empty to start at the first */
	struct slice status; /* only rows with this status, ACTIVE or REVOKED; empty for all */
	size_t limit;

	struct entitlement_row *rows; /* output, allocated from the arena; at most `limit` */
	size_t row_count;
};

/* The end of the year 9999, later than the time of any audit line. */
#define AUDIT_NEWEST_US INT64_C(253402300799999999)

/* A page of one user's audit lines, newest first. Lines of the same moment are sorted by unit,
 * version and step, greatest first. */
struct audit_page {
	struct slice user_id;
	struct entitlement_audit before; /* at_us, unit, version and step of the last line seen */
	size_t limit;

	struct entitlement_audit *lines; /* the caller's array for `limit` lines */
	size_t count;                    /* output: how many lines the page has */
};

/* An entitlement with its newest audit lines, for `quipu verify`. */
struct entitlement_facts {
	struct entitlement_row row;
	bool has_source; /* the entitlement has an active source */
	/* the entitlement has an audit line that changed the status; the next three members
	 * describe the newest such line */
	bool has_line;
	bool line_is_active;
	int64_t line_version;
	int64_t line_us;
	int64_t newest_version; /* the version of the newest audit line; 0 if there are no lines */
	int64_t newest_step;
};

/* An audit line and the rows that belong to it, for `quipu verify`. */
struct audit_facts {
	struct entitlement_audit line; /* without reason and purchase_id */
	bool is_repeated;              /* another line has the same version and step */
	int64_t version_before;        /* the version of the previous line; 0 for the first line */
	int64_t step_before;
	bool has_row; /* the entitlement exists */
	/* the outbox has the line's event; the next three members come from that event */
	bool has_event;
	struct slice event_type;
	struct slice event_key;
	struct slice payload;
};

/* A user and unit that have sources, for `quipu verify`. */
struct source_owner {
	struct slice user_id;
	struct slice unit;
	bool has_row; /* the entitlement exists */
};

struct entitlement_repository;

struct entitlement_repository_ops {
	/* Locks the rows that exist and fills them in. Sets `*now_us` to the store's time. Must be
	 * called in a transaction. */
	QP_MUST_CHECK enum status (*lock)(const struct entitlement_repository *repository,
		struct session *session, struct entitlement_row *rows, size_t count,
		int64_t *now_us);

	/*
	 * Looks up `sources`, and fills in all members except `reason` of each source that exists.
	 * Sets in each row how many sources the row has, including sources that are not in
	 * `sources`. Must be called in the transaction that has locked the rows.
	 */
	QP_MUST_CHECK enum status (*find_sources)(const struct entitlement_repository *repository,
		struct session *session, struct entitlement_row *rows, size_t row_count,
		struct entitlement_source *sources, size_t source_count);

	/*
	 * Writes every field of the rows and sources, and adds the audit lines. Returns RERUN if
	 * another session created one of the new rows first. Must be called in a transaction.
	 */
	QP_MUST_CHECK enum status (*put)(const struct entitlement_repository *repository,
		struct session *session, const struct entitlement_changes *changes);

	/* Answers several queries at once. Must be called outside a transaction. */
	QP_MUST_CHECK enum status (*list)(const struct entitlement_repository *repository,
		struct session *session, struct arena *arena, struct entitlement_query *queries,
		size_t count);

	/* Looks up entitlements, and reads each entitlement and its first `source_max` sources from
	 * one snapshot. `looks` may be in any order and have duplicates. Must be called outside a
	 * transaction. */
	QP_MUST_CHECK enum status (*look)(const struct entitlement_repository *repository,
		struct session *session, struct arena *arena, struct entitlement_look *looks,
		size_t count, size_t source_max);

	/* Reads a page of one user's audit lines. Must be called outside a transaction. */
	QP_MUST_CHECK enum status (*read_audit)(const struct entitlement_repository *repository,
		struct session *session, struct arena *arena, struct audit_page *page);

	/* Reads a page of all entitlements, sorted by user_id and unit (page->after). Must be
	 * called outside a transaction. */
	QP_MUST_CHECK enum status (*list_facts)(const struct entitlement_repository *repository,
		struct session *session, struct arena *arena, struct row_page *page,
		struct entitlement_facts *rows);

	/* Reads a page of all audit lines, sorted by user_id, unit, version and step (page->after,
	 * after_number and after_minor). Must be called outside a transaction. */
	QP_MUST_CHECK enum status (*list_audit)(const struct entitlement_repository *repository,
		struct session *session, struct arena *arena, struct row_page *page,
		struct audit_facts *lines);

	/* Reads a page of all pairs of user_id and unit that have sources, sorted by both, for
	 * `quipu verify`. Lists a pair even if its entitlement does not exist. Must be called
	 * outside a transaction. */
	QP_MUST_CHECK enum status (*list_source_owners)(
		const struct entitlement_repository *repository, struct session *session,
		struct arena *arena, struct row_page *page, struct source_owner *owners);

	/*
	 * Creates the audit's partitions for this month and the next three, if the engine has
	 * partitions, and drops lines older than `keep_months` months, or none if `keep_months` is
	 * 0. Runs in transactions of its own. Called at start and every hour; two processes may
	 * call it at the same time.
	 */
	QP_MUST_CHECK enum status (*tend_audit)(const struct entitlement_repository *repository,
		struct session *session, int keep_months);
};

/* Each adapter embeds this struct as the first member of its own repository. */
struct entitlement_repository {
	const struct entitlement_repository_ops *ops;
	const struct eraser *eraser;
};

#endif
