/* Sets the channel, subject and key under which events from the outbox are published. */
#include "events/message_event.h"
#include "services/dialogs/dialogs.h"

bool dialogs_address(struct arena *arena, const struct claim *row, struct bus_message *message)
{
	struct message_event event = {.is_read = slice_is(row->type, MESSAGE_READ)};

	if (message_event_read(arena, row->payload, &event))
		return false;
	message->channel = slice_of(UNREAD_CHANNEL);
	message->subject = slice_of(event.is_read ? UNREAD_SUBJECT_READ : UNREAD_SUBJECT_NEW);
	message->key = row->key;
	message->value = row->payload;
	bus_message_add_header(message, "content-type", slice_of(MASSTRANSIT_TYPE));
	if (row->trace.len > 0)
		bus_message_add_header(message, "traceparent", row->trace);
	return true;
}
