/* The names under which Redis keeps entries. */
#include <assert.h>

#include "adapters/cache/redis/redis_internal.h"

static const struct {
	struct slice prefix, suffix;
} names[] = {
	[REDIS_NAME_LIMIT] = {SLICE("RateLimiterCache:"), SLICE("")},
	[REDIS_NAME_COUNTER] = {SLICE("counter:"), SLICE(":UnreadMessages")},
	[REDIS_NAME_LEASE] = {SLICE("counter:"), SLICE(":UnreadMessages:lease")},
	[REDIS_NAME_LIST] = {SLICE("counters:"), SLICE("")},
};

static size_t append(char *space, size_t at, struct slice text)
{
	assert(at + text.len <= REDIS_NAME_SIZE);
	if (text.len > 0)
		memcpy(space + at, text.data, text.len);
	return at + text.len;
}

struct slice redis_name(enum redis_name name, struct slice user_id, char space[REDIS_NAME_SIZE])
{
	size_t len = append(space, 0, names[name].prefix);

	assert(user_id.len <= REDIS_USER_ID_MAX);
	len = append(space, len, user_id);
	len = append(space, len, names[name].suffix);
	return slice_make(space, len);
}
