/*
 * First, a query finds the messages for commands that mark everything up to a certain message as
 * read. Then one statement marks the messages of all commands as read, and reports which of them
 * were unread. After that, the commands run in order, in memory. Finally, new messages and one
 * event per change are written.
 *
 * Invariant: a message has one NewMessageEvent and, once it is read, one MessageReadEvent, however
 * many requests mark it as read. The transaction that marks a message as read also commits its
 * MessageReadEvent.
 */
#include "services/dialogs/dialog_batch.h"

#include <assert.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/uuid.h"
#include "events/message_event.h"

/* ---- the command type -------------------------------------------------------------------- */

const struct command_type dialog_command_type = {"dialog_command", true};

struct dialog_command *dialog_command_new(struct arena *arena)
{
	struct dialog_command *command = arena_new(arena, struct dialog_command);

	command->write.command.type = &dialog_command_type;
	return command;
}

struct dialog_command *dialog_command_of(struct write *write)
{
	command_assert_type(&write->command, &dialog_command_type);
	return (struct dialog_command *)write;
}

/* ---- changes ----------------------------------------------------------------------------- */

/* The changes that one transaction writes. */
struct changes {
	const struct dialogs *dialogs;
	struct arena *arena;
	int64_t now_us;
	struct message *messages;
	size_t message_count;
	struct message_mark *marks; /* sorted, without duplicates */
	size_t mark_count;
	struct outbox_event *events;
	size_t event_count;
};

static struct slice new_id(struct arena *arena, int64_t now_us)
{
	char *id = arena_alloc(arena, UUID_SIZE);

	uuid_of_time(now_us, id);
	return slice_of(id);
}

static void add_event(struct changes *changes, const struct message_event *event,
	const struct dialog_command *command)
{
	struct slice id = new_id(changes->arena, changes->now_us);

	changes->events[changes->event_count++] = (struct outbox_event){
		.id = id,
		.type = slice_of(event->is_read ? MESSAGE_READ : MESSAGE_NEW),
		.key = event->user_id,
		.trace = command->traceparent,
		.payload = message_event_write(
			changes->arena, event, id, changes->dialogs->name_space),
		.occurred_us = changes->now_us,
	};
}

/* ---- sends ------------------------------------------------------------------------------- */

static struct answer answer_sent(struct arena *arena, const struct message *message)
{
	struct buffer body = buffer_make(arena, 128);

	buffer_text(&body, "{\"status\":\"Message sent\",\"messageId\":");
	buffer_json_string(&body, message->id);
	buffer_text(&body, ",\"createdAt\":\"");
	buffer_time(&body, message->created_us);
	buffer_text(&body, "\"}");
	return answer_json(200, buffer_slice(&body));
}

static void run_send(struct changes *changes, struct dialog_command *command)
{
	struct message *message = &changes->messages[changes->message_count++];
	struct message_event event = {
		.user_id = command->receiver_id,
		.sender_id = command->user_id,
		.at_us = changes->now_us,
	};

	*message = (struct message){
		.receiver_id = command->receiver_id,
		.id = new_id(changes->arena, changes->now_us),
		.sender_id = command->user_id,
		.text = command->text,
		.created_us = changes->now_us,
	};
	event.message_id = message->id;
	add_event(changes, &event, command);
	write_answer(&command->write, answer_sent(command->write.command.arena, message));
}

/* ---- marking messages as read ------------------------------------------------------------ */

/* The most messages that the READ_UP_TO commands of a batch may mark in total. Without this limit,
 * transactions could get long, because a small request can mark many messages. */
#define UP_TO_TOTAL_MAX 20000

static struct unread_query query_up_to(const struct dialog_command *command, size_t limit)
{
	return (struct unread_query){
		.receiver_id = command->user_id,
		.sender_id = command->sender_id,
		.up_to = command->up_to,
		.limit = limit + 1, /* one extra message shows whether more are unread */
	};
}

static void set_messages(
	struct dialog_command *command, const struct unread_query *query, size_t limit)
{
	command->up_to_exists = query->exists;
	command->has_more = query->id_count > limit;
	command->message_ids = query->ids;
	command->message_count = command->has_more ? limit : query->id_count;
	if (!query->exists)
		command->message_count = 0;
}

/* Finds the messages that the READ_UP_TO commands mark as read. */
static enum status find_up_to(
	const struct dialogs *dialogs, struct session *session, const struct write_batch *batch)
{
	struct dialog_command **commands =
		arena_array(batch->arena, struct dialog_command *, batch->count);
	struct unread_query *queries;
	size_t count = 0, limit;
	enum status status;

	for (size_t i = 0; i < batch->count; i++) {
		struct dialog_command *command = dialog_command_of(batch->writes[i]);

		if (command->verb == DIALOG_READ_UP_TO)
			commands[count++] = command;
	}
	if (count == 0)
		return STATUS_OK;
	limit = UP_TO_TOTAL_MAX / count < DIALOG_READ_MAX ? UP_TO_TOTAL_MAX / count
							  : DIALOG_READ_MAX;
	limit = limit > 0 ? limit : 1;
	queries = arena_array(batch->arena, struct unread_query, count);
	for (size_t i = 0; i < count; i++)
		queries[i] = query_up_to(commands[i], limit);
	status = dialogs->repository->ops->find_unread(
		dialogs->repository, session, batch->arena, queries, count);
	for (size_t i = 0; i < count && status == STATUS_OK; i++)
		set_messages(commands[i], &queries[i], limit);
	return status;
}

static int compare_marks(const void *a, const void *b)
{
	const struct message_mark *left = a, *right = b;
	int order = slice_compare(left->receiver_id, right->receiver_id);

	return order ? order : slice_compare(left->id, right->id);
}

/* Collects all messages that the batch marks as read, sorted and without duplicates. */
static void collect_marks(struct changes *changes, const struct write_batch *batch)
{
	size_t kept = 0;

	for (size_t i = 0; i < batch->count; i++) {
		const struct dialog_command *command = dialog_command_of(batch->writes[i]);

		for (size_t k = 0; k < command->message_count; k++)
			changes->marks[changes->mark_count++] = (struct message_mark){
				.receiver_id = command->user_id, .id = command->message_ids[k]};
	}
	qsort(changes->marks, changes->mark_count, sizeof(*changes->marks), compare_marks);
	for (size_t i = 0; i < changes->mark_count; i++) {
		if (kept == 0 || compare_marks(&changes->marks[kept - 1], &changes->marks[i]) != 0)
			changes->marks[kept++] = changes->marks[i];
	}
	changes->mark_count = kept;
}

/* Returns the mark of a message that the command marks as read. */
static struct message_mark *mark_of(
	const struct changes *changes, const struct dialog_command *command, struct slice id)
{
	struct message_mark wanted = {.receiver_id = command->user_id, .id = id};
	struct message_mark *mark = bsearch(&wanted, changes->marks, changes->mark_count,
		sizeof(*changes->marks), compare_marks);

	assert(mark);
	return mark;
}

/* Adds an event for each message that was unread, and returns the number of events. If several
 * commands of the batch mark the same message, only the first command finds it unread. */
static size_t take_marks(struct changes *changes, struct dialog_command *command)
{
	size_t taken = 0;

	for (size_t i = 0; i < command->message_count; i++) {
		struct message_mark *mark = mark_of(changes, command, command->message_ids[i]);
		struct message_event event = {
			.is_read = true,
			.user_id = mark->receiver_id,
			.message_id = mark->id,
			.at_us = changes->now_us,
		};

		if (!mark->was_unread)
			continue;
		mark->was_unread = false;
		add_event(changes, &event, command);
		taken++;
	}
	return taken;
}

static struct answer answer_read(const struct dialog_command *command, size_t updated)
{
	struct buffer body = buffer_make(command->write.command.arena, 96);

	if (command->verb == DIALOG_READ_MANY)
		buffer_format(&body, "{\"status\":\"%zu messages marked as read\"", updated);
	else if (updated == 1)
		buffer_text(&body, "{\"status\":\"Message marked as read\"");
	else
		buffer_text(&body, "{\"status\":\"Message was read already\"");
	buffer_format(&body, ",\"updated\":%zu}", updated);
	return answer_json(200, buffer_slice(&body));
}

static struct answer answer_unknown(
	const struct dialog_command *command, struct slice id, const char *what)
{
	return answer_problem(command->write.command.arena, STATUS_MESSAGE_NOT_FOUND,
		"\"%.*s\" is not a message %s", (int)id.len, id.data, what);
}

static void run_read(struct changes *changes, struct dialog_command *command)
{
	struct slice first = command->message_ids[0];

	if (command->verb == DIALOG_READ_ONE && !mark_of(changes, command, first)->exists)
		write_answer(&command->write, answer_unknown(command, first, "to this user"));
	else
		write_answer(&command->write, answer_read(command, take_marks(changes, command)));
}

static void run_read_up_to(struct changes *changes, struct dialog_command *command)
{
	struct buffer body;

	if (!command->up_to_exists) {
		write_answer(&command->write,
			answer_unknown(command, command->up_to, "of this sender to this user"));
		return;
	}
	body = buffer_make(command->write.command.arena, 48);
	buffer_format(&body, "{\"updated\":%zu,\"more\":%s}", take_marks(changes, command),
		command->has_more ? "true" : "false");
	write_answer(&command->write, answer_json(200, buffer_slice(&body)));
}

/* ---- the batch --------------------------------------------------------------------------- */

static struct changes make_changes(const struct dialogs *dialogs, const struct write_batch *batch)
{
	struct changes changes = {.dialogs = dialogs, .arena = batch->arena};
	size_t reads = 0;

	for (size_t i = 0; i < batch->count; i++)
		reads += dialog_command_of(batch->writes[i])->message_count;
	changes.now_us = clock_wall_us(&clock_system);
	changes.messages = arena_array(batch->arena, struct message, batch->count);
	changes.marks = arena_array(batch->arena, struct message_mark, reads);
	changes.events = arena_array(batch->arena, struct outbox_event, batch->count + reads);
	return changes;
}

static enum status write_changes(struct session *session, const struct changes *changes)
{
	const struct dialogs *dialogs = changes->dialogs;
	enum status status = STATUS_OK;

	if (changes->message_count > 0)
		status = dialogs->repository->ops->put(
			dialogs->repository, session, changes->messages, changes->message_count);
	if (status == STATUS_OK && changes->event_count > 0)
		status = dialogs->outbox->ops->put(
			dialogs->outbox, session, changes->events, changes->event_count);
	return status;
}

enum status dialog_batch_decide(
	const struct dialogs *dialogs, struct session *session, const struct write_batch *batch)
{
	struct changes changes;
	enum status status = find_up_to(dialogs, session, batch);

	if (status != STATUS_OK)
		return status;
	changes = make_changes(dialogs, batch);
	collect_marks(&changes, batch);
	if (changes.mark_count > 0)
		status = dialogs->repository->ops->mark(
			dialogs->repository, session, changes.marks, changes.mark_count);
	if (status != STATUS_OK)
		return status;
	for (size_t i = 0; i < batch->count; i++) {
		struct dialog_command *command = dialog_command_of(batch->writes[i]);

		if (command->verb == DIALOG_SEND)
			run_send(&changes, command);
		else if (command->verb == DIALOG_READ_UP_TO)
			run_read_up_to(&changes, command);
		else
			run_read(&changes, command);
	}
	return write_changes(session, &changes);
}
