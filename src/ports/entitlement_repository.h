/*
 * What users are entitled to: one row for each user and stock keeping unit, the sources that it
 * comes from, and an audit line for each change. Functions block, take a session of the same store,
 * and return a status that ports/store.h lists. Arrays have no duplicates. Rows are sorted by the
 * bytes of user_id, then unit; sources by these, then kind and id.
 *
 * A session that has locked a row may read and write its sources; they have no locks of their own.
 */
#ifndef QUIPU_PORTS_ENTITLEMENT_REPOSITORY_H
#define QUIPU_PORTS_ENTITLEMENT_REPOSITORY_H

#include "ports/eraser.h"
#include "ports/store.h"

struct entitlement_row {
	struct slice user_id;
	struct slice unit; /* stock_keeping_unit */
	bool exists;
	bool busy;       /* another session holds the row; only under TRANSACTION_SKIP */
	bool is_active;  /* true if the status is ACTIVE, false if it is REVOKED */
	int64_t version; /* counts how often the status changed */
	/* counts the changes of sources since the status last changed */
	int64_t step;
	int64_t updated_us;

	/* How many sources the row has; set only by find_sources(). */
	size_t source_count;
	size_t active_count;

	/* In: before put() writes the given sources, it ends all active sources. */
	bool ends_sources;
};

/* The kinds of sources. MIGRATED stands for an unknown origin: the entitlement is older than
 * sources, and its audit lines were already deleted. The id of such a source is the same word. */
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
	/* the reason of the grant that created it; put() ignores it if the source exists */
	struct slice reason;
	int64_t granted_us; /* 0 if it was never granted */
	int64_t revoked_us; /* 0 if it is active */
};

/* One line of entitlement_audit. The lines of an entitlement are numbered by version and step. */
struct entitlement_audit {
	struct slice user_id;
	struct slice unit;
	bool is_active;  /* true if the action is GRANTED, false if it is REVOKED */
	int64_t version; /* the version of the entitlement after the change */
	int64_t step;    /* 0 if the status changed */
	struct slice reason;
	struct slice purchase_id; /* may be empty */
	/* empty if there is no event, because the status did not change */
	struct slice event_id;
	int64_t at_us;
};

/* Everything that one transaction writes. */
struct entitlement_changes {
	const struct entitlement_row *rows; /* locked (`exists`) or new */
	size_t row_count;
	/* sources of these rows, found (`exists`) or new */
	const struct entitlement_source *sources;
	size_t source_count;
	const struct entitlement_audit *lines;
	size_t line_count;
};

/* One entitlement with its sources. */
struct entitlement_look {
	struct entitlement_row row; /* in: user_id and unit */
	/* out, in memory of the arena: active sources, then revoked sources, each newest first */
	struct entitlement_source *sources;
	size_t source_count; /* at most ENTITLEMENT_SOURCES_SHOWN */
};

#define ENTITLEMENT_SOURCES_SHOWN 1000

/* A page of one user's entitlements, sorted by unit. */
struct entitlement_query {
	struct slice user_id;
	struct slice after;  /* unit of the last row seen; empty to start at the first */
	struct slice status; /* only rows with this status, ACTIVE or REVOKED; empty for all */
	size_t limit;

	struct entitlement_row *rows; /* out, in memory of the arena; at most `limit` */
	size_t row_count;
};

/* Later than any line can be: the end of the year 9999. */
#define AUDIT_NEWEST_US INT64_C(253402300799999999)

/* A page of one user's audit, newest first. Lines of the same moment are sorted by unit, version
 * and step, greatest first. */
struct audit_page {
	struct slice user_id;
	struct entitlement_audit before; /* at_us, unit, version and step of the last line seen */
	size_t limit;

	struct entitlement_audit *lines; /* in: room for `limit` lines */
	size_t count;                    /* out */
};

/* An entitlement with its newest audit lines, for `quipu verify`. */
struct entitlement_facts {
	struct entitlement_row row;
	bool has_source; /* it has an active source */
	/* it has a line that changed the status; the next members describe the newest such line */
	bool has_line;
	bool line_is_active;
	int64_t line_version;
	int64_t line_us;
	int64_t newest_version; /* the version of the newest line of all; 0 if there are no lines */
	int64_t newest_step;
};

/* An audit line and the rows that belong to it. */
struct audit_facts {
	struct entitlement_audit line; /* without reason and purchase_id */
	bool is_repeated;              /* another line has the same version and step */
	int64_t version_before;        /* the version of the line before it; 0 if it is the first */
	int64_t step_before;
	bool has_row;   /* the entitlement exists */
	bool has_event; /* its event is in the outbox; the next members are from that event */
	struct slice event_type;
	struct slice event_key;
	struct slice payload;
};

/* An entitlement that has sources, for `quipu verify`. */
struct source_owner {
	struct slice user_id;
	struct slice unit;
	bool has_row; /* the entitlement exists */
};

struct entitlement_repository;

struct entitlement_repository_ops {
	/* In a transaction: locks the rows that exist and fills them in. Also returns the store's
	 * time. */
	QP_MUST_CHECK enum status (*lock)(const struct entitlement_repository *repository,
		struct session *session, struct entitlement_row *rows, size_t count,
		int64_t *now_us);

	/*
	 * In a transaction that has locked the rows: fills in the sources that exist, except for
	 * `reason`, and counts all sources of each row.
	 */
	QP_MUST_CHECK enum status (*find_sources)(const struct entitlement_repository *repository,
		struct session *session, struct entitlement_row *rows, size_t row_count,
		struct entitlement_source *sources, size_t source_count);

	/*
	 * In a transaction: writes every field of the rows and sources, and adds the audit lines.
	 * Returns RERUN if another session created one of the new rows first.
	 */
	QP_MUST_CHECK enum status (*put)(const struct entitlement_repository *repository,
		struct session *session, const struct entitlement_changes *changes);

	/* Outside a transaction: answers several queries at once. */
	QP_MUST_CHECK enum status (*list)(const struct entitlement_repository *repository,
		struct session *session, struct arena *arena, struct entitlement_query *queries,
		size_t count);

	/* Outside a transaction: looks up entitlements. Each is read together with its sources,
	 * from one snapshot. `looks` may be in any order and have duplicates. */
	QP_MUST_CHECK enum status (*look)(const struct entitlement_repository *repository,
		struct session *session, struct arena *arena, struct entitlement_look *looks,
		size_t count);

	/* Outside a transaction: reads a page of one user's audit. */
	QP_MUST_CHECK enum status (*read_audit)(const struct entitlement_repository *repository,
		struct session *session, struct arena *arena, struct audit_page *page);

	/* Outside a transaction: reads a page of all entitlements, by user_id and unit
	 * (page->after). */
	QP_MUST_CHECK enum status (*list_facts)(const struct entitlement_repository *repository,
		struct session *session, struct arena *arena, struct row_page *page,
		struct entitlement_facts *rows);

	/* Outside a transaction: reads a page of all audit lines, by user_id, unit, version and
	 * step (page->after, after_number and after_minor). */
	QP_MUST_CHECK enum status (*list_audit)(const struct entitlement_repository *repository,
		struct session *session, struct arena *arena, struct row_page *page,
		struct audit_facts *lines);

	/* Outside a transaction, for `quipu verify`: reads a page of the entitlements that have
	 * sources, by user_id and unit, whether they exist or not. */
	QP_MUST_CHECK enum status (*list_source_owners)(
		const struct entitlement_repository *repository, struct session *session,
		struct arena *arena, struct row_page *page, struct source_owner *owners);

	/*
	 * In transactions of its own: creates the audit's partitions for this month and the next
	 * three, if the engine has partitions, and drops lines older than `keep_months` unless that
	 * is 0. Called at start and every hour; two processes may call it at once.
	 */
	QP_MUST_CHECK enum status (*tend_audit)(const struct entitlement_repository *repository,
		struct session *session, int keep_months);
};

/* The first member of each adapter's own repository. */
struct entitlement_repository {
	const struct entitlement_repository_ops *ops;
	const struct eraser *eraser;
};

#endif
