#include "base/listeners.h"

#include <assert.h>
#include <string.h>

void listeners_add(
	struct listeners *listeners, const char *topic, void (*heard)(void *context), void *context)
{
	assert(listeners->count < LISTENERS_MAX);
	listeners->items[listeners->count++] =
		(struct listener){.topic = topic, .heard = heard, .context = context};
}

void listeners_call(const struct listeners *listeners, const char *topic)
{
	for (size_t i = 0; i < listeners->count; i++) {
		const struct listener *listener = &listeners->items[i];

		if (!topic || strcmp(listener->topic, topic) == 0)
			listener->heard(listener->context);
	}
}
