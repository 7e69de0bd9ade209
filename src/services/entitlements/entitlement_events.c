/* Sets the channel, subject and key under which events from the outbox are published. */
#include "base/trace.h"
#include "events/entitlement_event.h"
#include "services/entitlements/entitlements.h"

#define TRACE_ID_AT 3 /* where the id begins in a traceparent: 00-<32 hex>-<16 hex>-01 */
#define TRACE_ID_LEN 32

static struct slice time_text(struct arena *arena, int64_t time_us)
{
	struct buffer text = buffer_make(arena, 32);

	buffer_time(&text, time_us);
	return buffer_slice(&text);
}

bool entitlements_address(struct arena *arena, const struct claim *row, struct bus_message *message)
{
	struct entitlement_event event;
	bool granted = slice_is(row->type, ENTITLEMENT_GRANTED);

	if (entitlement_event_unpack(arena, row->payload, &event) ||
		!slice_equal(event.event_type, row->type))
		return false;
	message->channel = slice_of(ENTITLEMENTS_CHANNEL);
	message->subject = slice_of(
		granted ? ENTITLEMENTS_CHANNEL ".granted" : ENTITLEMENTS_CHANNEL ".revoked");
	message->key = row->key;
	message->value = row->payload;
	bus_message_add_header(message, "event_type", row->type);
	bus_message_add_header(message, "aggregate_key", row->key);
	bus_message_add_header(message, "occurred_at", time_text(arena, event.occurred_us));
	if (trace_is_valid(row->trace)) {
		bus_message_add_header(message, "trace_id",
			slice_make(row->trace.data + TRACE_ID_AT, TRACE_ID_LEN));
		bus_message_add_header(message, "traceparent", row->trace);
	}
	return true;
}
