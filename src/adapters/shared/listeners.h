/*
 * Who wants to be told when something happens, by announcement. Any thread may do anything with it;
 * what is called must not block, nor add or remove listeners.
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
	pthread_mutex_t lock; /* guards the rest; held while listeners are called */
	struct listener items[LISTENERS_MAX];
	size_t count;
};

void listeners_init(struct listeners *listeners);
void listeners_release(struct listeners *listeners);

/* `announcement` must live as long as the list. */
void listeners_add(struct listeners *listeners, const char *announcement,
	void (*heard)(void *context), void *context);

/* When it returns, nothing is called with this context any more. */
void listeners_remove(struct listeners *listeners, void *context);

/* Calls those of `announcement`, or everybody if it is NULL. */
void listeners_call(struct listeners *listeners, const char *announcement);

#endif
