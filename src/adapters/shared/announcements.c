#include "adapters/shared/announcements.h"

#include <assert.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

void topics_init(struct topics *topics)
{
	*topics = (struct topics){.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
	assert(topics->wake_fd >= 0);
	pthread_mutex_init(&topics->lock, NULL);
}

void topics_release(struct topics *topics)
{
	pthread_mutex_destroy(&topics->lock);
	close(topics->wake_fd);
}

void topics_stop(struct topics *topics)
{
	topics->is_stopping = true;
	eventfd_write(topics->wake_fd, 1);
}

static int milliseconds_until(int64_t until_ns)
{
	int64_t left_ns;

	if (until_ns == INT64_MAX)
		return -1;
	left_ns = until_ns - clock_steady_ns(&clock_system);
	return left_ns <= 0 ? 0 : (int)((left_ns + NS_PER_MS - 1) / NS_PER_MS);
}

bool topics_wait(struct topics *topics, int fd, short events, int64_t until_ns)
{
	struct pollfd fds[2] = {
		{.fd = topics->wake_fd, .events = POLLIN}, {.fd = fd, .events = events}};
	eventfd_t ignored;

	if (poll(fds, 2, milliseconds_until(until_ns)) <= 0)
		return false;
	if (fds[0].revents && !topics->is_stopping)
		eventfd_read(topics->wake_fd, &ignored);
	return fds[1].revents != 0;
}

/* With the lock. */
static struct topic *find_or_make(struct topics *topics, const char *name)
{
	for (size_t i = 0; i < topics->count; i++) {
		if (strcmp(topics->items[i].name, name) == 0)
			return &topics->items[i];
	}
	assert(topics->count < TOPICS_MAX);
	topics->items[topics->count] = (struct topic){.name = name};
	return &topics->items[topics->count++];
}

void topics_add(struct topics *topics, const char *name)
{
	struct topic *topic;
	bool was_pending;

	pthread_mutex_lock(&topics->lock);
	topic = find_or_make(topics, name);
	was_pending = topic->is_pending;
	topic->is_pending = true;
	pthread_mutex_unlock(&topics->lock);
	if (!was_pending)
		eventfd_write(topics->wake_fd, 1);
}

const char *topics_next(struct topics *topics, int64_t *due_ns)
{
	const struct topic *first = NULL;

	pthread_mutex_lock(&topics->lock);
	for (size_t i = 0; i < topics->count; i++) {
		const struct topic *topic = &topics->items[i];

		if (topic->is_pending && (!first || topic->not_before_ns < first->not_before_ns))
			first = topic;
	}
	if (first)
		*due_ns = first->not_before_ns;
	pthread_mutex_unlock(&topics->lock);
	return first ? first->name : NULL;
}

void topics_tell(struct topics *topics, const char *name, int64_t now_ns)
{
	struct topic *topic;

	pthread_mutex_lock(&topics->lock);
	topic = find_or_make(topics, name);
	topic->is_pending = false;
	topic->not_before_ns = now_ns + TOPIC_EVERY_NS;
	pthread_mutex_unlock(&topics->lock);
}
