/*
 * Compares conversations with their messages without a common snapshot: reads the rows of a page,
 * then their last messages, then the rows once more. If a change between these reads could explain
 * a difference, the difference is not reported.
 */
#include "services/dialogs/dialog_verify.h"

#include "admin/erase.h"
#include "admin/verify_claims.h"
#include "admin/verify_idempotency.h"

/* The number of conversations whose last messages are read together. The number is small, because
 * the messages are read with their texts, which may be long. */
#define MESSAGES_AT_ONCE 64

static struct slice id_of(struct verify_page *page, const struct conversation_row *row)
{
	struct buffer id = buffer_make(page->arena, row->user_id.len + row->other_id.len + 1);

	buffer_add(&id, row->user_id);
	buffer_char(&id, ':');
	buffer_add(&id, row->other_id);
	return buffer_slice(&id);
}

/* ---- last messages ----------------------------------------------------------------------- */

static enum status read_some(const struct dialogs *dialogs, struct session *session,
	struct verify_page *page, const struct conversation_row *rows, size_t count,
	struct slice *ids)
{
	struct message_query queries[MESSAGES_AT_ONCE] = {0};
	struct arena arena;
	enum status status;

	arena_init(&arena, 64 * 1024);
	for (size_t i = 0; i < count; i++)
		queries[i] = (struct message_query){
			.user_id = rows[i].user_id, .other_id = rows[i].other_id, .limit = 1};
	status = dialogs->repository->ops->list(
		dialogs->repository, session, &arena, queries, count);
	for (size_t i = 0; i < count && status == STATUS_OK; i++) {
		if (queries[i].message_count > 0)
			ids[i] = arena_copy(page->arena, queries[i].messages[0].id);
	}
	arena_release(&arena);
	return status;
}

/* Sets `ids` to the id of the last message of each conversation, or to an empty slice if the
 * conversation has no messages. */
static enum status read_last(const struct dialogs *dialogs, struct session *session,
	struct verify_page *page, const struct conversation_row *rows, size_t count,
	struct slice *ids)
{
	enum status status = STATUS_OK;

	for (size_t i = 0; i < count && status == STATUS_OK; i += MESSAGES_AT_ONCE) {
		size_t left = count - i;
		size_t some = left < MESSAGES_AT_ONCE ? left : MESSAGES_AT_ONCE;

		status = read_some(dialogs, session, page, &rows[i], some, &ids[i]);
	}
	return status;
}

/* ---- conversations ----------------------------------------------------------------------- */

static struct slice span_of(struct slice id)
{
	return slice_make(
		id.data, id.len < CONVERSATION_SPAN_BYTES ? id.len : CONVERSATION_SPAN_BYTES);
}

/* Checks a conversation. `before` and `after` are its row, read before and after its last
 * message. */
static void check_row(struct verify_page *page, const struct conversation_row *before,
	struct slice last_id, const struct conversation_row *after)
{
	struct slice id = id_of(page, before);
	bool is_ahead = slice_compare(before->last_span, span_of(last_id)) > 0;

	if (after->last_span.len == 0)
		return; /* the conversation was erased in the meantime */
	if (last_id.len == 0)
		verify_differ(page, id, "no-message",
			"%.*s: there is a conversation, but no message", (int)id.len, id.data);
	else if (is_ahead || slice_compare(after->last_span, span_of(last_id)) < 0)
		verify_differ(page, id, "span-differs",
			"%.*s: the last message is %.*s, but last_span in the row is %.*s",
			(int)id.len, id.data, (int)last_id.len, last_id.data,
			(int)after->last_span.len, after->last_span.data);
}

static enum status look_at_conversations(
	const void *context, struct session *session, struct verify_page *page)
{
	const struct dialogs *dialogs = context;
	const struct message_repository *messages = dialogs->repository;
	size_t limit = page->rows.limit, count;
	struct conversation_row *rows = arena_array(page->arena, struct conversation_row, limit);
	struct conversation_row *again = arena_array(page->arena, struct conversation_row, limit);
	struct slice *last = arena_array(page->arena, struct slice, limit);
	enum status status =
		messages->ops->list_rows(messages, session, page->arena, &page->rows, rows);

	count = page->rows.count;
	if (status != STATUS_OK || count == 0)
		return status;
	memcpy(again, rows, count * sizeof(*rows));
	status = read_last(dialogs, session, page, rows, count, last);
	if (status == STATUS_OK)
		status = messages->ops->find_rows(messages, session, page->arena, again, count);
	if (status != STATUS_OK)
		return status;
	for (size_t i = 0; i < count; i++)
		check_row(page, &rows[i], last[i], &again[i]);
	verify_finish(page, rows[count - 1].user_id, rows[count - 1].other_id);
	return STATUS_OK;
}

/* ---- messages ---------------------------------------------------------------------------- */

/* Reports a conversation that is missing, unless its messages were erased in the meantime. */
static enum status report_missing(const struct dialogs *dialogs, struct session *session,
	struct verify_page *page, const struct conversation_row *row)
{
	struct slice id = id_of(page, row), last_id = {0};
	enum status status = read_last(dialogs, session, page, row, 1, &last_id);

	if (status == STATUS_OK && last_id.len > 0)
		verify_differ(page, id, "no-conversation",
			"%.*s: there are messages, but no conversation", (int)id.len, id.data);
	return status;
}

/* Checks that the receiver and the sender of every message both have a row for their
 * conversation. */
static enum status look_at_directions(
	const void *context, struct session *session, struct verify_page *page)
{
	const struct dialogs *dialogs = context;
	const struct message_repository *messages = dialogs->repository;
	struct conversation_row *rows =
		arena_array(page->arena, struct conversation_row, 2 * page->rows.limit);
	enum status status =
		messages->ops->list_directions(messages, session, page->arena, &page->rows, rows);
	size_t count = page->rows.count;

	if (status != STATUS_OK || count == 0)
		return status;
	for (size_t i = 0; i < count; i++)
		rows[count + i] = (struct conversation_row){
			.user_id = rows[i].other_id, .other_id = rows[i].user_id};
	status = messages->ops->find_rows(messages, session, page->arena, rows, 2 * count);
	for (size_t i = 0; i < 2 * count && status == STATUS_OK; i++) {
		bool is_repeated = i >= count && slice_equal(rows[i].user_id, rows[i].other_id);
		/* an erased user has no conversations */
		bool is_erased = erase_is_pseudonym(rows[i].user_id);

		if (rows[i].last_span.len == 0 && !is_repeated && !is_erased)
			status = report_missing(dialogs, session, page, &rows[i]);
	}
	if (status == STATUS_OK)
		verify_finish(page, rows[count - 1].user_id, rows[count - 1].other_id);
	return status;
}

/* ---- outbox and Idempotency-Keys --------------------------------------------------------- */

static enum status look_at_outbox(
	const void *context, struct session *session, struct verify_page *page)
{
	static const struct verify_claims words = {
		.busy = "IN_FLIGHT", .done = "PUBLISHED", .done_at = "published_at"};
	const struct dialogs *dialogs = context;

	return verify_claims_look(&words, dialogs->outbox->claims, session, page);
}

static enum status look_at_keys(
	const void *context, struct session *session, struct verify_page *page)
{
	static const struct verify_idempotency keys = {.prefix = "POST /dialogs/"};

	return verify_idempotency_look(&keys, context, session, page);
}

struct verifier dialogs_verifier(const struct dialogs *dialogs)
{
	static const struct verify_part parts[] = {
		{"conversations", look_at_conversations},
		{"messages", look_at_directions},
		{"outbox", look_at_outbox},
		{"keys", look_at_keys},
	};

	return (struct verifier){
		.name = "dialogs",
		.parts = parts,
		.part_count = sizeof(parts) / sizeof(parts[0]),
		.context = dialogs,
		.lanes = &dialogs->lanes,
	};
}
