/* What ports/message_repository.h promises, on one engine. */
#include <pthread.h>
#include <stdio.h>

#include "engine.h"

#define START_US 1767855000123456LL
#define PAGE 10

/* Ids of messages go up with `number`. */
static struct slice id_of(struct engine *engine, int number)
{
	char text[16];

	snprintf(text, sizeof(text), "m%04d", number);
	return engine_name(engine, text);
}

static struct message message_of(
	struct engine *engine, const char *sender, const char *receiver, int number)
{
	return (struct message){
		.receiver_id = engine_name(engine, receiver),
		.id = id_of(engine, number),
		.sender_id = engine_name(engine, sender),
		.text = slice_of("Привет, \"мир\"\n"),
		.created_us = START_US + number,
	};
}

static void put(struct engine *engine, const struct message *messages, size_t count)
{
	engine_begin(engine->session);
	assert_int_equal(
		engine->messages->ops->put(engine->messages, engine->session, messages, count),
		STATUS_OK);
	engine_commit(engine->session);
}

static void send(struct engine *engine, const char *sender, const char *receiver, int number)
{
	struct message message = message_of(engine, sender, receiver, number);

	put(engine, &message, 1);
}

static enum status mark_by(
	struct engine *engine, struct session *session, struct message_mark *marks, size_t count)
{
	enum status status = session->ops->begin(session, TRANSACTION_WAIT);

	if (status == STATUS_OK)
		status = engine->messages->ops->mark(engine->messages, session, marks, count);
	return status == STATUS_OK ? session->ops->commit(session) : status;
}

static struct message_mark mark_of(struct engine *engine, const char *receiver, int number)
{
	return (struct message_mark){
		.receiver_id = engine_name(engine, receiver), .id = id_of(engine, number)};
}

static struct message_mark mark(struct engine *engine, const char *receiver, int number)
{
	struct message_mark mark = mark_of(engine, receiver, number);

	assert_int_equal(mark_by(engine, engine->session, &mark, 1), STATUS_OK);
	return mark;
}

static struct message_query query_of(
	struct engine *engine, const char *user, const char *other, size_t limit)
{
	return (struct message_query){.user_id = engine_name(engine, user),
		.other_id = engine_name(engine, other),
		.limit = limit,
		.text_max = SIZE_MAX / 2};
}

static void list(struct engine *engine, struct message_query *queries, size_t count)
{
	struct session *session = engine_session(engine, SESSION_READ);

	assert_int_equal(engine->messages->ops->list(
				 engine->messages, session, &engine->arena, queries, count),
		STATUS_OK);
}

static void assert_ids(
	struct engine *engine, const struct message_query *query, const int *numbers, size_t count)
{
	assert_int_equal(query->message_count, count);
	for (size_t i = 0; i < count; i++)
		assert_true(slice_equal(query->messages[i].id, id_of(engine, numbers[i])));
}

#define ASSERT_IDS(engine, query, ...)                                                             \
	assert_ids(engine, query, (const int[]){__VA_ARGS__},                                      \
		sizeof((const int[]){__VA_ARGS__}) / sizeof(int))

/* ---- dialogs ----------------------------------------------------------------------------- */

static void what_is_put_is_listed_to_the_microsecond_and_unread(void **state)
{
	struct engine *engine = *state;
	struct message_query query = query_of(engine, "ann", "bob", PAGE);
	const struct message *found;

	send(engine, "ann", "bob", 1);
	list(engine, &query, 1);
	ASSERT_IDS(engine, &query, 1);
	found = query.messages;
	assert_true(slice_equal(found->receiver_id, engine_name(engine, "bob")));
	assert_true(slice_equal(found->sender_id, engine_name(engine, "ann")));
	assert_true(slice_is(found->text, "Привет, \"мир\"\n"));
	assert_true(found->created_us == START_US + 1);
	assert_false(found->is_read);
}

static void a_query_ends_with_the_message_that_passes_its_bytes(void **state)
{
	struct engine *engine = *state;
	struct message_query query = query_of(engine, "ann", "bob", PAGE);
	char *text = arena_alloc(&engine->arena, 16384);

	memset(text, 'x', 16384);
	for (int i = 1; i <= 5; i++) {
		struct message message =
			message_of(engine, i % 2 ? "ann" : "bob", i % 2 ? "bob" : "ann", i);

		message.text = slice_make(text, 16384);
		put(engine, &message, 1);
	}
	query.text_max = 2 * 16384;
	list(engine, &query, 1);
	ASSERT_IDS(engine, &query, 5, 4, 3);
	query.text_max = 2 * 16384 - 1;
	list(engine, &query, 1);
	ASSERT_IDS(engine, &query, 5, 4);
	query.text_max = 0;
	list(engine, &query, 1);
	ASSERT_IDS(engine, &query, 5);
	query.before = id_of(engine, 5);
	list(engine, &query, 1);
	ASSERT_IDS(engine, &query, 4);
}

static void a_rolled_back_put_leaves_nothing(void **state)
{
	struct engine *engine = *state;
	struct message message = message_of(engine, "ann", "bob", 1);
	struct message_query query = query_of(engine, "ann", "bob", PAGE);

	engine_begin(engine->session);
	assert_int_equal(engine->messages->ops->put(engine->messages, engine->session, &message, 1),
		STATUS_OK);
	engine->session->ops->rollback(engine->session);
	list(engine, &query, 1);
	assert_int_equal(query.message_count, 0);
}

static void a_dialog_has_both_directions_newest_first_and_nobody_else(void **state)
{
	struct engine *engine = *state;
	struct message messages[] = {
		message_of(engine, "ann", "bob", 1),
		message_of(engine, "bob", "ann", 2),
		message_of(engine, "bob", "ann", 3),
		message_of(engine, "ann", "bob", 4),
		message_of(engine, "ann", "eve", 5),
		message_of(engine, "eve", "bob", 6),
	};
	struct message_query queries[] = {
		query_of(engine, "ann", "bob", PAGE), query_of(engine, "bob", "ann", PAGE)};

	put(engine, messages, sizeof(messages) / sizeof(messages[0]));
	list(engine, queries, 2);
	ASSERT_IDS(engine, &queries[0], 4, 3, 2, 1);
	ASSERT_IDS(engine, &queries[1], 4, 3, 2, 1);
}

static void pages_go_on_before_the_cursor(void **state)
{
	struct engine *engine = *state;
	struct message_query query = query_of(engine, "ann", "bob", 3);

	for (int i = 1; i <= 7; i++)
		send(engine, i % 3 ? "ann" : "bob", i % 3 ? "bob" : "ann", i);
	list(engine, &query, 1);
	ASSERT_IDS(engine, &query, 7, 6, 5);
	query.before = query.messages[2].id;
	list(engine, &query, 1);
	ASSERT_IDS(engine, &query, 4, 3, 2);
	query.before = query.messages[2].id;
	list(engine, &query, 1);
	ASSERT_IDS(engine, &query, 1);
	query.before = query.messages[0].id;
	list(engine, &query, 1);
	assert_int_equal(query.message_count, 0);
}

static void a_user_who_writes_to_himself_sees_each_message_once(void **state)
{
	struct engine *engine = *state;
	struct message_query query = query_of(engine, "ann", "ann", PAGE);

	send(engine, "ann", "ann", 1);
	send(engine, "ann", "ann", 2);
	send(engine, "bob", "ann", 3);
	list(engine, &query, 1);
	ASSERT_IDS(engine, &query, 2, 1);
}

#define MANY 40

static void many_dialogs_are_listed_together(void **state)
{
	struct engine *engine = *state;
	struct message_query queries[MANY];

	for (int i = 0; i < MANY; i++) {
		char user[16];

		snprintf(user, sizeof(user), "user%02d", i);
		if (i % 4)
			send(engine, "ann", user, i);
		queries[i] = query_of(engine, user, "ann", PAGE);
	}
	list(engine, queries, MANY);
	for (int i = 0; i < MANY; i++) {
		assert_int_equal(queries[i].message_count, i % 4 ? 1 : 0);
		if (i % 4)
			ASSERT_IDS(engine, &queries[i], i);
	}
}

static void a_text_of_the_longest_size_comes_back_whole(void **state)
{
	struct engine *engine = *state;
	struct message message = message_of(engine, "ann", "bob", 1);
	struct message_query query = query_of(engine, "bob", "ann", PAGE);

	message.text = engine_long_name(engine, 'x', 16 * 1024);
	put(engine, &message, 1);
	list(engine, &query, 1);
	assert_true(slice_equal(query.messages[0].text, message.text));
}

/* ---- reading ----------------------------------------------------------------------------- */

static void a_message_is_read_once_by_its_receiver_only(void **state)
{
	struct engine *engine = *state;
	struct message_query query = query_of(engine, "ann", "bob", PAGE);
	struct message_mark found;

	send(engine, "ann", "bob", 1);
	found = mark(engine, "ann", 1);
	assert_false(found.exists || found.was_unread);
	found = mark(engine, "bob", 1);
	assert_true(found.exists && found.was_unread);
	found = mark(engine, "bob", 1);
	assert_true(found.exists && !found.was_unread);
	list(engine, &query, 1);
	assert_true(query.messages[0].is_read);
}

static void marks_of_several_users_tell_each_what_it_was(void **state)
{
	struct engine *engine = *state;
	struct message_mark marks[] = {
		mark_of(engine, "ann", 1),
		mark_of(engine, "ann", 2),
		mark_of(engine, "bob", 1),
		mark_of(engine, "bob", 2),
	};

	send(engine, "bob", "ann", 2);
	send(engine, "ann", "bob", 1);
	mark(engine, "bob", 1);
	assert_int_equal(mark_by(engine, engine->session, marks, 4), STATUS_OK);
	assert_true(!marks[0].exists && !marks[0].was_unread);
	assert_true(marks[1].exists && marks[1].was_unread);
	assert_true(marks[2].exists && !marks[2].was_unread);
	assert_true(!marks[3].exists && !marks[3].was_unread);
}

static void any_text_may_be_asked_for_as_an_id(void **state)
{
	struct engine *engine = *state;
	struct message_mark marks[] = {
		{.receiver_id = engine_name(engine, "a"), .id = slice_of("' OR 1 = 1; --")},
		{.receiver_id = engine_name(engine, "b"), .id = slice_of("{\"a\\\",NULL}")},
		{.receiver_id = engine_name(engine, "c"), .id = slice_of("\xF4\x8F\xBF\xBF")},
		{.receiver_id = engine_name(engine, "d"), .id = engine_long_name(engine, 'x', 128)},
	};

	send(engine, "b", "a", 1);
	assert_int_equal(mark_by(engine, engine->session, marks, 4), STATUS_OK);
	for (size_t i = 0; i < 4; i++)
		assert_false(marks[i].exists || marks[i].was_unread);
}

static void a_row_that_another_session_holds_is_busy(void **state)
{
	struct engine *engine = *state;
	struct session *other = engine_session(engine, SESSION_WRITE);
	struct message_mark held = mark_of(engine, "bob", 1);
	struct message_mark wanted = held;

	if (engine_time_is_ours(engine)) /* SQLite: whoever is in a transaction has every row */
		return;
	send(engine, "ann", "bob", 1);
	engine_begin(other);
	assert_int_equal(engine->messages->ops->mark(engine->messages, other, &held, 1), STATUS_OK);
	for (enum transaction_mode mode = TRANSACTION_WAIT; mode <= TRANSACTION_SKIP; mode++) {
		assert_int_equal(engine->session->ops->begin(engine->session, mode), STATUS_OK);
		assert_int_equal(
			engine->messages->ops->mark(engine->messages, engine->session, &wanted, 1),
			STATUS_LOCK_BUSY);
	}
	engine_commit(other);
	wanted = mark(engine, "bob", 1);
	assert_true(wanted.exists && !wanted.was_unread);
}

#define MARKED 200

struct marker {
	struct engine *engine;
	struct session *session;
	const struct message_mark *marks; /* shared */
	int taken;
};

static void *mark_all(void *context)
{
	struct marker *marker = context;

	for (int from = 0; from < MARKED; from += 20) {
		struct message_mark marks[20];
		enum status status;

		do {
			memcpy(marks, &marker->marks[from], sizeof(marks));
			status = mark_by(marker->engine, marker->session, marks, 20);
		} while (engine_is_collision(status));
		assert_int_equal(status, STATUS_OK);
		for (int i = 0; i < 20; i++)
			marker->taken += marks[i].was_unread;
	}
	return NULL;
}

static void of_two_sessions_one_has_read_each_message(void **state)
{
	struct engine *engine = *state;
	struct message_mark marks[MARKED];
	struct marker markers[2];
	pthread_t threads[2];

	for (int i = 0; i < MARKED; i++) {
		send(engine, "ann", "bob", i);
		marks[i] = mark_of(engine, "bob", i);
	}
	for (int i = 0; i < 2; i++) {
		markers[i] = (struct marker){
			engine, engine_session(engine, SESSION_WRITE), marks, .taken = 0};
		assert_int_equal(pthread_create(&threads[i], NULL, mark_all, &markers[i]), 0);
	}
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(markers[0].taken + markers[1].taken, MARKED);
}

/* ---- what is unread ---------------------------------------------------------------------- */

/* Of this test's users; others may be before and behind them. */
static size_t count_unread(
	struct engine *engine, struct slice after, size_t limit, struct unread_count *counts)
{
	struct row_page page = {.after = {after}, .limit = limit};
	size_t ours = 0;

	assert_int_equal(
		engine->messages->ops->count_unread(engine->messages,
			engine_session(engine, SESSION_READ), &engine->arena, &page, counts),
		STATUS_OK);
	while (ours < page.count && slice_starts_with(counts[ours].user_id, engine->prefix))
		ours++;
	return ours;
}

static void unread_messages_are_counted_by_receiver_page_by_page(void **state)
{
	struct engine *engine = *state;
	struct unread_count counts[PAGE];

	for (int i = 1; i <= 3; i++)
		send(engine, "bob", "ann", i);
	send(engine, "ann", "bob", 4);
	send(engine, "ann", "eve", 5);
	send(engine, "ann", "fay", 6);
	mark(engine, "ann", 2);
	mark(engine, "eve", 5);
	assert_int_equal(count_unread(engine, engine_name(engine, ""), 2, counts), 2);
	assert_true(slice_equal(counts[0].user_id, engine_name(engine, "ann")));
	assert_true(counts[0].count == 2);
	assert_true(slice_equal(counts[1].user_id, engine_name(engine, "bob")));
	assert_true(counts[1].count == 1);
	assert_int_equal(count_unread(engine, counts[1].user_id, 2, counts), 1);
	assert_true(slice_equal(counts[0].user_id, engine_name(engine, "fay")));
}

static void unread_messages_of_a_user_are_listed_by_id_page_by_page(void **state)
{
	struct engine *engine = *state;
	struct session *session = engine_session(engine, SESSION_READ);
	struct slice ann = engine_name(engine, "ann");
	struct row_page page = {.user_id = ann, .limit = 3};
	struct message found[PAGE];

	for (int i = 1; i <= 5; i++)
		send(engine, "bob", "ann", i);
	send(engine, "ann", "bob", 6);
	mark(engine, "ann", 2);
	assert_int_equal(engine->messages->ops->list_unread(
				 engine->messages, session, &engine->arena, &page, found),
		STATUS_OK);
	assert_int_equal(page.count, 3);
	assert_true(slice_equal(found[0].id, id_of(engine, 1)));
	assert_true(slice_equal(found[1].id, id_of(engine, 3)));
	assert_true(slice_equal(found[1].receiver_id, ann));
	assert_true(slice_equal(found[1].sender_id, engine_name(engine, "bob")));
	assert_true(found[1].created_us == START_US + 3);
	page.after[0] = found[2].id;
	assert_int_equal(engine->messages->ops->list_unread(
				 engine->messages, session, &engine->arena, &page, found),
		STATUS_OK);
	assert_int_equal(page.count, 1);
	assert_true(slice_equal(found[0].id, id_of(engine, 5)));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		ENGINE_TEST(what_is_put_is_listed_to_the_microsecond_and_unread),
		ENGINE_TEST(a_query_ends_with_the_message_that_passes_its_bytes),
		ENGINE_TEST(a_rolled_back_put_leaves_nothing),
		ENGINE_TEST(a_dialog_has_both_directions_newest_first_and_nobody_else),
		ENGINE_TEST(pages_go_on_before_the_cursor),
		ENGINE_TEST(a_user_who_writes_to_himself_sees_each_message_once),
		ENGINE_TEST(many_dialogs_are_listed_together),
		ENGINE_TEST(a_text_of_the_longest_size_comes_back_whole),
		ENGINE_TEST(a_message_is_read_once_by_its_receiver_only),
		ENGINE_TEST(marks_of_several_users_tell_each_what_it_was),
		ENGINE_TEST(any_text_may_be_asked_for_as_an_id),
		ENGINE_TEST(a_row_that_another_session_holds_is_busy),
		ENGINE_TEST(of_two_sessions_one_has_read_each_message),
		ENGINE_TEST(unread_messages_are_counted_by_receiver_page_by_page),
		ENGINE_TEST(unread_messages_of_a_user_are_listed_by_id_page_by_page),
	};

	return cmocka_run_group_tests_name("message repository", tests, NULL, NULL);
}
