/*
 * The events of dialogs, in the envelope of MassTransit as it is sent and taken: NewMessageEvent
 * and MessageReadEvent. What comes may also be the bare message, in camelCase or PascalCase. Pure.
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
	bool is_read;            /* MessageReadEvent, else NewMessageEvent */
	struct slice user_id;    /* whose count it changes: recipientId, or userId of a read */
	struct slice message_id; /* of the message */
	struct slice sender_id;  /* of a new one */
	int64_t at_us;
};

/* The envelope of an event, in memory of `arena`. `name_space` is the .NET one: "Quipu.Dialogs". */
struct slice message_event_write(struct arena *arena, const struct message_event *event,
	struct slice event_id, const char *name_space);

/*
 * Reads an envelope or a bare message; `event->is_read` says which kind is wanted, and an envelope
 * of another kind is wrong. NULL: it is good; else a static sentence says what is wrong with it.
 */
const char *message_event_read(struct arena *arena, struct slice text, struct message_event *event);

#endif
