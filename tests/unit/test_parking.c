/* Commands that wait for a lock of somebody else: per key, in order, until they are due. */
#include "check.h"

#include <stdio.h>

#include "base/clock.h"
#include "flow/parking.h"

#define RETRY_NS (10 * NS_PER_MS)
#define START_NS (1000 * NS_PER_S)
/* No key parked at START_NS can be due later than this. */
#define SURELY_DUE_NS (START_NS + 2 * RETRY_NS)

static struct command commands[8];

/* Commands 0, 2, 4, … have the key "even", the others "odd". */
static int set_up(void **state)
{
	memset(commands, 0, sizeof(commands));
	for (size_t i = 0; i < COUNT_OF(commands); i++) {
		commands[i].key = slice_of(i % 2 ? "odd" : "even");
		commands[i].hash = i % 2;
		commands[i].deadline_ns = INT64_MAX;
	}
	*state = parking_new(RETRY_NS);
	return 0;
}

static int tear_down(void **state)
{
	struct command_list rest = {0};

	parking_take_all(*state, &rest);
	parking_free(*state);
	return 0;
}

static void park(struct parking *parking, size_t count, int64_t now_ns)
{
	for (size_t i = 0; i < count; i++)
		parking_add(parking, &commands[i], commands[i].key, now_ns);
}

static void an_empty_parking_has_nothing_due_ever(void **state)
{
	struct command_list out = {0};

	assert_int_equal(parking_count(*state), 0);
	assert_int_equal(parking_next_ns(*state), INT64_MAX);
	assert_false(parking_has_key(*state, commands[0].key));
	parking_take_due(*state, &out, 10, INT64_MAX);
	parking_take_all(*state, &out);
	assert_int_equal(out.count, 0);
}

static void a_key_is_due_after_the_retry_time_give_or_take_half(void **state)
{
	int64_t earliest = INT64_MAX, latest = 0;

	for (int i = 0; i < 1000; i++) {
		struct command_list out = {0};
		int64_t due_ns;

		parking_add(*state, &commands[0], commands[0].key, START_NS);
		due_ns = parking_next_ns(*state);
		assert_true(due_ns >= START_NS + RETRY_NS / 2);
		assert_true(due_ns <= START_NS + RETRY_NS + RETRY_NS / 2);
		earliest = due_ns < earliest ? due_ns : earliest;
		latest = due_ns > latest ? due_ns : latest;
		parking_take_all(*state, &out);
	}
	assert_true(latest - earliest > RETRY_NS / 2);
}

static void nothing_leaves_before_it_is_due(void **state)
{
	struct command_list out = {0};
	int64_t due_ns;

	parking_add(*state, &commands[0], commands[0].key, START_NS);
	due_ns = parking_next_ns(*state);
	parking_take_due(*state, &out, 10, due_ns - 1);
	assert_int_equal(out.count, 0);
	assert_int_equal(parking_count(*state), 1);
	parking_take_due(*state, &out, 10, due_ns);
	assert_int_equal(out.count, 1);
	assert_int_equal(parking_count(*state), 0);
	assert_int_equal(parking_next_ns(*state), INT64_MAX);
}

static void commands_on_one_key_leave_together_and_in_order(void **state)
{
	struct command_list out = {0};
	size_t last_even = 0, last_odd = 1;

	park(*state, 8, START_NS);
	assert_int_equal(parking_count(*state), 8);
	parking_take_due(*state, &out, 100, SURELY_DUE_NS);
	assert_int_equal(out.count, 8);
	for (size_t i = 0; i < 8; i++) {
		struct command *command = command_list_pop(&out);
		size_t *last = command->hash ? &last_odd : &last_even;

		assert_ptr_equal(command, &commands[*last]);
		*last += 2;
	}
}

static void who_comes_later_waits_behind_and_is_due_with_the_first(void **state)
{
	int64_t due_ns;
	struct command_list out = {0};

	parking_add(*state, &commands[0], commands[0].key, START_NS);
	due_ns = parking_next_ns(*state);
	parking_add(*state, &commands[2], commands[2].key, due_ns - 1);
	assert_int_equal(parking_next_ns(*state), due_ns);
	parking_take_due(*state, &out, 10, due_ns);
	assert_int_equal(out.count, 2);
	assert_ptr_equal(command_list_pop(&out), &commands[0]);
	assert_ptr_equal(command_list_pop(&out), &commands[2]);
}

static void a_key_is_known_while_it_is_parked(void **state)
{
	struct command_list out = {0};

	parking_add(*state, &commands[0], commands[0].key, START_NS);
	assert_true(parking_has_key(*state, commands[0].key));
	assert_true(parking_has_key(*state, commands[2].key));
	assert_false(parking_has_key(*state, commands[1].key));
	parking_take_all(*state, &out);
	assert_false(parking_has_key(*state, commands[0].key));
}

static void different_keys_wait_apart(void **state)
{
	struct command_list out = {0};

	commands[3].key = slice_of("third");
	parking_add(*state, &commands[0], commands[0].key, START_NS);
	assert_false(parking_has_key(*state, commands[1].key));
	parking_add(*state, &commands[1], commands[1].key, START_NS + 10 * RETRY_NS);
	assert_false(parking_has_key(*state, commands[3].key));
	parking_take_due(*state, &out, 10, SURELY_DUE_NS);
	assert_int_equal(out.count, 1);
	assert_ptr_equal(out.first, &commands[0]);
	assert_true(parking_has_key(*state, commands[1].key));
}

static void a_key_is_never_split_to_fit(void **state)
{
	struct command_list out = {0};

	park(*state, 8, START_NS); /* two keys of four */
	parking_take_due(*state, &out, 5, SURELY_DUE_NS);
	assert_int_equal(out.count, 4);
	assert_int_equal(parking_count(*state), 4);
	assert_true(parking_next_ns(*state) <= SURELY_DUE_NS);
}

static void at_least_one_key_leaves_however_small_the_room(void **state)
{
	struct command_list out = {0};

	park(*state, 8, START_NS);
	parking_take_due(*state, &out, 1, SURELY_DUE_NS);
	assert_int_equal(out.count, 4);
}

static void the_room_is_for_changes_and_not_for_commands(void **state)
{
	struct command_list out = {0};

	commands[0].weight = commands[1].weight = 5;
	commands[2].weight = 3;
	commands[2].key = slice_of("third");
	park(*state, 3, START_NS);
	assert_int_equal(parking_weight(*state), 13);
	parking_take_due(*state, &out, 9, SURELY_DUE_NS);
	assert_int_equal(out.weight, 8); /* one of 5, and the one of 3, whichever was due first */
	parking_take_due(*state, &out, 13, SURELY_DUE_NS);
	assert_int_equal(out.weight, 13);
	assert_int_equal(parking_weight(*state), 0);
}

static void a_command_that_is_heavier_than_the_room_leaves_alone(void **state)
{
	struct command_list out = {0};

	commands[0].weight = 50;
	park(*state, 1, START_NS);
	parking_add(*state, &commands[1], commands[1].key, START_NS + 2 * RETRY_NS);
	parking_take_due(*state, &out, 10, START_NS + 4 * RETRY_NS);
	assert_int_equal(out.count, 1);
	assert_ptr_equal(out.first, &commands[0]);
}

/* Each time, the light keys fill the room if they leave first. */
static void a_heavy_key_is_not_passed_over_for_lighter_ones_that_were_due_later(void **state)
{
	enum { LIGHT = 500 };
	static struct command light[LIGHT];
	static char names[LIGHT][8];
	struct command_list out = {0};

	commands[0].weight = 10;
	park(*state, 1, START_NS);
	for (size_t i = 0; i < LIGHT; i++) {
		snprintf(names[i], sizeof(names[i]), "%zu", i);
		light[i] = (struct command){.key = slice_of(names[i])};
		parking_add(*state, &light[i], light[i].key, SURELY_DUE_NS);
	}
	parking_take_due(*state, &out, 10, SURELY_DUE_NS + 2 * RETRY_NS);
	assert_int_equal(out.count, 1);
	assert_ptr_equal(out.first, &commands[0]);
}

static void who_is_past_its_deadline_leaves_and_the_others_stay_in_order(void **state)
{
	struct command_list out = {0};

	commands[0].deadline_ns = commands[4].deadline_ns = START_NS + 1;
	commands[4].weight = 5;
	park(*state, 8, START_NS);
	assert_int_equal(parking_next_ns(*state), START_NS + 1); /* before anything is due */
	parking_take_expired(*state, &out, START_NS);
	assert_int_equal(out.count, 0);
	parking_take_expired(*state, &out, START_NS + 1);
	assert_int_equal(out.count, 2);
	assert_ptr_equal(command_list_pop(&out), &commands[0]);
	assert_ptr_equal(command_list_pop(&out), &commands[4]);
	assert_int_equal(parking_count(*state), 6);
	assert_int_equal(parking_weight(*state), 6);
	commands[0].key = slice_of("gone"); /* its memory may have been used for something else */
	assert_true(parking_has_key(*state, slice_of("even")));
	assert_true(parking_next_ns(*state) > START_NS + 1);
	parking_take_due(*state, &out, 100, SURELY_DUE_NS);
	assert_int_equal(out.count, 6);
}

static void a_key_whose_commands_are_all_past_their_deadlines_is_forgotten(void **state)
{
	struct command_list out = {0};

	commands[0].deadline_ns = START_NS;
	parking_add(*state, &commands[0], commands[0].key, START_NS);
	parking_take_expired(*state, &out, START_NS);
	assert_int_equal(out.count, 1);
	assert_int_equal(parking_count(*state), 0);
	assert_false(parking_has_key(*state, commands[0].key));
	assert_int_equal(parking_next_ns(*state), INT64_MAX);
}

static void everything_can_be_taken_whether_due_or_not(void **state)
{
	struct command_list out = {0};

	park(*state, 8, START_NS);
	parking_take_all(*state, &out);
	assert_int_equal(out.count, 8);
	assert_int_equal(parking_count(*state), 0);
}

static void many_keys_are_all_found_again(void **state)
{
	enum { KEYS = 2000 };
	static struct command many[KEYS];
	static char names[KEYS][8];
	struct command_list out = {0};

	for (size_t i = 0; i < KEYS; i++) {
		many[i] = (struct command){.hash = i * 7};
		snprintf(names[i], sizeof(names[i]), "%zu", i);
		many[i].key = slice_of(names[i]);
		parking_add(*state, &many[i], many[i].key, START_NS);
	}
	assert_int_equal(parking_count(*state), KEYS);
	for (size_t i = 0; i < KEYS; i++)
		assert_true(parking_has_key(*state, many[i].key));
	while (parking_count(*state) > 0)
		parking_take_due(*state, &out, out.count + 100, SURELY_DUE_NS);
	assert_int_equal(out.count, KEYS);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(an_empty_parking_has_nothing_due_ever),
		TEST(a_key_is_due_after_the_retry_time_give_or_take_half),
		TEST(nothing_leaves_before_it_is_due),
		TEST(commands_on_one_key_leave_together_and_in_order),
		TEST(who_comes_later_waits_behind_and_is_due_with_the_first),
		TEST(a_key_is_known_while_it_is_parked),
		TEST(different_keys_wait_apart),
		TEST(a_key_is_never_split_to_fit),
		TEST(at_least_one_key_leaves_however_small_the_room),
		TEST(the_room_is_for_changes_and_not_for_commands),
		TEST(a_command_that_is_heavier_than_the_room_leaves_alone),
		TEST(a_heavy_key_is_not_passed_over_for_lighter_ones_that_were_due_later),
		TEST(who_is_past_its_deadline_leaves_and_the_others_stay_in_order),
		TEST(a_key_whose_commands_are_all_past_their_deadlines_is_forgotten),
		TEST(everything_can_be_taken_whether_due_or_not),
		TEST(many_keys_are_all_found_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
