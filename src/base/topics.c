#include "base/topics.h"

#include <assert.h>
#include <string.h>

void topics_init(struct topics *topics)
{
	pthread_mutex_init(&topics->lock, NULL);
	topics->count = 0;
}

void topics_release(struct topics *topics)
{
	pthread_mutex_destroy(&topics->lock);
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

bool topics_add(struct topics *topics, const char *name)
{
	struct topic *topic;
	bool was_pending;

	pthread_mutex_lock(&topics->lock);
	topic = find_or_make(topics, name);
	was_pending = topic->is_pending;
	topic->is_pending = true;
	pthread_mutex_unlock(&topics->lock);
	return !was_pending;
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
