#include "flow/janitor.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "base/log.h"

#define SWEEP_INTERVAL_S 3600
#define RETRY_INTERVAL_S 60
#define SWEEP_CHUNK 1000

struct janitor {
	struct session **sessions;
	size_t session_count;
	pthread_t thread;

	pthread_mutex_t lock; /* guards stopping */
	pthread_cond_t stop;
	bool stopping;
};

static bool is_stopping(struct janitor *janitor)
{
	bool stopping;

	pthread_mutex_lock(&janitor->lock);
	stopping = janitor->stopping;
	pthread_mutex_unlock(&janitor->lock);
	return stopping;
}

/* false: the store could not be swept now. */
static bool sweep(struct janitor *janitor, struct session *session)
{
	size_t deleted = SWEEP_CHUNK;
	size_t total = 0;

	while (deleted == SWEEP_CHUNK && !is_stopping(janitor)) {
		if (session->ops->keys_sweep(session, SWEEP_CHUNK, &deleted) != STATUS_OK)
			return false;
		total += deleted;
	}
	if (total > 0)
		log_line(LOG_INFO, "janitor", "%s: %zu expired idempotency keys removed",
			session->store->name, total);
	return true;
}

/* Returns with the lock held. */
static void wait_for_stop(struct janitor *janitor, int seconds)
{
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += seconds;
	while (!janitor->stopping &&
		pthread_cond_timedwait(&janitor->stop, &janitor->lock, &until) == 0)
		;
}

static void *janitor_main(void *argument)
{
	struct janitor *janitor = argument;

	pthread_setname_np(pthread_self(), "janitor");
	while (!is_stopping(janitor)) {
		bool swept = true;

		for (size_t i = 0; i < janitor->session_count; i++)
			swept = sweep(janitor, janitor->sessions[i]) && swept;
		pthread_mutex_lock(&janitor->lock);
		wait_for_stop(janitor, swept ? SWEEP_INTERVAL_S : RETRY_INTERVAL_S);
		pthread_mutex_unlock(&janitor->lock);
	}
	return NULL;
}

struct janitor *janitor_start(struct store *const *stores, size_t store_count)
{
	struct janitor *janitor = qp_calloc(1, sizeof(*janitor));
	pthread_condattr_t steady;
	int failed;

	janitor->sessions = qp_calloc(store_count, sizeof(*janitor->sessions));
	janitor->session_count = store_count;
	for (size_t i = 0; i < store_count; i++)
		janitor->sessions[i] = stores[i]->ops->open_session(stores[i], SESSION_WRITE);
	pthread_mutex_init(&janitor->lock, NULL);
	pthread_condattr_init(&steady);
	pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
	pthread_cond_init(&janitor->stop, &steady);
	pthread_condattr_destroy(&steady);
	failed = pthread_create(&janitor->thread, NULL, janitor_main, janitor);
	assert(!failed);
	return janitor;
}

void janitor_stop(struct janitor *janitor)
{
	pthread_mutex_lock(&janitor->lock);
	janitor->stopping = true;
	pthread_mutex_unlock(&janitor->lock);
	pthread_cond_signal(&janitor->stop);
	pthread_join(janitor->thread, NULL);
	for (size_t i = 0; i < janitor->session_count; i++)
		session_close(janitor->sessions[i]);
	pthread_cond_destroy(&janitor->stop);
	pthread_mutex_destroy(&janitor->lock);
	free(janitor->sessions);
	free(janitor);
}
