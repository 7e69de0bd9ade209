/* Lists of commands, and how their answers return: grouped by loop, in order. */
#include "check.h"

#include <stdlib.h>

#include "runtime/command.h"

/* ---- lists ------------------------------------------------------------------------------- */

static void assert_order(struct command_list *list, struct command *const *expected, size_t count)
{
	assert_int_equal(list->count, count);
	for (size_t i = 0; i < count; i++)
		assert_ptr_equal(command_list_pop(list), expected[i]);
	assert_null(command_list_pop(list));
	assert_int_equal(list->count, 0);
	assert_null(list->first);
	assert_null(list->last);
}

static void a_list_gives_back_what_was_pushed_in_order(void **state)
{
	struct command a = {0}, b = {0}, c = {0};
	struct command_list list = {0};

	(void)state;
	assert_order(&list, NULL, 0);
	command_list_push(&list, &a);
	command_list_push(&list, &b);
	assert_ptr_equal(command_list_pop(&list), &a);
	command_list_push(&list, &c);
	command_list_push(&list, &a);
	assert_order(&list, (struct command *[]){&b, &c, &a}, 3);
}

static void a_list_takes_over_another(void **state)
{
	struct command a = {0}, b = {0}, c = {0};
	struct command_list list = {0}, from = {0};

	(void)state;
	command_list_append(&list, &from);
	assert_int_equal(list.count, 0);
	command_list_push(&from, &a);
	command_list_push(&from, &b);
	command_list_append(&list, &from);
	assert_order(&from, NULL, 0);
	command_list_push(&from, &c);
	command_list_append(&list, &from);
	command_list_append(&list, &from);
	assert_order(&list, (struct command *[]){&a, &b, &c}, 3);
}

static void a_list_knows_the_weight_and_the_bytes_of_its_commands(void **state)
{
	struct command light = {.bytes = 10}, heavy = {.weight = 7, .bytes = 100};
	struct command_list list = {0}, from = {0};

	(void)state;
	command_list_push(&list, &light);
	command_list_push(&from, &heavy);
	command_list_append(&list, &from);
	assert_int_equal(list.weight, 8);
	assert_int_equal(list.bytes, 110);
	assert_int_equal(from.weight, 0);
	command_list_pop(&list);
	assert_int_equal(list.weight, 7);
	assert_int_equal(list.bytes, 100);
	command_list_pop(&list);
	assert_int_equal(list.weight, 0);
	assert_int_equal(list.bytes, 0);
}

/* ---- delivery ---------------------------------------------------------------------------- */

struct receiver {
	struct loop *loop;
	size_t received;
	size_t rounds; /* how many rounds of tasks have ended */
	size_t misplaced;
	size_t late; /* how many came in a later round than the first */
};

struct numbered_command {
	/* its `hash` is how many commands its receiver must have got before */
	struct command command;
	struct receiver *receiver;
};

static void on_answered(struct loop_task *task)
{
	struct numbered_command *numbered = (struct numbered_command *)task;
	struct receiver *receiver = numbered->receiver;

	receiver->misplaced += numbered->command.hash != receiver->received;
	receiver->late += receiver->rounds > 0;
	receiver->received++;
}

static void count_round(void *context)
{
	struct receiver *receiver = context;

	receiver->rounds++;
}

static void make_loops(struct receiver *receivers, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		receivers[i] = (struct receiver){0};
		receivers[i].loop = loop_new(count_round, &receivers[i]);
	}
}

static void run_loops(const struct receiver *receivers, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		loop_start(receivers[i].loop, "test");
		loop_stop(receivers[i].loop);
		loop_join(receivers[i].loop);
		loop_free(receivers[i].loop);
	}
}

/* Fills the list with answered commands for all receivers in turn, `each` per receiver. */
static void fill(struct command_list *list, struct numbered_command *commands,
	struct receiver *receivers, size_t receiver_count, size_t each)
{
	for (size_t i = 0; i < receiver_count * each; i++) {
		commands[i] = (struct numbered_command){.receiver = &receivers[i % receiver_count]};
		commands[i].command.task.run = on_answered;
		commands[i].command.loop = commands[i].receiver->loop;
		commands[i].command.hash = i / receiver_count;
		commands[i].command.answer.http_status = 200;
		command_list_push(list, &commands[i].command);
	}
}

static void answers_go_to_their_loops_in_order_with_one_wake_up_each(void **state)
{
	enum { LOOPS = 3, EACH = 100 };
	struct receiver receivers[LOOPS];
	struct numbered_command commands[LOOPS * EACH];
	struct command_list list = {0};

	(void)state;
	make_loops(receivers, LOOPS);
	fill(&list, commands, receivers, LOOPS, EACH);
	command_list_deliver(&list);
	assert_int_equal(list.count, 0);
	assert_null(list.first);
	run_loops(receivers, LOOPS);
	for (size_t i = 0; i < LOOPS; i++) {
		assert_int_equal(receivers[i].received, EACH);
		assert_int_equal(receivers[i].misplaced, 0);
		assert_int_equal(receivers[i].late, 0);
	}
}

static void answers_for_many_loops_arrive_all_and_in_order(void **state)
{
	enum { LOOPS = 40, EACH = 5 };
	static struct receiver receivers[LOOPS];
	static struct numbered_command commands[LOOPS * EACH];
	struct command_list list = {0};

	(void)state;
	make_loops(receivers, LOOPS);
	fill(&list, commands, receivers, LOOPS, EACH);
	command_list_deliver(&list);
	run_loops(receivers, LOOPS);
	for (size_t i = 0; i < LOOPS; i++) {
		assert_int_equal(receivers[i].received, EACH);
		assert_int_equal(receivers[i].misplaced, 0);
	}
}

static void delivering_nothing_wakes_nobody(void **state)
{
	struct command_list list = {0};

	(void)state;
	command_list_deliver(&list);
	assert_int_equal(list.count, 0);
}

static void answers_reach_loops_that_run(void **state)
{
	enum { LOOPS = 2, EACH = 2000, BATCH = 50 };
	static struct numbered_command commands[LOOPS * EACH];
	struct receiver receivers[LOOPS];
	struct command_list list = {0}, batch = {0};

	(void)state;
	make_loops(receivers, LOOPS);
	fill(&list, commands, receivers, LOOPS, EACH);
	for (size_t i = 0; i < LOOPS; i++)
		loop_start(receivers[i].loop, "test");
	while (list.count > 0) {
		while (batch.count < BATCH && list.count > 0)
			command_list_push(&batch, command_list_pop(&list));
		command_list_deliver(&batch);
	}
	for (size_t i = 0; i < LOOPS; i++) {
		loop_stop(receivers[i].loop);
		loop_join(receivers[i].loop);
		loop_free(receivers[i].loop);
		assert_int_equal(receivers[i].received, EACH);
		assert_int_equal(receivers[i].misplaced, 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_list_gives_back_what_was_pushed_in_order),
		cmocka_unit_test(a_list_takes_over_another),
		cmocka_unit_test(a_list_knows_the_weight_and_the_bytes_of_its_commands),
		cmocka_unit_test(answers_go_to_their_loops_in_order_with_one_wake_up_each),
		cmocka_unit_test(answers_for_many_loops_arrive_all_and_in_order),
		cmocka_unit_test(delivering_nothing_wakes_nobody),
		cmocka_unit_test(answers_reach_loops_that_run),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
