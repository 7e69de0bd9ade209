/*
 * A list of callbacks, each for one announcement. Any thread may call these functions. A callback
 * must not block and must not add or remove listeners, because the list is locked while the
 * callback runs.
 */
#ifndef QUIPU_ADAPTERS_SHARED_LISTENERS_H
#define QUIPU_ADAPTERS_SHARED_LISTENERS_H

#include <pthread.h>
#include <stddef.h>

#define LISTENERS_MAX 16

struct listener {
	const char *announcement;
	void (*heard)(void *context);
	void *context;
};

struct listeners {
	pthread_mutex_t lock; /* guards the members below; held while callbacks run */
	struct listener items[LISTENERS_MAX];
	size_t count;
};

void listeners_init(struct listeners *listeners);
void listeners_release(struct listeners *listeners);

/* Adds a callback for `announcement`, which must live as long as the list. */
void listeners_add(struct listeners *listeners, const char *announcement,
	void (*heard)(void *context), void *context);

/* Removes all callbacks with this context. Once this returns, none of them runs any more. */
void listeners_remove(struct listeners *listeners, void *context);

/* Calls the listeners of `announcement`, or all listeners if `announcement` is NULL. */
void listeners_call(struct listeners *listeners, const char *announcement);

#endif
