/*
 * All reads of a batch are marked with one statement before the commands run; that statement
 * reports which messages were unread. Commands then run in order, in memory, and what they write
 * follows at the end: new messages and one event per change.
 *
 * Invariant: a message has one NewMessageEvent, and one MessageReadEvent in the transaction that
 * turns it from unread to read, however many requests read it.
 */
#include "services/dialogs/dialog_batch.h"

#include <assert.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/uuid.h"
#include "events/message_event.h"

/* ---- command types ----------------------------------------------------------------------- */

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

const struct command_type dialog_lookup_type = {"dialog_lookup", false};

struct dialog_lookup *dialog_lookup_new(struct arena *arena)
{
	struct dialog_lookup *lookup = arena_new(arena, struct dialog_lookup);

	lookup->read.command.type = &dialog_lookup_type;
	return lookup;
}

struct dialog_lookup *dialog_lookup_of(struct read *read)
{
	command_assert_type(&read->command, &dialog_lookup_type);
	return (struct dialog_lookup *)read;
}

/* ---- changes ----------------------------------------------------------------------------- */

/* What one transaction writes. */
struct changes {
	const struct dialogs *dialogs;
	struct arena *arena;
	int64_t now_us;
	struct message *messages;
	size_t message_count;
	struct message_mark *marks; /* sorted, without repetition */
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

/* ---- reads ------------------------------------------------------------------------------- */

static int compare_marks(const void *a, const void *b)
{
	const struct message_mark *left = a, *right = b;
	int order = slice_compare(left->receiver_id, right->receiver_id);

	return order ? order : slice_compare(left->id, right->id);
}

/* Collects the messages that the batch reads. */
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

/* Returns the mark of a message that the command reads. */
static struct message_mark *mark_of(
	const struct changes *changes, const struct dialog_command *command, struct slice id)
{
	struct message_mark wanted = {.receiver_id = command->user_id, .id = id};
	struct message_mark *mark = bsearch(&wanted, changes->marks, changes->mark_count,
		sizeof(*changes->marks), compare_marks);

	assert(mark);
	return mark;
}

/* Adds an event for each message that was unread, and returns how many there were. If several
 * commands of the batch read the same message, only the first finds it unread. */
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

static void run_read(struct changes *changes, struct dialog_command *command)
{
	struct arena *arena = command->write.command.arena;
	struct slice first = command->message_ids[0];

	if (command->verb == DIALOG_READ_ONE && !mark_of(changes, command, first)->exists) {
		write_answer(&command->write, answer_problem(arena, STATUS_MESSAGE_NOT_FOUND,
						      "\"%.*s\" is not a message to this user",
						      (int)first.len, first.data));
		return;
	}
	write_answer(&command->write, answer_read(command, take_marks(changes, command)));
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
	struct changes changes = make_changes(dialogs, batch);

	collect_marks(&changes, batch);
	if (changes.mark_count > 0) {
		enum status status = dialogs->repository->ops->mark(
			dialogs->repository, session, changes.marks, changes.mark_count);

		if (status != STATUS_OK)
			return status;
	}
	for (size_t i = 0; i < batch->count; i++) {
		struct dialog_command *command = dialog_command_of(batch->writes[i]);

		if (command->verb == DIALOG_SEND)
			run_send(&changes, command);
		else
			run_read(&changes, command);
	}
	return write_changes(session, &changes);
}

/* ---- looking up -------------------------------------------------------------------------- */

static void write_message(struct buffer *body, const struct message *message)
{
	buffer_char(body, '{');
	buffer_member(body, "id", message->id);
	buffer_member(body, "senderId", message->sender_id);
	buffer_member(body, "receiverId", message->receiver_id);
	buffer_member(body, "text", message->text);
	buffer_member_time(body, "createdAt", message->created_us);
	buffer_text(body, message->is_read ? ",\"isRead\":true}" : ",\"isRead\":false}");
}

/* Names, punctuation and times; the rest of a message's JSON are its four strings. */
#define MESSAGE_FRAME 112

static size_t written_length(const struct message *message)
{
	return MESSAGE_FRAME + buffer_json_length(message->id) +
	       buffer_json_length(message->sender_id) + buffer_json_length(message->receiver_id) +
	       buffer_json_length(message->text);
}

/* Returns how many of the newest messages the answer has room for, at least one if there is one;
 * sets `*len` to what they take. */
static size_t choose_shown(
	const struct dialog_lookup *lookup, const struct message_query *query, size_t *len)
{
	size_t shown = 0;

	*len = 0;
	while (shown < query->message_count && shown < lookup->limit && *len < ANSWER_LIST_MAX)
		*len += written_length(&query->messages[shown++]);
	return shown;
}

static void link_older(
	struct answer *answer, const struct dialog_lookup *lookup, struct slice before)
{
	struct arena *arena = lookup->read.command.arena;
	struct buffer target = buffer_make(arena, 512);

	buffer_text(&target, "/dialogs/list?receiverId=");
	buffer_percent(&target, lookup->other_id);
	buffer_format(&target, "&limit=%zu&before=", lookup->limit);
	buffer_percent(&target, before);
	answer_link_next(answer, arena, buffer_slice(&target));
}

/* The query has the newest messages first; the answer has the oldest first. */
static struct answer answer_list(
	const struct dialog_lookup *lookup, const struct message_query *query)
{
	struct arena *arena = lookup->read.command.arena;
	size_t len, shown = choose_shown(lookup, query, &len);
	struct buffer body = buffer_make(arena, len + 2);
	struct answer answer;

	buffer_char(&body, '[');
	for (size_t i = shown; i > 0; i--) {
		write_message(&body, &query->messages[i - 1]);
		if (i > 1)
			buffer_char(&body, ',');
	}
	buffer_char(&body, ']');
	answer = answer_json(200, buffer_slice(&body));
	if (query->message_count > shown)
		link_older(&answer, lookup, query->messages[shown - 1].id);
	return answer;
}

enum status dialog_batch_look_up(
	const struct dialogs *dialogs, struct session *session, const struct read_batch *batch)
{
	struct message_query *queries =
		arena_array(batch->arena, struct message_query, batch->count);
	enum status status;

	for (size_t i = 0; i < batch->count; i++) {
		const struct dialog_lookup *lookup = dialog_lookup_of(batch->reads[i]);

		queries[i].user_id = lookup->user_id;
		queries[i].other_id = lookup->other_id;
		queries[i].before = lookup->before;
		queries[i].limit =
			lookup->limit + 1; /* the extra message shows that there is a next page */
		queries[i].text_max = ANSWER_LIST_MAX;
	}
	status = dialogs->repository->ops->list(
		dialogs->repository, session, batch->arena, queries, batch->count);
	for (size_t i = 0; i < batch->count && status == STATUS_OK; i++) {
		struct read *read = batch->reads[i];

		read->command.answer = answer_list(dialog_lookup_of(read), &queries[i]);
	}
	return status;
}
