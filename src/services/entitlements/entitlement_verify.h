/*
 * Checks entitlements for `quipu verify` (admin/verify.h). A row, its sources, its audit and its
 * events are written in one transaction, so one statement sees all of them or none. The check
 * reports the differences of admin/verify_claims.h for the outbox (their id is the event's id),
 * those of admin/verify_idempotency.h, and these (their id is user_id:stock_keeping_unit):
 *
 *   version          the version is less than 1
 *   status           ACTIVE with an even version or REVOKED with an odd version: the first version
 *                    is a grant, and each further version changes the status
 *   no-source        ACTIVE without an active source
 *   source-left      REVOKED with an active source
 *   source-alone     sources without an entitlement
 *   audit-missing    a change of the status in the last 28 days without an audit line, although
 *                    lines are kept for at least a month
 *   audit-differs    the newest change of the status differs from the row in version, status or
 *                    time, or the newest line differs from the row in version or step
 *   audit-action     a line that changes the status is a grant with an even version or a revoke
 *                    with an odd version, or a line that changes only sources has an even version
 *   audit-repeated   two lines with the same version and step
 *   audit-gap        a line whose version and step do not follow those of the previous line
 *   no-entitlement   a line without an entitlement
 *   outbox-missing   a change of the status in the last 24 hours without its event, although
 *                    published events are kept for at least 24 hours
 *   outbox-differs   the event differs from the line, or the line has an event although it did not
 *                    change the status
 *   in-the-future    updated_at is ahead of the store's time
 *
 * The check cannot prove that the oldest lines exist: --audit-keep-months may have deleted them.
 */
#ifndef QUIPU_SERVICES_ENTITLEMENTS_VERIFY_H
#define QUIPU_SERVICES_ENTITLEMENTS_VERIFY_H

#include "admin/verify.h"
#include "services/entitlements/entitlements.h"

/* How long published events are kept. */
#define PUBLISHED_KEPT_US (24 * 3600 * 1000000LL)

/* Returns the verifier. `entitlements` must outlive it. */
struct verifier entitlements_verifier(const struct entitlements *entitlements);

#endif
