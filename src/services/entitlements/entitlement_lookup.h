/* Looks up what users are entitled to, and the audit of how that came about. */
#ifndef QUIPU_SERVICES_ENTITLEMENTS_LOOKUP_H
#define QUIPU_SERVICES_ENTITLEMENTS_LOOKUP_H

#include "flow/reader.h"
#include "services/entitlements/entitlements.h"

/* A lookup of one entitlement with its sources, or of one page of a user's entitlements. */
struct entitlement_lookup {
	struct read read;
	struct slice user_id;
	struct slice unit;   /* empty for a page, which has the following fields */
	struct slice path;   /* as sent, for the link to the next page */
	struct slice status; /* only ACTIVE or only REVOKED ones; empty for both */
	struct slice after;
	size_t limit;
};

extern const struct command_type entitlement_lookup_type;

/* Creates one in `arena`, zeroed except for its type. */
struct entitlement_lookup *entitlement_lookup_new(struct arena *arena);

/* Aborts if `read` is of another type. */
struct entitlement_lookup *entitlement_lookup_of(struct read *read);

/* Answers every read of the batch (each a struct entitlement_lookup); see flow/reader.h. Blocks. */
enum status entitlement_look_up(const struct entitlements *entitlements, struct session *session,
	const struct read_batch *batch);

/* A page of a user's audit, newest first. */
struct audit_lookup {
	struct read read;
	const struct entitlement_repository *repository;
	struct slice path; /* as sent, for the link to the next page */
	struct audit_page page;
};

/* Creates one in `arena`, zeroed except for its type, its look_up and its page, which begins at the
 * newest line. */
struct audit_lookup *audit_lookup_new(struct arena *arena);

/*
 * Reads the cursor of a page: the time, version, step and unit of the last line seen, as the link
 * to the next page has them. Returns false, and changes nothing, if it is not one.
 */
QP_MUST_CHECK bool audit_cursor_read(struct slice cursor, struct audit_page *page);

#endif
