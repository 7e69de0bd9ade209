/* What a committer does for every way in which a transaction can end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "count_fixture.h"

static const struct count_change plus_one = {.verb = COUNT_VERB_ADD, .amount = 1};
static const struct count_change reset = {.verb = COUNT_VERB_RESET};

static struct count_fixture_command *submit(struct count_fixture *fixture, const char *item,
	struct count_change change, const char *key)
{
	struct count_fixture_command *command =
		count_fixture_command_new(fixture, item, change, key, "same");

	count_fixture_submit(fixture, command);
	return command;
}

static int64_t value_of(struct count_fixture *fixture, const char *item)
{
	return faulty_store_get(fixture->store, slice_of(item)).value;
}

static void pass_time(struct count_fixture *fixture, int64_t ns)
{
	manual_clock_pass(&fixture->clock, ns);
}

static void set_up(struct count_fixture *fixture)
{
	count_fixture_open(fixture, 64);
	faulty_store_add_count(fixture->store, "a", 0);
	faulty_store_add_count(fixture->store, "b", 0);
}

static void test_everything_that_waits_shares_one_transaction(void **unused)
{
	struct count_fixture_command *commands[40];
	struct count_fixture fixture;

	(void)unused;
	set_up(&fixture);
	for (int i = 0; i < 40; i++)
		commands[i] = submit(&fixture, i % 2 ? "a" : "b", plus_one, NULL);
	count_fixture_step(&fixture);
	assert_int_equal(fixture.store->commits, 1);
	assert_int_equal(value_of(&fixture, "a"), 20);
	for (int i = 0; i < 40; i++) {
		assert_int_equal(count_fixture_status(commands[i]), 200);
		count_fixture_command_free(commands[i]);
	}
	count_fixture_close(&fixture);
}

/*
 * Runs two plain additions, a reset on another row and an addition with a key. The fault happens at
 * the nth call of the store. Returns whether it did; callers try every n until a run passes without
 * it.
 */
static bool run_with_fault(int n, enum status fault, bool survives, bool plain)
{
	struct count_fixture_command *commands[4];
	struct count_fixture fixture;
	bool struck, all_same = true;
	int status;

	set_up(&fixture);
	commands[0] = submit(&fixture, "a", plus_one, NULL);
	commands[1] = submit(&fixture, "a", plus_one, NULL);
	commands[2] = submit(&fixture, "b", plain ? plus_one : reset, NULL);
	commands[3] = submit(&fixture, "a", plus_one, "key");
	fixture.store->survives = survives;
	faulty_store_fail_at(fixture.store, n, fault);
	count_fixture_step(&fixture);
	struck = fixture.store->has_failed;
	status = count_fixture_status(commands[0]);
	for (int i = 0; i < 4; i++)
		all_same = all_same && count_fixture_status(commands[i]) == status;
	assert_true(all_same);
	if (status == 200)
		assert_int_equal(value_of(&fixture, "a"), 3);
	else if (fault != STATUS_OUTCOME_UNKNOWN)
		assert_int_equal(value_of(&fixture, "a"), 0);
	if (!struck || fault == STATUS_RERUN || fault == STATUS_LOCK_BUSY)
		assert_int_equal(status, 200);
	else if (fault == STATUS_STORE_UNAVAILABLE)
		assert_int_equal(status, 503);
	for (int i = 0; i < 4; i++)
		count_fixture_command_free(commands[i]);
	count_fixture_close(&fixture);
	return struck;
}

static int run_every_fault(enum status fault, bool survives, bool plain)
{
	int n = 1;

	while (run_with_fault(n, fault, survives, plain))
		n++;
	return n - 1;
}

static void test_a_fault_at_every_call_leaves_all_or_nothing(void **unused)
{
	static const enum status faults[] = {
		STATUS_RERUN, STATUS_LOCK_BUSY, STATUS_STORE_UNAVAILABLE, STATUS_OUTCOME_UNKNOWN};

	(void)unused;
	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
		/* begin, idempotency_find, add (or lock and edit), idempotency_put, commit */
		assert_int_equal(run_every_fault(faults[i], false, true), 5);
		assert_int_equal(run_every_fault(faults[i], false, false), 6);
		assert_int_equal(run_every_fault(faults[i], true, true), 5);
	}
}

static void retry_unknown(bool survives)
{
	struct count_fixture_command *first, *second;
	struct count_fixture fixture;

	set_up(&fixture);
	first = submit(&fixture, "a", plus_one, "key");
	fixture.store->survives = survives;
	faulty_store_fail_at(fixture.store, 5, STATUS_OUTCOME_UNKNOWN);
	count_fixture_step(&fixture);
	assert_int_equal(count_fixture_status(first), 503);
	assert_non_null(memmem(count_fixture_body(first).data, count_fixture_body(first).len,
		"OUTCOME_UNKNOWN", 15));
	second = submit(&fixture, "a", plus_one, "key");
	count_fixture_step(&fixture);
	assert_int_equal(count_fixture_status(second), 200);
	assert_int_equal(value_of(&fixture, "a"), 1);
	count_fixture_command_free(first);
	count_fixture_command_free(second);
	count_fixture_close(&fixture);
}

static void test_a_retry_with_its_key_resolves_an_unknown_outcome(void **unused)
{
	(void)unused;
	retry_unknown(true);
	retry_unknown(false);
}

static void test_the_same_key_twice_in_one_batch_has_one_effect_and_one_answer(void **unused)
{
	struct count_fixture_command *first, *second, *third;
	struct count_fixture fixture;

	(void)unused;
	set_up(&fixture);
	first = submit(&fixture, "a", plus_one, "key");
	second = submit(&fixture, "a", plus_one, "key");
	third = submit(&fixture, "a", plus_one, NULL);
	count_fixture_step(&fixture);
	assert_int_equal(count_fixture_status(first), 200);
	assert_int_equal(count_fixture_status(second), 200);
	assert_int_equal(count_fixture_status(third), 200);
	assert_true(slice_equal(count_fixture_body(first), count_fixture_body(second)));
	assert_false(first->command.write.command.answer.replayed);
	assert_true(second->command.write.command.answer.replayed);
	assert_int_equal(value_of(&fixture, "a"), 2);
	count_fixture_command_free(first);
	count_fixture_command_free(second);
	count_fixture_command_free(third);
	count_fixture_close(&fixture);
}

static void test_a_key_counts_as_absent_once_it_has_expired(void **unused)
{
	struct count_fixture_command *first, *second;
	struct count_fixture fixture;

	(void)unused;
	set_up(&fixture);
	first = submit(&fixture, "a", plus_one, "key");
	count_fixture_step(&fixture);
	fixture.store->now_us = 1000000 + 24 * 3600 * 1000000LL;
	second = submit(&fixture, "a", plus_one, "key");
	count_fixture_step(&fixture);
	assert_int_equal(count_fixture_status(second), 200);
	assert_false(second->command.write.command.answer.replayed);
	assert_int_equal(value_of(&fixture, "a"), 2);
	count_fixture_command_free(first);
	count_fixture_command_free(second);
	count_fixture_close(&fixture);
}

static void test_a_row_held_by_others_is_parked_and_holds_up_nobody_else(void **unused)
{
	struct count_fixture_command *held, *follower, *other;
	struct count_fixture fixture;

	(void)unused;
	set_up(&fixture);
	faulty_store_hold(fixture.store, slice_of("a"), true);
	held = submit(&fixture, "a", plus_one, NULL);
	other = submit(&fixture, "b", plus_one, NULL);
	count_fixture_step(&fixture);
	assert_int_equal(count_fixture_status(other), 200);
	assert_int_equal(count_fixture_status(held), 0);
	/* The row is free again, but the first command is not due yet: nothing may overtake it. */
	faulty_store_hold(fixture.store, slice_of("a"), false);
	follower = submit(&fixture, "a", reset, NULL);
	count_fixture_step(&fixture);
	assert_int_equal(count_fixture_status(follower), 0);
	pass_time(&fixture, 50 * NS_PER_MS);
	count_fixture_step(&fixture);
	assert_int_equal(count_fixture_status(held), 200);
	assert_int_equal(count_fixture_status(follower), 200);
	assert_int_equal(value_of(&fixture, "a"), 0);
	count_fixture_command_free(held);
	count_fixture_command_free(follower);
	count_fixture_command_free(other);
	count_fixture_close(&fixture);
}

static void test_what_is_parked_past_its_deadline_is_refused_unchanged(void **unused)
{
	struct count_fixture_command *held;
	struct count_fixture fixture;

	(void)unused;
	set_up(&fixture);
	faulty_store_hold(fixture.store, slice_of("a"), true);
	held = submit(&fixture, "a", plus_one, NULL);
	count_fixture_step(&fixture);
	pass_time(&fixture, 6 * NS_PER_S);
	faulty_store_hold(fixture.store, slice_of("a"), false);
	count_fixture_step(&fixture);
	assert_int_equal(count_fixture_status(held), 503);
	assert_int_equal(value_of(&fixture, "a"), 0);
	count_fixture_command_free(held);
	count_fixture_close(&fixture);
}

static struct answer give_up(struct write *write)
{
	return answer_problem(write->command.arena, STATUS_COUNT_EXISTS, "given up");
}

/* A command that came later has attempts of its own. */
static void test_a_service_that_waits_so_often_gives_up_after_its_last_try(void **unused)
{
	const struct waiting waiting = {
		.retry_ns = 100 * NS_PER_MS, .tries_max = 4, .give_up = give_up};
	struct count_fixture_command *held, *late, *after;
	struct count_fixture fixture;

	(void)unused;
	count_fixture_open_waiting(&fixture, 64, &waiting);
	faulty_store_add_count(fixture.store, "a", 0);
	faulty_store_hold(fixture.store, slice_of("a"), true);
	held = submit(&fixture, "a", plus_one, "key");
	count_fixture_step(&fixture);
	late = submit(&fixture, "a", plus_one, NULL);
	/* it is parked behind the other, which does not count as an attempt */
	count_fixture_step(&fixture);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(count_fixture_status(held), 0);
		pass_time(&fixture, 150 * NS_PER_MS);
		count_fixture_step(&fixture);
	}
	assert_int_equal(count_fixture_status(held), 409);
	assert_int_equal(count_fixture_status(late), 0);
	faulty_store_hold(fixture.store, slice_of("a"), false);
	pass_time(&fixture, 150 * NS_PER_MS);
	count_fixture_step(&fixture);
	assert_int_equal(count_fixture_status(late), 200);
	/* the refusal was not stored under the key */
	after = submit(&fixture, "a", plus_one, "key");
	count_fixture_step(&fixture);
	assert_int_equal(count_fixture_status(after), 200);
	assert_int_equal(value_of(&fixture, "a"), 2);
	count_fixture_command_free(held);
	count_fixture_command_free(late);
	count_fixture_command_free(after);
	count_fixture_close(&fixture);
}

static void test_what_expired_in_the_lane_or_lost_its_client_never_runs(void **unused)
{
	struct count_fixture_command *late, *gone, *good;
	struct count_fixture fixture;

	(void)unused;
	set_up(&fixture);
	late = submit(&fixture, "a", plus_one, NULL);
	pass_time(&fixture, 5 * NS_PER_S);
	gone = submit(&fixture, "a", plus_one, NULL);
	atomic_store(&gone->command.write.command.client_gone, true);
	good = submit(&fixture, "a", plus_one, NULL);
	count_fixture_step(&fixture);
	assert_int_equal(count_fixture_status(late), 503);
	assert_int_equal(count_fixture_status(good), 200);
	assert_int_equal(value_of(&fixture, "a"), 1);
	count_fixture_command_free(late);
	count_fixture_command_free(gone);
	count_fixture_command_free(good);
	count_fixture_close(&fixture);
}

static void test_a_command_that_breaks_its_batch_is_isolated_and_the_rest_applied(void **unused)
{
	struct count_fixture_command *commands[9];
	struct count_fixture fixture;

	(void)unused;
	set_up(&fixture);
	fixture.store->poison = "bad";
	for (int i = 0; i < 9; i++) {
		struct count_change create = {.verb = COUNT_VERB_CREATE, .amount = 7};

		commands[i] = i == 5 ? submit(&fixture, "bad", create, NULL)
				     : submit(&fixture, i % 2 ? "a" : "b", plus_one, NULL);
	}
	count_fixture_step(&fixture);
	for (int i = 0; i < 9; i++)
		assert_int_equal(count_fixture_status(commands[i]), i == 5 ? 500 : 200);
	assert_int_equal(value_of(&fixture, "a") + value_of(&fixture, "b"), 8);
	assert_false(faulty_store_get(fixture.store, slice_of("bad")).exists);
	for (int i = 0; i < 9; i++)
		count_fixture_command_free(commands[i]);
	count_fixture_close(&fixture);
}

/* Parks a command whose next attempt is an hour away. */
static struct count_fixture_command *park_for_an_hour(struct count_fixture *fixture)
{
	static const struct waiting waiting = {.retry_ns = 3600 * NS_PER_S};
	struct count_fixture_command *held;

	count_fixture_open_waiting(fixture, 64, &waiting);
	faulty_store_add_count(fixture->store, "a", 0);
	faulty_store_hold(fixture->store, slice_of("a"), true);
	held = submit(fixture, "a", plus_one, NULL);
	count_fixture_step(fixture);
	assert_int_equal(count_fixture_status(held), 0);
	return held;
}

static void test_a_deadline_is_kept_however_long_the_next_try_is_away(void **unused)
{
	struct count_fixture fixture;
	struct count_fixture_command *held = park_for_an_hour(&fixture);

	(void)unused;
	pass_time(&fixture, 6 * NS_PER_S);
	count_fixture_step(&fixture);
	assert_int_equal(count_fixture_status(held), 503);
	count_fixture_command_free(held);
	count_fixture_close(&fixture);
}

static void test_an_aborted_committer_refuses_what_is_parked_at_once(void **unused)
{
	struct count_fixture fixture;
	struct count_fixture_command *held = park_for_an_hour(&fixture);

	(void)unused;
	committer_abort(fixture.committer);
	lane_close(fixture.lane);
	count_fixture_step(&fixture);
	assert_int_equal(count_fixture_status(held), 503);
	count_fixture_command_free(held);
	count_fixture_close(&fixture);
}

static struct faulty_store *releasing;
static int releases_in;

/* Frees the row "a" when the last of its attempts begins. */
static enum status release(struct write *write, struct session *session, struct arena *arena)
{
	if (--releases_in == 0)
		faulty_store_hold(releasing, slice_of("a"), false);
	write_answer(write, answer_empty());
	return STATUS_OK;
}

/* The row is held while the first half runs, and free when the second half does. */
static void test_what_is_parked_while_a_batch_is_halved_is_not_overtaken(void **unused)
{
	struct count_fixture_command *commands[4];
	struct count_fixture fixture;

	(void)unused;
	set_up(&fixture);
	releasing = fixture.store;
	/* one attempt each: waiting for rows, skipping rows, and in the second half */
	releases_in = 3;
	faulty_store_add_count(fixture.store, "bad", 7);
	fixture.store->poison = "bad";
	faulty_store_hold(fixture.store, slice_of("a"), true);
	commands[0] = submit(&fixture, "a", reset, NULL);
	commands[1] = submit(&fixture, "bad", reset, NULL);
	commands[2] = submit(&fixture, "b", plus_one, NULL);
	commands[2]->command.write.decide = release;
	commands[3] = submit(&fixture, "a", plus_one, NULL);
	count_fixture_step(&fixture);
	assert_int_equal(releases_in, 0);
	assert_int_equal(count_fixture_status(commands[1]), 500);
	assert_int_equal(count_fixture_status(commands[3]), 0);
	pass_time(&fixture, 50 * NS_PER_MS);
	count_fixture_step(&fixture);
	assert_int_equal(count_fixture_status(commands[3]), 200);
	assert_int_equal(value_of(&fixture, "a"), 1); /* first the reset, then the addition */
	for (size_t i = 0; i < 4; i++)
		count_fixture_command_free(commands[i]);
	count_fixture_close(&fixture);
}

static void test_an_aborted_committer_refuses_what_waits(void **unused)
{
	struct count_fixture_command *command;
	struct count_fixture fixture;

	(void)unused;
	set_up(&fixture);
	command = submit(&fixture, "a", plus_one, NULL);
	committer_abort(fixture.committer);
	count_fixture_step(&fixture);
	assert_int_equal(count_fixture_status(command), 503);
	assert_int_equal(value_of(&fixture, "a"), 0);
	count_fixture_command_free(command);
	count_fixture_close(&fixture);
}

/* ---- commands with a weight, such as atomic batches of counts ------------------------------ */

static struct count_fixture_command *submit_heavy(
	struct count_fixture *fixture, const char *item, size_t weight)
{
	struct count_fixture_command *command =
		count_fixture_command_new(fixture, item, plus_one, NULL, "same");

	command->command.write.command.weight = weight;
	count_fixture_submit(fixture, command);
	return command;
}

static size_t count_answered(
	struct count_fixture_command *const *commands, size_t count, int status)
{
	size_t answered = 0;

	for (size_t i = 0; i < count; i++)
		answered += count_fixture_status(commands[i]) == status;
	return answered;
}

/* Parks one command with each of the `weights` on the held rows of the `items`, and then releases
 * the rows and lets all commands be due. */
static void park_heavy(struct count_fixture *fixture, const char *const *items,
	const size_t *weights, struct count_fixture_command **commands, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (!faulty_store_get(fixture->store, slice_of(items[i])).exists)
			faulty_store_add_count(fixture->store, items[i], 0);
		faulty_store_hold(fixture->store, slice_of(items[i]), true);
		commands[i] = submit_heavy(fixture, items[i], weights[i]);
		count_fixture_step(fixture);
		faulty_store_hold(fixture->store, slice_of(items[i]), false);
	}
	assert_int_equal(count_answered(commands, count, 0), count);
	pass_time(fixture, 50 * NS_PER_MS);
	fixture->store->commits = 0;
}

static void test_parked_rows_that_become_free_share_transactions_of_batch_max_changes(void **unused)
{
	static const char *const items[] = {"a", "b", "c", "d"};
	static const size_t weights[] = {4, 4, 4, 4};
	struct count_fixture_command *commands[4];
	struct count_fixture fixture;

	(void)unused;
	count_fixture_open(&fixture, 10);
	park_heavy(&fixture, items, weights, commands, 4);
	for (size_t steps = 1; steps <= 2; steps++) {
		count_fixture_step(&fixture);
		assert_int_equal(count_answered(commands, 4, 200), 2 * steps);
		assert_int_equal(fixture.store->commits, steps);
	}
	for (size_t i = 0; i < 4; i++)
		count_fixture_command_free(commands[i]);
	count_fixture_close(&fixture);
}

/* All commands of a key leave the parking together. */
static void test_commands_parked_on_one_row_run_in_transactions_of_batch_max_changes(void **unused)
{
	static const char *const items[] = {"a", "a", "a", "a", "a", "a"};
	/* four transactions: 4 and 6; 3; 25 alone; 1 and 9 */
	static const size_t weights[] = {4, 6, 3, 25, 1, 9};
	struct count_fixture_command *commands[6];
	struct count_fixture fixture;

	(void)unused;
	count_fixture_open(&fixture, 10);
	park_heavy(&fixture, items, weights, commands, 6);
	count_fixture_step(&fixture);
	assert_int_equal(count_answered(commands, 6, 200), 6);
	assert_int_equal(fixture.store->commits, 4);
	assert_int_equal(value_of(&fixture, "a"), 6);
	for (size_t i = 0; i < 6; i++)
		count_fixture_command_free(commands[i]);
	count_fixture_close(&fixture);
}

/* The limit of the fixture is 1,000. */
static void test_the_limit_of_what_is_parked_counts_changes_and_one_command_may_exceed_it(
	void **unused)
{
	struct count_fixture_command *commands[4];
	struct count_fixture fixture;

	(void)unused;
	set_up(&fixture);
	faulty_store_hold(fixture.store, slice_of("a"), true);
	commands[0] = submit_heavy(&fixture, "a", 600);
	count_fixture_step(&fixture);
	commands[1] = submit_heavy(&fixture, "a", 401);
	count_fixture_step(&fixture);
	assert_int_equal(count_fixture_status(commands[1]), 503);
	commands[2] = submit_heavy(&fixture, "a", 400);
	count_fixture_step(&fixture);
	assert_int_equal(count_fixture_status(commands[2]), 0);
	pass_time(&fixture, 6 * NS_PER_S); /* past the deadlines of all of them */
	count_fixture_step(&fixture);
	assert_int_equal(count_answered(commands, 3, 503), 3);
	commands[3] = submit_heavy(&fixture, "a", 2000);
	count_fixture_step(&fixture);
	assert_int_equal(count_fixture_status(commands[3]), 0);
	faulty_store_hold(fixture.store, slice_of("a"), false);
	pass_time(&fixture, 50 * NS_PER_MS);
	count_fixture_step(&fixture);
	assert_int_equal(count_fixture_status(commands[3]), 200);
	for (size_t i = 0; i < 4; i++)
		count_fixture_command_free(commands[i]);
	count_fixture_close(&fixture);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_everything_that_waits_shares_one_transaction),
		cmocka_unit_test(test_a_fault_at_every_call_leaves_all_or_nothing),
		cmocka_unit_test(test_a_retry_with_its_key_resolves_an_unknown_outcome),
		cmocka_unit_test(
			test_the_same_key_twice_in_one_batch_has_one_effect_and_one_answer),
		cmocka_unit_test(test_a_key_counts_as_absent_once_it_has_expired),
		cmocka_unit_test(test_a_row_held_by_others_is_parked_and_holds_up_nobody_else),
		cmocka_unit_test(test_what_is_parked_past_its_deadline_is_refused_unchanged),
		cmocka_unit_test(test_a_service_that_waits_so_often_gives_up_after_its_last_try),
		cmocka_unit_test(test_what_expired_in_the_lane_or_lost_its_client_never_runs),
		cmocka_unit_test(
			test_a_command_that_breaks_its_batch_is_isolated_and_the_rest_applied),
		cmocka_unit_test(test_what_is_parked_while_a_batch_is_halved_is_not_overtaken),
		cmocka_unit_test(test_an_aborted_committer_refuses_what_waits),
		cmocka_unit_test(test_a_deadline_is_kept_however_long_the_next_try_is_away),
		cmocka_unit_test(test_an_aborted_committer_refuses_what_is_parked_at_once),
		cmocka_unit_test(
			test_parked_rows_that_become_free_share_transactions_of_batch_max_changes),
		cmocka_unit_test(
			test_commands_parked_on_one_row_run_in_transactions_of_batch_max_changes),
		cmocka_unit_test(
			test_the_limit_of_what_is_parked_counts_changes_and_one_command_may_exceed_it),
	};

	return cmocka_run_group_tests_name("committer", tests, NULL, NULL);
}
