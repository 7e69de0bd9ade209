/*
 * Checks limits and messages for `quipu verify` (admin/verify.h). The check may run while the
 * server is under load: every commit leaves rows without differences, because a slot is reserved
 * before it is used, and a new configuration begins a new window. The check reports these
 * differences:
 *
 *   config           rate_limit is below 1, or time_window is outside 1 to 525600
 *   negative         current_count or reserved_count is negative
 *   over-reserved    current_count is more than reserved_count
 *   over-limit       reserved_count is more than rate_limit, unless the row is in shadow mode
 *   in-the-future    the window begins ahead of the store's time
 *
 * It also reports the differences of admin/verify_idempotency.h and, for messages that the sender
 * has taken from the bus, the differences of admin/verify_claims.h.
 *
 * A pending Idempotency-Key of a send or of a configuration change is not reported as a difference:
 * if the outcome was never recorded, the key stays pending until it expires.
 */
#ifndef QUIPU_SERVICES_GATEWAY_LIMIT_VERIFY_H
#define QUIPU_SERVICES_GATEWAY_LIMIT_VERIFY_H

#include "admin/verify.h"
#include "services/gateway/gateway.h"

/* Returns the verifier. `gateway` must outlive it. */
struct verifier limits_verifier(const struct gateway *gateway);

#endif
