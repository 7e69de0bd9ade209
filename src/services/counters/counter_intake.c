/*
 * Applies events to counters. Events may come twice and out of order, so the store keeps the state
 * of each message, not just a sum. If the "read" event of a message arrives before its "new" event,
 * the message's state is set to "read", and the later "new" event changes nothing.
 *
 * After a commit, the intake updates the cache, then the streams, and then acknowledges the events.
 * If the process crashes before the acknowledgement, the bus delivers the events again. The
 * repeated events change nothing in the store, but they still refresh the cache.
 */
#include <stdlib.h>

#include "base/clock.h"
#include "events/message_event.h"
#include "services/counters/counter_feed.h"
#include "services/counters/counter_rules.h"
#include "services/counters/counters.h"

#define AGE_MAX_US COUNTERS_KEPT_US

struct counter_intake {
	struct counters *counters;
	bool is_read;
	struct cache_session *cache; /* NULL without a cache */

	/* The members below hold the committed counters of all users in the last batch. */
	struct arena arena;
	struct counter_row *rows;
	size_t row_count;
};

struct counter_intake *counter_intake_new(struct counters *counters, bool is_read)
{
	struct counter_intake *intake = qp_calloc(1, sizeof(*intake));

	intake->counters = counters;
	intake->is_read = is_read;
	if (counters->cache)
		intake->cache = counters->cache->ops->open_session(counters->cache);
	arena_init(&intake->arena, 32 * 1024);
	return intake;
}

void counter_intake_free(struct counter_intake *intake)
{
	if (intake->cache)
		intake->cache->ops->close(intake->cache);
	arena_release(&intake->arena);
	free(intake);
}

/* ---- reading ----------------------------------------------------------------------------- */

/*
 * Reads an event. Returns NULL if it is valid, otherwise what is wrong with it. Refuses events
 * older than AGE_MAX_US: the state of their messages may have been deleted, so to apply such an
 * event again could count a message twice.
 */
static const char *read_event(
	struct arena *arena, const struct bus_delivery *delivery, struct message_event *event)
{
	const char *wrong = message_event_read(arena, delivery->value, event);
	int64_t now_us = clock_wall_us(&clock_system);

	if (event->at_us == 0)
		event->at_us = delivery->time_us != 0 ? delivery->time_us : now_us;
	if (!wrong && now_us - event->at_us > AGE_MAX_US)
		wrong = "it is older than 30 days";
	return wrong;
}

static int compare_messages(const void *a, const void *b)
{
	const struct counter_message *left = a, *right = b;
	int order = slice_compare(left->user_id, right->user_id);

	return order ? order : slice_compare(left->message_id, right->message_id);
}

/* Returns the messages of the valid events, sorted and without duplicates. Sets `repeated` to the
 * number of duplicates. */
static struct counter_message *read_batch(struct counter_intake *intake,
	const struct intake_batch *batch, size_t *count, size_t *repeated)
{
	struct counter_message *messages =
		arena_array(batch->arena, struct counter_message, batch->count);
	size_t total = 0, kept = 0;

	for (size_t i = 0; i < batch->count; i++) {
		struct intake_item *item = &batch->items[i];
		struct message_event event = {.is_read = intake->is_read};

		if (!item->poison)
			item->poison = read_event(batch->arena, item->delivery, &event);
		if (item->poison)
			continue;
		messages[total++] = (struct counter_message){.user_id = event.user_id,
			.message_id = event.message_id,
			.event_us = event.at_us};
	}
	qsort(messages, total, sizeof(*messages), compare_messages);
	for (size_t i = 0; i < total; i++) {
		if (kept == 0 || compare_messages(&messages[kept - 1], &messages[i]) != 0)
			messages[kept++] = messages[i];
	}
	*count = kept;
	*repeated = total - kept;
	return messages;
}

/* ---- counting ---------------------------------------------------------------------------- */

/* The changes that one transaction writes. */
struct changes {
	struct counter_message *changed;
	size_t changed_count;
	struct counter_row *moved; /* counters that change */
	size_t moved_count;
	struct counter_row *still; /* counters that do not change */
	size_t still_count;
};

static struct changes make_changes(struct arena *arena, size_t count)
{
	return (struct changes){
		.changed = arena_array(arena, struct counter_message, count),
		.moved = arena_array(arena, struct counter_row, count),
		.still = arena_array(arena, struct counter_row, count),
	};
}

/* Applies all messages of the user whose messages begin at index `first`. Returns the index at
 * which the messages of the next user begin. */
static size_t run_user(struct changes *changes, bool is_read, struct counter_message *messages,
	const int64_t *event_us, size_t first, size_t count)
{
	struct counter_row row = {.user_id = messages[first].user_id};
	size_t i = first;

	for (; i < count && slice_equal(messages[i].user_id, row.user_id); i++) {
		int64_t delta;

		if (counter_apply(&messages[i], is_read, event_us[i], &delta))
			changes->changed[changes->changed_count++] = messages[i];
		row.delta += delta;
	}
	if (row.delta != 0)
		changes->moved[changes->moved_count++] = row;
	else
		changes->still[changes->still_count++] = row;
	return i;
}

static enum status write_changes(
	const struct counters *counters, struct session *session, const struct changes *changes)
{
	const struct counter_repository *repository = counters->repository;
	enum status status = STATUS_OK;

	if (changes->changed_count > 0)
		status = repository->ops->put(
			repository, session, changes->changed, changes->changed_count);
	if (status == STATUS_OK && changes->moved_count > 0)
		status = repository->ops->add(
			repository, session, changes->moved, changes->moved_count);
	if (status == STATUS_OK && changes->still_count > 0)
		status = repository->ops->find(
			repository, session, changes->still, changes->still_count);
	return status;
}

/* Sets counting->rows to the counters that exist, whether they have changed or not. */
static void keep_rows(struct counter_counting *counting, const struct changes *changes)
{
	size_t total = changes->moved_count + changes->still_count;

	counting->rows = arena_array(counting->arena, struct counter_row, total);
	counting->row_count = 0;
	for (size_t i = 0; i < total; i++) {
		bool moved = i < changes->moved_count;
		const struct counter_row *row =
			moved ? &changes->moved[i] : &changes->still[i - changes->moved_count];

		if (row->exists)
			counting->rows[counting->row_count++] = *row;
	}
}

/* Copies all counters, even unchanged ones, so that the cache can be refreshed after the commit. */
static void copy_rows(struct counter_intake *intake, const struct counter_counting *counting)
{
	arena_reset(&intake->arena);
	intake->rows = arena_array(&intake->arena, struct counter_row, counting->row_count);
	intake->row_count = counting->row_count;
	for (size_t i = 0; i < counting->row_count; i++) {
		intake->rows[i] = counting->rows[i];
		intake->rows[i].user_id = arena_copy(&intake->arena, counting->rows[i].user_id);
	}
}

enum status counter_count(
	const struct counters *counters, struct session *session, struct counter_counting *counting)
{
	struct arena *arena = counting->arena;
	struct changes changes = make_changes(arena, counting->count);
	int64_t *event_us = arena_array(arena, int64_t, counting->count);
	enum status status = STATUS_OK;

	for (size_t i = 0; i < counting->count; i++)
		event_us[i] = counting->messages[i].event_us;
	if (counting->count > 0)
		status = counters->repository->ops->lock(
			counters->repository, session, counting->messages, counting->count);
	for (size_t i = 0; i < counting->count && status == STATUS_OK;)
		i = run_user(&changes, counting->is_read, counting->messages, event_us, i,
			counting->count);
	if (status == STATUS_OK)
		status = write_changes(counters, session, &changes);
	if (status != STATUS_OK)
		return status;
	counting->changed = changes.changed_count;
	keep_rows(counting, &changes);
	return STATUS_OK;
}

enum status counter_intake_apply(
	void *context, struct session *session, const struct intake_batch *batch, size_t *repeated)
{
	struct counter_intake *intake = context;
	struct counter_counting counting = {.arena = batch->arena, .is_read = intake->is_read};
	enum status status;

	intake->row_count = 0;
	counting.messages = read_batch(intake, batch, &counting.count, repeated);
	status = counter_count(intake->counters, session, &counting);
	if (status != STATUS_OK)
		return status;
	*repeated += counting.count - counting.changed;
	copy_rows(intake, &counting);
	return STATUS_OK;
}

/* ---- after the commit -------------------------------------------------------------------- */

static void refresh_cache(struct cache_session *cache, struct arena *arena,
	const struct counter_row *rows, size_t count)
{
	struct cached_counter *cached = arena_array(arena, struct cached_counter, count);
	enum status status;

	for (size_t i = 0; i < count; i++) {
		cached[i].user_id = rows[i].user_id;
		cached[i].count = rows[i].count;
		cached[i].version = rows[i].version;
		cached[i].updated_us = rows[i].updated_us;
	}
	status = cache->ops->counter_refresh(cache, cached, count);
	(void)status; /* on failure, the adapter deletes these counters before the next use */
}

void counters_publish(struct counters *counters, struct cache_session *cache, struct arena *arena,
	const struct counter_row *rows, size_t count)
{
	if (count == 0)
		return;
	if (cache)
		refresh_cache(cache, arena, rows, count);
	counter_feed_publish(counters, arena, rows, count);
}

void counter_intake_committed(void *context)
{
	struct counter_intake *intake = context;

	counters_publish(
		intake->counters, intake->cache, &intake->arena, intake->rows, intake->row_count);
}
