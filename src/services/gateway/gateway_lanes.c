/*
 * The callbacks through which the lanes of the gateway run its batches. Each write lane has its own
 * producer and its own cache session, because their functions block and each of the two belongs to
 * one thread: the producer to the publisher's thread, the cache session to the committer's thread.
 */
#include <stdlib.h>

#include "services/gateway/gateway_batch.h"

static void *open_lane(void *context)
{
	struct gateway *gateway = context;
	struct gateway_lane *lane = qp_calloc(1, sizeof(*lane));

	lane->gateway = gateway;
	arena_init(&lane->stale_arena, 4096);
	lane->producer = gateway->bus->ops->open_producer(gateway->bus);
	if (gateway->cache)
		lane->cache = gateway->cache->ops->open_session(gateway->cache);
	return lane;
}

static void close_lane(void *context)
{
	struct gateway_lane *lane = context;

	lane->producer->ops->close(lane->producer);
	if (lane->cache)
		lane->cache->ops->close(lane->cache);
	arena_release(&lane->stale_arena);
	free(lane);
}

static void prepare(void *lane, struct session *session, const struct write_batch *batch)
{
	gateway_batch_prepare(lane, session, batch);
}

static enum status decide(void *lane, struct session *session, const struct write_batch *batch)
{
	return gateway_batch_decide(lane, session, batch);
}

static void perform(void *lane, const struct write_batch *batch)
{
	gateway_batch_perform(lane, batch);
}

static enum status settle(void *lane, struct session *session, const struct write_batch *batch)
{
	return gateway_batch_settle(lane, session, batch);
}

static enum status look_up(void *gateway, struct session *session, const struct read_batch *batch)
{
	return gateway_batch_look_up(gateway, session, batch);
}

static void failed(void *lane, const struct command_list *writes)
{
	gateway_batch_fail(lane, writes);
}

static void committed(void *lane)
{
	gateway_batch_committed(lane);
}

void gateway_collect(void *context, struct buffer *page)
{
	const struct gateway *gateway = context;

	metrics_family(page, "quipu_limit_shadow_refusals_total", "counter",
		"Sends and takes above their limit that were admitted in shadow mode.");
	metrics_sample(page, "quipu_limit_shadow_refusals_total", "",
		tally_read(&gateway->shadow_refusals));
}

struct lane_service gateway_lane_service(struct gateway *gateway)
{
	return (struct lane_service){
		.name = "gateway",
		.context = gateway,
		.open_lane = open_lane,
		.close_lane = close_lane,
		.prepare = prepare,
		.decide = decide,
		.perform = perform,
		.publishing = &gateway_publish_ops,
		.settle = settle,
		.failed = failed,
		.committed = committed,
		.look_up = look_up,
	};
}
