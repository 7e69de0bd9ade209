/* What ports/counter_repository.h promises, on one engine. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/random.h"
#include "engine.h"

#define START_US 1767855000123456LL
#define DAY_US (24 * 3600 * 1000000LL)
#define KEPT_US (7000 * DAY_US) /* longer than anything else that tests leave behind */
#define PAGE 10

static struct counter_message message_of(
	struct engine *engine, const char *user, const char *id, bool is_read)
{
	return (struct counter_message){
		.user_id = engine_name(engine, user),
		.message_id = slice_of(id),
		.is_read = is_read,
		.event_us = START_US,
	};
}

static enum status put_by(struct engine *engine, struct session *session,
	const struct counter_message *messages, size_t count)
{
	enum status status = session->ops->begin(session, TRANSACTION_WAIT);

	if (status == STATUS_OK)
		status = engine->counters->ops->put(engine->counters, session, messages, count);
	return status == STATUS_OK ? session->ops->commit(session) : status;
}

static void put(struct engine *engine, const char *user, const char *id, bool is_read)
{
	struct counter_message message = message_of(engine, user, id, is_read);

	assert_int_equal(put_by(engine, engine->session, &message, 1), STATUS_OK);
}

static struct counter_message find_message(struct engine *engine, const char *user, const char *id)
{
	struct counter_message message = message_of(engine, user, id, false);

	engine_begin(engine->session);
	assert_int_equal(
		engine->counters->ops->lock(engine->counters, engine->session, &message, 1),
		STATUS_OK);
	engine_commit(engine->session);
	return message;
}

static struct counter_row row_of(struct engine *engine, const char *user, int64_t delta)
{
	return (struct counter_row){.user_id = engine_name(engine, user), .delta = delta};
}

static enum status add_by(
	struct engine *engine, struct session *session, struct counter_row *rows, size_t count)
{
	enum status status = session->ops->begin(session, TRANSACTION_WAIT);

	if (status == STATUS_OK)
		status = engine->counters->ops->add(engine->counters, session, rows, count);
	return status == STATUS_OK ? session->ops->commit(session) : status;
}

static struct counter_row add(struct engine *engine, const char *user, int64_t delta)
{
	struct counter_row row = row_of(engine, user, delta);

	assert_int_equal(add_by(engine, engine->session, &row, 1), STATUS_OK);
	return row;
}

static struct counter_row find(struct engine *engine, const char *user)
{
	struct counter_row row = row_of(engine, user, 0);

	assert_int_equal(engine->counters->ops->find(
				 engine->counters, engine_session(engine, SESSION_READ), &row, 1),
		STATUS_OK);
	return row;
}

/* ---- messages ---------------------------------------------------------------------------- */

static void what_is_put_is_found_to_the_microsecond(void **state)
{
	struct engine *engine = *state;
	struct counter_message found;

	put(engine, "ann", "m1", false);
	found = find_message(engine, "ann", "m1");
	assert_true(found.exists && !found.is_read);
	assert_true(found.event_us == START_US);
	put(engine, "ann", "m2", true);
	found = find_message(engine, "ann", "m2");
	assert_true(found.exists && found.is_read);
	assert_false(find_message(engine, "ann", "m3").exists);
	assert_false(find_message(engine, "bob", "m1").exists);
}

static void put_reads_what_exists_and_makes_the_new_together(void **state)
{
	struct engine *engine = *state;
	struct counter_message messages[] = {
		message_of(engine, "ann", "m1", false),
		message_of(engine, "ann", "m2", false),
		message_of(engine, "bob", "m1", false),
	};

	put(engine, "ann", "m2", false);
	engine_begin(engine->session);
	assert_int_equal(
		engine->counters->ops->lock(engine->counters, engine->session, messages, 3),
		STATUS_OK);
	assert_true(!messages[0].exists && messages[1].exists && !messages[2].exists);
	for (size_t i = 0; i < 3; i++) {
		messages[i].is_read = true;
		messages[i].event_us = START_US + (int64_t)i + 1;
	}
	assert_int_equal(engine->counters->ops->put(engine->counters, engine->session, messages, 3),
		STATUS_OK);
	engine_commit(engine->session);
	assert_true(find_message(engine, "ann", "m1").is_read);
	assert_true(find_message(engine, "ann", "m2").is_read);
	assert_true(find_message(engine, "ann", "m2").event_us == START_US + 2);
	assert_true(find_message(engine, "bob", "m1").event_us == START_US + 3);
}

/* On SQLite nobody can come in between. */
static void put_of_what_another_session_has_made_or_read_is_rerun(void **state)
{
	struct engine *engine = *state;
	struct session *other = engine_session(engine, SESSION_WRITE);
	struct counter_message message = message_of(engine, "ann", "m1", false);

	if (engine_time_is_ours(engine))
		return;
	for (int i = 0; i < 2; i++) { /* first it is new to both, then unread to both */
		struct counter_message theirs;

		engine_begin(engine->session);
		assert_int_equal(
			engine->counters->ops->lock(engine->counters, engine->session, &message, 1),
			STATUS_OK);
		assert_true(message.exists == (i == 1));
		theirs = message;
		theirs.is_read = i == 1;
		assert_int_equal(put_by(engine, other, &theirs, 1), STATUS_OK);
		message.is_read = i == 1;
		assert_int_equal(
			engine->counters->ops->put(engine->counters, engine->session, &message, 1),
			STATUS_RERUN);
	}
	assert_true(find_message(engine, "ann", "m1").is_read);
}

static size_t sweep(struct engine *engine, size_t limit)
{
	size_t deleted = 0;

	assert_int_equal(engine->counters->ops->sweep(
				 engine->counters, engine->session, KEPT_US, limit, &deleted),
		STATUS_OK);
	return deleted;
}

static void sweep_forgets_what_was_read_long_ago_and_nothing_unread(void **state)
{
	struct engine *engine = *state;
	int64_t now_us = add(engine, "ann", 1).updated_us;
	struct counter_message messages[] = {
		message_of(engine, "ann", "m1", true),
		message_of(engine, "ann", "m2", true),
		message_of(engine, "ann", "m3", false),
		message_of(engine, "ann", "m4", true),
	};

	for (size_t i = 0; i < 4; i++)
		messages[i].event_us = now_us - KEPT_US + (i < 3 ? -DAY_US : DAY_US);
	assert_int_equal(put_by(engine, engine->session, messages, 4), STATUS_OK);
	assert_int_equal(sweep(engine, 1), 1);
	assert_int_equal(sweep(engine, 10), 1);
	assert_int_equal(sweep(engine, 10), 0);
	assert_false(find_message(engine, "ann", "m1").exists);
	assert_false(find_message(engine, "ann", "m2").exists);
	assert_true(find_message(engine, "ann", "m3").exists);
	assert_true(find_message(engine, "ann", "m4").exists);
}

static void unread_messages_are_listed_by_id_page_by_page(void **state)
{
	struct engine *engine = *state;
	struct session *session = engine_session(engine, SESSION_READ);
	struct slice ann = engine_name(engine, "ann");
	struct row_page page = {.user_id = ann, .limit = 2};
	struct counter_message found[PAGE];

	put(engine, "ann", "m1", false);
	put(engine, "ann", "m2", true);
	put(engine, "ann", "m3", false);
	put(engine, "ann", "m4", false);
	put(engine, "bob", "m5", false);
	assert_int_equal(engine->counters->ops->list_unread(
				 engine->counters, session, &engine->arena, &page, found),
		STATUS_OK);
	assert_int_equal(page.count, 2);
	assert_true(slice_is(found[0].message_id, "m1"));
	assert_true(slice_is(found[1].message_id, "m3"));
	assert_true(slice_equal(found[1].user_id, ann));
	assert_true(found[1].exists && !found[1].is_read && found[1].event_us == START_US);
	page.after[0] = found[1].message_id;
	assert_int_equal(engine->counters->ops->list_unread(
				 engine->counters, session, &engine->arena, &page, found),
		STATUS_OK);
	assert_int_equal(page.count, 1);
	assert_true(slice_is(found[0].message_id, "m4"));
}

/* ---- counters ---------------------------------------------------------------------------- */

/* True if the counter has not changed since its creation: its version is then that time. */
static bool is_first(const struct counter_row *row)
{
	return row->version == row->updated_us / 1000;
}

static void add_makes_a_row_and_every_change_has_a_version(void **state)
{
	struct engine *engine = *state;
	struct counter_row first = add(engine, "ann", 3), second, found;

	assert_true(first.exists && first.count == 3 && is_first(&first));
	second = add(engine, "ann", -2);
	assert_true(second.exists && second.count == 1 && second.version == first.version + 1);
	assert_true(second.updated_us >= first.updated_us);
	assert_true(llabs(second.updated_us - clock_wall_us(&clock_system)) < DAY_US);
	found = find(engine, "ann");
	assert_true(found.exists && found.count == 1 && found.version == second.version);
	assert_true(found.updated_us == second.updated_us);
	assert_false(find(engine, "bob").exists);
}

static void old_and_new_rows_are_added_to_together(void **state)
{
	struct engine *engine = *state;
	struct counter_row rows[] = {row_of(engine, "ann", 1), row_of(engine, "bob", -1),
		row_of(engine, "eve", 3), row_of(engine, "fay", 4)};
	struct counter_row bob = add(engine, "bob", 5), fay = add(engine, "fay", 5);

	assert_int_equal(add_by(engine, engine->session, rows, 4), STATUS_OK);
	assert_true(rows[0].count == 1 && is_first(&rows[0]));
	assert_true(rows[1].count == 4 && rows[1].version == bob.version + 1);
	assert_true(rows[2].count == 3 && is_first(&rows[2]));
	assert_true(rows[3].count == 9 && rows[3].version == fay.version + 1);
	for (size_t i = 0; i < 4; i++)
		assert_true(rows[i].exists && rows[i].updated_us > 0);
}

static void a_count_below_zero_is_refused(void **state)
{
	struct engine *engine = *state;
	struct counter_row row = row_of(engine, "ann", -1);

	assert_int_equal(add_by(engine, engine->session, &row, 1), STATUS_POISON);
	assert_false(find(engine, "ann").exists);
	add(engine, "ann", 1);
	row.delta = -2;
	assert_int_equal(add_by(engine, engine->session, &row, 1), STATUS_POISON);
	assert_true(find(engine, "ann").count == 1);
}

static void find_inside_a_transaction_sees_its_own_changes(void **state)
{
	struct engine *engine = *state;
	struct counter_row row = row_of(engine, "ann", 7);

	engine_begin(engine->session);
	assert_int_equal(
		engine->counters->ops->add(engine->counters, engine->session, &row, 1), STATUS_OK);
	row.count = 0;
	assert_int_equal(
		engine->counters->ops->find(engine->counters, engine->session, &row, 1), STATUS_OK);
	assert_true(row.exists && row.count == 7);
	engine->session->ops->rollback(engine->session);
	assert_false(find(engine, "ann").exists);
}

static void rows_are_listed_by_user_page_by_page(void **state)
{
	struct engine *engine = *state;
	struct session *session = engine_session(engine, SESSION_READ);
	struct row_page page = {.after = {engine_name(engine, "")}, .limit = 2};
	struct counter_row rows[PAGE];

	add(engine, "eve", 3);
	add(engine, "ann", 1);
	add(engine, "bob", 2);
	assert_int_equal(
		engine->counters->ops->list(engine->counters, session, &engine->arena, &page, rows),
		STATUS_OK);
	assert_int_equal(page.count, 2);
	assert_true(slice_equal(rows[0].user_id, engine_name(engine, "ann")));
	assert_true(rows[0].exists && rows[0].count == 1 && is_first(&rows[0]));
	assert_true(slice_equal(rows[1].user_id, engine_name(engine, "bob")));
	page = (struct row_page){.after = {rows[1].user_id}, .limit = 1};
	assert_int_equal(
		engine->counters->ops->list(engine->counters, session, &engine->arena, &page, rows),
		STATUS_OK);
	assert_int_equal(page.count, 1);
	assert_true(slice_equal(rows[0].user_id, engine_name(engine, "eve")));
	assert_true(rows[0].count == 3);
}

/* ---- two sessions at once ---------------------------------------------------------------- */

#define USERS 40
#define ADDITIONS 200 /* of each session */

struct adder {
	struct engine *engine;
	struct session *session;
	const struct slice *users; /* sorted, shared */
	int64_t added[USERS];
	int64_t changes[USERS];
	int64_t first[USERS]; /* the lowest version of each counter that has changes */
};

/* Some of the users, in order: a dice for each. */
static size_t choose(
	struct adder *adder, struct dice *dice, struct counter_row *rows, size_t *which)
{
	size_t count = 0;

	for (size_t i = 0; i < USERS; i++) {
		if (dice_below(dice, 2) == 0)
			continue;
		which[count] = i;
		rows[count++] = (struct counter_row){
			.user_id = adder->users[i], .delta = 1 + (int64_t)dice_below(dice, 3)};
	}
	return count;
}

static void note_version(struct adder *adder, size_t user, int64_t version)
{
	if (adder->changes[user] == 1 || version < adder->first[user])
		adder->first[user] = version;
}

/* The first version of a user's counter: the lowest that any of the adders has seen. */
static int64_t first_version(const struct adder *adders, size_t count, size_t user)
{
	int64_t first = INT64_MAX;

	for (size_t i = 0; i < count; i++) {
		if (adders[i].changes[user] > 0 && adders[i].first[user] < first)
			first = adders[i].first[user];
	}
	return first;
}

static void *add_often(void *context)
{
	struct adder *adder = context;
	struct dice dice;

	dice_init(&dice);
	for (int left = ADDITIONS; left > 0;) {
		struct counter_row rows[USERS];
		size_t which[USERS];
		size_t count = choose(adder, &dice, rows, which);
		enum status status = count == 0
					     ? STATUS_RERUN
					     : add_by(adder->engine, adder->session, rows, count);

		if (engine_is_collision(status))
			continue;
		assert_int_equal(status, STATUS_OK);
		for (size_t i = 0; i < count; i++) {
			adder->added[which[i]] += rows[i].delta;
			adder->changes[which[i]]++;
			note_version(adder, which[i], rows[i].version);
		}
		left--;
	}
	return NULL;
}

static void nothing_that_sessions_add_at_once_is_lost(void **state)
{
	struct engine *engine = *state;
	struct slice users[USERS];
	struct adder adders[3];
	pthread_t threads[3];
	struct counter_row rows[USERS];

	for (int i = 0; i < USERS; i++) {
		char name[8];

		snprintf(name, sizeof(name), "u%02d", i);
		users[i] = engine_name(engine, name);
		rows[i] = (struct counter_row){.user_id = users[i]};
	}
	for (int i = 0; i < 3; i++) {
		adders[i] = (struct adder){
			engine, engine_session(engine, SESSION_WRITE), users, {0}, {0}, {0}};
		assert_int_equal(pthread_create(&threads[i], NULL, add_often, &adders[i]), 0);
	}
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(
		engine->counters->ops->find(engine->counters, engine->session, rows, USERS),
		STATUS_OK);
	for (size_t i = 0; i < USERS; i++) {
		assert_int_equal(rows[i].count,
			adders[0].added[i] + adders[1].added[i] + adders[2].added[i]);
		assert_int_equal(rows[i].version - first_version(adders, 3, i) + 1,
			adders[0].changes[i] + adders[1].changes[i] + adders[2].changes[i]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		ENGINE_TEST(what_is_put_is_found_to_the_microsecond),
		ENGINE_TEST(put_reads_what_exists_and_makes_the_new_together),
		ENGINE_TEST(put_of_what_another_session_has_made_or_read_is_rerun),
		ENGINE_TEST(sweep_forgets_what_was_read_long_ago_and_nothing_unread),
		ENGINE_TEST(unread_messages_are_listed_by_id_page_by_page),
		ENGINE_TEST(add_makes_a_row_and_every_change_has_a_version),
		ENGINE_TEST(old_and_new_rows_are_added_to_together),
		ENGINE_TEST(a_count_below_zero_is_refused),
		ENGINE_TEST(find_inside_a_transaction_sees_its_own_changes),
		ENGINE_TEST(rows_are_listed_by_user_page_by_page),
		ENGINE_TEST(nothing_that_sessions_add_at_once_is_lost),
	};

	return cmocka_run_group_tests_name("counter repository", tests, NULL, NULL);
}
