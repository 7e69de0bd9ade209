/*
 * The roles of a process: one list for --roles, for the scopes of API keys and for the routes. All
 * functions are pure.
 */
#ifndef QUIPU_ACCESS_ROLES_H
#define QUIPU_ACCESS_ROLES_H

#include "base/slice.h"

enum role {
	ROLE_COUNTS = 1 << 0,
	ROLE_GATEWAY = 1 << 1,
	ROLE_SENDER = 1 << 2,
	ROLE_ENTITLEMENTS = 1 << 3,
	ROLE_NOTIFICATIONS = 1 << 4,
	ROLE_POTS = 1 << 5,
	ROLE_DIALOGS = 1 << 6,
	ROLE_COUNTERS = 1 << 7,
};

#define ROLE_COUNT 8
#define ROLES_ALL ((1U << ROLE_COUNT) - 1)

/* Returns the name, e.g. "counts", of the role 1 << `index`. `index` must be below ROLE_COUNT. The
 * string is static. */
const char *role_name(size_t index);

/* Returns the bit of the role with that name, or 0 if there is no such role. */
unsigned role_find(struct slice name);

#endif
