/*
 * Committer and publisher share two lists under one lock: the writes that wait to be published, and
 * the writes whose effects have ended. Rounds belong to the publisher's thread.
 *
 * Up to ROUNDS_MAX rounds may be under way. They begin in order but may end in any order: a round
 * that the bus has confirmed does not wait for an earlier round that the bus has not confirmed.
 */
#include "flow/publisher.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/steady.h"

#define ROUNDS_MAX 8
#define ROUND_ARENA_SIZE (64 * 1024)

struct round {
	struct write_batch batch; /* empty if the round is free */
	struct arena arena;
};

struct publisher {
	struct publisher_config config;
	struct round rounds[ROUNDS_MAX]; /* used only on the publisher's thread */
	/* how many writes the committer has passed to the publisher and not taken back yet; used
	 * only on the committer's thread */
	size_t count;
	pthread_t thread;
	bool has_thread;

	pthread_mutex_t lock; /* guards everything below */
	pthread_cond_t filled;
	struct command_list waiting;
	struct command_list ended;
	size_t rounds_under_way;
	bool stopping;
};

struct publisher *publisher_new(const struct publisher_config *config)
{
	struct publisher *publisher = qp_calloc(1, sizeof(*publisher));

	assert(config->round_max > 0 && config->writes_max > 0);
	publisher->config = *config;
	for (size_t i = 0; i < ROUNDS_MAX; i++) {
		struct round *round = &publisher->rounds[i];

		arena_init(&round->arena, ROUND_ARENA_SIZE);
		round->batch.arena = &round->arena;
		round->batch.writes = qp_calloc(config->round_max, sizeof(struct write *));
	}
	pthread_mutex_init(&publisher->lock, NULL);
	steady_cond_init(&publisher->filled);
	return publisher;
}

void publisher_free(struct publisher *publisher)
{
	assert(!publisher->has_thread && publisher->count == 0);
	for (size_t i = 0; i < ROUNDS_MAX; i++) {
		arena_release(&publisher->rounds[i].arena);
		free(publisher->rounds[i].batch.writes);
	}
	pthread_cond_destroy(&publisher->filled);
	pthread_mutex_destroy(&publisher->lock);
	free(publisher);
}

/* ---- the publisher's thread -------------------------------------------------------------- */

static struct round *find_free_round(struct publisher *publisher)
{
	for (size_t i = 0; i < ROUNDS_MAX; i++) {
		if (publisher->rounds[i].batch.count == 0)
			return &publisher->rounds[i];
	}
	return NULL;
}

static bool has_round_under_way(const struct publisher *publisher)
{
	for (size_t i = 0; i < ROUNDS_MAX; i++) {
		if (publisher->rounds[i].batch.count > 0)
			return true;
	}
	return false;
}

/* Moves waiting writes into a free round. Returns NULL if no write waits or no round is free. */
static const struct write_batch *fill_round(struct publisher *publisher)
{
	struct round *round = find_free_round(publisher);
	struct command *command;

	if (!round)
		return NULL;
	arena_reset(&round->arena);
	pthread_mutex_lock(&publisher->lock);
	while (round->batch.count < publisher->config.round_max &&
		(command = command_list_pop(&publisher->waiting)))
		round->batch.writes[round->batch.count++] = write_of(command);
	publisher->rounds_under_way += round->batch.count > 0;
	pthread_mutex_unlock(&publisher->lock);
	return round->batch.count > 0 ? &round->batch : NULL;
}

static bool has_ended(const struct write_batch *batch)
{
	for (size_t i = 0; i < batch->count; i++) {
		if (batch->writes[i]->effect == EFFECT_BEGUN)
			return false;
	}
	return true;
}

/* Frees the rounds whose effects have all ended, and notifies the committer. */
static void end_rounds(struct publisher *publisher)
{
	struct command_list ended = {0};
	size_t rounds = 0;

	for (size_t i = 0; i < ROUNDS_MAX; i++) {
		struct write_batch *batch = &publisher->rounds[i].batch;

		if (batch->count > 0)
			publisher->config.ops->look(publisher->config.service, batch);
		if (batch->count == 0 || !has_ended(batch))
			continue;
		rounds++;
		for (size_t k = 0; k < batch->count; k++)
			command_list_push(&ended, &batch->writes[k]->command);
		batch->count = 0;
	}
	if (!ended.first)
		return;
	pthread_mutex_lock(&publisher->lock);
	command_list_append(&publisher->ended, &ended);
	publisher->rounds_under_way -= rounds;
	pthread_mutex_unlock(&publisher->lock);
	publisher->config.ended(publisher->config.context);
}

static void work(struct publisher *publisher)
{
	const struct publish_ops *ops = publisher->config.ops;
	const struct write_batch *round = fill_round(publisher);

	if (round)
		ops->publish(publisher->config.service, round);
	else
		ops->collect(publisher->config.service);
	end_rounds(publisher);
}

/* Blocks until there are writes to publish, and returns true. Returns false if the thread must
 * end. */
static bool wait_for_writes(struct publisher *publisher)
{
	bool stopping;

	pthread_mutex_lock(&publisher->lock);
	while (!publisher->waiting.first && !publisher->stopping)
		steady_wait_until(&publisher->filled, &publisher->lock, INT64_MAX);
	stopping = publisher->stopping;
	pthread_mutex_unlock(&publisher->lock);
	return !stopping;
}

static void *publisher_main(void *argument)
{
	struct publisher *publisher = argument;

	pthread_setname_np(pthread_self(), "publisher");
	while (has_round_under_way(publisher) || wait_for_writes(publisher))
		work(publisher);
	return NULL;
}

void publisher_start(struct publisher *publisher)
{
	int failed = pthread_create(&publisher->thread, NULL, publisher_main, publisher);

	assert(!failed);
	publisher->has_thread = true;
}

void publisher_stop(struct publisher *publisher)
{
	assert(publisher->count == 0);
	if (!publisher->has_thread)
		return;
	pthread_mutex_lock(&publisher->lock);
	publisher->stopping = true;
	pthread_cond_signal(&publisher->filled);
	pthread_mutex_unlock(&publisher->lock);
	pthread_join(publisher->thread, NULL);
	publisher->has_thread = false;
}

/* ---- the committer's thread -------------------------------------------------------------- */

size_t publisher_count(const struct publisher *publisher)
{
	return publisher->count;
}

size_t publisher_room(const struct publisher *publisher)
{
	size_t max = publisher->config.writes_max;

	return publisher->count < max ? max - publisher->count : 0;
}

bool publisher_is_busy(struct publisher *publisher)
{
	bool is_busy;

	pthread_mutex_lock(&publisher->lock);
	is_busy = publisher->rounds_under_way > 0 || publisher->waiting.first;
	pthread_mutex_unlock(&publisher->lock);
	return is_busy;
}

void publisher_give(struct publisher *publisher, struct command_list *list)
{
	if (!list->first)
		return;
	publisher->count += list->count;
	pthread_mutex_lock(&publisher->lock);
	command_list_append(&publisher->waiting, list);
	pthread_cond_signal(&publisher->filled);
	pthread_mutex_unlock(&publisher->lock);
	if (publisher->config.ops->wake)
		publisher->config.ops->wake(publisher->config.service);
	while (!publisher->has_thread &&
		(publisher->waiting.first || has_round_under_way(publisher)))
		work(publisher);
}

void publisher_take(struct publisher *publisher, struct command_list *out)
{
	pthread_mutex_lock(&publisher->lock);
	publisher->count -= publisher->ended.count;
	command_list_append(out, &publisher->ended);
	pthread_mutex_unlock(&publisher->lock);
}
