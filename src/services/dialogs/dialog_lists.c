/*
 * A page is as long as its limit and ANSWER_LIST_MAX allow. Each query requests one extra row,
 * which shows whether there is a next page. The cursor of both lists is a message id, at which the
 * query for the page begins, so an old page costs as much as the newest one.
 */
#include "services/dialogs/dialog_lists.h"

/* ---- the command type -------------------------------------------------------------------- */

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

/* ---- messages ---------------------------------------------------------------------------- */

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

/* The most bytes that a message's JSON has besides its four strings: names, punctuation and the
 * time. */
#define MESSAGE_FRAME 112

static size_t written_length(const struct message *message)
{
	return MESSAGE_FRAME + buffer_json_length(message->id) +
	       buffer_json_length(message->sender_id) + buffer_json_length(message->receiver_id) +
	       buffer_json_length(message->text);
}

/* Returns how many of the newest messages fit into the answer (at least one, if there is any) and
 * sets `*len` to their total length. */
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

static enum status look_up_messages(const struct dialogs *dialogs, struct session *session,
	struct arena *arena, struct read **reads, size_t count)
{
	struct message_query *queries = arena_array(arena, struct message_query, count);
	enum status status;

	for (size_t i = 0; i < count; i++) {
		const struct dialog_lookup *lookup = dialog_lookup_of(reads[i]);

		queries[i].user_id = lookup->user_id;
		queries[i].other_id = lookup->other_id;
		queries[i].before = lookup->before;
		queries[i].limit = lookup->limit + 1;
		queries[i].text_max = ANSWER_LIST_MAX;
	}
	status =
		dialogs->repository->ops->list(dialogs->repository, session, arena, queries, count);
	for (size_t i = 0; i < count && status == STATUS_OK; i++)
		reads[i]->command.answer = answer_list(dialog_lookup_of(reads[i]), &queries[i]);
	return status;
}

/* ---- conversations ----------------------------------------------------------------------- */

static void write_conversation(struct buffer *body, const struct conversation *conversation)
{
	buffer_char(body, '{');
	buffer_member(body, "userId", conversation->other_id);
	buffer_text(body, ",\"lastMessage\":");
	write_message(body, &conversation->last);
	buffer_format(body, ",\"unread\":%lld}", (long long)conversation->unread);
}

/* The most bytes that a conversation's JSON has besides the other user's id and the last message:
 * names, punctuation and the unread count. */
#define CONVERSATION_FRAME 56

/* Like choose_shown(), but for conversations. */
static size_t choose_conversations(
	const struct dialog_lookup *lookup, const struct conversation_query *query, size_t *len)
{
	size_t shown = 0;

	*len = 0;
	while (shown < query->conversation_count && shown < lookup->limit &&
		*len < ANSWER_LIST_MAX) {
		const struct conversation *conversation = &query->conversations[shown++];

		*len += CONVERSATION_FRAME + buffer_json_length(conversation->other_id) +
			written_length(&conversation->last);
	}
	return shown;
}

static struct answer answer_conversations(
	const struct dialog_lookup *lookup, const struct conversation_query *query)
{
	struct arena *arena = lookup->read.command.arena;
	size_t len, shown = choose_conversations(lookup, query, &len);
	struct buffer body = buffer_make(arena, len + 2);
	struct answer answer;

	buffer_char(&body, '[');
	for (size_t i = 0; i < shown; i++) {
		if (i > 0)
			buffer_char(&body, ',');
		write_conversation(&body, &query->conversations[i]);
	}
	buffer_char(&body, ']');
	answer = answer_json(200, buffer_slice(&body));
	if (query->conversation_count > shown) {
		struct buffer target = buffer_make(arena, 96);

		buffer_format(&target, "/dialogs?limit=%zu&before=", lookup->limit);
		buffer_percent(&target, query->conversations[shown - 1].last.id);
		answer_link_next(&answer, arena, buffer_slice(&target));
	}
	return answer;
}

static enum status look_up_conversations(const struct dialogs *dialogs, struct session *session,
	struct arena *arena, struct read **reads, size_t count)
{
	struct conversation_query *queries = arena_array(arena, struct conversation_query, count);
	enum status status;

	for (size_t i = 0; i < count; i++) {
		const struct dialog_lookup *lookup = dialog_lookup_of(reads[i]);

		queries[i].user_id = lookup->user_id;
		queries[i].before = lookup->before;
		queries[i].limit = lookup->limit + 1;
		queries[i].text_max = ANSWER_LIST_MAX;
	}
	status = dialogs->repository->ops->list_conversations(
		dialogs->repository, session, arena, queries, count);
	for (size_t i = 0; i < count && status == STATUS_OK; i++)
		reads[i]->command.answer =
			answer_conversations(dialog_lookup_of(reads[i]), &queries[i]);
	return status;
}

/* ---- the batch --------------------------------------------------------------------------- */

enum status dialog_batch_look_up(
	const struct dialogs *dialogs, struct session *session, const struct read_batch *batch)
{
	struct read **messages = arena_array(batch->arena, struct read *, batch->count);
	struct read **conversations = arena_array(batch->arena, struct read *, batch->count);
	size_t message_count = 0, conversation_count = 0;
	enum status status = STATUS_OK;

	for (size_t i = 0; i < batch->count; i++) {
		if (dialog_lookup_of(batch->reads[i])->list == DIALOG_LIST_CONVERSATIONS)
			conversations[conversation_count++] = batch->reads[i];
		else
			messages[message_count++] = batch->reads[i];
	}
	if (message_count > 0)
		status = look_up_messages(dialogs, session, batch->arena, messages, message_count);
	if (conversation_count > 0 && status == STATUS_OK)
		status = look_up_conversations(
			dialogs, session, batch->arena, conversations, conversation_count);
	return status;
}
