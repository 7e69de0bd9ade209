/*
 * Builds the lanes of a service from one table of callbacks. Each committer and the reader have a
 * session of their own, because a session belongs to one thread. The lanes stay in memory after
 * their threads have ended, until lane_set_free(), because a loop may still submit commands while
 * the program drains. The closed lanes refuse these commands.
 */
#include "flow/lane_set.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/metrics.h"

/* --lanes is at most 64, and there are at most eight services. */
#define COMMITTERS_MAX 512

struct lane_set {
	struct lane_service service;
	void **lane_contexts;
	struct lane **lanes; /* writer_count write lanes, then the read lane */
	struct committer **committers;
	size_t writer_count;
	struct reader *reader;
};

static struct lane *new_lane(
	const char *service, const char *kind, size_t number, const struct lane_settings *settings)
{
	char name[64];

	snprintf(name, sizeof(name), "%s-%s-%zu", service, kind, number);
	return lane_new(qp_strdup(name), settings->depth_max, settings->bytes_max);
}

static void add_writer(struct lane_set *set, size_t i, const struct lane_service *service,
	struct store *store, const struct lane_settings *settings)
{
	struct committer_config config = {
		.session = store->ops->open_session(store, SESSION_WRITE),
		.batch_max = settings->batch_max,
		.held_max = settings->depth_max,
		.held_bytes_max = settings->bytes_max,
		.idempotency_ttl_us = settings->idempotency_ttl_us,
		.waiting = service->waiting,
		.clock = &clock_system,
		.prepare = service->prepare,
		.is_single = service->is_single,
		.decide = service->decide,
		.perform = service->perform,
		.publishing = service->publishing,
		.settle = service->settle,
		.failed = service->failed,
		.committed = service->committed,
		.service = service->open_lane ? service->open_lane(service->context)
					      : service->context,
	};

	set->lane_contexts[i] = config.service;
	set->lanes[i] = config.lane = new_lane(service->name, "write", i, settings);
	set->committers[i] = committer_new(&config);
}

static void add_reader(struct lane_set *set, const struct lane_service *service,
	struct store *store, const struct lane_settings *settings)
{
	struct reader_config config = {
		.session = store->ops->open_session(store, SESSION_READ),
		.batch_max = settings->batch_max,
		.clock = &clock_system,
		.look_up = service->look_up,
		.service = service->context,
	};

	config.lane = new_lane(service->name, "read", 0, settings);
	set->lanes[set->writer_count] = config.lane;
	set->reader = reader_new(&config);
}

struct lane_set *lane_set_new(const struct lane_service *service, struct store *store,
	const struct lane_settings *settings)
{
	struct lane_set *set = qp_calloc(1, sizeof(*set));

	set->service = *service;
	set->writer_count = settings->lanes ? settings->lanes : store->lanes_default;
	assert(set->writer_count > 0);
	set->lanes = qp_calloc(set->writer_count + 1, sizeof(*set->lanes));
	set->lane_contexts = qp_calloc(set->writer_count, sizeof(*set->lane_contexts));
	set->committers = qp_calloc(set->writer_count, sizeof(*set->committers));
	for (size_t i = 0; i < set->writer_count; i++)
		add_writer(set, i, service, store, settings);
	add_reader(set, service, store, settings);
	return set;
}

void lane_set_start(struct lane_set *set)
{
	for (size_t i = 0; i < set->writer_count; i++)
		committer_start(set->committers[i]);
	reader_start(set->reader);
}

struct lane *lane_set_writer(struct lane_set *set, uint64_t hash)
{
	return set->lanes[hash % set->writer_count];
}

struct lane *lane_set_reader(struct lane_set *set)
{
	return set->lanes[set->writer_count];
}

void lane_set_close(struct lane_set *set)
{
	for (size_t i = 0; i <= set->writer_count; i++)
		lane_close(set->lanes[i]);
}

void lane_set_abort(struct lane_set *set)
{
	for (size_t i = 0; i < set->writer_count; i++)
		committer_abort(set->committers[i]);
}

static void free_lane(struct lane *lane)
{
	char *name = (char *)(uintptr_t)lane_name(lane);

	lane_free(lane);
	free(name);
}

void lane_set_join(struct lane_set *set)
{
	for (size_t i = 0; i < set->writer_count; i++)
		committer_join(set->committers[i]);
	reader_join(set->reader);
}

void lane_set_free(struct lane_set *set)
{
	for (size_t i = 0; i < set->writer_count; i++) {
		committer_free(set->committers[i]);
		if (set->service.close_lane)
			set->service.close_lane(set->lane_contexts[i]);
	}
	reader_free(set->reader);
	for (size_t i = 0; i <= set->writer_count; i++)
		free_lane(set->lanes[i]);
	free(set->lanes);
	free(set->lane_contexts);
	free(set->committers);
	free(set);
}

static void collect_depths(const struct lane_set *set, struct buffer *page)
{
	char labels[80];

	for (size_t i = 0; i <= set->writer_count; i++) {
		snprintf(labels, sizeof(labels), "lane=\"%s\"", lane_name(set->lanes[i]));
		metrics_sample(
			page, "quipu_lane_depth", labels, (int64_t)lane_depth(set->lanes[i]));
	}
}

void lane_sets_collect(struct lane_set *const *sets, size_t count, struct buffer *page)
{
	struct committer *all[COMMITTERS_MAX];
	size_t committer_count = 0;

	metrics_family(page, "quipu_lane_depth", "gauge", "Changes or reads that wait in a lane.");
	for (size_t i = 0; i < count; i++) {
		if (!sets[i])
			continue;
		collect_depths(sets[i], page);
		for (size_t k = 0; k < sets[i]->writer_count; k++) {
			assert(committer_count < COMMITTERS_MAX);
			all[committer_count++] = sets[i]->committers[k];
		}
	}
	committers_collect(all, committer_count, page);
}
