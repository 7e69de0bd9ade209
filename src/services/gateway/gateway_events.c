#include "services/gateway/gateway_events.h"

#include "base/clock.h"
#include "services/gateway/gateway_answers.h"

/* A repeated request with the same Idempotency-Key gets the same message id, so that consumers
 * recognise the message if it is published twice. */
void gateway_event_name(struct gateway_command *command)
{
	const struct idempotency_record *record = command->write.idempotency;

	if (command->message_id[0] != '\0')
		return;
	if (record) {
		struct buffer name = buffer_make(
			command->write.command.arena, record->scope.len + record->key.len + 1);

		buffer_add(&name, record->scope);
		buffer_char(&name, '\0');
		buffer_add(&name, record->key);
		uuid_of_name(buffer_slice(&name), command->message_id);
	} else {
		uuid_of_time(clock_wall_us(&clock_system), command->message_id);
	}
}

static struct slice write_event(struct arena *arena, const struct gateway_command *command)
{
	struct buffer value = buffer_make(arena, 160 + command->message.len);

	buffer_format(&value, "{\"messageId\":\"%s\",\"userId\":", command->message_id);
	gateway_write_user_id(&value, &command->user);
	buffer_member(&value, "message", command->message);
	buffer_member_time(&value, "createdAt", command->created_us);
	buffer_char(&value, '}');
	return buffer_slice(&value);
}

/* Returns the start of the window in which the message was counted. Except in shadow mode, the
 * number of a user's messages with the same window-start never exceeds the limit. */
static struct slice write_window(struct arena *arena, const struct gateway_command *command)
{
	struct buffer window = buffer_make(arena, 32);

	buffer_time(&window, command->window_start_us);
	return buffer_slice(&window);
}

void gateway_event_address(
	struct arena *arena, struct gateway_command *command, struct bus_message *message)
{
	gateway_event_name(command);
	command->created_us = clock_wall_us(&clock_system);
	message->channel = slice_of(GATEWAY_CHANNEL);
	message->key = command->user.text;
	message->id = slice_of(command->message_id);
	message->value = write_event(arena, command);
	bus_message_add_header(message, "window-start", write_window(arena, command));
	if (command->traceparent.len > 0)
		bus_message_add_header(message, "traceparent", command->traceparent);
}
