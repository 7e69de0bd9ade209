#include "adapters/shared/announcements.h"

#include <assert.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/steady.h"

void announcements_init(struct announcements *announcements)
{
	*announcements = (struct announcements){.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
	assert(announcements->wake_fd >= 0);
	pthread_mutex_init(&announcements->lock, NULL);
}

void announcements_release(struct announcements *announcements)
{
	pthread_mutex_destroy(&announcements->lock);
	close(announcements->wake_fd);
}

void announcements_stop(struct announcements *announcements)
{
	announcements->is_stopping = true;
	eventfd_write(announcements->wake_fd, 1);
}

bool announcements_wait(struct announcements *announcements, int fd, short events, int64_t until_ns)
{
	struct pollfd fds[2] = {
		{.fd = announcements->wake_fd, .events = POLLIN}, {.fd = fd, .events = events}};
	int timeout_ms = until_ns == INT64_MAX ? -1 : steady_ms_until(until_ns, INT_MAX);
	eventfd_t ignored;

	if (poll(fds, 2, timeout_ms) <= 0)
		return false;
	if (fds[0].revents && !announcements->is_stopping)
		eventfd_read(announcements->wake_fd, &ignored);
	return fds[1].revents != 0;
}

/* The caller holds the lock. */
static struct announcement *find_or_add(struct announcements *announcements, const char *name)
{
	for (size_t i = 0; i < announcements->count; i++) {
		if (strcmp(announcements->items[i].name, name) == 0)
			return &announcements->items[i];
	}
	assert(announcements->count < ANNOUNCEMENTS_MAX);
	announcements->items[announcements->count] = (struct announcement){.name = name};
	return &announcements->items[announcements->count++];
}

void announcements_add(struct announcements *announcements, const char *name)
{
	struct announcement *announcement;
	bool was_pending;

	pthread_mutex_lock(&announcements->lock);
	announcement = find_or_add(announcements, name);
	was_pending = announcement->is_pending;
	announcement->is_pending = true;
	pthread_mutex_unlock(&announcements->lock);
	if (!was_pending)
		eventfd_write(announcements->wake_fd, 1);
}

const char *announcements_next(struct announcements *announcements, int64_t *due_ns)
{
	const struct announcement *first = NULL;

	pthread_mutex_lock(&announcements->lock);
	for (size_t i = 0; i < announcements->count; i++) {
		const struct announcement *announcement = &announcements->items[i];

		if (announcement->is_pending &&
			(!first || announcement->not_before_ns < first->not_before_ns))
			first = announcement;
	}
	if (first)
		*due_ns = first->not_before_ns;
	pthread_mutex_unlock(&announcements->lock);
	return first ? first->name : NULL;
}

void announcements_tell(struct announcements *announcements, const char *name, int64_t now_ns)
{
	struct announcement *announcement;

	pthread_mutex_lock(&announcements->lock);
	announcement = find_or_add(announcements, name);
	announcement->is_pending = false;
	announcement->not_before_ns = now_ns + ANNOUNCE_EVERY_NS;
	pthread_mutex_unlock(&announcements->lock);
}
