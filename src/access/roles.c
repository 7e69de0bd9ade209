#include "access/roles.h"

#include <assert.h>

const char *role_name(size_t index)
{
	static const char *const names[ROLE_COUNT] = {"counts", "gateway", "sender", "entitlements",
		"notifications", "pots", "dialogs", "counters"};

	assert(index < ROLE_COUNT);
	return names[index];
}

unsigned role_find(struct slice name)
{
	for (size_t i = 0; i < ROLE_COUNT; i++) {
		if (slice_is(name, role_name(i)))
			return 1U << i;
	}
	return 0;
}
