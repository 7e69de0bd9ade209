/*
 * Writes and reads the events of dialogs, NewMessageEvent and MessageReadEvent, in the envelope of
 * MassTransit. Reading also accepts a message without an envelope, and the variants that .NET
 * services write: members in camelCase or PascalCase, integers as ids, UUIDs in upper or lower
 * case, and times without an offset. Pure.
 */
#ifndef QUIPU_EVENTS_MESSAGE_EVENT_H
#define QUIPU_EVENTS_MESSAGE_EVENT_H

#include <stdint.h>

#include "base/arena.h"
#include "base/slice.h"

#define UNREAD_CHANNEL "message-events"
#define UNREAD_PARTITIONS 4
#define UNREAD_SUBJECT_NEW "message.new"
#define UNREAD_SUBJECT_READ "message.read"
#define UNREAD_GROUP_NEW "counter-service-new-message"
#define UNREAD_GROUP_READ "counter-service-message-read"

#define MESSAGE_NEW "NewMessageEvent"
#define MESSAGE_READ "MessageReadEvent"
#define MASSTRANSIT_TYPE "application/vnd.masstransit+json"

struct message_event {
	bool is_read; /* true for MessageReadEvent, false for NewMessageEvent */
	/* the user whose counter changes: userId in a MessageReadEvent, otherwise recipientId */
	struct slice user_id;
	struct slice message_id;
	struct slice sender_id; /* NewMessageEvent only */
	int64_t at_us;          /* 0 if the message has no time */
};

/* Returns the JSON text of the event in its envelope, allocated from `arena`. `name_space` is the
 * .NET namespace: "Quipu.Dialogs". */
struct slice message_event_write(struct arena *arena, const struct message_event *event,
	struct slice event_id, const char *name_space);

/*
 * Reads a message, with or without an envelope. Before the call, the caller sets `event->is_read`
 * to say which of the two events it expects. An envelope of the other event is invalid. Texts are
 * allocated from `arena`. Returns NULL if the event is valid. Otherwise returns a static sentence
 * that says what is wrong.
 */
const char *message_event_read(struct arena *arena, struct slice text, struct message_event *event);

#endif
