/*
 * Topics that are to be announced to other processes, each at most every TOPIC_EVERY_NS however
 * often it is named, by a thread that also waits for what others announce. Any thread may add and
 * stop; the rest is that thread's.
 */
#ifndef QUIPU_ADAPTERS_SHARED_ANNOUNCEMENTS_H
#define QUIPU_ADAPTERS_SHARED_ANNOUNCEMENTS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"

#define TOPICS_MAX 8
#define TOPIC_EVERY_NS (20 * NS_PER_MS)

struct topic {
	const char *name;
	bool is_pending;
	int64_t not_before_ns;
};

struct topics {
	int wake_fd;
	_Atomic bool is_stopping;
	pthread_mutex_t lock; /* guards the rest */
	struct topic items[TOPICS_MAX];
	size_t count;
};

void topics_init(struct topics *topics);
void topics_release(struct topics *topics);

/* `name` is static. Ends a wait. */
void topics_add(struct topics *topics, const char *name);

/* Ends a wait, and every one that follows. */
void topics_stop(struct topics *topics);

/*
 * Until `fd` has one of `events` (of poll(); −1: no descriptor), something is added or stopped, or
 * it is `until_ns` (INT64_MAX: for ever). Returns whether `fd` has.
 */
bool topics_wait(struct topics *topics, int fd, short events, int64_t until_ns);

/* The pending topic that may be told first, and from when on; NULL: none is pending. */
const char *topics_next(struct topics *topics, int64_t *due_ns);

/* It is about to be told, now: what is added from here on needs another telling. */
void topics_tell(struct topics *topics, const char *name, int64_t now_ns);

#endif
