/* What ports/limit_repository.h and ports/sent_repository.h promise, on one engine. */
#include <pthread.h>

#include "engine.h"

#define START_US 1767855000123456LL

static struct limit_row row_of(struct slice user_id)
{
	return (struct limit_row){
		.user_id = user_id,
		.rate_limit = 2147483647,
		.time_window = 525600,
		.current_count = 3,
		.reserved_count = 4,
		.last_refresh_us = START_US,
	};
}

static struct slice new_limit(struct engine *engine, const char *name)
{
	struct limit_row row = row_of(engine_name(engine, name));

	engine_begin(engine->session);
	assert_int_equal(
		engine->limits->ops->put(engine->limits, engine->session, &row, 1), STATUS_OK);
	engine_commit(engine->session);
	return row.user_id;
}

static struct limit_row find_one(struct engine *engine, struct slice user_id)
{
	struct limit_row row = {.user_id = user_id, .exists = true, .busy = true};
	int64_t now_us = 0;

	assert_int_equal(
		engine->limits->ops->find(engine->limits, engine->session, &row, 1, &now_us),
		STATUS_OK);
	assert_true(now_us > START_US);
	assert_false(row.busy);
	return row;
}

static void what_is_put_is_found_to_the_microsecond(void **state)
{
	struct engine *engine = *state;
	struct limit_row row = find_one(engine, new_limit(engine, "a"));

	assert_true(row.exists);
	assert_int_equal(row.rate_limit, 2147483647);
	assert_int_equal(row.time_window, 525600);
	assert_int_equal(row.current_count, 3);
	assert_int_equal(row.reserved_count, 4);
	assert_true(row.last_refresh_us == START_US);
	assert_false(find_one(engine, engine_name(engine, "nobody")).exists);
}

static void lock_fills_what_exists_and_tells_the_time(void **state)
{
	struct engine *engine = *state;
	struct slice known = new_limit(engine, "b");
	struct limit_row rows[3] = {{.user_id = engine_name(engine, "a"), .exists = true},
		{.user_id = known}, {.user_id = engine_name(engine, "c")}};
	int64_t now_us = 0;

	engine_begin(engine->session);
	assert_int_equal(
		engine->limits->ops->lock(engine->limits, engine->session, rows, 3, &now_us),
		STATUS_OK);
	engine->session->ops->rollback(engine->session);
	assert_false(rows[0].exists);
	assert_true(rows[1].exists && rows[1].reserved_count == 4);
	assert_false(rows[2].exists);
	assert_true(now_us > START_US);
}

static void put_replaces_rows_and_makes_new_ones_together(void **state)
{
	struct engine *engine = *state;
	struct slice known = new_limit(engine, "b");
	struct limit_row rows[2] = {row_of(engine_name(engine, "a")), row_of(known)};
	int64_t now_us;

	rows[1].exists = true;
	rows[1].rate_limit = 7;
	rows[1].reserved_count = 0;
	engine_begin(engine->session);
	assert_int_equal(
		engine->limits->ops->lock(engine->limits, engine->session, &rows[1], 1, &now_us),
		STATUS_OK);
	rows[1].rate_limit = 7;
	rows[1].reserved_count = 0;
	assert_int_equal(
		engine->limits->ops->put(engine->limits, engine->session, rows, 2), STATUS_OK);
	engine_commit(engine->session);
	assert_int_equal(find_one(engine, known).rate_limit, 7);
	assert_int_equal(find_one(engine, known).reserved_count, 0);
	assert_true(find_one(engine, rows[0].user_id).exists);
}

static void remove_deletes_the_rows_that_it_names(void **state)
{
	struct engine *engine = *state;
	struct slice users[3] = {
		new_limit(engine, "a"), new_limit(engine, "b"), new_limit(engine, "c")};
	struct slice named[2] = {users[0], users[2]};

	engine_begin(engine->session);
	assert_int_equal(
		engine->limits->ops->remove(engine->limits, engine->session, named, 2), STATUS_OK);
	engine_commit(engine->session);
	assert_false(find_one(engine, users[0]).exists);
	assert_true(find_one(engine, users[1]).exists);
	assert_false(find_one(engine, users[2]).exists);
}

static void a_rolled_back_put_leaves_nothing(void **state)
{
	struct engine *engine = *state;
	struct limit_row row = row_of(engine_name(engine, "a"));

	engine_begin(engine->session);
	assert_int_equal(
		engine->limits->ops->put(engine->limits, engine->session, &row, 1), STATUS_OK);
	engine->session->ops->rollback(engine->session);
	assert_false(find_one(engine, row.user_id).exists);
}

static void settle_counts_in_the_window_it_names_and_in_no_other(void **state)
{
	struct engine *engine = *state;
	struct slice user_id = new_limit(engine, "a");
	struct limit_settlement settlements[3] = {
		{.user_id = user_id, .window_start_us = START_US - 1, .confirmed = 50},
		{.user_id = user_id, .window_start_us = START_US, .confirmed = 1, .given_back = 2},
		{.user_id = engine_name(engine, "nobody"), .window_start_us = START_US},
	};

	engine_begin(engine->session);
	assert_int_equal(
		engine->limits->ops->settle(engine->limits, engine->session, settlements, 3),
		STATUS_OK);
	engine_commit(engine->session);
	assert_int_equal(find_one(engine, user_id).current_count, 4);
	assert_int_equal(find_one(engine, user_id).reserved_count, 2);
}

/* ---- two sessions ------------------------------------------------------------------------ */

#define ROUNDS 200

struct reserver {
	struct engine *engine;
	struct session *session;
	struct slice user_id;
	int granted;
};

/* Takes a slot while there is one, as the gateway does. */
static bool reserve_one(struct reserver *reserver)
{
	const struct limit_repository *limits = reserver->engine->limits;
	struct limit_row row = {.user_id = reserver->user_id};
	int64_t now_us;
	enum status status = reserver->session->ops->begin(reserver->session, TRANSACTION_WAIT);
	bool free_slot;

	if (status == STATUS_OK)
		status = limits->ops->lock(limits, reserver->session, &row, 1, &now_us);
	if (status != STATUS_OK)
		return false;
	free_slot = row.reserved_count < ROUNDS;
	row.reserved_count += free_slot;
	status = limits->ops->put(limits, reserver->session, &row, 1);
	if (status == STATUS_OK)
		status = reserver->session->ops->commit(reserver->session);
	reserver->granted += status == STATUS_OK && free_slot;
	return status == STATUS_OK;
}

static void *reserve_many(void *argument)
{
	for (int done = 0; done < ROUNDS;)
		done += reserve_one(argument);
	return NULL;
}

static void two_sessions_never_grant_one_slot_twice(void **state)
{
	struct engine *engine = *state;
	struct slice user_id = new_limit(engine, "a");
	struct reserver reservers[2];
	pthread_t threads[2];

	for (int i = 0; i < 2; i++) {
		reservers[i] = (struct reserver){
			.engine = engine,
			.session = engine_session(engine, SESSION_WRITE),
			.user_id = user_id,
		};
		assert_int_equal(pthread_create(&threads[i], NULL, reserve_many, &reservers[i]), 0);
	}
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(reservers[0].granted + reservers[1].granted, ROUNDS - 4);
	assert_int_equal(find_one(engine, user_id).reserved_count, ROUNDS);
}

/* ---- sent messages ----------------------------------------------------------------------- */

/* As an earlier version has recorded it. */
static void put_sent(struct engine *engine, struct slice id)
{
	engine_execute(engine, "INSERT INTO sent_messages (message_id, sent_at) VALUES ('%s', %s)",
		id.data, engine_is_a_server() ? "quipu_now()" : "strftime('%s', 'now') * 1000000");
}

static bool is_known(struct engine *engine, struct slice id)
{
	struct sent_message message = {.message_id = id};

	engine_begin(engine->session);
	assert_int_equal(
		engine->sent->ops->find(engine->sent, engine->session, &message, 1), STATUS_OK);
	engine_commit(engine->session);
	return message.known;
}

static void find_tells_known_from_unknown_in_one_call(void **state)
{
	struct engine *engine = *state;
	struct sent_message messages[3] = {{.message_id = engine_name(engine, "a"), .known = true},
		{.message_id = engine_name(engine, "b")},
		{.message_id = engine_name(engine, "c"), .known = true}};

	put_sent(engine, messages[1].message_id);
	engine_begin(engine->session);
	assert_int_equal(
		engine->sent->ops->find(engine->sent, engine->session, messages, 3), STATUS_OK);
	engine_commit(engine->session);
	assert_false(messages[0].known);
	assert_true(messages[1].known);
	assert_false(messages[2].known);
}

static void sweep_forgets_what_is_older_than_told(void **state)
{
	struct engine *engine = *state;
	struct sent_message message = {.message_id = engine_name(engine, "a")};
	size_t deleted = 77;

	put_sent(engine, message.message_id);
	assert_int_equal(engine->sent->ops->sweep(
				 engine->sent, engine->session, 3600 * 1000000LL, 1000, &deleted),
		STATUS_OK);
	assert_int_equal(deleted, 0);
	assert_true(is_known(engine, message.message_id));
	assert_int_equal(
		engine->sent->ops->sweep(engine->sent, engine->session, -1000000, 1000, &deleted),
		STATUS_OK);
	assert_true(deleted >= 1);
	assert_false(is_known(engine, message.message_id));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		ENGINE_TEST(what_is_put_is_found_to_the_microsecond),
		ENGINE_TEST(lock_fills_what_exists_and_tells_the_time),
		ENGINE_TEST(put_replaces_rows_and_makes_new_ones_together),
		ENGINE_TEST(remove_deletes_the_rows_that_it_names),
		ENGINE_TEST(a_rolled_back_put_leaves_nothing),
		ENGINE_TEST(settle_counts_in_the_window_it_names_and_in_no_other),
		ENGINE_TEST(two_sessions_never_grant_one_slot_twice),
		ENGINE_TEST(find_tells_known_from_unknown_in_one_call),
		ENGINE_TEST(sweep_forgets_what_is_older_than_told),
	};

	return cmocka_run_group_tests_name("gateway repositories", tests, NULL, NULL);
}
