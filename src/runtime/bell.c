#include "runtime/bell.h"

#include <time.h>

#include "base/clock.h"

void bell_init(struct bell *bell)
{
	pthread_condattr_t steady;

	*bell = (struct bell){0};
	pthread_mutex_init(&bell->lock, NULL);
	pthread_condattr_init(&steady);
	pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
	pthread_cond_init(&bell->changed, &steady);
	pthread_condattr_destroy(&steady);
}

void bell_release(struct bell *bell)
{
	pthread_cond_destroy(&bell->changed);
	pthread_mutex_destroy(&bell->lock);
}

static void ring(struct bell *bell, bool stop)
{
	pthread_mutex_lock(&bell->lock);
	bell->rung = true;
	bell->stopping = bell->stopping || stop;
	pthread_cond_signal(&bell->changed);
	pthread_mutex_unlock(&bell->lock);
}

void bell_ring(struct bell *bell)
{
	ring(bell, false);
}

void bell_stop(struct bell *bell)
{
	ring(bell, true);
}

bool bell_is_stopping(struct bell *bell)
{
	bool stopping;

	pthread_mutex_lock(&bell->lock);
	stopping = bell->stopping;
	pthread_mutex_unlock(&bell->lock);
	return stopping;
}

static struct timespec steady_in(int64_t ns)
{
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	ns += until.tv_nsec;
	until.tv_sec += ns / NS_PER_S;
	until.tv_nsec = ns % NS_PER_S;
	return until;
}

void bell_wait(struct bell *bell, int64_t ns)
{
	struct timespec until = steady_in(ns);

	pthread_mutex_lock(&bell->lock);
	while (!bell->rung && !bell->stopping &&
		pthread_cond_timedwait(&bell->changed, &bell->lock, &until) == 0)
		;
	bell->rung = false;
	pthread_mutex_unlock(&bell->lock);
}

void bell_pause(struct bell *bell, int64_t ns)
{
	struct timespec until = steady_in(ns);

	pthread_mutex_lock(&bell->lock);
	while (!bell->stopping && pthread_cond_timedwait(&bell->changed, &bell->lock, &until) == 0)
		;
	pthread_mutex_unlock(&bell->lock);
}
