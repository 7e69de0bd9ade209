/* The pot service on a faulty store, driven step by step on one thread. */
#include "check.h"

#include <coin.pb-c.h>
#include <stdlib.h>

#include "faulty_store.h"
#include "flow/committer.h"
#include "manual_clock.h"
#include "services/pots/pot_batch.h"

#define RETRIES 3
#define WAIT_US 20000

struct fixture {
	struct faulty_store *store;
	struct pots pots;
	struct lane *lane;
	struct loop *loop;
	struct committer *committer;
	struct manual_clock clock;
};

/* One request; the test owns it. */
struct ask {
	struct pot_command command; /* first, so that the committer's pointer to it is also ours */
	struct arena arena;
	bool answered;
};

static void open_fixture(struct fixture *fixture)
{
	struct lane_service service;
	struct committer_config config = {
		.batch_max = 64, .held_max = 1000, .held_bytes_max = SIZE_MAX};

	memset(fixture, 0, sizeof(*fixture));
	fixture->store = faulty_store_new();
	fixture->pots = (struct pots){.repository = &faulty_pot_repository,
		.lock_ttl_us = 10000000,
		.lock_wait_us = WAIT_US,
		.lock_retries = RETRIES};
	fixture->lane = lane_new("test", 100000, 1 << 30);
	fixture->loop = loop_new(NULL, NULL);
	manual_clock_init(&fixture->clock);
	service = pots_lane_service(&fixture->pots);
	config.lane = fixture->lane;
	config.session = faulty_store_open_session(fixture->store, SESSION_WRITE);
	config.idempotency_ttl_us = 24 * 3600 * 1000000LL;
	config.clock = &fixture->clock.base;
	config.waiting = service.waiting;
	config.decide = service.decide;
	config.service = service.context;
	fixture->committer = committer_new(&config);
}

static void close_fixture(struct fixture *fixture)
{
	lane_close(fixture->lane);
	committer_free(fixture->committer);
	lane_free(fixture->lane);
	loop_stop(fixture->loop);
	uv_run(loop_uv(fixture->loop), UV_RUN_DEFAULT);
	loop_free(fixture->loop);
	faulty_store_free(fixture->store);
}

static void on_answered(struct loop_task *task)
{
	((struct ask *)task)->answered = true;
}

static struct ask *new_ask(struct fixture *fixture, enum pot_verb verb, const char *key)
{
	struct ask *made = qp_calloc(1, sizeof(*made));
	struct command *command = &made->command.write.command;

	arena_init(&made->arena, 512);
	made->command.verb = verb;
	made->command.encoding = PROTO_BINARY;
	command->type = &pot_command_type;
	command->task.run = on_answered;
	command->loop = fixture->loop;
	command->arena = &made->arena;
	command->bytes = 100;
	command->deadline_ns = manual_clock_now_ns(&fixture->clock) + 5 * NS_PER_S;
	if (key) {
		struct idempotency_record record = {.scope = SLICE("POST /"), .key = slice_of(key)};

		write_set_idempotency(&made->command.write, &made->arena, &record);
	}
	return made;
}

static struct ask *send_ask(struct fixture *fixture, struct ask *ask)
{
	enum status status = lane_submit(fixture->lane, &ask->command.write.command);

	assert_int_equal(status, STATUS_OK);
	return ask;
}

static struct ask *send_coins(struct fixture *fixture, enum pot_verb verb, int32_t pot_id,
	struct asked_coins coins, const char *key)
{
	struct ask *ask = new_ask(fixture, verb, key);

	ask->command.pot_id = pot_id;
	ask->command.coins = coins;
	ask->command.write.command.key = pot_id_key(&ask->arena, pot_id);
	return send_ask(fixture, ask);
}

static struct ask *send_draw(
	struct fixture *fixture, int32_t pot_id, int64_t count, const char *key)
{
	struct ask *ask = new_ask(fixture, POT_REMOVE_ANY, key);

	ask->command.pot_id = pot_id;
	ask->command.count = count;
	ask->command.write.command.key = pot_id_key(&ask->arena, pot_id);
	return send_ask(fixture, ask);
}

static struct ask *send_create(struct fixture *fixture, const char *name, int32_t max_coins)
{
	struct ask *ask = new_ask(fixture, POT_CREATE, NULL);

	ask->command.encoding = PROTO_JSON;
	ask->command.name = slice_of(name);
	ask->command.max_coins = max_coins;
	ask->command.write.command.key = pot_name_key(&ask->arena, ask->command.name);
	return send_ask(fixture, ask);
}

static void run(struct fixture *fixture)
{
	committer_step(fixture->committer);
	uv_run(loop_uv(fixture->loop), UV_RUN_NOWAIT);
}

/* Lets enough time pass for everything that waits to become due. */
static void run_later(struct fixture *fixture)
{
	manual_clock_pass(&fixture->clock, 2 * WAIT_US * NS_PER_US);
	run(fixture);
}

static int status_of(const struct ask *ask)
{
	return ask->answered ? ask->command.write.command.answer.http_status : 0;
}

static struct slice body_of(const struct ask *ask)
{
	return ask->command.write.command.answer.body;
}

static struct coins coins_of(struct ask *ask)
{
	struct proto_error error;
	const Pyggpot__Coin__CoinsListResponse *list;
	struct coins coins = {0};

	assert_int_equal(status_of(ask), 200);
	list = (const void *)proto_read(&pyggpot__coin__coins_list_response__descriptor,
		ask->command.encoding, body_of(ask), &ask->arena, &error);
	assert_non_null(list);
	for (size_t i = 0; i < list->n_coins; i++) {
		assert_true(list->coins[i]->count > 0);
		assert_true(i == 0 || list->coins[i - 1]->kind < list->coins[i]->kind);
		coins.of[coin_kind_of((int32_t)list->coins[i]->kind)] = list->coins[i]->count;
	}
	return coins;
}

static void free_ask(struct ask *ask)
{
	arena_release(&ask->arena);
	free(ask);
}

static void assert_pot(
	struct fixture *fixture, int32_t pot_id, int32_t bronze, int32_t silver, int32_t gold)
{
	struct faulty_pot pot = faulty_store_get_pot(fixture->store, pot_id);

	assert_int_equal(pot.coins.of[COIN_BRONZE], bronze);
	assert_int_equal(pot.coins.of[COIN_SILVER], silver);
	assert_int_equal(pot.coins.of[COIN_GOLD], gold);
	assert_false(pot.is_locked); /* nothing stays locked */
}

/* ---- batches ----------------------------------------------------------------------------- */

static void test_requests_for_one_pot_share_one_lock_and_one_transaction(void **unused)
{
	struct ask *asks[30];
	struct fixture fixture;
	int32_t first, second;

	(void)unused;
	open_fixture(&fixture);
	first = faulty_store_add_pot(fixture.store, "first", 1000);
	second = faulty_store_add_pot(fixture.store, "second", 1000);
	for (int i = 0; i < 30; i++)
		asks[i] = send_coins(&fixture, POT_ADD, i % 3 ? first : second,
			(struct asked_coins){{1, 0, 2}}, NULL);
	run(&fixture);
	assert_int_equal(fixture.store->commits, 1);
	assert_int_equal(fixture.store->takes, 2);
	assert_int_equal(fixture.store->kinds_written, 4);
	assert_pot(&fixture, first, 20, 0, 40);
	assert_pot(&fixture, second, 10, 0, 20);
	for (int i = 0; i < 30; i++) {
		struct coins added = coins_of(asks[i]);

		assert_int_equal(added.of[COIN_BRONZE], 1);
		assert_int_equal(added.of[COIN_SILVER], 0);
		assert_int_equal(added.of[COIN_GOLD], 2);
		free_ask(asks[i]);
	}
	close_fixture(&fixture);
}

static void test_each_command_sees_what_the_ones_before_it_left(void **unused)
{
	struct ask *asks[7];
	struct fixture fixture;
	int32_t pot_id;

	(void)unused;
	open_fixture(&fixture);
	pot_id = faulty_store_add_pot(fixture.store, "pot", 10);
	asks[0] = send_coins(&fixture, POT_ADD, pot_id, (struct asked_coins){{4, 4, 0}}, NULL);
	asks[1] = send_coins(&fixture, POT_ADD, pot_id, (struct asked_coins){{3, 0, 0}}, NULL);
	asks[2] = send_coins(&fixture, POT_REMOVE, pot_id, (struct asked_coins){{9, 0, 1}}, NULL);
	asks[3] = send_coins(&fixture, POT_ADD, pot_id, (struct asked_coins){{0, 0, 6}}, NULL);
	asks[4] = send_draw(&fixture, pot_id, 7, NULL);
	asks[5] = send_draw(&fixture, pot_id, 7, NULL);
	asks[6] = send_draw(&fixture, pot_id, 7, NULL);
	run(&fixture);
	assert_int_equal(status_of(asks[1]), 412);
	assert_contains(body_of(asks[1]), "\"failed_precondition\"");
	assert_int_equal(coins_of(asks[2]).of[COIN_BRONZE], 4);
	assert_int_equal(coins_of(asks[2]).of[COIN_GOLD], 0);
	assert_int_equal(coins_of(asks[3]).of[COIN_GOLD], 6);
	{
		struct coins drawn = coins_of(asks[4]), rest = coins_of(asks[5]);

		assert_int_equal(coins_total(&drawn), 7);
		assert_int_equal(coins_total(&rest), 3);
		assert_int_equal(drawn.of[COIN_SILVER] + rest.of[COIN_SILVER], 4);
		assert_int_equal(drawn.of[COIN_GOLD] + rest.of[COIN_GOLD], 6);
	}
	assert_slice(body_of(asks[6]), ""); /* an empty list */
	assert_int_equal(status_of(asks[6]), 200);
	assert_pot(&fixture, pot_id, 0, 0, 0);
	assert_int_equal(fixture.store->kinds_written, 0); /* the contents are the same as before */
	for (int i = 0; i < 7; i++)
		free_ask(asks[i]);
	close_fixture(&fixture);
}

static void test_a_pot_that_is_not_there_is_not_found_and_the_rest_goes_on(void **unused)
{
	struct ask *missing, *there;
	struct fixture fixture;
	int32_t pot_id;

	(void)unused;
	open_fixture(&fixture);
	pot_id = faulty_store_add_pot(fixture.store, "pot", 10);
	missing = send_draw(&fixture, 77, 1, "key");
	there = send_coins(&fixture, POT_ADD, pot_id, (struct asked_coins){{1, 1, 1}}, NULL);
	run(&fixture);
	assert_int_equal(status_of(missing), 404);
	assert_contains(body_of(missing), "\"not_found\"");
	assert_contains(body_of(missing), "no pot has the id 77");
	assert_int_equal(status_of(there), 200);
	free_ask(missing);
	free_ask(there);
	missing = send_draw(&fixture, 77, 1, "key");
	run(&fixture);
	assert_true(missing->command.write.command.answer.replayed);
	assert_contains(body_of(missing), "\"not_found\"");
	free_ask(missing);
	close_fixture(&fixture);
}

static void test_of_many_who_want_one_name_the_first_gets_it(void **unused)
{
	static const char *const names[] = {"PPP", "QQQ", "PPP", "old", "PPP"};
	static const int expected[] = {200, 200, 409, 409, 409};
	struct ask *asks[COUNT_OF(names)];
	struct fixture fixture;

	(void)unused;
	open_fixture(&fixture);
	faulty_store_add_pot(fixture.store, "old", 10);
	for (size_t i = 0; i < COUNT_OF(names); i++)
		asks[i] = send_create(&fixture, names[i], 10 + (int32_t)i);
	run(&fixture);
	assert_int_equal(fixture.store->commits, 1);
	for (size_t i = 0; i < COUNT_OF(names); i++)
		assert_int_equal(status_of(asks[i]), expected[i]);
	assert_slice(body_of(asks[0]), "{\"pot_id\":2,\"pot_name\":\"PPP\",\"max_coins\":10,"
				       "\"create_time\":\"1970-01-01T00:00:01Z\"}");
	assert_contains(body_of(asks[2]), "\"already_exists\"");
	for (size_t i = 0; i < COUNT_OF(names); i++)
		free_ask(asks[i]);
	close_fixture(&fixture);
}

/* ---- keys -------------------------------------------------------------------------------- */

static void fill(struct fixture *fixture, int32_t pot_id, int64_t each)
{
	struct ask *ask = send_coins(
		fixture, POT_ADD, pot_id, (struct asked_coins){{each, each, each}}, NULL);

	run(fixture);
	assert_int_equal(status_of(ask), 200);
	free_ask(ask);
}

static void test_a_repeated_draw_with_its_key_gives_the_same_coins(void **unused)
{
	struct ask *first, *second, *together;
	struct fixture fixture;
	int32_t pot_id;

	(void)unused;
	open_fixture(&fixture);
	pot_id = faulty_store_add_pot(fixture.store, "pot", 1000000);
	fill(&fixture, pot_id, 1000);
	first = send_draw(&fixture, pot_id, 500, "key");
	together = send_draw(&fixture, pot_id, 500, "key");
	run(&fixture);
	second = send_draw(&fixture, pot_id, 500, "key");
	run(&fixture);
	assert_true(slice_equal(body_of(first), body_of(second)));
	assert_true(slice_equal(body_of(first), body_of(together)));
	assert_false(first->command.write.command.answer.replayed);
	assert_true(second->command.write.command.answer.replayed);
	assert_slice(second->command.write.command.answer.content_type, "application/protobuf");
	{
		struct coins left = faulty_store_get_pot(fixture.store, pot_id).coins;

		assert_int_equal(coins_total(&left), 2500);
	}
	free_ask(first);
	free_ask(second);
	free_ask(together);
	close_fixture(&fixture);
}

/* Runs a draw, an addition, a new pot and a command with a key. The fault happens at the nth call
 * of the store. */
static bool run_with_fault(int n, enum status fault, bool survives)
{
	struct ask *asks[3];
	struct fixture fixture;
	struct coins left;
	bool struck;
	int32_t pot_id;

	open_fixture(&fixture);
	pot_id = faulty_store_add_pot(fixture.store, "pot", 1000);
	fill(&fixture, pot_id, 100);
	asks[0] = send_draw(&fixture, pot_id, 150, "key");
	asks[1] = send_coins(&fixture, POT_ADD, pot_id, (struct asked_coins){{0, 7, 0}}, NULL);
	asks[2] = send_create(&fixture, "new", 10);
	fixture.store->survives = survives;
	faulty_store_fail_at(fixture.store, n, fault);
	run(&fixture);
	struck = fixture.store->has_failed;
	left = faulty_store_get_pot(fixture.store, pot_id).coins;
	assert_int_equal(status_of(asks[0]), status_of(asks[1]));
	assert_int_equal(status_of(asks[0]), status_of(asks[2]));
	if (status_of(asks[0]) == 200) {
		assert_int_equal(coins_total(&left), 157);
		assert_true(faulty_store_get_pot(fixture.store, 2).exists);
	} else if (fault != STATUS_OUTCOME_UNKNOWN) {
		assert_int_equal(coins_total(&left), 300);
		assert_false(faulty_store_get_pot(fixture.store, 2).exists);
	}
	if (fault == STATUS_RERUN || fault == STATUS_LOCK_BUSY || !struck)
		assert_int_equal(status_of(asks[0]), 200);
	assert_false(faulty_store_get_pot(fixture.store, pot_id).is_locked);
	for (int i = 0; i < 3; i++)
		free_ask(asks[i]);
	faulty_store_fail_at(fixture.store, 0, STATUS_OK);
	asks[0] = send_draw(&fixture, pot_id, 150, "key"); /* finds out what the outcome was */
	run(&fixture);
	assert_int_equal(status_of(asks[0]), 200);
	left = faulty_store_get_pot(fixture.store, pot_id).coins;
	assert_true(coins_total(&left) == 157 || coins_total(&left) == 150);
	free_ask(asks[0]);
	close_fixture(&fixture);
	return struck;
}

static void test_a_fault_at_every_call_leaves_all_or_nothing(void **unused)
{
	static const enum status faults[] = {
		STATUS_RERUN, STATUS_LOCK_BUSY, STATUS_STORE_UNAVAILABLE, STATUS_OUTCOME_UNKNOWN};

	(void)unused;
	for (size_t i = 0; i < COUNT_OF(faults); i++) {
		for (int survives = 0; survives < 2; survives++) {
			int n = 1;

			while (run_with_fault(n, faults[i], survives))
				n++;
			assert_int_equal(
				n - 1, 7); /* begin, find, take, put, create, put, commit */
		}
	}
}

/* ---- locks of others --------------------------------------------------------------------- */

#define FOREIGN "11111111-1111-4111-8111-111111111111"

static void test_a_locked_pot_is_waited_for_and_then_given_up_and_holds_up_nobody(void **unused)
{
	struct ask *held, *other, *later;
	struct fixture fixture;
	int32_t locked, open;

	(void)unused;
	open_fixture(&fixture);
	locked = faulty_store_add_pot(fixture.store, "locked", 1000);
	open = faulty_store_add_pot(fixture.store, "open", 1000);
	faulty_store_lock_pot(fixture.store, locked, FOREIGN, INT64_MAX);
	held = send_coins(&fixture, POT_ADD, locked, (struct asked_coins){{1, 0, 0}}, "key");
	other = send_coins(&fixture, POT_ADD, open, (struct asked_coins){{1, 0, 0}}, NULL);
	run(&fixture);
	assert_int_equal(status_of(other), 200);
	free_ask(other);
	for (int i = 0; i < RETRIES; i++) {
		assert_int_equal(status_of(held), 0);
		other = send_coins(&fixture, POT_ADD, open, (struct asked_coins){{1, 0, 0}}, NULL);
		run_later(&fixture);
		assert_int_equal(status_of(other), 200);
		free_ask(other);
	}
	assert_int_equal(status_of(held), 409);
	assert_contains(body_of(held), "\"aborted\"");
	assert_contains(body_of(held), "\"POT_LOCKED\"");
	assert_int_equal(faulty_store_get_pot(fixture.store, locked).coins.of[COIN_BRONZE], 0);
	/* the other process still has the lock */
	faulty_store_unlock_pot(fixture.store, locked, FOREIGN);
	later = send_coins(&fixture, POT_ADD, locked, (struct asked_coins){{1, 0, 0}}, "key");
	run(&fixture); /* the refusal was not stored under the key */
	assert_int_equal(status_of(later), 200);
	assert_false(later->command.write.command.answer.replayed);
	free_ask(held);
	free_ask(later);
	close_fixture(&fixture);
}

static void test_requests_that_wait_for_a_lock_go_through_together_once_it_expires(void **unused)
{
	struct ask *asks[10];
	struct fixture fixture;
	int32_t pot_id;
	size_t before;

	(void)unused;
	open_fixture(&fixture);
	pot_id = faulty_store_add_pot(fixture.store, "pot", 1000);
	faulty_store_lock_pot(fixture.store, pot_id, FOREIGN, 2000000);
	for (int i = 0; i < 10; i++)
		asks[i] = send_coins(
			&fixture, POT_ADD, pot_id, (struct asked_coins){{1, 0, 0}}, NULL);
	run(&fixture);
	run_later(&fixture);
	assert_int_equal(status_of(asks[0]), 0);
	fixture.store->now_us = 2000000;
	before = fixture.store->takes;
	run_later(&fixture);
	assert_int_equal(fixture.store->takes - before, 1);
	for (int i = 0; i < 10; i++) {
		assert_int_equal(status_of(asks[i]), 200);
		free_ask(asks[i]);
	}
	assert_pot(&fixture, pot_id, 10, 0, 0);
	close_fixture(&fixture);
}

/* ---- looking ----------------------------------------------------------------------------- */

static struct pot_lookup look(struct arena *arena, enum pot_look look, int32_t number)
{
	return (struct pot_lookup){
		.read.command = {.type = &pot_lookup_type, .arena = arena},
		.look = look,
		.encoding = PROTO_JSON,
		.pot_id = number,
		.page = number,
		.limit = 2,
	};
}

static void test_a_batch_of_looks_is_answered_each_by_its_own(void **unused)
{
	struct fixture fixture;
	struct arena arena;
	struct session *session;
	struct pot_lookup lookups[10];
	struct read *reads[COUNT_OF(lookups)];
	struct read_batch batch = {reads, COUNT_OF(lookups), &arena};

	(void)unused;
	open_fixture(&fixture);
	arena_init(&arena, 4096);
	faulty_store_add_pot(fixture.store, "one", 10);
	faulty_store_add_pot(fixture.store, "two", 20);
	faulty_store_add_pot(fixture.store, "six", 60);
	fill(&fixture, 2, 3);
	/* a lock does not affect look-ups */
	faulty_store_lock_pot(fixture.store, 2, FOREIGN, INT64_MAX);
	lookups[0] = look(&arena, LOOK_LIST, 2);
	lookups[1] = look(&arena, LOOK_POT, 3);
	lookups[2] = look(&arena, LOOK_COINS, 2);
	lookups[3] = look(&arena, LOOK_NAME, 0);
	lookups[3].name = slice_of("two");
	lookups[4] = look(&arena, LOOK_COINS, 4);
	lookups[5] = look(&arena, LOOK_POT, 4);
	lookups[6] = look(&arena, LOOK_NAME, 0);
	lookups[6].name = slice_of("nobody");
	lookups[7] = look(&arena, LOOK_LIST, INT32_MAX);
	lookups[7].limit = 0;
	lookups[8] = look(&arena, LOOK_COINS, 1);
	lookups[9] = look(&arena, LOOK_NAME, 0);
	lookups[9].name = slice_make(memset(arena_alloc(&arena, 500), 'x', 500), 500);
	for (size_t i = 0; i < COUNT_OF(lookups); i++)
		reads[i] = &lookups[i].read;
	session = faulty_store_open_session(fixture.store, SESSION_READ);
	assert_int_equal(pot_batch_look_up(&faulty_pot_repository, session, &batch), STATUS_OK);
	assert_slice(lookups[0].read.command.answer.body,
		"{\"total_pot_count\":3,\"request\":{\"page\":2,\"limit\":2},\"pots\":[{\"pot_id\":"
		"3,\"pot_name\":\"six\",\"max_coins\":60,\"create_time\":\"1970-01-01T00:00:01Z\"}]"
		"}");
	assert_contains(lookups[1].read.command.answer.body, "\"pot_name\":\"six\"");
	assert_slice(lookups[2].read.command.answer.body,
		"{\"coins\":[{\"kind\":\"BRONZE\",\"count\":3},{\"kind\":\"SILVER\",\"count\":3},"
		"{\"kind\":\"GOLD\",\"count\":3}]}");
	assert_contains(lookups[3].read.command.answer.body, "\"pot_id\":2");
	assert_int_equal(lookups[4].read.command.answer.http_status, 404);
	assert_int_equal(lookups[5].read.command.answer.http_status, 404);
	assert_contains(lookups[6].read.command.answer.body, "no pot has the name \\\"nobody\\\"");
	assert_slice(lookups[7].read.command.answer.body,
		"{\"total_pot_count\":3,\"request\":{\"page\":"
		"2147483647,\"limit\":0},\"pots\":[]}");
	assert_slice(lookups[8].read.command.answer.body, "{\"coins\":[]}");
	assert_contains(lookups[9].read.command.answer.body, "no pot has this name");
	for (int n = 1; n <= 4; n++) {
		faulty_store_fail_at(fixture.store, n, STATUS_STORE_UNAVAILABLE);
		assert_int_equal(pot_batch_look_up(&faulty_pot_repository, session, &batch),
			STATUS_STORE_UNAVAILABLE);
	}
	session_close(session);
	arena_release(&arena);
	close_fixture(&fixture);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_requests_for_one_pot_share_one_lock_and_one_transaction),
		cmocka_unit_test(test_each_command_sees_what_the_ones_before_it_left),
		cmocka_unit_test(test_a_pot_that_is_not_there_is_not_found_and_the_rest_goes_on),
		cmocka_unit_test(test_of_many_who_want_one_name_the_first_gets_it),
		cmocka_unit_test(test_a_repeated_draw_with_its_key_gives_the_same_coins),
		cmocka_unit_test(test_a_fault_at_every_call_leaves_all_or_nothing),
		cmocka_unit_test(
			test_a_locked_pot_is_waited_for_and_then_given_up_and_holds_up_nobody),
		cmocka_unit_test(
			test_requests_that_wait_for_a_lock_go_through_together_once_it_expires),
		cmocka_unit_test(test_a_batch_of_looks_is_answered_each_by_its_own),
	};

	return cmocka_run_group_tests_name("pots", tests, NULL, NULL);
}
