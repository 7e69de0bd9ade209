/*
 * What ports/notification_repository.h promises, on one engine, with its dead letters and its
 * inbox; what it claims like others is in claim_contract.c.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine.h"

#define SECOND_US 1000000LL
#define START_US 1767855000123456LL

static struct notification notification_of(struct engine *engine, const char *name)
{
	return (struct notification){
		.id = engine_uuid(engine, name),
		.event_id = engine_name(engine, name),
		.event_type = slice_of("EntitlementRevoked"),
		.user_id = slice_of(engine->prefix),
		.unit = slice_of("item1"),
		.key = slice_of("u_123:item1"),
		.trace = slice_of("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
		.version = 13,
		.occurred_us = START_US,
		.payload = slice_make("\x0a\x00\xff", 3),
	};
}

static void put(struct engine *engine, const struct notification *notifications, size_t count)
{
	engine_begin(engine->session);
	assert_int_equal(engine->notifications->ops->put(
				 engine->notifications, engine->session, notifications, count),
		STATUS_OK);
	engine_commit(engine->session);
}

static struct slice put_one(struct engine *engine, const char *name)
{
	struct notification notification = notification_of(engine, name);

	put(engine, &notification, 1);
	return notification.id;
}

static size_t list(struct engine *engine, struct notification *notifications, size_t limit)
{
	struct session *session = engine_session(engine, SESSION_READ);
	struct row_page page = {.user_id = slice_of(engine->prefix), .limit = limit, .count = 77};

	assert_int_equal(engine->notifications->ops->list(engine->notifications, session,
				 &engine->arena, &page, notifications),
		STATUS_OK);
	return page.count;
}

/* ---- lists ------------------------------------------------------------------------------- */

static void what_is_put_is_listed(void **state)
{
	struct engine *engine = *state;
	struct notification got;

	assert_int_equal(list(engine, &got, 1), 0);
	put_one(engine, "a");
	assert_int_equal(list(engine, &got, 1), 1);
	assert_true(slice_equal(got.id, engine_uuid(engine, "a")));
	assert_true(slice_equal(got.event_id, engine_name(engine, "a")));
	assert_true(slice_is(got.event_type, "EntitlementRevoked"));
	assert_true(slice_is(got.user_id, engine->prefix));
	assert_true(slice_is(got.unit, "item1"));
	assert_true(slice_is(got.key, "u_123:item1"));
	assert_true(slice_starts_with(got.trace, "00-0af7"));
	assert_true(got.version == 13);
	assert_true(got.occurred_us == START_US);
	assert_int_equal(got.payload.len, 0);
	assert_true(slice_is(got.status, "PENDING"));
	assert_int_equal(got.attempt_count, 0);
	assert_true(got.created_us > START_US);
	assert_true(got.sent_us == 0);
}

static void the_newest_are_listed_first(void **state)
{
	struct engine *engine = *state;
	struct notification both[2] = {notification_of(engine, "b"), notification_of(engine, "c")};
	struct notification got[5];

	put_one(engine, "a");
	both[1].occurred_us++;
	put(engine, both, 2);
	assert_int_equal(list(engine, got, 5), 3);
	assert_true(slice_equal(got[0].id, both[1].id));
	assert_true(slice_equal(got[1].id, both[0].id));
	assert_true(slice_equal(got[2].id, engine_uuid(engine, "a")));
	assert_int_equal(list(engine, got, 2), 2);
	assert_true(slice_equal(got[1].id, both[0].id));
}

static void a_rolled_back_put_leaves_nothing(void **state)
{
	struct engine *engine = *state;
	struct notification notification = notification_of(engine, "a");
	struct notification got;

	engine_begin(engine->session);
	assert_int_equal(engine->notifications->ops->put(
				 engine->notifications, engine->session, &notification, 1),
		STATUS_OK);
	engine->session->ops->rollback(engine->session);
	assert_int_equal(list(engine, &got, 1), 0);
}

/* ---- sending ----------------------------------------------------------------------------- */

/* Claims everything that is due and ends the one with this id; all others are returned. */
static enum status try_to_end(struct engine *engine, struct slice id, enum claim_end how)
{
	const struct claim_repository *claims = engine->notifications->claims;
	struct claim_terms terms = {
		.owner = slice_of("me"), .lease_us = 30 * SECOND_US, .max = 100};
	struct claim got[100];
	size_t count;

	engine_begin(engine->session);
	assert_int_equal(
		claims->ops->claim(claims, engine->session, &engine->arena, &terms, got, &count),
		STATUS_OK);
	for (size_t i = 0; i < count; i++) {
		got[i].end = slice_equal(got[i].id, id) ? how : CLAIM_RETURNED;
		got[i].error = slice_of("no route to host");
	}
	assert_int_equal(
		claims->ops->end(claims, engine->session, terms.owner, got, count), STATUS_OK);
	return engine->session->ops->commit(engine->session);
}

static void a_list_shows_what_became_of_it(void **state)
{
	struct engine *engine = *state;
	struct notification got;

	assert_int_equal(try_to_end(engine, put_one(engine, "a"), CLAIM_DONE), STATUS_OK);
	assert_int_equal(list(engine, &got, 1), 1);
	assert_true(slice_is(got.status, "SENT"));
	assert_true(got.sent_us >= got.created_us);
}

/* ---- dead letters ------------------------------------------------------------------------ */

static struct dead_letter letter_of(struct engine *engine, const char *kind, const char *name)
{
	return (struct dead_letter){
		.id = engine_uuid(engine, name),
		.kind = slice_of(kind),
		.type = slice_of("EntitlementRevoked"),
		.key = slice_of("u_123:item1"),
		.error = slice_of("no route to host"),
		.payload = slice_make("\x0a\x00\xff", 3),
		.attempt_count = 10,
	};
}

static struct dead_letter poison_of(struct engine *engine, const char *name, const char *position)
{
	struct dead_letter letter = letter_of(engine, "poison", name);

	letter.type = slice_of("");
	letter.key = (struct slice){0};
	letter.position = engine_name(engine, position);
	return letter;
}

static void put_letters(struct engine *engine, const struct dead_letter *letters, size_t count)
{
	engine_begin(engine->session);
	assert_int_equal(engine->notifications->dead->ops->put(
				 engine->notifications->dead, engine->session, letters, count),
		STATUS_OK);
	engine_commit(engine->session);
}

/* A notification that has failed, with its letter. */
static struct slice give_up(struct engine *engine, const char *name)
{
	struct slice id = put_one(engine, name);
	struct dead_letter letter = letter_of(engine, "notification", name);

	assert_int_equal(try_to_end(engine, id, CLAIM_FAILED), STATUS_OK);
	put_letters(engine, &letter, 1);
	return id;
}

static bool find(struct engine *engine, const char *kind, struct slice id, struct dead_letter *got)
{
	const struct dead_letter_name name = {slice_of(kind), id};
	bool found = false;

	assert_int_equal(engine->notifications->dead->ops->find(engine->notifications->dead,
				 engine->session, &engine->arena, &name, got, &found),
		STATUS_OK);
	return found;
}

static bool resolve(
	struct engine *engine, const char *kind, struct slice id, enum dead_letter_action action)
{
	const struct dead_letter_resolution resolution = {
		{slice_of(kind), id}, action, slice_of("why not"), slice_of("ops")};
	bool found = false;

	engine_begin(engine->session);
	assert_int_equal(engine->notifications->dead->ops->resolve(
				 engine->notifications->dead, engine->session, &resolution, &found),
		STATUS_OK);
	engine_commit(engine->session);
	return found;
}

static bool notification_is(struct engine *engine, struct slice id, const char *condition)
{
	return engine_count(engine, "notifications WHERE notification_id = '%s' AND %s", id.data,
		       condition) == 1;
}

static int64_t letters_with(struct engine *engine, struct slice id, const char *condition)
{
	return engine_count(engine, "notification_dlq WHERE id = '%s' AND %s", id.data, condition);
}

static void a_letter_is_found_with_all_that_is_known(void **state)
{
	struct engine *engine = *state;
	struct dead_letter letters[2] = {
		letter_of(engine, "notification", "a"), poison_of(engine, "b", "ENTITLEMENTS/41")};
	struct dead_letter got;

	put_letters(engine, letters, 2);
	assert_true(find(engine, "notification", letters[0].id, &got));
	assert_true(slice_equal(got.id, letters[0].id));
	assert_true(slice_is(got.kind, "notification"));
	assert_true(slice_is(got.type, "EntitlementRevoked"));
	assert_true(slice_is(got.key, "u_123:item1"));
	assert_true(slice_is(got.error, "no route to host"));
	assert_true(slice_equal(got.payload, letters[0].payload));
	assert_int_equal(got.attempt_count, 10);
	assert_int_equal(got.position.len, 0);
	assert_true(got.created_us > START_US);
	assert_true(find(engine, "poison", letters[1].id, &got));
	assert_true(slice_equal(got.position, letters[1].position));
	assert_int_equal(got.type.len + got.key.len, 0);
	assert_false(find(engine, "poison", letters[0].id, &got));
	assert_false(find(engine, "notification", slice_of("no id"), &got));
}

static void a_second_letter_for_the_same_is_not_kept(void **state)
{
	struct engine *engine = *state;
	struct dead_letter first[2] = {
		letter_of(engine, "notification", "a"), poison_of(engine, "b", "ENTITLEMENTS/41")};
	struct dead_letter second[4] = {letter_of(engine, "notification", "a"),
		poison_of(engine, "c", "ENTITLEMENTS/41"),
		poison_of(engine, "d", "ENTITLEMENTS/42"),
		poison_of(engine, "e", "ENTITLEMENTS/42")};
	struct dead_letter got;

	put_letters(engine, first, 2);
	second[0].error = slice_of("another");
	put_letters(engine, second, 4);
	assert_true(find(engine, "notification", first[0].id, &got));
	assert_true(slice_is(got.error, "no route to host"));
	assert_true(find(engine, "poison", first[1].id, &got));
	assert_false(find(engine, "poison", second[1].id, &got));
	assert_true(find(engine, "poison", second[2].id, &got) !=
		    find(engine, "poison", second[3].id, &got));
}

static void letters_are_listed_by_kind_and_id_page_by_page(void **state)
{
	struct engine *engine = *state;
	const struct dead_letter_repository *dead = engine->notifications->dead;
	struct session *session = engine_session(engine, SESSION_READ);
	struct dead_letter_page page = {.kind = slice_of("poison"), .limit = 2};
	struct dead_letter letters[6], got[2];
	size_t count, ours = 0;
	int64_t depth = 0, depth_before = 0;

	assert_int_equal(dead->ops->depth(dead, session, slice_of(""), &depth_before), STATUS_OK);
	for (int i = 0; i < 6; i++) {
		char name[8];

		snprintf(name, sizeof(name), "%d", i);
		letters[i] = i == 0 ? letter_of(engine, "notification", name)
				    : poison_of(engine, name, name);
	}
	put_letters(engine, letters, 6);
	do {
		assert_int_equal(dead->ops->list(dead, session, &engine->arena, &page, got, &count),
			STATUS_OK);
		for (size_t i = 0; i < count; i++) {
			assert_true(slice_compare(got[i].id, page.after) > 0);
			assert_true(slice_is(got[i].kind, "poison"));
			assert_int_equal(got[i].payload.len, 0);
			ours += slice_starts_with(got[i].position, engine->prefix);
			page.after = got[i].id;
		}
	} while (count == 2);
	assert_int_equal(ours, 5);
	assert_int_equal(dead->ops->depth(dead, session, slice_of(""), &depth), STATUS_OK);
	assert_true(depth == depth_before + 6);
}

static void a_replayed_notification_is_pending_and_can_be_given_up_again(void **state)
{
	struct engine *engine = *state;
	struct slice id = give_up(engine, "a");
	struct dead_letter again = letter_of(engine, "notification", "a");
	struct dead_letter got;

	assert_true(notification_is(engine, id, "status = 'FAILED' AND attempt_count = 1"));
	assert_true(resolve(engine, "notification", id, DEAD_LETTER_REPLAY));
	assert_true(notification_is(
		engine, id, "status = 'PENDING' AND attempt_count = 0 AND next_retry_at IS NULL"));
	assert_false(find(engine, "notification", id, &got));
	assert_false(resolve(engine, "notification", id, DEAD_LETTER_REPLAY));
	assert_int_equal(letters_with(engine, id, "resolution = 'REPLAYED'"), 1);
	assert_int_equal(try_to_end(engine, id, CLAIM_FAILED), STATUS_OK);
	again.error = slice_of("still no route");
	put_letters(engine, &again, 1);
	assert_true(find(engine, "notification", id, &got));
	assert_true(slice_is(got.error, "still no route"));
	assert_int_equal(letters_with(engine, id, "resolution IS NULL"), 1);
	assert_int_equal(engine_count(engine,
				 "operator_actions WHERE action = 'replay' AND target = "
				 "'notification_dlq/%s' AND detail = 'why not'",
				 id.data),
		1);
}

static void a_discarded_notification_is_let_go(void **state)
{
	struct engine *engine = *state;
	struct slice id = give_up(engine, "a");
	struct dead_letter got;

	assert_false(resolve(engine, "poison", id, DEAD_LETTER_DISCARD));
	assert_false(resolve(engine, "notification", slice_of("no id"), DEAD_LETTER_DISCARD));
	assert_true(resolve(engine, "notification", id, DEAD_LETTER_DISCARD));
	assert_true(notification_is(engine, id, "status = 'DISCARDED'"));
	assert_int_equal(letters_with(engine, id, "resolution = 'DISCARDED'"), 1);
	assert_false(find(engine, "notification", id, &got));
	assert_false(resolve(engine, "notification", id, DEAD_LETTER_REPLAY));
}

static void poison_is_only_marked_and_does_not_come_back(void **state)
{
	struct engine *engine = *state;
	struct dead_letter poison = poison_of(engine, "a", "ENTITLEMENTS/41");
	struct dead_letter again = poison_of(engine, "b", "ENTITLEMENTS/41");
	struct dead_letter got;

	put_letters(engine, &poison, 1);
	assert_true(resolve(engine, "poison", poison.id, DEAD_LETTER_REPLAY));
	assert_false(find(engine, "poison", poison.id, &got));
	assert_int_equal(letters_with(engine, poison.id, "resolution = 'REPLAYED'"), 1);
	put_letters(engine, &again, 1);
	assert_false(find(engine, "poison", again.id, &got));
	assert_false(find(engine, "poison", poison.id, &got));
}

static void a_notification_that_was_swept_can_be_discarded_but_not_replayed(void **state)
{
	struct engine *engine = *state;
	struct slice id = give_up(engine, "a");
	size_t deleted = 0;

	assert_int_equal(engine->notifications->claims->ops->sweep(engine->notifications->claims,
				 engine->session, -SECOND_US, 1000, &deleted),
		STATUS_OK);
	assert_true(deleted >= 1);
	assert_false(resolve(engine, "notification", id, DEAD_LETTER_REPLAY));
	assert_true(resolve(engine, "notification", id, DEAD_LETTER_DISCARD));
}

/* ---- the inbox --------------------------------------------------------------------------- */

static void take_in(struct engine *engine, struct inbox_event *events, size_t count)
{
	engine_begin(engine->session);
	assert_int_equal(engine->notifications->inbox->ops->put(
				 engine->notifications->inbox, engine->session, events, count),
		STATUS_OK);
	engine_commit(engine->session);
}

static bool is_new(struct engine *engine, const char *name)
{
	struct inbox_event event = {.event_id = engine_name(engine, name)};

	take_in(engine, &event, 1);
	return event.is_new;
}

static void an_event_is_new_once(void **state)
{
	struct engine *engine = *state;
	struct inbox_event events[4] = {{.event_id = engine_name(engine, "a")},
		{.event_id = engine_name(engine, "b"), .is_new = true},
		{.event_id = engine_name(engine, "c")},
		{.event_id = engine_name(engine, "d"), .is_new = true}};

	assert_true(is_new(engine, "b"));
	assert_true(is_new(engine, "d"));
	take_in(engine, events, 4);
	assert_true(events[0].is_new);
	assert_false(events[1].is_new);
	assert_true(events[2].is_new);
	assert_false(events[3].is_new);
	assert_false(is_new(engine, "a"));
}

static void an_event_whose_transaction_is_rolled_back_is_still_new(void **state)
{
	struct engine *engine = *state;
	struct inbox_event event = {.event_id = engine_name(engine, "a")};

	engine_begin(engine->session);
	assert_int_equal(engine->notifications->inbox->ops->put(
				 engine->notifications->inbox, engine->session, &event, 1),
		STATUS_OK);
	engine->session->ops->rollback(engine->session);
	assert_true(event.is_new);
	assert_true(is_new(engine, "a"));
}

static void the_inbox_forgets_what_is_older_than_told(void **state)
{
	struct engine *engine = *state;
	size_t deleted = 77;

	assert_true(is_new(engine, "a"));
	assert_int_equal(engine->notifications->inbox->ops->sweep(engine->notifications->inbox,
				 engine->session, 3600 * SECOND_US, 1000, &deleted),
		STATUS_OK);
	assert_int_equal(deleted, 0);
	assert_false(is_new(engine, "a"));
	assert_int_equal(engine->notifications->inbox->ops->sweep(engine->notifications->inbox,
				 engine->session, -SECOND_US, 1000, &deleted),
		STATUS_OK);
	assert_true(deleted >= 1);
	assert_true(is_new(engine, "a"));
}

#define CONSUMERS 3
#define EVENTS 60
#define EVENTS_AT_ONCE 5

struct consumer {
	struct engine *engine;
	struct session *session;
	struct slice ids[EVENTS]; /* sorted */
	int made;
};

/* As the service does it: what is new becomes a notification in the same transaction. */
static bool consume(struct consumer *consumer, size_t from)
{
	struct engine *engine = consumer->engine;
	struct session *session = consumer->session;
	struct inbox_event events[EVENTS_AT_ONCE];
	enum status status = session->ops->begin(session, TRANSACTION_WAIT);
	int made = 0;

	for (size_t i = 0; i < EVENTS_AT_ONCE; i++)
		events[i].event_id = consumer->ids[from + i];
	if (status == STATUS_OK)
		status = engine->notifications->inbox->ops->put(
			engine->notifications->inbox, session, events, EVENTS_AT_ONCE);
	for (size_t i = 0; i < EVENTS_AT_ONCE && status == STATUS_OK; i++) {
		struct notification notification = {.event_id = events[i].event_id,
			.id = events[i].event_id,
			.user_id = slice_of(engine->prefix)};

		if (events[i].is_new)
			status = engine->notifications->ops->put(
				engine->notifications, session, &notification, 1);
		made += events[i].is_new;
	}
	if (status == STATUS_OK)
		status = session->ops->commit(session);
	if (status == STATUS_OK)
		consumer->made += made;
	else if (!engine_is_collision(status))
		abort();
	return status == STATUS_OK;
}

static void *consume_all(void *argument)
{
	for (size_t from = 0; from + EVENTS_AT_ONCE <= EVENTS;)
		from += consume(argument, from);
	return NULL;
}

static int by_bytes(const void *a, const void *b)
{
	return slice_compare(*(const struct slice *)a, *(const struct slice *)b);
}

/* Each with the same ids. */
static struct consumer *run_consumers(struct engine *engine, void *(*run)(void *argument))
{
	struct consumer *consumers = arena_array(&engine->arena, struct consumer, CONSUMERS);
	pthread_t threads[CONSUMERS];

	for (int i = 0; i < CONSUMERS; i++) {
		consumers[i].engine = engine;
		consumers[i].session = engine_session(engine, SESSION_WRITE);
		for (int event = 0; event < EVENTS; event++) {
			char name[8];

			snprintf(name, sizeof(name), "%d", event);
			consumers[i].ids[event] = engine_uuid(engine, name);
		}
		qsort(consumers[i].ids, EVENTS, sizeof(consumers[i].ids[0]), by_bytes);
	}
	for (int i = 0; i < CONSUMERS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, run, &consumers[i]), 0);
	for (int i = 0; i < CONSUMERS; i++)
		pthread_join(threads[i], NULL);
	return consumers;
}

static void an_event_that_comes_to_several_at_once_has_one_effect(void **state)
{
	struct engine *engine = *state;
	const struct consumer *consumers = run_consumers(engine, consume_all);

	assert_int_equal(consumers[0].made + consumers[1].made + consumers[2].made, EVENTS);
	assert_int_equal(
		engine_count(engine, "notifications WHERE user_id = '%s'", engine->prefix), EVENTS);
}

static void *give_up_many(void *argument)
{
	struct consumer *consumer = argument;
	struct session *session = consumer->session;

	for (int i = 0; i < EVENTS;) {
		struct dead_letter letter = {
			.id = consumer->ids[i], .kind = slice_of("notification")};
		enum status status = session->ops->begin(session, TRANSACTION_WAIT);

		if (status == STATUS_OK)
			status = consumer->engine->notifications->dead->ops->put(
				consumer->engine->notifications->dead, session, &letter, 1);
		if (status == STATUS_OK)
			status = session->ops->commit(session);
		if (status != STATUS_OK && !engine_is_collision(status))
			abort();
		i += status == STATUS_OK;
	}
	return NULL;
}

static void letters_of_several_at_once_are_kept_once(void **state)
{
	struct engine *engine = *state;
	int64_t before = engine_count(engine, "notification_dlq");

	run_consumers(engine, give_up_many);
	assert_int_equal(engine_count(engine, "notification_dlq") - before, EVENTS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		ENGINE_TEST(what_is_put_is_listed),
		ENGINE_TEST(the_newest_are_listed_first),
		ENGINE_TEST(a_rolled_back_put_leaves_nothing),
		ENGINE_TEST(a_list_shows_what_became_of_it),
		ENGINE_TEST(a_letter_is_found_with_all_that_is_known),
		ENGINE_TEST(a_second_letter_for_the_same_is_not_kept),
		ENGINE_TEST(letters_are_listed_by_kind_and_id_page_by_page),
		ENGINE_TEST(a_replayed_notification_is_pending_and_can_be_given_up_again),
		ENGINE_TEST(a_discarded_notification_is_let_go),
		ENGINE_TEST(poison_is_only_marked_and_does_not_come_back),
		ENGINE_TEST(a_notification_that_was_swept_can_be_discarded_but_not_replayed),
		ENGINE_TEST(an_event_is_new_once),
		ENGINE_TEST(an_event_whose_transaction_is_rolled_back_is_still_new),
		ENGINE_TEST(the_inbox_forgets_what_is_older_than_told),
		ENGINE_TEST(an_event_that_comes_to_several_at_once_has_one_effect),
		ENGINE_TEST(letters_of_several_at_once_are_kept_once),
	};

	return cmocka_run_group_tests_name("notification repository", tests, NULL, NULL);
}
