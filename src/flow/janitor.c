#include "flow/janitor.h"

#include <assert.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "runtime/bell.h"

#define SWEEP_INTERVAL_NS (3600 * NS_PER_S)
#define RETRY_FIRST_NS (100 * NS_PER_MS)
#define RETRY_MOST_NS (60 * NS_PER_S)
#define SWEEP_CHUNK 1000

struct janitor {
	struct chore chores[JANITOR_CHORES_MAX];
	struct session *sessions[JANITOR_CHORES_MAX];
	size_t count;
	struct bell bell;
	pthread_t thread;
};

static enum status sweep_keys(
	const void *context, struct session *session, size_t limit, size_t *deleted)
{
	(void)context;
	return session->ops->idempotency_sweep(session, limit, deleted);
}

struct chore chore_idempotency(struct store *store)
{
	return (struct chore){
		.what = "expired idempotency keys", .store = store, .sweep = sweep_keys};
}

/* Runs one chore. Returns false if the store failed; the chore is then retried. */
static bool run_chore(struct janitor *janitor, size_t i)
{
	const struct chore *chore = &janitor->chores[i];
	size_t deleted = SWEEP_CHUNK;
	size_t total = 0;

	while (deleted == SWEEP_CHUNK && !bell_is_stopping(&janitor->bell)) {
		if (chore->sweep(chore->context, janitor->sessions[i], SWEEP_CHUNK, &deleted) !=
			STATUS_OK)
			return false;
		total += deleted;
	}
	if (total > 0)
		log_line(LOG_INFO, "janitor", "%s: deleted %zu %s", chore->store->name, total,
			chore->what);
	return true;
}

/* Runs all chores. Returns false if one of them failed. */
static bool run_chores(struct janitor *janitor)
{
	bool swept = true;

	for (size_t i = 0; i < janitor->count; i++)
		swept = run_chore(janitor, i) && swept;
	return swept;
}

/* Runs all chores every hour. The first retries after a failure come soon, because a store may not
 * be up yet when the program starts. */
static void *janitor_main(void *argument)
{
	struct janitor *janitor = argument;
	int64_t retry_ns = RETRY_FIRST_NS;

	pthread_setname_np(pthread_self(), "janitor");
	while (!bell_is_stopping(&janitor->bell)) {
		if (run_chores(janitor)) {
			retry_ns = RETRY_FIRST_NS;
			bell_wait(&janitor->bell, SWEEP_INTERVAL_NS);
			continue;
		}
		bell_wait(&janitor->bell, retry_ns);
		retry_ns = retry_ns * 2 < RETRY_MOST_NS ? retry_ns * 2 : RETRY_MOST_NS;
	}
	return NULL;
}

struct janitor *janitor_start(const struct chore *chores, size_t count)
{
	struct janitor *janitor = qp_calloc(1, sizeof(*janitor));
	int failed;

	assert(count <= JANITOR_CHORES_MAX);
	janitor->count = count;
	for (size_t i = 0; i < count; i++) {
		struct store *store = chores[i].store;

		janitor->chores[i] = chores[i];
		janitor->sessions[i] = store->ops->open_session(store, SESSION_WRITE);
	}
	bell_init(&janitor->bell);
	failed = pthread_create(&janitor->thread, NULL, janitor_main, janitor);
	assert(!failed);
	return janitor;
}

void janitor_stop(struct janitor *janitor)
{
	bell_stop(&janitor->bell);
	pthread_join(janitor->thread, NULL);
	for (size_t i = 0; i < janitor->count; i++)
		session_close(janitor->sessions[i]);
	bell_release(&janitor->bell);
	free(janitor);
}
