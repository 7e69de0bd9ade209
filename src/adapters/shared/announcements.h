/*
 * The announcements that an adapter must still send to other processes. Each announcement is sent
 * at most once every ANNOUNCE_EVERY_NS, however often it is added. The adapter's waker is the
 * thread that sends these announcements and receives the announcements of other processes. While
 * the waker has nothing to send or receive, it blocks in announcements_wait(). Any thread may call
 * announcements_add() and announcements_stop(). Only the waker calls announcements_wait(),
 * announcements_next() and announcements_tell().
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
	pthread_mutex_t lock; /* guards the members below */
	struct announcement items[ANNOUNCEMENTS_MAX];
	size_t count;
};

void announcements_init(struct announcements *announcements);
void announcements_release(struct announcements *announcements);

/* Marks the announcement as pending. If it was not pending yet, ends the current
 * announcements_wait(); if the waker is not waiting, its next announcements_wait() returns
 * immediately. `name` must be static. */
void announcements_add(struct announcements *announcements, const char *name);

/* Ends the current announcements_wait() and makes every later call return immediately. */
void announcements_stop(struct announcements *announcements);

/*
 * Blocks until poll() reports one of `events` for `fd`, an announcement is added, the waker is
 * stopped, or monotonic time reaches `until_ns` (INT64_MAX: no time limit). `fd` may be −1 if there
 * is no descriptor to watch. Returns true if poll() reported something for `fd`.
 */
bool announcements_wait(
	struct announcements *announcements, int fd, short events, int64_t until_ns);

/*
 * Returns the pending announcement that is due first, and sets `due_ns` to the monotonic time from
 * which it may be sent. Returns NULL if no announcement is pending.
 */
const char *announcements_next(struct announcements *announcements, int64_t *due_ns);

/*
 * Marks the announcement as no longer pending, and delays its next sending by ANNOUNCE_EVERY_NS.
 * Call this just before sending the announcement. Then an announcement that is added while it is
 * being sent stays pending and is sent once more.
 */
void announcements_tell(struct announcements *announcements, const char *name, int64_t now_ns);

#endif
