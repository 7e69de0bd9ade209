#include "adapters/notifier/console/console_notifier.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/steady.h"

#define SLOTS 256

struct console_notifier {
	struct notifier base;
	uint64_t tags[SLOTS]; /* tags of the notices whose results wait() has not returned yet */
	size_t count;

	pthread_mutex_t lock; /* guards the members below */
	pthread_cond_t changed;
	bool woken;
};

static const struct notifier_ops notifier_ops;

static struct console_notifier *notifier_of(struct notifier *notifier)
{
	assert(notifier->ops == &notifier_ops);
	return (struct console_notifier *)notifier;
}

static size_t notifier_free_slots(struct notifier *base)
{
	return SLOTS - notifier_of(base)->count;
}

static void notifier_send(struct notifier *base, const struct notice *notice)
{
	struct console_notifier *notifier = notifier_of(base);
	/* The body says who bought what, so it is logged only at level debug. */
	const struct log_field fields[] = {
		{.name = "notification_id", .value = notice->id},
		{.name = "traceparent", .value = notice->trace},
		{.name = "body", .value = notice->body},
	};

	assert(notifier->count < SLOTS);
	log_line_with(
		LOG_INFO, "notify", fields, log_enabled(LOG_DEBUG) ? 3 : 2, "notification sent");
	notifier->tags[notifier->count++] = notice->tag;
}

/* Waits until wake() is called or monotonic time reaches `until_ns`. Does not wait if wait() has
 * results to return. */
static void wait_until_woken(struct console_notifier *notifier, int64_t until_ns)
{
	bool in_time = true;

	pthread_mutex_lock(&notifier->lock);
	while (notifier->count == 0 && !notifier->woken && in_time)
		in_time = steady_wait_until(&notifier->changed, &notifier->lock, until_ns);
	notifier->woken = false;
	pthread_mutex_unlock(&notifier->lock);
}

static size_t notifier_wait(
	struct notifier *base, struct notice_result *results, size_t max, int64_t until_ns)
{
	struct console_notifier *notifier = notifier_of(base);
	size_t count;

	assert(max > 0);
	wait_until_woken(notifier, until_ns);
	count = notifier->count < max ? notifier->count : max;
	for (size_t i = 0; i < count; i++)
		results[i] = (struct notice_result){
			.tag = notifier->tags[--notifier->count], .fate = NOTICE_SENT};
	return count;
}

static void notifier_wake(struct notifier *base)
{
	struct console_notifier *notifier = notifier_of(base);

	pthread_mutex_lock(&notifier->lock);
	notifier->woken = true;
	pthread_cond_signal(&notifier->changed);
	pthread_mutex_unlock(&notifier->lock);
}

static void notifier_free(struct notifier *base)
{
	struct console_notifier *notifier = notifier_of(base);

	pthread_cond_destroy(&notifier->changed);
	pthread_mutex_destroy(&notifier->lock);
	free(notifier);
}

static const struct notifier_ops notifier_ops = {
	.free_slots = notifier_free_slots,
	.send = notifier_send,
	.wait = notifier_wait,
	.wake = notifier_wake,
	.free = notifier_free,
};

struct notifier *console_notifier_new(void)
{
	struct console_notifier *notifier = qp_calloc(1, sizeof(*notifier));

	notifier->base.ops = &notifier_ops;
	notifier->base.engine = "log";
	notifier->base.slots = SLOTS;
	notifier->base.longest_ns = NS_PER_S;
	pthread_mutex_init(&notifier->lock, NULL);
	steady_cond_init(&notifier->changed);
	return &notifier->base;
}
