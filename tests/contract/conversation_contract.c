/* What ports/message_repository.h promises of conversations, on one engine. */
#include <pthread.h>
#include <stdio.h>

#include "engine.h"

#define PAGE 10

/* Ids of messages go up with `number`. Every third one begins a new span, which stores tell by the
 * first seven characters. */
static struct slice id_of(struct engine *engine, int number)
{
	char text[32];

	snprintf(text, sizeof(text), "%07d-%08d", number / 3, number);
	return arena_copy(&engine->arena, slice_of(text));
}

static struct message message_of(
	struct engine *engine, const char *sender, const char *receiver, int number)
{
	return (struct message){
		.receiver_id = engine_name(engine, receiver),
		.id = id_of(engine, number),
		.sender_id = engine_name(engine, sender),
		.text = slice_of("hello"),
		.created_us = 1767855000123456LL + number,
	};
}

static enum status put_by(struct engine *engine, struct session *session,
	const struct message *messages, size_t count)
{
	enum status status = session->ops->begin(session, TRANSACTION_WAIT);

	if (status == STATUS_OK)
		status = engine->messages->ops->put(engine->messages, session, messages, count);
	return status == STATUS_OK ? session->ops->commit(session) : status;
}

static void put(struct engine *engine, const struct message *messages, size_t count)
{
	assert_int_equal(put_by(engine, engine->session, messages, count), STATUS_OK);
}

static void send(struct engine *engine, const char *sender, const char *receiver, int number)
{
	struct message message = message_of(engine, sender, receiver, number);

	put(engine, &message, 1);
}

static void mark(struct engine *engine, const char *receiver, int number)
{
	struct message_mark mark = {
		.receiver_id = engine_name(engine, receiver), .id = id_of(engine, number)};

	engine_begin(engine->session);
	assert_int_equal(engine->messages->ops->mark(engine->messages, engine->session, &mark, 1),
		STATUS_OK);
	engine_commit(engine->session);
	assert_true(mark.was_unread);
}

static struct conversation_query query_of(struct engine *engine, const char *user, size_t limit)
{
	return (struct conversation_query){
		.user_id = engine_name(engine, user), .limit = limit, .text_max = SIZE_MAX / 2};
}

static void list(struct engine *engine, struct conversation_query *queries, size_t count)
{
	assert_int_equal(
		engine->messages->ops->list_conversations(engine->messages,
			engine_session(engine, SESSION_READ), &engine->arena, queries, count),
		STATUS_OK);
}

/* What a conversation is expected to look like. */
struct expected {
	const char *other;
	int last;
	int64_t unread;
};

static void assert_conversations(struct engine *engine, const struct conversation_query *query,
	const struct expected *expected, size_t count)
{
	assert_int_equal(query->conversation_count, count);
	for (size_t i = 0; i < count; i++) {
		const struct conversation *found = &query->conversations[i];

		assert_true(slice_equal(found->other_id, engine_name(engine, expected[i].other)));
		assert_true(slice_equal(found->last.id, id_of(engine, expected[i].last)));
		assert_int_equal(found->unread, expected[i].unread);
	}
}

#define ASSERT_CONVERSATIONS(engine, query, ...)                                                   \
	assert_conversations(engine, query, (const struct expected[]){__VA_ARGS__},                \
		sizeof((const struct expected[]){__VA_ARGS__}) / sizeof(struct expected))

/* Lists a user's conversations and compares them. */
#define ASSERT_LISTED(engine, user, ...)                                                           \
	do {                                                                                       \
		struct conversation_query listed = query_of(engine, user, PAGE);                   \
                                                                                                   \
		list(engine, &listed, 1);                                                          \
		ASSERT_CONVERSATIONS(engine, &listed, __VA_ARGS__);                                \
	} while (0)

/* ---- what is listed ---------------------------------------------------------------------- */

static void a_message_is_the_last_of_both_users_and_unread_for_one(void **state)
{
	struct engine *engine = *state;
	struct conversation_query query = query_of(engine, "bob", PAGE);
	const struct message *last;

	send(engine, "ann", "bob", 1);
	ASSERT_LISTED(engine, "ann", {"bob", 1, 0});
	list(engine, &query, 1);
	ASSERT_CONVERSATIONS(engine, &query, {"ann", 1, 1});
	last = &query.conversations[0].last;
	assert_true(slice_equal(last->sender_id, engine_name(engine, "ann")));
	assert_true(slice_equal(last->receiver_id, engine_name(engine, "bob")));
	assert_true(slice_is(last->text, "hello"));
	assert_true(last->created_us == 1767855000123457LL);
	assert_false(last->is_read);
}

static void a_reading_lowers_what_is_unread_and_shows_in_the_last_message(void **state)
{
	struct engine *engine = *state;
	struct conversation_query query = query_of(engine, "bob", PAGE);

	for (int i = 1; i <= 3; i++)
		send(engine, "ann", "bob", i);
	send(engine, "eve", "bob", 4);
	mark(engine, "bob", 1);
	mark(engine, "bob", 3);
	list(engine, &query, 1);
	ASSERT_CONVERSATIONS(engine, &query, {"eve", 4, 1}, {"ann", 3, 1});
	assert_true(query.conversations[1].last.is_read);
	assert_false(query.conversations[0].last.is_read);
}

static void answers_move_a_conversation_to_the_front(void **state)
{
	struct engine *engine = *state;

	send(engine, "ann", "bob", 1);
	send(engine, "eve", "bob", 2);
	send(engine, "bob", "ann", 3);
	ASSERT_LISTED(engine, "bob", {"ann", 3, 1}, {"eve", 2, 1});
	ASSERT_LISTED(engine, "ann", {"bob", 3, 1});
	ASSERT_LISTED(engine, "eve", {"bob", 2, 0});
}

static void a_message_that_is_committed_late_takes_no_conversation_back(void **state)
{
	struct engine *engine = *state;

	send(engine, "ann", "bob", 5);
	send(engine, "bob", "ann", 3);
	ASSERT_LISTED(engine, "ann", {"bob", 5, 1});
	ASSERT_LISTED(engine, "bob", {"ann", 5, 1});
}

static void of_a_batch_the_newest_message_of_each_pair_counts(void **state)
{
	struct engine *engine = *state;
	struct message messages[] = {
		message_of(engine, "bob", "ann", 4),
		message_of(engine, "ann", "bob", 2),
		message_of(engine, "ann", "bob", 6),
		message_of(engine, "ann", "eve", 5),
		message_of(engine, "ann", "bob", 1),
		message_of(engine, "bob", "bob", 3),
	};

	put(engine, messages, sizeof(messages) / sizeof(messages[0]));
	ASSERT_LISTED(engine, "ann", {"bob", 6, 1}, {"eve", 5, 0});
	ASSERT_LISTED(engine, "bob", {"ann", 6, 3}, {"bob", 3, 1});
	ASSERT_LISTED(engine, "eve", {"ann", 5, 1});
}

static void notes_to_oneself_are_one_conversation(void **state)
{
	struct engine *engine = *state;

	send(engine, "ann", "ann", 1);
	send(engine, "ann", "ann", 2);
	mark(engine, "ann", 1);
	ASSERT_LISTED(engine, "ann", {"ann", 2, 1});
}

static void a_rolled_back_put_leaves_no_conversation(void **state)
{
	struct engine *engine = *state;
	struct message message = message_of(engine, "ann", "bob", 1);
	struct conversation_query query = query_of(engine, "ann", PAGE);

	engine_begin(engine->session);
	assert_int_equal(engine->messages->ops->put(engine->messages, engine->session, &message, 1),
		STATUS_OK);
	engine->session->ops->rollback(engine->session);
	list(engine, &query, 1);
	assert_int_equal(query.conversation_count, 0);
}

/* ---- pages ------------------------------------------------------------------------------- */

static void pages_go_on_before_the_cursor(void **state)
{
	struct engine *engine = *state;
	struct conversation_query query = query_of(engine, "ann", 2);
	static const char *const others[] = {"bob", "eve", "fay", "gil", "hal"};

	for (int i = 0; i < 5; i++)
		send(engine, i % 2 ? "ann" : others[i], i % 2 ? others[i] : "ann", i + 1);
	list(engine, &query, 1);
	ASSERT_CONVERSATIONS(engine, &query, {"hal", 5, 1}, {"gil", 4, 0});
	query.before = query.conversations[1].last.id;
	list(engine, &query, 1);
	ASSERT_CONVERSATIONS(engine, &query, {"fay", 3, 1}, {"eve", 2, 0});
	query.before = query.conversations[1].last.id;
	list(engine, &query, 1);
	ASSERT_CONVERSATIONS(engine, &query, {"bob", 1, 1});
	query.before = query.conversations[0].last.id;
	list(engine, &query, 1);
	assert_int_equal(query.conversation_count, 0);
}

static void a_page_ends_with_the_message_that_passes_its_bytes(void **state)
{
	struct engine *engine = *state;
	struct conversation_query query = query_of(engine, "ann", PAGE);
	static const char *const others[] = {"bob", "eve", "fay"};

	for (int i = 0; i < 3; i++) {
		struct message message = message_of(engine, others[i], "ann", i + 1);

		message.text = engine_long_name(engine, 'x', 1000);
		put(engine, &message, 1);
	}
	query.text_max = 1000;
	list(engine, &query, 1);
	ASSERT_CONVERSATIONS(engine, &query, {"fay", 3, 1}, {"eve", 2, 1});
	query.text_max = 999;
	list(engine, &query, 1);
	ASSERT_CONVERSATIONS(engine, &query, {"fay", 3, 1});
}

#define MANY 20

static void many_users_are_listed_together(void **state)
{
	struct engine *engine = *state;
	struct conversation_query queries[MANY];

	for (int i = 0; i < MANY; i++) {
		char user[16];

		snprintf(user, sizeof(user), "user%02d", i);
		if (i % 4)
			send(engine, "ann", user, i);
		queries[i] = query_of(engine, user, PAGE);
	}
	list(engine, queries, MANY);
	for (int i = 0; i < MANY; i++) {
		assert_int_equal(queries[i].conversation_count, i % 4 ? 1 : 0);
		if (i % 4)
			ASSERT_CONVERSATIONS(engine, &queries[i], {"ann", i, 1});
	}
}

/* ---- several writers --------------------------------------------------------------------- */

#define WRITERS 3
#define ROUNDS 60

struct writer {
	struct engine *engine;
	struct session *session;
	struct message messages[ROUNDS][16];
	int lost; /* batches that lost to another writer, though locks have one order */
};

/* Everybody writes to everybody, each writer in another order. */
static struct writer *new_writer(struct engine *engine, int number)
{
	static const char *const users[] = {"ann", "bob", "eve", "fay"};
	struct writer *writer = arena_new(&engine->arena, struct writer);

	writer->engine = engine;
	writer->session = engine_session(engine, SESSION_WRITE);
	for (int round = 0; round < ROUNDS; round++) {
		for (int i = 0; i < 16; i++) {
			int pair = (i * (2 * number + 1) + round) % 16;

			writer->messages[round][i] = message_of(engine, users[pair / 4],
				users[pair % 4], (round * WRITERS + number) * 16 + i + 1);
		}
	}
	return writer;
}

static void *write_all(void *context)
{
	struct writer *writer = context;

	for (int round = 0; round < ROUNDS; round++) {
		enum status status;

		do {
			status = put_by(
				writer->engine, writer->session, writer->messages[round], 16);
			writer->lost += status == STATUS_RERUN;
		} while (engine_is_collision(status));
		assert_int_equal(status, STATUS_OK);
	}
	return NULL;
}

static void writers_of_the_same_conversations_wait_in_one_order(void **state)
{
	struct engine *engine = *state;
	struct conversation_query query = query_of(engine, "ann", PAGE);
	struct writer *writers[WRITERS];
	pthread_t threads[WRITERS];
	int64_t unread = 0;

	for (int i = 0; i < WRITERS; i++)
		writers[i] = new_writer(engine, i);
	for (int i = 0; i < WRITERS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, write_all, writers[i]), 0);
	for (int i = 0; i < WRITERS; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < WRITERS; i++)
		assert_int_equal(writers[i]->lost, 0);
	list(engine, &query, 1);
	assert_int_equal(query.conversation_count, 4);
	for (size_t i = 0; i < 4; i++)
		unread += query.conversations[i].unread;
	assert_int_equal(unread, 4 * WRITERS * ROUNDS);
}

/* ---- what quipu verify reads ------------------------------------------------------------- */

/* What a list is expected to have: a pair of users, and the number of a message in its span. */
struct pair {
	const char *user;
	const char *other;
	int last; /* 0: no span */
};

static void assert_rows(struct engine *engine, const struct conversation_row *rows,
	const struct pair *expected, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		struct slice span = {0};

		if (expected[i].last > 0)
			span = slice_make(
				id_of(engine, expected[i].last).data, CONVERSATION_SPAN_BYTES);
		assert_true(slice_equal(rows[i].user_id, engine_name(engine, expected[i].user)));
		assert_true(slice_equal(rows[i].other_id, engine_name(engine, expected[i].other)));
		assert_true(slice_equal(rows[i].last_span, span));
	}
}

typedef enum status list_of_rows(const struct message_repository *repository,
	struct session *session, struct arena *arena, struct row_page *page,
	struct conversation_row *rows);

/* Reads pages of two that begin after this test's name for nobody: the database may be shared. */
static void assert_pages(
	struct engine *engine, list_of_rows *read_page, const struct pair *expected, size_t count)
{
	struct session *session = engine_session(engine, SESSION_READ);
	struct row_page page = {.after = {engine_name(engine, ""), slice_of("")}, .limit = 2};
	struct conversation_row rows[2];

	for (size_t i = 0; i < count; i += 2) {
		assert_int_equal(read_page(engine->messages, session, &engine->arena, &page, rows),
			STATUS_OK);
		assert_int_equal(page.count, 2);
		assert_rows(engine, rows, &expected[i], 2);
		page.after[0] = rows[1].user_id;
		page.after[1] = rows[1].other_id;
	}
}

static void rows_and_directions_are_listed_once_whatever_they_have(void **state)
{
	static const struct pair listed[] = {{"ann", "ann", 1}, {"ann", "bob", 9},
		{"ann", "eve", 4}, {"bob", "ann", 9}, {"bob", "eve", 5}, {"eve", "ann", 4}};
	static const struct pair received[] = {
		{"ann", "ann", 0}, {"ann", "eve", 0}, {"bob", "ann", 0}, {"bob", "eve", 0}};
	struct engine *engine = *state;

	send(engine, "ann", "ann", 1);
	for (int i = 6; i <= 9; i++)
		send(engine, "ann", "bob", i);
	send(engine, "eve", "ann", 4);
	send(engine, "eve", "bob", 5);
	assert_pages(engine, engine->messages->ops->list_rows, listed, 6);
	assert_pages(engine, engine->messages->ops->list_directions, received, 4);
}

static void rows_are_found_again_and_those_that_are_gone_are_empty(void **state)
{
	static const struct pair found[] = {
		{"bob", "ann", 7}, {"bob", "eve", 0}, {"ann", "bob", 7}};
	struct engine *engine = *state;
	struct conversation_row rows[3];

	send(engine, "ann", "bob", 7);
	send(engine, "eve", "bob", 8);
	engine_execute(engine, "DELETE FROM conversations WHERE user_id = '%s' AND other_id = '%s'",
		engine_name(engine, "bob").data, engine_name(engine, "eve").data);
	for (size_t i = 0; i < 3; i++)
		rows[i] = (struct conversation_row){.user_id = engine_name(engine, found[i].user),
			.other_id = engine_name(engine, found[i].other),
			.last_span = slice_of("before")};
	assert_int_equal(engine->messages->ops->find_rows(engine->messages,
				 engine_session(engine, SESSION_READ), &engine->arena, rows, 3),
		STATUS_OK);
	assert_rows(engine, rows, found, 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		ENGINE_TEST(a_message_is_the_last_of_both_users_and_unread_for_one),
		ENGINE_TEST(a_reading_lowers_what_is_unread_and_shows_in_the_last_message),
		ENGINE_TEST(answers_move_a_conversation_to_the_front),
		ENGINE_TEST(a_message_that_is_committed_late_takes_no_conversation_back),
		ENGINE_TEST(of_a_batch_the_newest_message_of_each_pair_counts),
		ENGINE_TEST(notes_to_oneself_are_one_conversation),
		ENGINE_TEST(a_rolled_back_put_leaves_no_conversation),
		ENGINE_TEST(pages_go_on_before_the_cursor),
		ENGINE_TEST(a_page_ends_with_the_message_that_passes_its_bytes),
		ENGINE_TEST(many_users_are_listed_together),
		ENGINE_TEST(writers_of_the_same_conversations_wait_in_one_order),
		ENGINE_TEST(rows_and_directions_are_listed_once_whatever_they_have),
		ENGINE_TEST(rows_are_found_again_and_those_that_are_gone_are_empty),
	};

	return cmocka_run_group_tests_name("conversations", tests, NULL, NULL);
}
