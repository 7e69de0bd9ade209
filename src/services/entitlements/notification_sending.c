/*
 * Writes the bodies of notifications and the metrics about sending them. flow/delivery sends the
 * notifications.
 */
#include "base/metrics.h"
#include "events/entitlement_event.h"
#include "services/entitlements/notifications.h"

const char *notifications_write_body(
	struct arena *arena, const struct claim *claim, struct slice *body)
{
	struct entitlement_event event;
	const char *wrong = entitlement_event_unpack(arena, claim->payload, &event);
	struct buffer text = buffer_make(arena, 512);

	if (wrong)
		return wrong;
	buffer_char(&text, '{');
	buffer_member(&text, "notification_id", claim->id);
	entitlement_event_write_json(&text, &event);
	buffer_char(&text, '}');
	*body = buffer_slice(&text);
	return NULL;
}

static void write_states(const struct delivery_counts *counts, struct buffer *page)
{
	const char *name = "quipu_notifications";

	metrics_family(page, name, "gauge",
		"Notifications that are not sent yet, by state, counted every few seconds.");
	metrics_sample(page, name, "state=\"PENDING\"", counts->pending);
	metrics_sample(page, name, "state=\"PROCESSING\"", counts->busy);
	metrics_sample(page, name, "state=\"FAILED\"", counts->failed);
}

static void write_one(
	struct buffer *page, const char *name, const char *type, const char *help, int64_t value)
{
	metrics_family(page, name, type, help);
	metrics_sample(page, name, "", value);
}

void notifications_collect(void *delivery, struct buffer *page)
{
	struct delivery_counts counts = delivery_counts(delivery);

	write_states(&counts, page);
	write_one(page, "quipu_notifications_oldest_seconds", "gauge",
		"Age of the oldest notification that is not sent yet.", counts.oldest_us / 1000000);
	write_one(page, "quipu_dead_letters", "gauge",
		"Notifications and messages that were given up and wait for an operator.",
		counts.dead);
	write_one(page, "quipu_notifications_sent_total", "counter", "Notifications sent.",
		counts.sent);
	write_one(page, "quipu_notifications_retried_total", "counter",
		"Attempts to send that failed and will be retried.", counts.retried);
	write_one(page, "quipu_notifications_given_up_total", "counter",
		"Notifications that were refused, or failed too many times.", counts.given_up);
}
