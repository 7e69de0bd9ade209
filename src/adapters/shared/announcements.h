/*
 * Topics that are to be announced to other processes, each at most every ANNOUNCE_EVERY_NS however
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

#define ANNOUNCEMENTS_MAX 8
#define ANNOUNCE_EVERY_NS (20 * NS_PER_MS)

struct announcement {
	const char *name;
	bool is_pending;
	int64_t not_before_ns;
};

struct announcements {
	int wake_fd;
	_Atomic bool is_stopping;
	pthread_mutex_t lock; /* guards the rest */
	struct announcement items[ANNOUNCEMENTS_MAX];
	size_t count;
};

void announcements_init(struct announcements *announcements);
void announcements_release(struct announcements *announcements);

/* `name` is static. Ends a wait. */
void announcements_add(struct announcements *announcements, const char *name);

/* Ends a wait, and every one that follows. */
void announcements_stop(struct announcements *announcements);

/*
 * Until `fd` has one of `events` (of poll(); −1: no descriptor), something is added or stopped, or
 * it is `until_ns` (INT64_MAX: for ever). Returns whether `fd` has.
 */
bool announcements_wait(
	struct announcements *announcements, int fd, short events, int64_t until_ns);

/* The pending announcement that may be told first, and from when on; NULL: none is pending. */
const char *announcements_next(struct announcements *announcements, int64_t *due_ns);

/* It is about to be told, now: what is added from here on needs another telling. */
void announcements_tell(struct announcements *announcements, const char *name, int64_t now_ns);

#endif
