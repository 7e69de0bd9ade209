/*
 * Entitlements for `quipu verify` (admin/verify.h): the row, its history and its events are
 * written in one transaction, so one statement sees all of them or none. The id is
 * user_id:stock_keeping_unit, of events theirs.
 *
 *   version          less than 1
 *   status           ACTIVE with an even version or REVOKED with an odd one: every change turns one
 *                    into the other, and the first is a grant
 *   audit-missing    a change of the last 28 days without a line of the audit, which is kept for a
 *                    whole month at least
 *   audit-differs    the newest line has not the version, the state or the time of the row
 *   audit-action     a line that grants with an even version or revokes with an odd one
 *   audit-repeated   two lines with one version
 *   audit-gap        a line that does not follow the one before it
 *   no-entitlement   a line of an entitlement that there is none of
 *   outbox-missing   a line of the last 24 hours without its event, which is kept for so long at
 *                    least after it was published
 *   outbox-differs   the event does not tell what the line tells
 *   in-the-future
 *
 * and what admin/verify_claims.h says of the outbox and admin/verify_idempotency.h of keys. That
 * the oldest lines are there cannot be proved: --audit-keep-months may have taken them.
 */
#ifndef QUIPU_SERVICES_ENTITLEMENTS_VERIFY_H
#define QUIPU_SERVICES_ENTITLEMENTS_VERIFY_H

#include "admin/verify.h"
#include "services/entitlements/entitlements.h"

/* Published events are kept for so long. */
#define PUBLISHED_KEPT_US (24 * 3600 * 1000000LL)

/* `entitlements` outlives it. */
struct verifier entitlements_verifier(const struct entitlements *entitlements);

#endif
