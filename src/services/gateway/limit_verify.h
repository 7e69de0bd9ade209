/*
 * Limits for `quipu verify` (admin/verify.h). The rules hold at every commit, not only at rest:
 * a slot is reserved before it is used, and a new configuration begins a new window.
 *
 *   config           rate_limit from 1, time_window from 1 to 525600
 *   negative         current_count or reserved_count
 *   over-reserved    current_count is more than reserved_count
 *   over-limit       reserved_count is more than rate_limit
 *   in-the-future    the window begins ahead of the store's time
 *
 * and what admin/verify_idempotency.h says of keys. A send that was never ended waits under its key
 * until that expires, so that is no difference.
 */
#ifndef QUIPU_SERVICES_GATEWAY_LIMIT_VERIFY_H
#define QUIPU_SERVICES_GATEWAY_LIMIT_VERIFY_H

#include "admin/verify.h"
#include "services/gateway/gateway.h"

/* `gateway` outlives it. */
struct verifier limits_verifier(const struct gateway *gateway);

#endif
