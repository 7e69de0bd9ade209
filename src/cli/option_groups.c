#include "cli/option_groups.h"

#include <string.h>

#include "base/slice.h"

#define OTHERS 5

/* The groups with the names of their options. A name that ends with "-" stands for all names that
 * begin with it. */
static const struct {
	const char *title;
	const char *names; /* separated by spaces */
} groups[OPTION_GROUPS] = {
	{"What runs, and where", "listen roles data console"},
	{"Stores, buses and cache",
		"store counts-store gateway-store entitlements-store notifications-store "
		"pots-store "
		"dialogs-store counters-store gateway-bus entitlements-bus unread-bus "
		"masstransit-namespace cache"},
	{"Who may call", "api-keys jwt- allowed-hosts cors-origins tls- insecure"},
	{"Services", "gateway-window-unit gateway-default-limit pots-lock- outbox- notify- sms- "
		     "webhook- "
		     "audit-keep-months idempotency-ttl"},
	{"Log and debugging", "log-level log-format access-log trace-store core-dumps"},
	{"Limits and times", ""},
	{"Commands that call a running server", "server api-key-file ca-file"},
};

bool option_is_listed(const char *name, const char *names)
{
	struct slice rest = slice_of(names);

	while (rest.data && rest.len > 0) {
		struct slice listed = slice_cut(&rest, ' ');
		bool is_prefix = listed.data[listed.len - 1] == '-';

		if (is_prefix ? strncmp(name, listed.data, listed.len) == 0
			      : slice_is(listed, name))
			return true;
	}
	return false;
}

const char *option_group_title(size_t group)
{
	return groups[group].title;
}

bool option_is_in_group(const char *name, size_t group)
{
	if (group != OTHERS)
		return option_is_listed(name, groups[group].names);
	for (size_t i = 0; i < OPTION_GROUPS; i++) {
		if (option_is_listed(name, groups[i].names))
			return false;
	}
	return true;
}
