/*
 * Topics that are to be announced to other processes, each at most every TOPIC_EVERY_NS however
 * often it is named. Any thread may add; one thread tells.
 */
#ifndef QUIPU_BASE_TOPICS_H
#define QUIPU_BASE_TOPICS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TOPICS_MAX 8
#define TOPIC_EVERY_NS (20 * 1000000LL)

struct topic {
	const char *name;
	bool is_pending;
	int64_t not_before_ns;
};

struct topics {
	pthread_mutex_t lock; /* guards the rest */
	struct topic items[TOPICS_MAX];
	size_t count;
};

void topics_init(struct topics *topics);
void topics_release(struct topics *topics);

/* `name` is static. true: it was not pending, so who tells is to be woken. */
bool topics_add(struct topics *topics, const char *name);

/* The pending topic that may be told first, and from when on; NULL: none is pending. */
const char *topics_next(struct topics *topics, int64_t *due_ns);

/* It is about to be told, now: what is added from here on needs another telling. */
void topics_tell(struct topics *topics, const char *name, int64_t now_ns);

#endif
