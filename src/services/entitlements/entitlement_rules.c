#include "services/entitlements/entitlement_rules.h"

enum status entitlement_apply(struct entitlement_state *state, enum entitlement_verb verb)
{
	bool wanted = verb == ENTITLEMENT_GRANT;

	if (!state->exists && !wanted)
		return STATUS_ENTITLEMENT_NOT_FOUND;
	if (state->exists && state->is_active == wanted)
		return STATUS_ENTITLEMENT_STATE_CONFLICT;
	state->exists = true;
	state->is_active = wanted;
	state->version++;
	return STATUS_OK;
}
