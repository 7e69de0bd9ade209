/*
 * Notifications for `quipu verify` (admin/verify.h): what admin/verify_claims.h says of their
 * states, and
 *
 *   event-missing    one of the last 30 days whose event was not taken in, as far as
 *                    processed_events knows
 *   letter-missing   one that was given up and does not wait in notification_dlq
 */
#ifndef QUIPU_SERVICES_NOTIFICATION_VERIFY_H
#define QUIPU_SERVICES_NOTIFICATION_VERIFY_H

#include "admin/verify.h"
#include "services/entitlements/notifications.h"

/* Events that were taken in are remembered for so long, and as many attempts are made. */
#define PROCESSED_KEPT_US (30 * 24 * 3600 * 1000000LL)
#define NOTIFICATION_ATTEMPTS_MAX 10

/* `notifications` outlives it. */
struct verifier notifications_verifier(const struct notifications *notifications);

#endif
