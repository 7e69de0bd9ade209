/* A folded batch always gives the same answers as its commands one by one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/random.h"
#include "count_fixture.h"
#include "effort.h"

#define ITEMS 4
#define KEYS 8
#define REQUESTS 2
#define BATCH_MAX 24

static const char *const items[ITEMS] = {"a", "b", "c", "d"};
static const char *const keys[KEYS] = {"k0", "k1", "k2", "k3", "k4", "k5", "k6", "k7"};
static const char *const requests[REQUESTS] = {"one", "two"};

/* ---- rules ------------------------------------------------------------------------------- */

static void test_an_addition_past_either_end_of_int64_is_refused_and_changes_nothing(void **unused)
{
	struct count_state state = {.exists = true, .value = INT64_MAX - 1};
	struct count_change more = {.verb = COUNT_VERB_ADD, .amount = 2};
	struct count_change less = {.verb = COUNT_VERB_ADD, .amount = -2};

	(void)unused;
	assert_int_equal(count_apply(&state, &more), STATUS_COUNT_OVERFLOW);
	assert_true(state.value == INT64_MAX - 1);
	state.value = INT64_MIN + 1;
	assert_int_equal(count_apply(&state, &less), STATUS_COUNT_OVERFLOW);
	assert_true(state.value == INT64_MIN + 1);
}

static void test_a_fold_carries_the_lowest_and_the_highest_step_on_the_way(void **unused)
{
	struct count_fold fold = {0};

	(void)unused;
	assert_true(count_fold_add(&fold, 10));
	assert_true(count_fold_add(&fold, -30));
	assert_true(count_fold_add(&fold, 5));
	assert_true(fold.sum == -15);
	assert_true(fold.lowest == -20);
	assert_true(fold.highest == 10);
}

static void test_a_fold_that_leaves_int64_by_itself_is_not_a_fold(void **unused)
{
	struct count_fold fold = {0};

	(void)unused;
	assert_true(count_fold_add(&fold, INT64_MAX));
	assert_false(count_fold_add(&fold, 1));
	assert_true(fold.sum == INT64_MAX);
}

static struct count_bound at(int64_t value)
{
	return (struct count_bound){.is_set = true, .value = value};
}

static enum status change(struct count_state *state, enum count_verb verb, int64_t amount)
{
	struct count_change change = {.verb = verb, .amount = amount};

	return count_apply(state, &change);
}

static void test_a_value_may_reach_its_bounds_and_not_leave_them(void **unused)
{
	struct count_state state = {.exists = true, .value = 2, .bounds = {at(0), at(3)}};

	(void)unused;
	assert_int_equal(change(&state, COUNT_VERB_ADD, 1), STATUS_OK);
	assert_int_equal(change(&state, COUNT_VERB_ADD, 1), STATUS_COUNT_OUT_OF_BOUNDS);
	assert_int_equal(change(&state, COUNT_VERB_ADD, -4), STATUS_COUNT_OUT_OF_BOUNDS);
	assert_true(state.value == 3);
	assert_int_equal(change(&state, COUNT_VERB_ADD, -3), STATUS_OK);
	assert_true(state.value == 0);
}

static void test_a_sum_past_int64_is_past_the_bound_of_that_end_if_it_has_one(void **unused)
{
	struct count_state state = {.exists = true, .value = 5, .bounds = {.max = at(INT64_MAX)}};

	(void)unused;
	assert_int_equal(change(&state, COUNT_VERB_ADD, INT64_MAX), STATUS_COUNT_OUT_OF_BOUNDS);
	state.value = -5;
	assert_int_equal(change(&state, COUNT_VERB_ADD, INT64_MIN), STATUS_COUNT_OVERFLOW);
	assert_true(state.value == -5);
}

static void test_a_reset_to_a_value_outside_the_bounds_is_refused(void **unused)
{
	struct count_state state = {.exists = true, .value = 7, .bounds = {.min = at(1)}};

	(void)unused;
	assert_int_equal(change(&state, COUNT_VERB_RESET, 0), STATUS_COUNT_OUT_OF_BOUNDS);
	assert_true(state.value == 7);
	state.bounds.min = at(0);
	assert_int_equal(change(&state, COUNT_VERB_RESET, 0), STATUS_OK);
	assert_true(state.value == 0);
}

static void test_a_put_changes_only_what_it_names(void **unused)
{
	struct count_state state = {.exists = true, .value = 5, .bounds = {at(0), at(9)}};
	struct count_change value = {.verb = COUNT_VERB_PUT, .amount = 7, .sets_value = true};
	struct count_change no_max = {.verb = COUNT_VERB_PUT, .sets_max = true};
	struct count_change min = {
		.verb = COUNT_VERB_PUT, .bounds = {.min = at(-3)}, .sets_min = true};

	(void)unused;
	assert_int_equal(count_apply(&state, &value), STATUS_OK);
	assert_true(state.value == 7 && state.bounds.min.value == 0 && state.bounds.max.value == 9);
	assert_int_equal(count_apply(&state, &no_max), STATUS_OK);
	assert_true(state.value == 7 && state.bounds.min.is_set && !state.bounds.max.is_set);
	assert_int_equal(count_apply(&state, &min), STATUS_OK);
	assert_true(state.value == 7 && state.bounds.min.value == -3 && !state.bounds.max.is_set);
}

static void test_a_put_must_leave_a_value_within_the_bounds_it_leaves(void **unused)
{
	struct count_state state = {.exists = true, .value = 5, .bounds = {at(0), at(9)}};
	struct count_change above = {.verb = COUNT_VERB_PUT, .amount = 10, .sets_value = true};
	struct count_change below_value = {
		.verb = COUNT_VERB_PUT, .bounds = {.max = at(4)}, .sets_max = true};
	struct count_change both = above;

	(void)unused;
	assert_int_equal(count_apply(&state, &above), STATUS_COUNT_OUT_OF_BOUNDS);
	assert_int_equal(count_apply(&state, &below_value), STATUS_COUNT_OUT_OF_BOUNDS);
	assert_true(state.value == 5 && state.bounds.max.value == 9);
	both.sets_max = true;
	both.bounds.max = at(10);
	assert_int_equal(count_apply(&state, &both), STATUS_OK);
	assert_true(state.value == 10 && state.bounds.max.value == 10);
}

static void test_a_put_that_expects_another_value_is_refused(void **unused)
{
	struct count_state state = {.exists = true, .value = 5};
	struct count_change put = {.verb = COUNT_VERB_PUT,
		.amount = 6,
		.sets_value = true,
		.expects_value = true,
		.expected = 4};

	(void)unused;
	assert_int_equal(count_apply(&state, &put), STATUS_COUNT_VALUE_CONFLICT);
	assert_true(state.value == 5);
	put.expected = 5;
	assert_int_equal(count_apply(&state, &put), STATUS_OK);
	assert_true(state.value == 6);
}

/* ---- the model: one by one, nothing folded ------------------------------------------------ */

struct model_key {
	bool used;
	const char *request;
	const char *item;
	int status;
	char body[256];
};

struct model {
	struct count_state counts[ITEMS];
	struct model_key keys[KEYS];
};

struct expected {
	int status;
	char text[32]; /* the number or the code in the body; "" if there is nothing to compare */
};

struct plan {
	int item;
	int key;     /* -1 for none */
	int request; /* which of the requests with the same key it is */
	struct count_change change;
};

static int http_of(enum status status, enum count_verb verb)
{
	if (status != STATUS_OK)
		return status_http(status);
	return verb == COUNT_VERB_CREATE ? 201 : verb == COUNT_VERB_REMOVE ? 204 : 200;
}

static struct expected model_run(struct model *model, const struct plan *plan)
{
	struct model_key *key = plan->key >= 0 ? &model->keys[plan->key] : NULL;
	struct count_state *count = &model->counts[plan->item];
	struct expected expected = {0};
	enum status status;

	if (key && key->used) {
		bool same =
			key->request == requests[plan->request] && key->item == items[plan->item];

		expected.status = same ? key->status : 409;
		if (same)
			memcpy(expected.text, key->body, sizeof(expected.text));
		return expected;
	}
	status = count_apply(count, &plan->change);
	expected.status = http_of(status, plan->change.verb);
	if (status == STATUS_OK && plan->change.verb != COUNT_VERB_REMOVE)
		snprintf(expected.text, sizeof(expected.text), ":%lld", (long long)count->value);
	if (status != STATUS_OK)
		snprintf(expected.text, sizeof(expected.text), "\"%s\"", status_code(status));
	if (key) {
		key->used = true;
		key->request = requests[plan->request];
		key->item = items[plan->item];
		key->status = expected.status;
		memcpy(key->body, expected.text, sizeof(expected.text));
	}
	return expected;
}

/* ---- random plans ------------------------------------------------------------------------- */

/* Returns mostly small steps, and now and then one that is close to the end of int64. */
static int64_t random_amount(struct dice *dice)
{
	static const int64_t far[] = {INT64_MAX, INT64_MIN, INT64_MAX - 3, INT64_MIN + 3,
		INT64_MAX / 2 + 7, INT64_MIN / 2 - 7};

	if (dice_below(dice, 8) == 0)
		return far[dice_below(dice, 6)];
	return (int64_t)dice_below(dice, 21) - 10;
}

/* Returns no bound, or one that is this far from the value, as far as int64 allows. */
static struct count_bound random_bound(struct dice *dice, int64_t value, int64_t step)
{
	int64_t bound;

	if (dice_below(dice, 2) == 0)
		return (struct count_bound){0};
	if (__builtin_add_overflow(value, step * (int64_t)dice_below(dice, 12), &bound))
		bound = step < 0 ? INT64_MIN : INT64_MAX;
	return at(bound);
}

/* Returns bounds that contain the value. */
static struct count_bounds random_bounds(struct dice *dice, int64_t value)
{
	return (struct count_bounds){
		.min = random_bound(dice, value, -1), .max = random_bound(dice, value, 1)};
}

static void random_put(struct dice *dice, struct count_change *put)
{
	put->sets_value = dice_below(dice, 2) == 0;
	put->sets_min = dice_below(dice, 3) == 0;
	put->sets_max = dice_below(dice, 3) == 0;
	put->expects_value = dice_below(dice, 4) == 0;
	put->expected = (int64_t)dice_below(dice, 8);
}

static struct plan random_plan(struct dice *dice, bool keyed)
{
	static const enum count_verb verbs[] = {COUNT_VERB_ADD, COUNT_VERB_ADD, COUNT_VERB_ADD,
		COUNT_VERB_ADD, COUNT_VERB_RESET, COUNT_VERB_CREATE, COUNT_VERB_CREATE,
		COUNT_VERB_PUT, COUNT_VERB_PUT, COUNT_VERB_REMOVE};
	struct plan plan = {.key = -1};

	plan.item = (int)dice_below(dice, ITEMS);
	plan.change.verb = verbs[dice_below(dice, 10)];
	plan.change.amount = random_amount(dice);
	plan.change.bounds = random_bounds(dice, plan.change.amount);
	random_put(dice, &plan.change);
	plan.request = (int)dice_below(dice, REQUESTS);
	if (keyed && dice_below(dice, 3) == 0)
		plan.key = (int)dice_below(dice, KEYS);
	return plan;
}

/* Makes the batch consist of additions only, so that it takes the folded path. */
static void make_plain(struct plan *plans, size_t count)
{
	for (size_t i = 0; i < count; i++)
		plans[i].change.verb = COUNT_VERB_ADD;
}

static void set_up_counts(struct count_fixture *fixture, struct model *model, struct dice *dice)
{
	static const int64_t starts[] = {0, 5, INT64_MAX, INT64_MAX - 4, INT64_MIN, INT64_MIN + 4};
	struct count_row rows[ITEMS];
	size_t count = 0;

	for (int i = 0; i < ITEMS; i++) {
		struct count_row *row = &rows[count];

		if (dice_below(dice, 5) == 0)
			continue;
		row->item_id = slice_of(items[i]);
		row->value = starts[dice_below(dice, 6)];
		row->bounds = random_bounds(dice, row->value);
		model->counts[i].exists = true;
		model->counts[i].value = row->value;
		model->counts[i].bounds = row->bounds;
		count++;
	}
	faulty_store_insert(fixture->store, rows, count);
}

static void check_answer(
	const struct count_fixture_command *command, const struct expected *expected)
{
	struct slice body = count_fixture_body(command);

	assert_int_equal(count_fixture_status(command), expected->status);
	if (expected->text[0] != '\0' &&
		!memmem(body.data, body.len, expected->text, strlen(expected->text)))
		fail_msg("expected %s in %.*s", expected->text, (int)body.len, body.data);
}

static void check_bound(const struct count_bound *bound, const struct count_bound *expected)
{
	assert_int_equal(bound->is_set, expected->is_set);
	assert_true(!bound->is_set || bound->value == expected->value);
}

static void check_counts(struct count_fixture *fixture, const struct model *model)
{
	struct count_row rows[ITEMS];

	for (int i = 0; i < ITEMS; i++)
		rows[i] = (struct count_row){.item_id = slice_of(items[i])};
	faulty_store_find(fixture->store, rows, ITEMS);
	for (int i = 0; i < ITEMS; i++) {
		assert_int_equal(rows[i].exists, model->counts[i].exists);
		if (!rows[i].exists)
			continue;
		assert_true(rows[i].value == model->counts[i].value);
		check_bound(&rows[i].bounds.min, &model->counts[i].bounds.min);
		check_bound(&rows[i].bounds.max, &model->counts[i].bounds.max);
	}
}

/* Runs a few batches in a row on one store, and compares the store with the model after each. */
static size_t run_case(uint64_t seed, bool keyed, enum status fault)
{
	struct dice dice = {.state = seed};
	struct model model = {0};
	struct count_fixture fixture;
	size_t batches = 1 + (size_t)dice_below(&dice, 4);

	count_fixture_open(&fixture, BATCH_MAX);
	set_up_counts(&fixture, &model, &dice);
	for (size_t b = 0; b < batches; b++) {
		size_t count = 1 + (size_t)dice_below(&dice, BATCH_MAX);
		struct count_fixture_command *commands[BATCH_MAX];
		struct expected expected[BATCH_MAX];
		struct plan plans[BATCH_MAX];

		for (size_t i = 0; i < count; i++)
			plans[i] = random_plan(&dice, keyed);
		if (dice_below(&dice, 2) == 0)
			make_plain(plans, count);
		for (size_t i = 0; i < count; i++) {
			const char *key = plans[i].key >= 0 ? keys[plans[i].key] : NULL;

			expected[i] = model_run(&model, &plans[i]);
			commands[i] = count_fixture_command_new(&fixture, items[plans[i].item],
				plans[i].change, key, requests[plans[i].request]);
			count_fixture_submit(&fixture, commands[i]);
		}
		if (fault != STATUS_OK)
			faulty_store_fail_at(fixture.store, 1 + (int)dice_below(&dice, 7), fault);
		count_fixture_step(&fixture);
		for (size_t i = 0; i < count; i++) {
			check_answer(commands[i], &expected[i]);
			count_fixture_command_free(commands[i]);
		}
		check_counts(&fixture, &model);
	}
	count_fixture_close(&fixture);
	return batches;
}

static void run_batches(size_t wanted, bool keyed, enum status fault)
{
	size_t done = 0;

	for (uint64_t seed = 1; done < wanted; seed++) {
		seed_begin(seed);
		done += run_case(seed, keyed, fault);
	}
	seeds_end();
}

static void test_random_batches_answer_as_one_by_one_would(void **unused)
{
	(void)unused;
	run_batches(effort(7000, 140000), false, STATUS_OK);
	run_batches(effort(3000, 60000), true, STATUS_OK);
}

static void test_a_batch_that_is_run_again_answers_as_one_by_one_would(void **unused)
{
	(void)unused;
	run_batches(effort(1500, 30000), true, STATUS_RERUN);
	run_batches(effort(1500, 30000), false, STATUS_RERUN);
}

static void test_a_batch_that_met_a_lock_answers_as_one_by_one_would(void **unused)
{
	(void)unused;
	run_batches(effort(1500, 30000), true, STATUS_LOCK_BUSY);
	run_batches(effort(1500, 30000), false, STATUS_LOCK_BUSY);
}

/* ---- bounds in one batch ------------------------------------------------------------------ */

static struct count_fixture_command *submit_addition(
	struct count_fixture *fixture, const char *item_id, int64_t amount)
{
	struct count_fixture_command *command = count_fixture_command_new(fixture, item_id,
		(struct count_change){.verb = COUNT_VERB_ADD, .amount = amount}, NULL, NULL);

	count_fixture_submit(fixture, command);
	return command;
}

static void set_bounded(struct count_fixture *fixture, const char *item_id, int64_t value)
{
	const struct count_row row = {
		.item_id = slice_of(item_id), .value = value, .bounds = {.min = at(0)}};

	faulty_store_insert(fixture->store, &row, 1);
}

static void test_of_a_fold_that_leaves_the_bounds_only_the_offenders_are_refused(void **unused)
{
	static const int64_t amounts[] = {-1, -1, -2, -1, -1, 5, -3, -3};
	static const char *const expected[] = {"\"value\":2}", "\"value\":1}",
		"\"value\":1,\"minValue\":0,\"maxValue\":null}", "\"value\":0}",
		"\"value\":0,\"minValue\":0,\"maxValue\":null}", "\"value\":5}", "\"value\":2}",
		"\"value\":2,\"minValue\":0,\"maxValue\":null}"};
	struct count_fixture_command *commands[8];
	struct count_fixture_command *other;
	struct count_fixture fixture;

	(void)unused;
	count_fixture_open(&fixture, BATCH_MAX);
	set_bounded(&fixture, "a", 3);
	faulty_store_add_count(fixture.store, "b", 0);
	for (int i = 0; i < 8; i++)
		commands[i] = submit_addition(&fixture, "a", amounts[i]);
	other = submit_addition(&fixture, "b", -1);
	count_fixture_step(&fixture);
	for (int i = 0; i < 8; i++) {
		struct slice body = count_fixture_body(commands[i]);

		if (!memmem(body.data, body.len, expected[i], strlen(expected[i])))
			fail_msg("expected %s in %.*s", expected[i], (int)body.len, body.data);
		count_fixture_command_free(commands[i]);
	}
	assert_int_equal(count_fixture_status(other), 200);
	count_fixture_command_free(other);
	assert_int_equal(faulty_store_get(fixture.store, slice_of("a")).value, 2);
	count_fixture_close(&fixture);
}

/* One UPDATE changes nothing, and one transaction refuses all commands. */
static void test_a_batch_on_a_sold_out_count_is_refused_at_once(void **unused)
{
	struct count_fixture_command *commands[BATCH_MAX];
	struct count_fixture fixture;

	(void)unused;
	count_fixture_open(&fixture, BATCH_MAX);
	set_bounded(&fixture, "a", 0);
	for (int i = 0; i < BATCH_MAX; i++)
		commands[i] = submit_addition(&fixture, "a", -1);
	count_fixture_step(&fixture);
	for (int i = 0; i < BATCH_MAX; i++) {
		assert_int_equal(count_fixture_status(commands[i]), 409);
		count_fixture_command_free(commands[i]);
	}
	assert_int_equal(fixture.store->commits, 2);
	count_fixture_close(&fixture);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			test_an_addition_past_either_end_of_int64_is_refused_and_changes_nothing),
		cmocka_unit_test(test_a_fold_carries_the_lowest_and_the_highest_step_on_the_way),
		cmocka_unit_test(test_a_fold_that_leaves_int64_by_itself_is_not_a_fold),
		cmocka_unit_test(test_a_value_may_reach_its_bounds_and_not_leave_them),
		cmocka_unit_test(test_a_sum_past_int64_is_past_the_bound_of_that_end_if_it_has_one),
		cmocka_unit_test(test_a_reset_to_a_value_outside_the_bounds_is_refused),
		cmocka_unit_test(test_a_put_changes_only_what_it_names),
		cmocka_unit_test(test_a_put_must_leave_a_value_within_the_bounds_it_leaves),
		cmocka_unit_test(test_a_put_that_expects_another_value_is_refused),
		cmocka_unit_test(
			test_of_a_fold_that_leaves_the_bounds_only_the_offenders_are_refused),
		cmocka_unit_test(test_a_batch_on_a_sold_out_count_is_refused_at_once),
		cmocka_random_test(test_random_batches_answer_as_one_by_one_would),
		cmocka_random_test(test_a_batch_that_is_run_again_answers_as_one_by_one_would),
		cmocka_random_test(test_a_batch_that_met_a_lock_answers_as_one_by_one_would),
	};

	return cmocka_run_group_tests_name("counts", tests, NULL, NULL);
}
