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
	struct chore chores[JANITOR_CHORES_MAX];
	struct session *sessions[JANITOR_CHORES_MAX];
	size_t count;
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

static enum status sweep_keys(
	const void *context, struct session *session, size_t limit, size_t *deleted)
{
	(void)context;
	return session->ops->keys_sweep(session, limit, deleted);
}

struct chore chore_keys(struct store *store)
{
	return (struct chore){
		.what = "expired idempotency keys", .store = store, .sweep = sweep_keys};
}

/* false: it could not be done now. */
static bool run_chore(struct janitor *janitor, size_t i)
{
	const struct chore *chore = &janitor->chores[i];
	size_t deleted = SWEEP_CHUNK;
	size_t total = 0;

	while (deleted == SWEEP_CHUNK && !is_stopping(janitor)) {
		if (chore->sweep(chore->context, janitor->sessions[i], SWEEP_CHUNK, &deleted) !=
			STATUS_OK)
			return false;
		total += deleted;
	}
	if (total > 0)
		log_line(LOG_INFO, "janitor", "%s: %zu %s removed", chore->store->name, total,
			chore->what);
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

		for (size_t i = 0; i < janitor->count; i++)
			swept = run_chore(janitor, i) && swept;
		pthread_mutex_lock(&janitor->lock);
		wait_for_stop(janitor, swept ? SWEEP_INTERVAL_S : RETRY_INTERVAL_S);
		pthread_mutex_unlock(&janitor->lock);
	}
	return NULL;
}

struct janitor *janitor_start(const struct chore *chores, size_t count)
{
	struct janitor *janitor = qp_calloc(1, sizeof(*janitor));
	pthread_condattr_t steady;
	int failed;

	assert(count <= JANITOR_CHORES_MAX);
	janitor->count = count;
	for (size_t i = 0; i < count; i++) {
		struct store *store = chores[i].store;

		janitor->chores[i] = chores[i];
		janitor->sessions[i] = store->ops->open_session(store, SESSION_WRITE);
	}
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
	for (size_t i = 0; i < janitor->count; i++)
		session_close(janitor->sessions[i]);
	pthread_cond_destroy(&janitor->stop);
	pthread_mutex_destroy(&janitor->lock);
	free(janitor);
}
