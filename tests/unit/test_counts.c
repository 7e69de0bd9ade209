/* A folded batch always answers as one by one would. */
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
	struct count_change more = {COUNT_VERB_ADD, 2};
	struct count_change less = {COUNT_VERB_ADD, -2};

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
	char value[32]; /* the number in the body, "" where there is none to compare */
};

struct plan {
	int item;
	int key;     /* -1: none */
	int request; /* which of the requests that share a key */
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
			memcpy(expected.value, key->body, sizeof(expected.value));
		return expected;
	}
	status = count_apply(count, &plan->change);
	expected.status = http_of(status, plan->change.verb);
	if (status == STATUS_OK && plan->change.verb != COUNT_VERB_REMOVE)
		snprintf(expected.value, sizeof(expected.value), ":%lld", (long long)count->value);
	if (key) {
		key->used = true;
		key->request = requests[plan->request];
		key->item = items[plan->item];
		key->status = expected.status;
		memcpy(key->body, expected.value, sizeof(expected.value));
	}
	return expected;
}

/* ---- random plans ------------------------------------------------------------------------- */

/* Small steps mostly, and now and then one that reaches for the end of int64. */
static int64_t random_amount(struct dice *dice)
{
	static const int64_t far[] = {INT64_MAX, INT64_MIN, INT64_MAX - 3, INT64_MIN + 3,
		INT64_MAX / 2 + 7, INT64_MIN / 2 - 7};

	if (dice_below(dice, 8) == 0)
		return far[dice_below(dice, 6)];
	return (int64_t)dice_below(dice, 21) - 10;
}

static struct plan random_plan(struct dice *dice, bool keyed)
{
	static const enum count_verb verbs[] = {COUNT_VERB_ADD, COUNT_VERB_ADD, COUNT_VERB_ADD,
		COUNT_VERB_ADD, COUNT_VERB_RESET, COUNT_VERB_CREATE, COUNT_VERB_CREATE,
		COUNT_VERB_REMOVE};
	struct plan plan = {.key = -1};

	plan.item = (int)dice_below(dice, ITEMS);
	plan.change.verb = verbs[dice_below(dice, 8)];
	plan.change.amount = random_amount(dice);
	plan.request = (int)dice_below(dice, REQUESTS);
	if (keyed && dice_below(dice, 3) == 0)
		plan.key = (int)dice_below(dice, KEYS);
	return plan;
}

/* A batch of nothing but additions takes the folded path. */
static void make_plain(struct plan *plans, size_t count)
{
	for (size_t i = 0; i < count; i++)
		plans[i].change.verb = COUNT_VERB_ADD;
}

static void set_up_counts(struct count_fixture *fixture, struct model *model, struct dice *dice)
{
	static const int64_t starts[] = {0, 5, INT64_MAX, INT64_MAX - 4, INT64_MIN, INT64_MIN + 4};

	for (int i = 0; i < ITEMS; i++) {
		if (dice_below(dice, 5) == 0)
			continue;
		model->counts[i].exists = true;
		model->counts[i].value = starts[dice_below(dice, 6)];
		fake_store_set(fixture->fake, slice_of(items[i]), model->counts[i].value);
	}
}

static void check_answer(
	const struct count_fixture_command *command, const struct expected *expected)
{
	struct slice body = count_fixture_body(command);

	assert_int_equal(count_fixture_status(command), expected->status);
	if (expected->value[0] != '\0' &&
		!memmem(body.data, body.len, expected->value, strlen(expected->value)))
		fail_msg("expected %s in %.*s", expected->value, (int)body.len, body.data);
}

static void check_counts(struct count_fixture *fixture, const struct model *model)
{
	for (int i = 0; i < ITEMS; i++) {
		struct count_row row = fake_store_get(fixture->fake, slice_of(items[i]));

		assert_int_equal(row.exists, model->counts[i].exists);
		if (row.exists)
			assert_true(row.value == model->counts[i].value);
	}
}

/* One store, a few batches in a row, compared with the model after each. */
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
			fake_store_fail_at(fixture.fake, 1 + (int)dice_below(&dice, 7), fault);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			test_an_addition_past_either_end_of_int64_is_refused_and_changes_nothing),
		cmocka_unit_test(test_a_fold_carries_the_lowest_and_the_highest_step_on_the_way),
		cmocka_unit_test(test_a_fold_that_leaves_int64_by_itself_is_not_a_fold),
		cmocka_random_test(test_random_batches_answer_as_one_by_one_would),
		cmocka_random_test(test_a_batch_that_is_run_again_answers_as_one_by_one_would),
		cmocka_random_test(test_a_batch_that_met_a_lock_answers_as_one_by_one_would),
	};

	return cmocka_run_group_tests_name("counts", tests, NULL, NULL);
}
