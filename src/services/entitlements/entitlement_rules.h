/*
 * The rules of entitlements: what a grant or a revoke does to an entitlement and its sources. Pure.
 *
 * An entitlement is ACTIVE as long as one of its sources is active. A source is a purchase, or a
 * reason if no purchase was named. A purchase grants once; a reason may grant again after it has
 * ended. A source is new if the entitlement does not have it yet. In the table, a line `ended` is
 * for a purchase; the line `reason` below it shows what a GRANT does if the ended source is a
 * reason.
 *
 *   entitlement  source      GRANT                   REVOKE of a purchase   REVOKE of all
 *   absent       new         ACTIVE, version 1       NOT_FOUND              NOT_FOUND
 *   ACTIVE       new         step + 1                NOT_FOUND (see below)  REVOKED, version + 1
 *                active      CONFLICT                ends (see below)       REVOKED, version + 1
 *                ended       CONFLICT                CONFLICT               REVOKED, version + 1
 *                  reason    step + 1
 *   REVOKED      new         ACTIVE, version + 1     CONFLICT               CONFLICT
 *                ended       CONFLICT                CONFLICT               CONFLICT
 *                  reason    ACTIVE, version + 1
 *
 * When a source ends and no other source is active, the entitlement becomes REVOKED with
 * version + 1. When a source ends and others stay active, the change counts as step + 1. The source
 * MIGRATED stands for an unknown purchase. Therefore, while MIGRATED is active, a REVOKE that names
 * a new purchase does not return NOT_FOUND: it ends MIGRATED and records the purchase as ended.
 */
#ifndef QUIPU_SERVICES_ENTITLEMENTS_RULES_H
#define QUIPU_SERVICES_ENTITLEMENTS_RULES_H

#include "ports/entitlement_repository.h"

/* How many sources an entitlement may have, active and ended; a grant that would add one more is
 * refused. The limit bounds the work of a batch and the length of an answer. */
#define ENTITLEMENT_SOURCES_MAX 1000

/* Returns true if a change for this reason must name its purchase. */
bool entitlement_needs_purchase(struct slice reason);

/*
 * The functions below change the row and the sources and return OK, or change nothing and return
 * ENTITLEMENT_NOT_FOUND, ENTITLEMENT_STATE_CONFLICT or ENTITLEMENT_TOO_MANY_SOURCES. A row that was
 * never granted has version 0, and a new source has granted_us 0. None of the functions changes
 * `exists`.
 */
QP_MUST_CHECK enum status entitlement_grant(
	struct entitlement_row *row, struct entitlement_source *source, int64_t now_us);

QP_MUST_CHECK enum status entitlement_revoke(struct entitlement_row *row,
	struct entitlement_source *source, struct entitlement_source *migrated, int64_t now_us);

/* Revokes the entitlement and ends all of its sources. Changes the sources in `sources`, which the
 * caller has read, and sets row->ends_sources, so that the repository's put() ends the sources that
 * the caller has not read. */
QP_MUST_CHECK enum status entitlement_revoke_all(struct entitlement_row *row,
	struct entitlement_source *sources, size_t count, int64_t now_us);

#endif
