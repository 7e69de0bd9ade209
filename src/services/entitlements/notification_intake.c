/*
 * Turns entitlement events into notifications. The transaction that stores a notification also adds
 * the id of the event to the inbox, so that a repeated event is recognised.
 */
#include "base/uuid.h"
#include "events/entitlement_event.h"
#include "services/entitlements/notifications.h"

static struct slice new_id(struct arena *arena)
{
	char *id = arena_alloc(arena, UUID_SIZE);

	uuid_random(id);
	return slice_of(id);
}

static struct notification make_notification(struct arena *arena,
	const struct entitlement_event *event, struct slice payload, struct slice trace)
{
	return (struct notification){
		.id = new_id(arena),
		.event_id = event->event_id,
		.event_type = event->event_type,
		.user_id = event->user_id,
		.unit = event->unit,
		.key = entitlement_aggregate_key(arena, event->user_id, event->unit),
		.trace = trace,
		.version = event->version,
		.occurred_us = event->occurred_us,
		.payload = payload,
	};
}

/* ---- poison ------------------------------------------------------------------------------ */

static struct dead_letter make_letter(struct arena *arena, const struct intake_item *item)
{
	const struct bus_delivery *delivery = item->delivery;

	return (struct dead_letter){
		.id = new_id(arena),
		.kind = slice_of("poison"),
		.position = delivery->identity,
		.error = slice_of(item->poison),
		.payload = delivery->value,
	};
}

/* Stores the poison messages of the batch as dead letters. A poison message is one that can never
 * be applied. */
static enum status bury(const struct notifications *notifications, struct session *session,
	const struct intake_batch *batch)
{
	struct dead_letter *letters = arena_array(batch->arena, struct dead_letter, batch->count);
	size_t count = 0;

	for (size_t i = 0; i < batch->count; i++) {
		if (batch->items[i].poison)
			letters[count++] = make_letter(batch->arena, &batch->items[i]);
	}
	if (count == 0)
		return STATUS_OK;
	return notifications->repository->dead->ops->put(
		notifications->repository->dead, session, letters, count);
}

/* ---- events ------------------------------------------------------------------------------ */

/* Stores a notification for each new event and counts the repeated events. */
static enum status put_new(const struct notifications *notifications, struct session *session,
	const struct intake_batch *batch, const struct entitlement_event *events,
	const bool *is_new, size_t *repeated)
{
	struct notification *fresh = arena_array(batch->arena, struct notification, batch->count);
	size_t count = 0;

	for (size_t i = 0; i < batch->count; i++) {
		const struct bus_delivery *delivery = batch->items[i].delivery;

		if (is_new[i])
			fresh[count++] = make_notification(
				batch->arena, &events[i], delivery->value, intake_trace(delivery));
		else if (!batch->items[i].poison)
			(*repeated)++;
	}
	if (count == 0)
		return STATUS_OK;
	return notifications->repository->ops->put(
		notifications->repository, session, fresh, count);
}

enum status notifications_apply(
	void *context, struct session *session, const struct intake_batch *batch, size_t *repeated)
{
	const struct notifications *notifications = context;
	struct entitlement_event *events =
		arena_array(batch->arena, struct entitlement_event, batch->count);
	struct slice *ids = arena_array(batch->arena, struct slice, batch->count);
	bool *is_new = arena_array(batch->arena, bool, batch->count);
	enum status status;

	for (size_t i = 0; i < batch->count; i++) {
		struct intake_item *item = &batch->items[i];

		if (!item->poison)
			item->poison = entitlement_event_unpack(
				batch->arena, item->delivery->value, &events[i]);
		if (!item->poison)
			ids[i] = events[i].event_id;
	}
	status = inbox_keep_new(
		notifications->repository->inbox, session, batch->arena, ids, is_new, batch->count);
	if (status == STATUS_OK)
		status = put_new(notifications, session, batch, events, is_new, repeated);
	if (status == STATUS_OK)
		status = bury(notifications, session, batch);
	return status;
}

enum status notifications_take_again(void *context, struct session *session, struct arena *arena,
	struct slice payload, bool *is_read)
{
	const struct notifications *notifications = context;
	struct entitlement_event event;
	struct notification notification;
	bool is_new;
	enum status status;

	*is_read = entitlement_event_unpack(arena, payload, &event) == NULL;
	if (!*is_read)
		return STATUS_OK;
	status = inbox_keep_new(
		notifications->repository->inbox, session, arena, &event.event_id, &is_new, 1);
	if (status != STATUS_OK || !is_new)
		return status;
	notification = make_notification(arena, &event, payload, (struct slice){0});
	return notifications->repository->ops->put(
		notifications->repository, session, &notification, 1);
}
