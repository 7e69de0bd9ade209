#include "services/gateway/gateway_messages.h"

#include "base/uuid.h"
#include "services/gateway/gateway_answers.h"

/* ---- storing messages as QUEUED ---------------------------------------------------------- */

enum status gateway_messages_note(
	const struct gateway_lane *lane, struct session *session, const struct write_batch *batch)
{
	const struct outbound_repository *repository = lane->gateway->messages;
	struct outbound_message *messages =
		arena_array(batch->arena, struct outbound_message, batch->count);
	size_t count = 0;

	for (size_t i = 0; i < batch->count; i++) {
		const struct gateway_command *command = gateway_command_of(batch->writes[i]);

		if (command->verb != GATEWAY_SEND || command->write.effect != EFFECT_DONE ||
			command->write.is_lost)
			continue;
		messages[count].id = slice_of(command->message_id);
		messages[count].user_id = command->user.text;
		messages[count++].created_us = command->created_us;
	}
	if (count == 0)
		return STATUS_OK;
	return repository->ops->note(repository, session, messages, count);
}

/* ---- looking up -------------------------------------------------------------------------- */

static const struct command_type gateway_message_type = {"gateway_message", false};

static enum status look_up(struct read *read, struct session *session, struct arena *arena)
{
	const struct gateway_message *wanted = (const struct gateway_message *)read;
	const struct outbound_repository *repository = wanted->gateway->messages;
	struct outbound_message message = {.id = uuid_lower(arena, wanted->id)};
	enum status status = STATUS_OK;

	command_assert_type(&read->command, &gateway_message_type);
	if (uuid_is_canonical(message.id))
		status = repository->ops->find(repository, session, arena, &message);
	if (status == STATUS_OK)
		read->command.answer =
			message.exists ? gateway_answer_message(read->command.arena, &message)
				       : gateway_answer_no_message(read->command.arena, wanted->id);
	return status;
}

struct gateway_message *gateway_message_new(struct arena *arena)
{
	struct gateway_message *message = arena_new(arena, struct gateway_message);

	message->read.command.type = &gateway_message_type;
	message->read.look_up = look_up;
	return message;
}
