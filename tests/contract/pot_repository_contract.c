/* What ports/pot_repository.h promises, on one engine. */
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "engine.h"

#define LONG_US (3600 * 1000000LL)

static struct pot_lock new_lock(int64_t ttl_us)
{
	struct pot_lock lock = {.ttl_us = ttl_us};

	uuid_random(lock.token);
	return lock;
}

static int32_t new_pot(struct engine *engine, const char *name)
{
	struct pot_row pot = {.name = engine_name(engine, name), .max_coins = 100};

	engine_begin(engine->session);
	assert_int_equal(
		engine->pots->ops->create(engine->pots, engine->session, &pot, 1), STATUS_OK);
	engine_commit(engine->session);
	assert_true(pot.exists);
	return pot.pot_id;
}

static struct pot_content take_one(
	struct engine *engine, struct session *session, const struct pot_lock *lock, int32_t pot_id)
{
	struct pot_content content = {.pot_id = pot_id, .exists = true, .busy = true};

	assert_int_equal(
		engine->pots->ops->take(engine->pots, session, lock, &content, 1), STATUS_OK);
	return content;
}

static struct pot_change change_of(int32_t pot_id, int32_t bronze, int32_t silver, int32_t gold)
{
	return (struct pot_change){
		.pot_id = pot_id,
		.is_changed = {bronze >= 0, silver >= 0, gold >= 0},
		.coins = {{bronze, silver, gold}},
	};
}

/* Takes, writes and releases; a negative number is a kind that is not written. */
static void fill(
	struct engine *engine, int32_t pot_id, int32_t bronze, int32_t silver, int32_t gold)
{
	struct pot_lock lock = new_lock(LONG_US);
	struct pot_change change = change_of(pot_id, bronze, silver, gold);

	engine_begin(engine->session);
	assert_true(take_one(engine, engine->session, &lock, pot_id).exists);
	assert_int_equal(engine->pots->ops->put(engine->pots, engine->session, &lock, &change, 1),
		STATUS_OK);
	engine_commit(engine->session);
}

/* A lock that stays, as of a process outside this transaction. */
static struct pot_lock lock_from_outside(struct engine *engine, int32_t pot_id, int64_t ttl_us)
{
	struct pot_lock lock = new_lock(ttl_us);

	engine_begin(engine->session);
	assert_true(take_one(engine, engine->session, &lock, pot_id).exists);
	engine_commit(engine->session);
	return lock;
}

static void assert_coins(
	struct engine *engine, int32_t pot_id, int32_t bronze, int32_t silver, int32_t gold)
{
	struct pot_content content = {.pot_id = pot_id};

	assert_int_equal(engine->pots->ops->find_coins(engine->pots, engine->session, &content, 1),
		STATUS_OK);
	assert_true(content.exists);
	assert_int_equal(content.coins.of[COIN_BRONZE], bronze);
	assert_int_equal(content.coins.of[COIN_SILVER], silver);
	assert_int_equal(content.coins.of[COIN_GOLD], gold);
}

/* ---- pots -------------------------------------------------------------------------------- */

static void a_pot_is_found_by_its_id_and_by_its_name_as_it_was_made(void **state)
{
	struct engine *engine = *state;
	int32_t pot_id = new_pot(engine, "a");
	struct pot_row by_id[2] = {{.pot_id = pot_id}, {.pot_id = 2147483647, .exists = true}};
	struct pot_row by_name[2] = {{.name = engine_name(engine, "nobody"), .exists = true},
		{.name = engine_name(engine, "a")}};
	struct pot_row *found[2] = {&by_id[0], &by_name[1]};

	assert_int_equal(
		engine->pots->ops->find(engine->pots, engine->session, &engine->arena, by_id, 2),
		STATUS_OK);
	assert_int_equal(engine->pots->ops->find_names(
				 engine->pots, engine->session, &engine->arena, by_name, 2),
		STATUS_OK);
	for (size_t i = 0; i < 2; i++) {
		assert_true(found[i]->exists);
		assert_int_equal(found[i]->pot_id, pot_id);
		assert_true(slice_equal(found[i]->name, engine_name(engine, "a")));
		assert_int_equal(found[i]->max_coins, 100);
		assert_true(llabs(found[i]->created_us - clock_wall_us(&clock_system)) < 60000000);
	}
	assert_true(by_id[0].created_us == by_name[1].created_us);
	assert_false(by_id[1].exists);
	assert_false(by_name[0].exists);
}

static void a_name_that_is_taken_makes_no_pot_and_the_others_are_made(void **state)
{
	struct engine *engine = *state;
	int32_t known = new_pot(engine, "b");
	struct pot_row pots[3] = {{.name = engine_name(engine, "a"), .max_coins = 6},
		{.name = engine_name(engine, "b"), .max_coins = 7, .exists = true},
		{.name = engine_name(engine, "c"), .max_coins = 2147483647}};
	struct pot_row again = {.name = engine_name(engine, "b")};

	engine_begin(engine->session);
	assert_int_equal(
		engine->pots->ops->create(engine->pots, engine->session, pots, 3), STATUS_OK);
	engine_commit(engine->session);
	assert_true(pots[0].exists && pots[2].exists);
	assert_false(pots[1].exists);
	assert_true(pots[0].pot_id > known && pots[2].pot_id > pots[0].pot_id);
	assert_int_equal(engine->pots->ops->find_names(
				 engine->pots, engine->session, &engine->arena, &again, 1),
		STATUS_OK);
	assert_int_equal(again.pot_id, known);
	assert_int_equal(again.max_coins, 100);
}

static void a_taken_name_draws_no_id(void **state)
{
	struct engine *engine = *state;
	int32_t first = new_pot(engine, "a");

	for (int i = 0; i < 10; i++) {
		struct pot_row pot = {.name = engine_name(engine, "a"), .max_coins = 6};

		engine_begin(engine->session);
		assert_int_equal(engine->pots->ops->create(engine->pots, engine->session, &pot, 1),
			STATUS_OK);
		engine_commit(engine->session);
		assert_false(pot.exists);
	}
	assert_int_equal(new_pot(engine, "b"), first + 1);
}

static void a_rolled_back_pot_is_not_there(void **state)
{
	struct engine *engine = *state;
	struct pot_row pot = {.name = engine_name(engine, "a"), .max_coins = 6};

	engine_begin(engine->session);
	assert_int_equal(
		engine->pots->ops->create(engine->pots, engine->session, &pot, 1), STATUS_OK);
	engine->session->ops->rollback(engine->session);
	assert_int_equal(engine->pots->ops->find_names(
				 engine->pots, engine->session, &engine->arena, &pot, 1),
		STATUS_OK);
	assert_false(pot.exists);
}

/* On PostgreSQL the pots of other tests are in the same table. */
static void pages_list_every_pot_once_in_the_order_of_ids(void **state)
{
	struct engine *engine = *state;
	struct session *reader = engine_session(engine, SESSION_READ);
	struct pot_page pages[3];
	int64_t total = 0, seen = 0;
	int32_t last = 0;

	for (int i = 0; i < 10; i++) {
		char name[2] = {(char)('a' + i), '\0'};

		new_pot(engine, name);
	}
	for (int64_t offset = 0; offset == 0 || offset < total; offset += 8) {
		pages[0] = (struct pot_page){.offset = offset, .limit = 5};
		pages[1] = (struct pot_page){.offset = offset + 5, .limit = 3};
		pages[2] = (struct pot_page){.offset = INT64_C(2147483646) * 100, .limit = 100};
		assert_int_equal(engine->pots->ops->list(
					 engine->pots, reader, &engine->arena, pages, 3, &total),
			STATUS_OK);
		assert_int_equal(pages[2].count, 0);
		for (size_t k = 0; k < 2; k++) {
			for (size_t i = 0; i < pages[k].count; i++) {
				assert_true(pages[k].pots[i].pot_id > last);
				last = pages[k].pots[i].pot_id;
				seen++;
			}
		}
	}
	assert_true(total >= 10);
	assert_true(seen == total);
}

/* ---- coins under a lock ------------------------------------------------------------------ */

static void a_new_pot_is_empty_and_free(void **state)
{
	struct engine *engine = *state;
	int32_t pot_id = new_pot(engine, "a");
	struct pot_lock lock = new_lock(LONG_US);
	struct pot_content content;

	engine_begin(engine->session);
	content = take_one(engine, engine->session, &lock, pot_id);
	engine->session->ops->rollback(engine->session);
	assert_true(content.exists);
	assert_false(content.busy);
	assert_int_equal(content.max_coins, 100);
	assert_coins(engine, pot_id, 0, 0, 0);
}

static void put_writes_the_changed_kinds_and_no_others(void **state)
{
	struct engine *engine = *state;
	int32_t pot_id = new_pot(engine, "a");
	struct pot_lock lock = new_lock(LONG_US);
	struct pot_change change = {.pot_id = pot_id, .is_changed = {false, true, false}};

	fill(engine, pot_id, 1, -1, 3);
	assert_coins(engine, pot_id, 1, 0, 3);
	change.coins = (struct coins){{77, 5, 77}};
	engine_begin(engine->session);
	assert_int_equal(take_one(engine, engine->session, &lock, pot_id).coins.of[COIN_GOLD], 3);
	assert_int_equal(engine->pots->ops->put(engine->pots, engine->session, &lock, &change, 1),
		STATUS_OK);
	engine_commit(engine->session);
	assert_coins(engine, pot_id, 1, 5, 3);
	fill(engine, pot_id, 0, -1, -1);
	assert_coins(engine, pot_id, 0, 5, 3);
}

static void many_pots_are_taken_and_put_together_and_missing_ones_told(void **state)
{
	struct engine *engine = *state;
	int32_t first = new_pot(engine, "a"), second = new_pot(engine, "b");
	struct pot_lock lock = new_lock(LONG_US);
	struct pot_content contents[3] = {
		{.pot_id = first}, {.pot_id = second}, {.pot_id = 2147483647, .exists = true}};
	struct pot_change changes[2] = {
		change_of(first, 1, 2, 3), change_of(second, -1, -1, 2147483647)};

	engine_begin(engine->session);
	assert_int_equal(engine->pots->ops->take(engine->pots, engine->session, &lock, contents, 3),
		STATUS_OK);
	assert_true(contents[0].exists && contents[1].exists);
	assert_false(contents[2].exists || contents[2].busy);
	assert_int_equal(engine->pots->ops->put(engine->pots, engine->session, &lock, changes, 2),
		STATUS_OK);
	engine_commit(engine->session);
	assert_coins(engine, first, 1, 2, 3);
	assert_coins(engine, second, 0, 0, 2147483647);
	fill(engine, first, 0, 0, 0); /* both are free again */
	fill(engine, second, 0, 0, 0);
}

static void a_rolled_back_change_leaves_coins_and_lock_as_they_were(void **state)
{
	struct engine *engine = *state;
	int32_t pot_id = new_pot(engine, "a");
	struct pot_lock lock = new_lock(LONG_US);
	struct pot_change change = change_of(pot_id, 9, 9, 9);

	fill(engine, pot_id, 1, 2, 3);
	engine_begin(engine->session);
	take_one(engine, engine->session, &lock, pot_id);
	assert_int_equal(engine->pots->ops->put(engine->pots, engine->session, &lock, &change, 1),
		STATUS_OK);
	engine->session->ops->rollback(engine->session);
	assert_coins(engine, pot_id, 1, 2, 3);
	engine_begin(engine->session);
	take_one(engine, engine->session, &lock, pot_id);
	engine->session->ops->rollback(engine->session);
	fill(engine, pot_id, 4, -1, -1);
	assert_coins(engine, pot_id, 4, 2, 3);
}

static void a_pot_that_another_has_locked_is_busy_and_the_others_are_taken(void **state)
{
	struct engine *engine = *state;
	int32_t held = new_pot(engine, "a"), free_one = new_pot(engine, "b");
	struct pot_lock lock = new_lock(LONG_US);
	struct pot_content contents[2] = {{.pot_id = held}, {.pot_id = free_one}};

	fill(engine, held, 1, 2, 3);
	lock_from_outside(engine, held, LONG_US);
	for (int mode = TRANSACTION_WAIT; mode <= TRANSACTION_SKIP; mode++) {
		assert_int_equal(
			engine->session->ops->begin(engine->session, (enum transaction_mode)mode),
			STATUS_OK);
		assert_int_equal(
			engine->pots->ops->take(engine->pots, engine->session, &lock, contents, 2),
			STATUS_OK);
		engine->session->ops->rollback(engine->session);
		assert_true(contents[0].busy);
		assert_false(contents[0].exists);
		assert_true(contents[1].exists);
		assert_false(contents[1].busy);
	}
	assert_coins(engine, held, 1, 2, 3); /* looking needs no lock */
}

/* The change statement with a token that does not hold, or holds no more, writes nothing. */
static void put_with_a_token_that_does_not_hold_changes_nothing(void **state)
{
	struct engine *engine = *state;
	int32_t held = new_pot(engine, "a"), ours = new_pot(engine, "b");
	struct pot_lock holder, lock = new_lock(LONG_US);
	struct pot_change changes[2] = {change_of(held, 9, 9, 9), change_of(ours, 9, 9, 9)};
	struct pot_change nothing = {.pot_id = held};

	fill(engine, held, 1, 2, 3);
	holder = lock_from_outside(engine, held, LONG_US);
	engine_begin(engine->session);
	take_one(engine, engine->session, &lock, ours);
	assert_int_equal(engine->pots->ops->put(engine->pots, engine->session, &lock, changes, 2),
		STATUS_RERUN);
	assert_coins(engine, held, 1, 2, 3);
	assert_coins(engine, ours, 0, 0, 0);
	engine_begin(engine->session);
	assert_int_equal(engine->pots->ops->put(engine->pots, engine->session, &lock, &nothing, 1),
		STATUS_RERUN);
	engine_begin(engine->session);
	assert_int_equal(engine->pots->ops->put(engine->pots, engine->session, &holder, changes, 1),
		STATUS_OK);
	engine_commit(engine->session);
	assert_coins(engine, held, 9, 9, 9);
	engine_begin(engine->session);
	assert_int_equal(
		engine->pots->ops->put(engine->pots, engine->session, &holder, &nothing, 1),
		STATUS_RERUN);
}

static void an_expired_lock_is_taken_over_and_its_token_is_worth_nothing(void **state)
{
	struct engine *engine = *state;
	int32_t pot_id = new_pot(engine, "a");
	struct pot_lock late = lock_from_outside(engine, pot_id, -1);
	struct pot_lock next = lock_from_outside(engine, pot_id, LONG_US);
	struct pot_change change = change_of(pot_id, 9, 9, 9);

	engine_begin(engine->session);
	assert_int_equal(engine->pots->ops->put(engine->pots, engine->session, &late, &change, 1),
		STATUS_RERUN);
	assert_coins(engine, pot_id, 0, 0, 0);
	engine_begin(engine->session);
	assert_int_equal(engine->pots->ops->put(engine->pots, engine->session, &next, &change, 1),
		STATUS_OK);
	engine_commit(engine->session);
	assert_coins(engine, pot_id, 9, 9, 9);
}

static void a_lock_ends_when_its_time_is_over_and_not_before(void **state)
{
	struct engine *engine = *state;
	int32_t pot_id = new_pot(engine, "a");
	struct pot_lock lock = new_lock(LONG_US);
	struct pot_content content;

	lock_from_outside(engine, pot_id, LONG_US);
	engine_begin(engine->session);
	content = take_one(engine, engine->session, &lock, pot_id);
	engine->session->ops->rollback(engine->session);
	assert_true(content.busy);
	engine_shift_us(engine, LONG_US);
	engine_begin(engine->session);
	content = take_one(engine, engine->session, &lock, pot_id);
	engine->session->ops->rollback(engine->session);
	assert_true(content.exists);
}

/* ---- two sessions ------------------------------------------------------------------------ */

/* SQLite has no two open transactions that write. */
static void a_row_in_the_hands_of_a_transaction_is_waited_for_or_passed_over(void **state)
{
	struct engine *engine = *state;
	int32_t held = new_pot(engine, "a"), free_one = new_pot(engine, "b");
	struct pot_lock lock = new_lock(LONG_US);
	struct pot_content contents[2] = {{.pot_id = held}, {.pot_id = free_one}};
	struct session *other;

	if (engine_time_is_ours(engine))
		return;
	other = engine_session(engine, SESSION_WRITE);
	engine_begin(engine->session);
	take_one(engine, engine->session, &lock, held);
	assert_int_equal(other->ops->begin(other, TRANSACTION_WAIT), STATUS_OK);
	assert_int_equal(
		engine->pots->ops->take(engine->pots, other, &lock, contents, 2), STATUS_LOCK_BUSY);
	assert_int_equal(other->ops->begin(other, TRANSACTION_SKIP), STATUS_OK);
	assert_int_equal(
		engine->pots->ops->take(engine->pots, other, &lock, contents, 2), STATUS_OK);
	assert_true(contents[0].busy && contents[1].exists);
	other->ops->rollback(other);
	engine->session->ops->rollback(engine->session);
}

#define ROUNDS 200

struct adder {
	struct engine *engine;
	struct session *session;
	int32_t pot_ids[2];
};

/* Reads what is there and puts one more, which is right only under the lock. */
static bool add_one(struct adder *adder)
{
	const struct pot_repository *pots = adder->engine->pots;
	struct session *session = adder->session;
	struct pot_lock lock = new_lock(LONG_US);
	struct pot_content contents[2] = {
		{.pot_id = adder->pot_ids[0]}, {.pot_id = adder->pot_ids[1]}};
	struct pot_change changes[2];
	enum status status = session->ops->begin(session, TRANSACTION_WAIT);

	if (status == STATUS_OK)
		status = pots->ops->take(pots, session, &lock, contents, 2);
	if (status != STATUS_OK)
		return false;
	for (size_t i = 0; i < 2; i++)
		changes[i] = change_of(contents[i].pot_id, contents[i].coins.of[0] + 1, -1, -1);
	status = pots->ops->put(pots, session, &lock, changes, 2);
	if (status == STATUS_OK)
		status = session->ops->commit(session);
	return status == STATUS_OK;
}

static void *add_many(void *argument)
{
	for (int done = 0; done < ROUNDS;)
		done += add_one(argument);
	return NULL;
}

static void two_sessions_that_read_and_write_under_the_lock_lose_nothing(void **state)
{
	struct engine *engine = *state;
	int32_t first = new_pot(engine, "a"), second = new_pot(engine, "b");
	struct adder adders[2];
	pthread_t threads[2];

	for (int i = 0; i < 2; i++) {
		adders[i] = (struct adder){
			engine, engine_session(engine, SESSION_WRITE), {first, second}};
		assert_int_equal(pthread_create(&threads[i], NULL, add_many, &adders[i]), 0);
	}
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	assert_coins(engine, first, 2 * ROUNDS, 0, 0);
	assert_coins(engine, second, 2 * ROUNDS, 0, 0);
}

static void a_look_does_not_wait_for_a_change(void **state)
{
	struct engine *engine = *state;
	int32_t pot_id = new_pot(engine, "a");
	struct pot_lock lock = new_lock(LONG_US);
	struct pot_change change = change_of(pot_id, 9, 9, 9);
	struct pot_content content = {.pot_id = pot_id};
	struct session *reader = engine_session(engine, SESSION_READ);

	fill(engine, pot_id, 1, 2, 3);
	engine_begin(engine->session);
	take_one(engine, engine->session, &lock, pot_id);
	assert_int_equal(engine->pots->ops->put(engine->pots, engine->session, &lock, &change, 1),
		STATUS_OK);
	assert_int_equal(
		engine->pots->ops->find_coins(engine->pots, reader, &content, 1), STATUS_OK);
	engine_commit(engine->session);
	assert_int_equal(content.coins.of[COIN_GOLD], 3);
	assert_int_equal(
		engine->pots->ops->find_coins(engine->pots, reader, &content, 1), STATUS_OK);
	assert_int_equal(content.coins.of[COIN_GOLD], 9);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		ENGINE_TEST(a_pot_is_found_by_its_id_and_by_its_name_as_it_was_made),
		ENGINE_TEST(a_name_that_is_taken_makes_no_pot_and_the_others_are_made),
		ENGINE_TEST(a_taken_name_draws_no_id),
		ENGINE_TEST(a_rolled_back_pot_is_not_there),
		ENGINE_TEST(pages_list_every_pot_once_in_the_order_of_ids),
		ENGINE_TEST(a_new_pot_is_empty_and_free),
		ENGINE_TEST(put_writes_the_changed_kinds_and_no_others),
		ENGINE_TEST(many_pots_are_taken_and_put_together_and_missing_ones_told),
		ENGINE_TEST(a_rolled_back_change_leaves_coins_and_lock_as_they_were),
		ENGINE_TEST(a_pot_that_another_has_locked_is_busy_and_the_others_are_taken),
		ENGINE_TEST(put_with_a_token_that_does_not_hold_changes_nothing),
		ENGINE_TEST(an_expired_lock_is_taken_over_and_its_token_is_worth_nothing),
		ENGINE_TEST(a_lock_ends_when_its_time_is_over_and_not_before),
		ENGINE_TEST(a_row_in_the_hands_of_a_transaction_is_waited_for_or_passed_over),
		ENGINE_TEST(two_sessions_that_read_and_write_under_the_lock_lose_nothing),
		ENGINE_TEST(a_look_does_not_wait_for_a_change),
	};

	return cmocka_run_group_tests_name("pot repository", tests, NULL, NULL);
}
