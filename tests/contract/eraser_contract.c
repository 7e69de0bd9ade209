/* What ports/eraser.h promises, on one engine: one person goes, and nobody else notices. */
#include <stdio.h>

#include "engine.h"

#define STEPS_MAX 100

static struct erasure erasure_of(struct engine *engine, const char *user, size_t limit)
{
	return (struct erasure){
		.user_id = engine_name(engine, user),
		.pseudonym = engine_name(engine, "erased"),
		.limit = limit,
	};
}

static int64_t sum_of(const struct eraser *eraser, const struct erasure *erasure)
{
	int64_t rows = 0;

	for (size_t i = 0; i < eraser->place_count; i++)
		rows += erasure->rows[i];
	return rows;
}

/* Runs one step. Returns how many rows it changed. */
static int64_t step(
	struct engine *engine, const struct eraser *eraser, const char *user, size_t limit)
{
	struct erasure erasure = erasure_of(engine, user, limit);

	engine_begin(engine->session);
	assert_int_equal(eraser->ops->erase(eraser, engine->session, &erasure), STATUS_OK);
	engine_commit(engine->session);
	return sum_of(eraser, &erasure);
}

static int64_t count(struct engine *engine, const struct eraser *eraser, const char *user)
{
	struct erasure erasure = erasure_of(engine, user, 1);

	engine_begin(engine->session);
	assert_int_equal(eraser->ops->count(eraser, engine->session, &erasure), STATUS_OK);
	engine_commit(engine->session);
	return sum_of(eraser, &erasure);
}

/* Erases somebody in steps of at most `limit` rows. Returns how many rows were changed in all. */
static int64_t erase(
	struct engine *engine, const struct eraser *eraser, const char *user, size_t limit)
{
	int64_t all = 0, rows;
	int steps = 0;

	while ((rows = step(engine, eraser, user, limit)) > 0) {
		assert_true(rows <= (int64_t)limit);
		assert_true(++steps < STEPS_MAX);
		all += rows;
	}
	assert_int_equal(count(engine, eraser, user), 0);
	return all;
}

/* ---- dialogs ----------------------------------------------------------------------------- */

static struct slice id_of(struct engine *engine, int number)
{
	char text[32];

	snprintf(text, sizeof(text), "%07d-%08d", number, number);
	return arena_copy(&engine->arena, slice_of(text));
}

static void send(struct engine *engine, const char *sender, const char *receiver, int number)
{
	const struct message message = {
		.receiver_id = engine_name(engine, receiver),
		.id = id_of(engine, number),
		.sender_id = engine_name(engine, sender),
		.text = slice_of("something private"),
		.created_us = 1767855000123456LL,
	};

	engine_begin(engine->session);
	assert_int_equal(engine->messages->ops->put(engine->messages, engine->session, &message, 1),
		STATUS_OK);
	engine_commit(engine->session);
}

static struct conversation_query conversations_of(struct engine *engine, const char *user)
{
	struct conversation_query query = {
		.user_id = engine_name(engine, user), .limit = 10, .text_max = SIZE_MAX / 2};

	assert_int_equal(engine->messages->ops->list_conversations(engine->messages,
				 engine_session(engine, SESSION_READ), &engine->arena, &query, 1),
		STATUS_OK);
	return query;
}

static void assert_conversation(struct engine *engine, const struct conversation *found,
	const char *other, int last, int64_t unread)
{
	assert_true(slice_equal(found->other_id, engine_name(engine, other)));
	assert_true(slice_equal(found->last.id, id_of(engine, last)));
	assert_int_equal(found->unread, unread);
}

static void messages_of_others_stay_unread_under_a_pseudonym_and_without_text(void **state)
{
	struct engine *engine = *state;
	const struct eraser *eraser = engine->messages->eraser;
	struct conversation_query query;

	for (int i = 1; i <= 5; i++)
		send(engine, "eve", "bob", i);
	send(engine, "bob", "eve", 6);
	send(engine, "ann", "bob", 3000001);
	send(engine, "eve", "eve", 8);
	send(engine, "fay", "eve", 9);
	assert_int_equal(count(engine, eraser, "eve"), 3 + 5 + 3);
	assert_int_equal(erase(engine, eraser, "eve", 2), 3 + 5 + 3);
	query = conversations_of(engine, "bob");
	assert_int_equal(query.conversation_count, 2);
	assert_conversation(engine, &query.conversations[0], "ann", 3000001, 1);
	assert_conversation(engine, &query.conversations[1], "erased", 5, 5);
	assert_int_equal(query.conversations[1].last.text.len, 0);
	assert_true(slice_is(query.conversations[0].last.text, "something private"));
	assert_int_equal(conversations_of(engine, "eve").conversation_count, 0);
	assert_int_equal(conversations_of(engine, "fay").conversation_count, 0);
	assert_int_equal(erase(engine, eraser, "eve", 1000), 0);
}

static struct outbox_event event_of(
	struct engine *engine, const char *key, const char *about, const char *text)
{
	struct buffer payload = buffer_make(&engine->arena, 128);

	buffer_format(&payload, "{\"message\":{\"recipientId\":\"%s\",\"senderId\":", text);
	buffer_json_string(&payload, engine_name(engine, about));
	buffer_text(&payload, "}}");
	return (struct outbox_event){
		.id = engine_uuid(engine, text),
		.type = slice_of("message.new"),
		.key = engine_name(engine, key),
		.payload = buffer_slice(&payload),
		.occurred_us = 1767855000123456LL,
	};
}

static void events_that_wait_name_the_person_no_more(void **state)
{
	struct engine *engine = *state;
	const struct outbox_repository *outbox = engine->dialog_outbox;
	const struct outbox_event events[] = {
		event_of(engine, "eve", "bob", "to-eve"),
		event_of(engine, "bob", "eve", "from-eve"),
		event_of(engine, "bob", "ann", "from-ann"),
	};

	engine_begin(engine->session);
	assert_int_equal(outbox->ops->put(outbox, engine->session, events, 3), STATUS_OK);
	engine_commit(engine->session);
	assert_int_equal(count(engine, engine->messages->eraser, "eve"), 2);
	assert_int_equal(erase(engine, engine->messages->eraser, "eve", 1000), 2);
	assert_int_equal(count(engine, engine->messages->eraser, "bob"), 2);
	assert_int_equal(count(engine, engine->messages->eraser, "erased"), 1);
}

/* ---- counters ---------------------------------------------------------------------------- */

static void put_counter(struct engine *engine, const char *user, int messages)
{
	struct counter_row row = {.user_id = engine_name(engine, user), .delta = messages};

	engine_begin(engine->session);
	for (int i = 0; i < messages; i++) {
		struct counter_message message = {
			.user_id = row.user_id,
			.message_id = id_of(engine, i),
			.event_us = 1767855000123456LL,
		};

		assert_int_equal(
			engine->counters->ops->lock(engine->counters, engine->session, &message, 1),
			STATUS_OK);
		assert_int_equal(
			engine->counters->ops->put(engine->counters, engine->session, &message, 1),
			STATUS_OK);
	}
	assert_int_equal(
		engine->counters->ops->add(engine->counters, engine->session, &row, 1), STATUS_OK);
	engine_commit(engine->session);
}

static struct counter_row find_counter(struct engine *engine, const char *user)
{
	struct counter_row row = {.user_id = engine_name(engine, user)};

	assert_int_equal(engine->counters->ops->find(
				 engine->counters, engine_session(engine, SESSION_READ), &row, 1),
		STATUS_OK);
	return row;
}

static void a_counter_goes_and_its_messages_stay_known_as_read(void **state)
{
	struct engine *engine = *state;
	struct counter_message again = {
		.user_id = engine_name(engine, "eve"), .message_id = id_of(engine, 1)};

	put_counter(engine, "eve", 3);
	put_counter(engine, "bob", 2);
	assert_int_equal(count(engine, engine->counters->eraser, "eve"), 3 + 1);
	assert_int_equal(erase(engine, engine->counters->eraser, "eve", 2), 3 + 1);
	assert_false(find_counter(engine, "eve").exists);
	assert_int_equal(find_counter(engine, "bob").count, 2);
	engine_begin(engine->session);
	assert_int_equal(engine->counters->ops->lock(engine->counters, engine->session, &again, 1),
		STATUS_OK);
	engine->session->ops->rollback(engine->session);
	assert_true(again.exists && again.is_read);
}

/* ---- entitlements and notifications ------------------------------------------------------ */

/* The id of the event of a user's only grant. */
static struct slice event_id_of(struct engine *engine, const char *user)
{
	char text[32];

	snprintf(text, sizeof(text), "event-%s", user);
	return engine_uuid(engine, text);
}

/* An event of entitlements about a user, with only the field that names him. */
static struct slice payload_of(struct engine *engine, const char *user)
{
	struct slice id = engine_name(engine, user);
	struct buffer payload = buffer_make(&engine->arena, 64);

	buffer_char(&payload, 4 << 3 | 2);
	buffer_char(&payload, (char)id.len);
	buffer_add(&payload, id);
	return buffer_slice(&payload);
}

/* The key of the event of a user's only grant. */
static struct slice key_of(struct engine *engine, const char *user)
{
	struct slice id = engine_name(engine, user);
	struct buffer key = buffer_make(&engine->arena, 64);

	buffer_add(&key, id);
	buffer_text(&key, ":item");
	return buffer_slice(&key);
}

static void grant(struct engine *engine, const char *user)
{
	const struct outbox_repository *outbox = engine->outbox;
	struct entitlement_row row = {.user_id = engine_name(engine, user),
		.unit = slice_of("item"),
		.is_active = true,
		.version = 1,
		.updated_us = 1767855000123456LL};
	const struct entitlement_source source = {.user_id = row.user_id,
		.unit = row.unit,
		.kind = slice_of(ENTITLEMENT_PURCHASE),
		.id = slice_of("p1"),
		.is_active = true,
		.reason = slice_of("purchase"),
		.granted_us = row.updated_us};
	const struct entitlement_audit line = {.user_id = row.user_id,
		.unit = row.unit,
		.is_active = true,
		.version = 1,
		.reason = slice_of("purchase"),
		.purchase_id = slice_of("p1"),
		.event_id = event_id_of(engine, user),
		.at_us = row.updated_us};
	const struct entitlement_changes changes = {&row, 1, &source, 1, &line, 1};
	const struct outbox_event event = {.id = line.event_id,
		.type = slice_of("EntitlementGranted"),
		.key = key_of(engine, user),
		.payload = payload_of(engine, user),
		.occurred_us = row.updated_us};

	engine_begin(engine->session);
	assert_int_equal(
		engine->entitlements->ops->put(engine->entitlements, engine->session, &changes),
		STATUS_OK);
	assert_int_equal(outbox->ops->put(outbox, engine->session, &event, 1), STATUS_OK);
	engine_commit(engine->session);
}

static void entitlements_go_with_their_sources_history_and_events(void **state)
{
	struct engine *engine = *state;
	const struct eraser *eraser = engine->entitlements->eraser;

	grant(engine, "eve");
	grant(engine, "eve:item");
	assert_int_equal(count(engine, eraser, "eve"), 4);
	assert_int_equal(erase(engine, eraser, "eve", 1), 4);
	assert_int_equal(count(engine, eraser, "eve:item"), 4);
}

/* Leaves the user an event that was not published, and no line of the audit. */
static void grant_long_ago(struct engine *engine, const char *user, const char *status)
{
	struct slice id = engine_name(engine, user), event_id = event_id_of(engine, user);

	grant(engine, user);
	engine_execute(engine, "UPDATE outbox_events SET status = '%s' WHERE event_id = '%.*s'",
		status, (int)event_id.len, event_id.data);
	engine_execute(engine, "DELETE FROM entitlement_audit WHERE user_id = '%.*s'", (int)id.len,
		id.data);
}

static void events_go_also_if_the_audit_has_no_line_of_them(void **state)
{
	static const char *const statuses[] = {"PENDING", "FAILED", "DISCARDED"};
	struct engine *engine = *state;
	const struct eraser *eraser = engine->entitlements->eraser;

	for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++) {
		char person[16], other[32];

		snprintf(person, sizeof(person), "eve%zu", i);
		snprintf(other, sizeof(other), "%s:item", person);
		grant_long_ago(engine, person, statuses[i]);
		grant_long_ago(engine, other, statuses[i]);
		assert_int_equal(count(engine, eraser, person), 3);
		assert_int_equal(erase(engine, eraser, person, 1), 3);
		assert_int_equal(count(engine, eraser, other), 3);
	}
}

static void notify(struct engine *engine, const char *user)
{
	const struct notification_repository *repository = engine->notifications;
	const struct notification notification = {
		.id = event_id_of(engine, user),
		.event_id = event_id_of(engine, user),
		.event_type = slice_of("EntitlementGranted"),
		.user_id = engine_name(engine, user),
		.unit = slice_of("item"),
		.key = engine_name(engine, user),
		.version = 1,
		.occurred_us = 1767855000123456LL,
		.payload = payload_of(engine, user),
	};
	const struct dead_letter letter = {
		.id = notification.id,
		.kind = slice_of("notification"),
		.type = notification.event_type,
		.key = notification.key,
		.error = slice_of("HTTP 400"),
		.payload = notification.payload,
		.attempt_count = 1,
	};
	struct inbox_event event = {.event_id = notification.event_id};

	engine_begin(engine->session);
	assert_int_equal(repository->inbox->ops->put(repository->inbox, engine->session, &event, 1),
		STATUS_OK);
	assert_int_equal(
		repository->ops->put(repository, engine->session, &notification, 1), STATUS_OK);
	assert_int_equal(repository->dead->ops->put(repository->dead, engine->session, &letter, 1),
		STATUS_OK);
	engine_commit(engine->session);
}

static void notifications_and_dead_letters_go_and_a_repeated_event_stays_known(void **state)
{
	struct engine *engine = *state;
	const struct notification_repository *repository = engine->notifications;
	struct inbox_event again = {.event_id = event_id_of(engine, "eve")};

	notify(engine, "eve");
	notify(engine, "eve2");
	assert_int_equal(count(engine, repository->eraser, "eve"), 2);
	assert_int_equal(erase(engine, repository->eraser, "eve", 1), 2);
	assert_int_equal(count(engine, repository->eraser, "eve2"), 2);
	engine_begin(engine->session);
	assert_int_equal(repository->inbox->ops->put(repository->inbox, engine->session, &again, 1),
		STATUS_OK);
	engine->session->ops->rollback(engine->session);
	assert_false(again.is_new);
}

/* ---- the gateway ------------------------------------------------------------------------- */

static void a_limit_goes_and_others_keep_theirs(void **state)
{
	struct engine *engine = *state;
	struct limit_row rows[] = {
		{.user_id = engine_name(engine, "bob"), .rate_limit = 5, .time_window = 1},
		{.user_id = engine_name(engine, "eve"), .rate_limit = 5, .time_window = 1},
	};
	int64_t now_us;

	engine_begin(engine->session);
	assert_int_equal(
		engine->limits->ops->put(engine->limits, engine->session, rows, 2), STATUS_OK);
	engine_commit(engine->session);
	assert_int_equal(erase(engine, engine->limits->eraser, "eve", 1000), 1);
	assert_int_equal(engine->limits->ops->find(engine->limits,
				 engine_session(engine, SESSION_READ), rows, 2, &now_us),
		STATUS_OK);
	assert_true(rows[0].exists && rows[0].rate_limit == 5);
	assert_false(rows[1].exists);
}

static void write_to(struct engine *engine, const char *user, const char *text)
{
	struct outbound_message message = {
		.id = engine_uuid(engine, text),
		.message_id = engine_name(engine, text),
		.user_id = engine_name(engine, user),
		.payload = slice_of("{\"message\":\"something private\"}"),
		.created_us = 1767855000123456LL,
	};
	const struct dead_letter letter = {
		.id = message.id,
		.kind = slice_of("sms"),
		.type = slice_of("sms"),
		.key = message.user_id,
		.error = slice_of("HTTP 400"),
		.payload = message.payload,
		.attempt_count = 1,
	};

	engine_begin(engine->session);
	assert_int_equal(engine->outbound->ops->put(engine->outbound, engine->session, &message, 1),
		STATUS_OK);
	assert_int_equal(engine->outbound->dead->ops->put(
				 engine->outbound->dead, engine->session, &letter, 1),
		STATUS_OK);
	engine_commit(engine->session);
}

static void note_for(struct engine *engine, const char *user, const char *text)
{
	const struct outbound_message message = {
		.id = engine_uuid(engine, text), .user_id = engine_name(engine, user)};

	engine_begin(engine->session);
	assert_int_equal(
		engine->outbound->ops->note(engine->outbound, engine->session, &message, 1),
		STATUS_OK);
	engine_commit(engine->session);
}

static void messages_to_a_user_go_with_their_dead_letters_and_a_repeated_event_stays_known(
	void **state)
{
	struct engine *engine = *state;
	const struct eraser *eraser = engine->limits->eraser;
	struct sent_message again[] = {{.message_id = engine_name(engine, "a")},
		{.message_id = engine_name(engine, "b")}, {.message_id = engine_name(engine, "c")},
		{.message_id = engine_uuid(engine, "d")}};

	write_to(engine, "eve", "a");
	write_to(engine, "eve", "b");
	write_to(engine, "bob", "c");
	note_for(engine, "eve", "d");
	assert_int_equal(count(engine, eraser, "eve"), 5);
	assert_int_equal(erase(engine, eraser, "eve", 1), 5);
	assert_int_equal(count(engine, eraser, "bob"), 2);
	engine_begin(engine->session);
	assert_int_equal(
		engine->sent->ops->find(engine->sent, engine->session, again, 4), STATUS_OK);
	engine->session->ops->rollback(engine->session);
	assert_true(again[0].known && again[1].known && again[3].known);
	assert_false(again[2].known);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		ENGINE_TEST(messages_of_others_stay_unread_under_a_pseudonym_and_without_text),
		ENGINE_TEST(events_that_wait_name_the_person_no_more),
		ENGINE_TEST(a_counter_goes_and_its_messages_stay_known_as_read),
		ENGINE_TEST(entitlements_go_with_their_sources_history_and_events),
		ENGINE_TEST(events_go_also_if_the_audit_has_no_line_of_them),
		ENGINE_TEST(notifications_and_dead_letters_go_and_a_repeated_event_stays_known),
		ENGINE_TEST(a_limit_goes_and_others_keep_theirs),
		ENGINE_TEST(
			messages_to_a_user_go_with_their_dead_letters_and_a_repeated_event_stays_known),
	};

	return cmocka_run_group_tests_name("erasers", tests, NULL, NULL);
}
