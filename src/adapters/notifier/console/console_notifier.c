#include "adapters/notifier/console/console_notifier.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/log.h"

#define SLOTS 256

struct console_channel {
	struct channel base;
	uint64_t tags[SLOTS]; /* of notices that were written and not handed out yet */
	size_t count;

	pthread_mutex_t lock; /* guards what follows */
	pthread_cond_t changed;
	bool woken;
};

static const struct channel_ops channel_ops;

static struct console_channel *channel_of(struct channel *channel)
{
	assert(channel->ops == &channel_ops);
	return (struct console_channel *)channel;
}

static size_t channel_free_slots(struct channel *base)
{
	return SLOTS - channel_of(base)->count;
}

static void channel_send(struct channel *base, const struct notice *notice)
{
	struct console_channel *channel = channel_of(base);
	const struct log_field fields[] = {
		{"notification_id", notice->id},
		{"traceparent", notice->trace},
		{"body", notice->body},
	};

	assert(channel->count < SLOTS);
	log_line_with(LOG_INFO, "notify", fields, sizeof(fields) / sizeof(fields[0]),
		"notification sent");
	channel->tags[channel->count++] = notice->tag;
}

/* Returns at once where there is something to hand out. */
static void wait_until_woken(struct console_channel *channel, int64_t until_ns)
{
	struct timespec until = {
		.tv_sec = (time_t)(until_ns / NS_PER_S), .tv_nsec = (long)(until_ns % NS_PER_S)};
	int failed = 0;

	pthread_mutex_lock(&channel->lock);
	while (channel->count == 0 && !channel->woken && failed == 0)
		failed = pthread_cond_timedwait(&channel->changed, &channel->lock, &until);
	channel->woken = false;
	pthread_mutex_unlock(&channel->lock);
}

static size_t channel_wait(
	struct channel *base, struct notice_result *results, size_t max, int64_t until_ns)
{
	struct console_channel *channel = channel_of(base);
	size_t count;

	assert(max > 0);
	wait_until_woken(channel, until_ns);
	count = channel->count < max ? channel->count : max;
	for (size_t i = 0; i < count; i++)
		results[i] = (struct notice_result){
			.tag = channel->tags[--channel->count], .fate = NOTICE_SENT};
	return count;
}

static void channel_wake(struct channel *base)
{
	struct console_channel *channel = channel_of(base);

	pthread_mutex_lock(&channel->lock);
	channel->woken = true;
	pthread_cond_signal(&channel->changed);
	pthread_mutex_unlock(&channel->lock);
}

static void channel_free(struct channel *base)
{
	struct console_channel *channel = channel_of(base);

	pthread_cond_destroy(&channel->changed);
	pthread_mutex_destroy(&channel->lock);
	free(channel);
}

static const struct channel_ops channel_ops = {
	.free_slots = channel_free_slots,
	.send = channel_send,
	.wait = channel_wait,
	.wake = channel_wake,
	.free = channel_free,
};

struct channel *console_channel_new(void)
{
	struct console_channel *channel = qp_calloc(1, sizeof(*channel));
	pthread_condattr_t steady;

	channel->base.ops = &channel_ops;
	channel->base.engine = "log";
	channel->base.slots = SLOTS;
	channel->base.longest_ns = NS_PER_S;
	pthread_mutex_init(&channel->lock, NULL);
	pthread_condattr_init(&steady);
	pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
	pthread_cond_init(&channel->changed, &steady);
	pthread_condattr_destroy(&steady);
	return &channel->base;
}
