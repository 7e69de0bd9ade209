#include "runtime/bell.h"

#include "base/steady.h"

void bell_init(struct bell *bell)
{
	*bell = (struct bell){0};
	pthread_mutex_init(&bell->lock, NULL);
	steady_cond_init(&bell->changed);
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

void bell_wait(struct bell *bell, int64_t ns)
{
	int64_t until_ns = steady_in(ns);

	pthread_mutex_lock(&bell->lock);
	while (!bell->rung && !bell->stopping &&
		steady_wait_until(&bell->changed, &bell->lock, until_ns))
		;
	bell->rung = false;
	pthread_mutex_unlock(&bell->lock);
}

void bell_pause(struct bell *bell, int64_t ns)
{
	int64_t until_ns = steady_in(ns);

	pthread_mutex_lock(&bell->lock);
	while (!bell->stopping && steady_wait_until(&bell->changed, &bell->lock, until_ns))
		;
	pthread_mutex_unlock(&bell->lock);
}
