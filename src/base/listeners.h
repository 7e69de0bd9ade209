/*
 * Who wants to be told when something happens, by topic. Filled before there are threads, then only
 * read.
 */
#ifndef QUIPU_BASE_LISTENERS_H
#define QUIPU_BASE_LISTENERS_H

#include <stddef.h>

#define LISTENERS_MAX 16

struct listener {
	const char *topic;
	void (*heard)(void *context);
	void *context;
};

struct listeners {
	struct listener items[LISTENERS_MAX];
	size_t count;
};

/* `topic` must live as long as the list. */
void listeners_add(struct listeners *listeners, const char *topic, void (*heard)(void *context),
	void *context);

/* Calls those of `topic`, or everybody if it is NULL. Any thread. */
void listeners_call(const struct listeners *listeners, const char *topic);

#endif
