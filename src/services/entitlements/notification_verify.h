/*
 * Checks notifications for `quipu verify` (admin/verify.h). Differences, besides those of
 * admin/verify_claims.h:
 *
 *   event-missing    a notification of the last 30 days whose event is not in processed_events
 *   letter-missing   a notification that was given up and has no dead letter in notification_dlq
 */
#ifndef QUIPU_SERVICES_NOTIFICATION_VERIFY_H
#define QUIPU_SERVICES_NOTIFICATION_VERIFY_H

#include "admin/verify.h"
#include "services/entitlements/notifications.h"

/* How long the ids of processed events are kept. */
#define PROCESSED_KEPT_US (30 * 24 * 3600 * 1000000LL)

/* The number of attempts to send a notification before it is given up. */
#define NOTIFICATION_ATTEMPTS_MAX 10

/* Returns the verifier. `notifications` must outlive it. */
struct verifier notifications_verifier(const struct notifications *notifications);

#endif
