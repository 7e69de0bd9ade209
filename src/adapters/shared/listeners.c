#include "adapters/shared/listeners.h"

#include <assert.h>
#include <string.h>

void listeners_init(struct listeners *listeners)
{
	pthread_mutex_init(&listeners->lock, NULL);
	listeners->count = 0;
}

void listeners_release(struct listeners *listeners)
{
	pthread_mutex_destroy(&listeners->lock);
}

void listeners_add(struct listeners *listeners, const char *announcement,
	void (*heard)(void *context), void *context)
{
	pthread_mutex_lock(&listeners->lock);
	assert(listeners->count < LISTENERS_MAX);
	listeners->items[listeners->count++] =
		(struct listener){.announcement = announcement, .heard = heard, .context = context};
	pthread_mutex_unlock(&listeners->lock);
}

void listeners_remove(struct listeners *listeners, void *context)
{
	size_t kept = 0;

	pthread_mutex_lock(&listeners->lock);
	for (size_t i = 0; i < listeners->count; i++) {
		if (listeners->items[i].context != context)
			listeners->items[kept++] = listeners->items[i];
	}
	listeners->count = kept;
	pthread_mutex_unlock(&listeners->lock);
}

void listeners_call(struct listeners *listeners, const char *announcement)
{
	pthread_mutex_lock(&listeners->lock);
	for (size_t i = 0; i < listeners->count; i++) {
		const struct listener *listener = &listeners->items[i];

		if (!announcement || strcmp(listener->announcement, announcement) == 0)
			listener->heard(listener->context);
	}
	pthread_mutex_unlock(&listeners->lock);
}
