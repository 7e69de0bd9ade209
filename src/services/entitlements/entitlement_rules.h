/* The rules of entitlements: what a grant or a revoke does. Pure. */
#ifndef QUIPU_SERVICES_ENTITLEMENTS_RULES_H
#define QUIPU_SERVICES_ENTITLEMENTS_RULES_H

#include <stdint.h>

#include "base/status.h"

enum entitlement_verb { ENTITLEMENT_GRANT, ENTITLEMENT_REVOKE };

/*
 *   state     GRANT                     REVOKE
 *   absent    ACTIVE, version 1         NOT_FOUND
 *   ACTIVE    STATE_CONFLICT            REVOKED, version + 1
 *   REVOKED   ACTIVE, version + 1       STATE_CONFLICT
 */
struct entitlement_state {
	bool exists;
	bool is_active;
	int64_t version;
};

/* Changes `state` and returns OK, or returns ENTITLEMENT_NOT_FOUND or ENTITLEMENT_STATE_CONFLICT
 * and changes nothing. */
QP_MUST_CHECK enum status entitlement_apply(
	struct entitlement_state *state, enum entitlement_verb verb);

#endif
