/* Looks up users' entitlements and the audit of their changes. */
#ifndef QUIPU_SERVICES_ENTITLEMENTS_LOOKUP_H
#define QUIPU_SERVICES_ENTITLEMENTS_LOOKUP_H

#include "flow/reader.h"
#include "services/entitlements/entitlements.h"

/* A lookup of one entitlement with its sources, or of one page of a user's entitlements. */
struct entitlement_lookup {
	struct read read;
	struct slice user_id;
	struct slice unit; /* empty for a page */

	/* for one entitlement: if `wants_all` is false and the entitlement has more than
	 * ENTITLEMENT_SOURCES_FEW sources, the answer is empty and `has_more` is true */
	bool wants_all;
	bool has_more;

	/* for a page */
	struct slice path;   /* the raw path, for the link to the next page */
	struct slice status; /* ACTIVE or REVOKED; empty for both */
	struct slice after;
	size_t limit;
};

/* An answer with at most this many sources is not longer than LARGE_ANSWER. */
#define ENTITLEMENT_SOURCES_FEW 4

extern const struct command_type entitlement_lookup_type;

/* Creates a zeroed lookup in `arena`, and sets its type. */
struct entitlement_lookup *entitlement_lookup_new(struct arena *arena);

/* Returns the lookup that `read` belongs to. Aborts if `read` is not an entitlement lookup. */
struct entitlement_lookup *entitlement_lookup_of(struct read *read);

/* Answers every read of the batch (each a struct entitlement_lookup); see flow/reader.h. Blocks. */
enum status entitlement_look_up(const struct entitlements *entitlements, struct session *session,
	const struct read_batch *batch);

/* Reads one page of a user's audit, newest first. */
struct audit_lookup {
	struct read read;
	const struct entitlement_repository *repository;
	struct slice path; /* the raw path, for the link to the next page */
	struct audit_page page;
};

/* Creates a zeroed lookup in `arena`, and sets its members `type`, `look_up` and `page`. The page
 * begins at the newest line. */
struct audit_lookup *audit_lookup_new(struct arena *arena);

/*
 * Reads a cursor from the link to the next page: the time, version, step and unit of the last line
 * of the previous page. Returns false, and changes nothing, if the text is not a cursor.
 */
QP_MUST_CHECK bool audit_cursor_read(struct slice cursor, struct audit_page *page);

#endif
