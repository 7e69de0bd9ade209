/*
 * Consumers of the local bus.
 *
 * A consumer holds the messages of its last fetch until it acknowledges or returns them. Before a
 * fetch takes messages, the unacknowledged messages of the previous fetch go back to the group,
 * because the caller can no longer acknowledge them.
 *
 * The leader (local_work.c) does a consumer's work: it joins, fetches, acknowledges, trims and
 * records skipped messages. Invariant: of the `in_hand_count` offsets in `in_hand`, the first
 * `acked` are acknowledged; the others are TAKEN by this consumer in the group's window.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "adapters/bus/local/local_internal.h"

/* Once the messages of a fetch together reach this size, the fetch adds no more messages. */
#define FETCH_BYTES_MAX (16 * 1024 * 1024)

/* After a failure of the file, a fetch waits this long before it tries again. */
#define RETRY_NS NS_PER_S

struct local_consumer {
	struct consumer base;
	struct local_bus *bus;
	struct local_group *group;
	struct arena arena; /* holds the deliveries of the last fetch */

	int64_t *in_hand; /* the offsets of the messages that the last fetch returned */
	size_t in_hand_size;
	size_t in_hand_count;
	size_t acked; /* how many messages of the last fetch are acknowledged */

	bool woken; /* guarded by the bus's lock */
};

static const struct consumer_ops consumer_ops;

static struct local_consumer *consumer_of(struct consumer *base)
{
	assert(base->ops == &consumer_ops);
	return (struct local_consumer *)base;
}

/* ---- joining ----------------------------------------------------------------------------- */

struct join_work {
	struct local_work base;
	struct local_group *group;
};

static int run_join(struct local_bus *bus, struct local_work *base)
{
	return local_messages_join(bus, ((struct join_work *)base)->group);
}

/* If the transaction was not committed, marks the group as not joined, because the row that
 * run_join() created may have been rolled back. A group with messages in its window had joined
 * before, so it stays joined. */
static void settle_join(struct local_bus *bus, struct local_work *base, enum local_outcome outcome)
{
	struct local_group *group = ((struct join_work *)base)->group;

	(void)bus;
	if (outcome != LOCAL_DONE && group->count == 0)
		group->id = 0;
}

static bool join(struct local_consumer *consumer)
{
	struct join_work work = {
		.base = {.writes = true, .run = run_join, .settle = settle_join},
		.group = consumer->group,
	};
	bool joined;

	pthread_mutex_lock(&consumer->bus->lock);
	joined = consumer->group->id != 0;
	pthread_mutex_unlock(&consumer->bus->lock);
	return joined || local_work_do(consumer->bus, &work.base, INT64_MAX) == LOCAL_DONE;
}

/* ---- fetch ------------------------------------------------------------------------------- */

/* The caller holds the lock. */
static void give_back(struct local_consumer *consumer)
{
	if (consumer->acked == consumer->in_hand_count)
		return;
	for (size_t i = consumer->acked; i < consumer->in_hand_count; i++)
		local_group_give_back(consumer->group, consumer->in_hand[i]);
	consumer->in_hand_count = consumer->acked;
	local_channel_changed(consumer->group->channel);
}

struct fetch_work {
	struct local_work base;
	struct local_consumer *consumer;
	struct bus_delivery *deliveries;
	size_t max;
	size_t count;
};

static struct slice position_of(struct local_consumer *consumer, int64_t offset)
{
	struct buffer text = buffer_make(&consumer->arena, 64);

	buffer_format(&text, "%s/0/%" PRId64, consumer->group->channel->name, offset);
	return buffer_slice(&text);
}

static int read_one(struct fetch_work *work, int64_t offset)
{
	struct local_consumer *consumer = work->consumer;
	struct bus_delivery *delivery = &work->deliveries[work->count];
	int rc = local_messages_read(consumer->bus, offset, &consumer->arena, delivery);

	if (rc != SQLITE_OK)
		return rc;
	delivery->channel = slice_of(consumer->group->channel->name);
	delivery->position = delivery->identity = position_of(consumer, offset);
	delivery->handle = (uint64_t)offset;
	delivery->time_us = 0; /* unknown, because local_messages_read() does not read it */
	return SQLITE_OK;
}

static size_t delivery_size(const struct bus_delivery *delivery)
{
	return delivery->value.len + delivery->key.len;
}

/* Marks the message at `offset` as acknowledged, because it is no longer in the file: the outcome
 * of an earlier acknowledgement was unknown, but that acknowledgement was in fact committed. */
static void skip_missing(struct local_consumer *consumer, int64_t offset)
{
	pthread_mutex_lock(&consumer->bus->lock);
	local_group_acknowledge(consumer->group, offset);
	pthread_mutex_unlock(&consumer->bus->lock);
}

/*
 * Reads the messages of the first `taken` offsets in `in_hand`. Stops at FETCH_BYTES_MAX or at a
 * failure, and then returns the unread messages to the group.
 */
static int read_taken(struct fetch_work *work, size_t taken)
{
	struct local_consumer *consumer = work->consumer;
	int64_t *offsets = consumer->in_hand;
	size_t bytes = 0;
	size_t next = 0;
	int rc = SQLITE_OK;

	for (; next < taken && bytes < FETCH_BYTES_MAX; next++) {
		int64_t offset = offsets[next];

		rc = read_one(work, offset);
		if (rc == SQLITE_DONE) {
			skip_missing(consumer, offset);
			continue;
		}
		if (rc != SQLITE_OK)
			break;
		bytes += delivery_size(&work->deliveries[work->count]);
		offsets[work->count++] = offset;
	}
	pthread_mutex_lock(&consumer->bus->lock);
	for (size_t i = next; i < taken; i++)
		local_group_give_back(consumer->group, offsets[i]);
	consumer->in_hand_count = work->count;
	pthread_mutex_unlock(&consumer->bus->lock);
	return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

static int run_fetch(struct local_bus *bus, struct local_work *base)
{
	struct fetch_work *work = (struct fetch_work *)base;
	struct local_consumer *consumer = work->consumer;
	int rc = local_group_read_ahead(bus, consumer->group, consumer, work->max);
	size_t taken;

	if (rc != SQLITE_OK)
		return rc;
	pthread_mutex_lock(&bus->lock);
	taken = local_group_take(consumer->group, consumer, consumer->in_hand, work->max);
	pthread_mutex_unlock(&bus->lock);
	return read_taken(work, taken);
}

/* ---- deleting acknowledged messages ------------------------------------------------------ */

static int trim_sometimes(struct local_bus *bus, struct local_channel *channel, size_t done)
{
	int deleted;

	channel->acked_since_trim += done;
	if (channel->acked_since_trim < LOCAL_TRIM_CHUNK / 2)
		return SQLITE_OK;
	channel->acked_since_trim -= LOCAL_TRIM_CHUNK / 2;
	return local_messages_trim(bus, channel, &deleted);
}

struct trim_work {
	struct local_work base;
	struct local_channel *channel;
};

static int run_trim(struct local_bus *bus, struct local_work *base)
{
	struct local_channel *channel = ((struct trim_work *)base)->channel;
	int deleted;

	channel->acked_since_trim = 0;
	return local_messages_trim(bus, channel, &deleted);
}

/* Called when a fetch has found no message: deletes acknowledged messages. Without this call, the
 * last acknowledged messages would stay on disk until hundreds of later messages are
 * acknowledged. */
static void trim_when_idle(struct local_bus *bus, struct local_channel *channel)
{
	struct trim_work work = {
		.base = {.writes = true, .run = run_trim},
		.channel = channel,
	};

	if (channel->acked_since_trim > 0)
		/* after a failure, a later trim deletes the messages */
		local_work_do(bus, &work.base, INT64_MAX);
}

/* ---- skipped messages -------------------------------------------------------------------- */

struct skip_work {
	struct local_work base;
	struct local_group *group;
	size_t skipped;
};

static int run_skip(struct local_bus *bus, struct local_work *base)
{
	struct skip_work *work = (struct skip_work *)base;
	int64_t position;
	int rc;

	pthread_mutex_lock(&bus->lock);
	position = local_group_position(work->group, NULL, 0);
	work->skipped = work->group->skipped;
	pthread_mutex_unlock(&bus->lock);
	rc = local_messages_move(bus, work->group, position);
	return rc == SQLITE_OK ? trim_sometimes(bus, work->group->channel, work->skipped) : rc;
}

static void settle_skip(struct local_bus *bus, struct local_work *base, enum local_outcome outcome)
{
	struct skip_work *work = (struct skip_work *)base;

	(void)bus;
	/* If group->skipped is smaller than work->skipped, another member has already recorded the
	 * skipped messages. */
	if (outcome == LOCAL_DONE && work->group->skipped >= work->skipped)
		work->group->skipped -= work->skipped;
}

/* Records the group's new position in the file once the group has skipped `least` messages that the
 * file does not record yet. Otherwise a group that skips many messages would keep them on disk
 * until it acknowledges a message that it wants. */
static void record_skips(struct local_consumer *consumer, size_t least)
{
	struct skip_work work = {
		.base = {.writes = true, .run = run_skip, .settle = settle_skip},
		.group = consumer->group,
	};
	bool due;

	pthread_mutex_lock(&consumer->bus->lock);
	due = consumer->group->skipped >= least;
	pthread_mutex_unlock(&consumer->bus->lock);
	if (due)
		/* after a failure, the next fetch of the group tries again */
		local_work_do(consumer->bus, &work.base, INT64_MAX);
}

/* ---- fetching ----------------------------------------------------------------------------- */

static void make_room(struct local_consumer *consumer, size_t max)
{
	if (consumer->in_hand_size >= max)
		return;
	free(consumer->in_hand);
	consumer->in_hand = qp_calloc(max, sizeof(consumer->in_hand[0]));
	consumer->in_hand_size = max;
}

/* Fetches the messages that the file already contains, without waiting for more. Returns false if
 * the file cannot be used now. */
static bool try_fetch(struct local_consumer *consumer, struct fetch_work *work)
{
	consumer->in_hand_count = 0;
	consumer->acked = 0;
	work->count = 0;
	arena_reset(&consumer->arena);
	if (!join(consumer) || local_work_do(consumer->bus, &work->base, INT64_MAX) != LOCAL_DONE)
		return false;
	record_skips(consumer, LOCAL_SKIP_MAX);
	return true;
}

/*
 * Waits until the channel's `changes` differs from `seen`, and then returns true. Returns false at
 * monotonic time `until_ns`, or when the consumer is woken. The caller holds the lock.
 */
static bool wait_for_more(struct local_consumer *consumer, uint64_t seen, int64_t until_ns)
{
	struct local_channel *channel = consumer->group->channel;
	bool in_time = clock_steady_ns(&clock_system) < until_ns;

	while (in_time && !consumer->woken && channel->changes == seen)
		in_time = steady_wait_until(&channel->changed, &consumer->bus->lock, until_ns);
	return in_time && !consumer->woken;
}

/*
 * Waits for RETRY_NS and then returns true, so that the caller tries the file again: nothing
 * signals that the file works again after a failure. Returns false at monotonic time `until_ns`, or
 * when the consumer is woken. The caller holds the lock.
 */
static bool wait_for_recovery(struct local_consumer *consumer, int64_t until_ns)
{
	struct local_channel *channel = consumer->group->channel;
	int64_t retry_ns = clock_steady_ns(&clock_system) + RETRY_NS;
	int64_t pause_ns = until_ns < retry_ns ? until_ns : retry_ns;

	while (!consumer->woken &&
		steady_wait_until(&channel->changed, &consumer->bus->lock, pause_ns))
		continue;
	return !consumer->woken && pause_ns < until_ns;
}

static enum status fetch(struct consumer *base, struct bus_delivery *deliveries, size_t max,
	size_t *count, int64_t until_ns)
{
	struct local_consumer *consumer = consumer_of(base);
	struct local_bus *bus = consumer->bus;
	struct fetch_work work = {
		.base = {.run = run_fetch},
		.consumer = consumer,
		.deliveries = deliveries,
		.max = max < LOCAL_WINDOW_MAX ? max : LOCAL_WINDOW_MAX,
	};
	bool go_on = true;
	bool is_idle;

	pthread_mutex_lock(&bus->lock);
	give_back(consumer);
	make_room(consumer, work.max);
	while (go_on) {
		uint64_t seen = consumer->group->channel->changes;
		bool worked;

		pthread_mutex_unlock(&bus->lock);
		worked = try_fetch(consumer, &work);
		pthread_mutex_lock(&bus->lock);
		if (!worked) { /* some messages may have been read before the failure */
			give_back(consumer);
			work.count = 0;
		}
		go_on = work.count == 0 && (worked ? wait_for_more(consumer, seen, until_ns)
						   : wait_for_recovery(consumer, until_ns));
	}
	is_idle = work.count == 0 && !consumer->woken;
	consumer->woken = false;
	pthread_mutex_unlock(&bus->lock);
	if (is_idle)
		trim_when_idle(bus, consumer->group->channel);
	*count = work.count;
	return STATUS_OK;
}

/* ---- ack --------------------------------------------------------------------------------- */

struct ack_work {
	struct local_work base;
	struct local_consumer *consumer;
	const int64_t *offsets;
	size_t count;
};

static int run_ack(struct local_bus *bus, struct local_work *base)
{
	struct ack_work *work = (struct ack_work *)base;
	struct local_group *group = work->consumer->group;
	int64_t position;
	int rc = SQLITE_OK;

	pthread_mutex_lock(&bus->lock);
	position = local_group_position(group, work->offsets, work->count);
	pthread_mutex_unlock(&bus->lock);
	for (size_t i = 0; i < work->count && rc == SQLITE_OK; i++) {
		if (work->offsets[i] > position)
			rc = local_messages_mark(bus, group, work->offsets[i]);
	}
	if (rc == SQLITE_OK && work->offsets[0] <= position)
		rc = local_messages_move(bus, group, position);
	return rc == SQLITE_OK ? trim_sometimes(bus, group->channel, work->count) : rc;
}

static void settle_ack(struct local_bus *bus, struct local_work *base, enum local_outcome outcome)
{
	struct ack_work *work = (struct ack_work *)base;
	struct local_group *group = work->consumer->group;

	(void)bus;
	if (outcome != LOCAL_DONE)
		return;
	for (size_t i = 0; i < work->count; i++)
		local_group_acknowledge(group, work->offsets[i]);
	local_group_shrink(group);
	work->consumer->acked += work->count;
	if (group->members > 1)
		/* other consumers can now take messages with the same keys */
		local_channel_changed(group->channel);
}

static enum status ack(struct consumer *base, size_t count)
{
	struct local_consumer *consumer = consumer_of(base);
	struct ack_work work = {
		.base = {.writes = true, .run = run_ack, .settle = settle_ack},
		.consumer = consumer,
	};

	if (count > consumer->in_hand_count)
		count = consumer->in_hand_count;
	if (count <= consumer->acked)
		return STATUS_OK;
	work.offsets = &consumer->in_hand[consumer->acked];
	work.count = count - consumer->acked;
	switch (local_work_do(consumer->bus, &work.base, INT64_MAX)) {
	case LOCAL_DONE:
		return STATUS_OK;
	case LOCAL_UNKNOWN:
		return STATUS_OUTCOME_UNKNOWN;
	default:
		return STATUS_BUS_UNAVAILABLE;
	}
}

/* ---- the port's other functions ---------------------------------------------------------- */

static void again(struct consumer *base)
{
	struct local_consumer *consumer = consumer_of(base);

	pthread_mutex_lock(&consumer->bus->lock);
	give_back(consumer);
	pthread_mutex_unlock(&consumer->bus->lock);
}

static void wake(struct consumer *base)
{
	struct local_consumer *consumer = consumer_of(base);

	pthread_mutex_lock(&consumer->bus->lock);
	consumer->woken = true;
	pthread_cond_broadcast(&consumer->group->channel->changed);
	pthread_mutex_unlock(&consumer->bus->lock);
}

static void close_consumer(struct consumer *base)
{
	struct local_consumer *consumer = consumer_of(base);
	struct local_bus *bus = consumer->bus;

	record_skips(consumer, 1);
	pthread_mutex_lock(&bus->lock);
	give_back(consumer);
	local_group_leave(bus, consumer->group);
	bus->users--;
	pthread_mutex_unlock(&bus->lock);
	arena_release(&consumer->arena);
	free(consumer->in_hand);
	free(consumer);
}

static const struct consumer_ops consumer_ops = {
	.fetch = fetch,
	.ack = ack,
	.again = again,
	.wake = wake,
	.close = close_consumer,
};

/*
 * Joins the group immediately, so that from now on the bus keeps published messages until the group
 * has acknowledged them. If joining fails, the first fetch joins.
 */
struct consumer *local_consumer_open(struct bus *base, const char *channel, const char *group)
{
	struct local_bus *bus = local_bus_of(base);
	struct local_consumer *consumer = qp_calloc(1, sizeof(*consumer));
	struct local_channel *found = local_bus_channel(bus, slice_of(channel));
	bool joined;

	assert(found);
	consumer->base.ops = &consumer_ops;
	consumer->bus = bus;
	arena_init(&consumer->arena, 64 * 1024);
	pthread_mutex_lock(&bus->lock);
	consumer->group = local_group_enter(bus, found, group);
	bus->users++;
	pthread_mutex_unlock(&bus->lock);
	joined = join(consumer);
	(void)joined;
	return &consumer->base;
}
