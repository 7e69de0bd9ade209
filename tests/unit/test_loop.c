/* Tasks posted to a loop: their order, one wake-up for all that wait, many posters, and the end. */
#include "check.h"

#include <pthread.h>
#include <stdlib.h>

#include "runtime/loop.h"

/* Used by the loop's thread while it runs, and by the test before and after. */
struct journal {
	size_t ran;
	size_t misplaced;
	size_t rounds; /* how many rounds of tasks have ended */
};

struct numbered_task {
	struct loop_task task;
	struct journal *journal;
	size_t number; /* how many must have run before it */
	size_t round;  /* the round in which it ran */
};

static void count_round(void *context)
{
	struct journal *journal = context;

	journal->rounds++;
}

static void run_numbered(struct loop_task *task)
{
	struct numbered_task *numbered = (struct numbered_task *)task;
	struct journal *journal = numbered->journal;

	journal->misplaced += numbered->number != journal->ran;
	numbered->round = journal->rounds;
	journal->ran++;
}

static void number_tasks(struct numbered_task *tasks, size_t count, struct journal *journal)
{
	memset(tasks, 0, count * sizeof(*tasks));
	for (size_t i = 0; i < count; i++) {
		tasks[i].task.run = run_numbered;
		tasks[i].journal = journal;
		tasks[i].number = i;
	}
}

static void run_to_the_end(struct loop *loop)
{
	loop_start(loop, "test");
	loop_stop(loop);
	loop_join(loop);
	loop_free(loop);
}

static void tasks_run_in_the_order_posted(void **state)
{
	struct numbered_task tasks[1000];
	struct journal journal = {0};
	struct loop *loop = loop_new(NULL, NULL);

	(void)state;
	number_tasks(tasks, COUNT_OF(tasks), &journal);
	loop_start(loop, "test");
	for (size_t i = 0; i < COUNT_OF(tasks); i++)
		loop_post(loop, &tasks[i].task);
	loop_stop(loop);
	loop_join(loop);
	loop_free(loop);
	assert_int_equal(journal.ran, COUNT_OF(tasks));
	assert_int_equal(journal.misplaced, 0);
}

static void everything_that_waits_runs_in_one_round(void **state)
{
	struct numbered_task tasks[1000];
	struct journal journal = {0};
	struct loop *loop = loop_new(count_round, &journal);

	(void)state;
	number_tasks(tasks, COUNT_OF(tasks), &journal);
	for (size_t i = 0; i < COUNT_OF(tasks); i++)
		loop_post(loop, &tasks[i].task);
	run_to_the_end(loop);
	assert_int_equal(journal.ran, COUNT_OF(tasks));
	for (size_t i = 0; i < COUNT_OF(tasks); i++)
		assert_int_equal(tasks[i].round, 0);
	assert_true(journal.rounds >= 1);
}

/* Holds the loop until the main thread has posted the tasks that must wait. */
struct gate {
	struct loop_task task;
	pthread_barrier_t entered;
	pthread_barrier_t leave;
};

static void hold_loop(struct loop_task *task)
{
	struct gate *gate = (struct gate *)task;

	pthread_barrier_wait(&gate->entered);
	pthread_barrier_wait(&gate->leave);
}

static void what_is_posted_while_the_loop_is_busy_costs_one_round(void **state)
{
	struct numbered_task tasks[500];
	struct journal journal = {0};
	struct loop *loop = loop_new(count_round, &journal);
	struct gate gate = {.task.run = hold_loop};

	(void)state;
	number_tasks(tasks, COUNT_OF(tasks), &journal);
	pthread_barrier_init(&gate.entered, NULL, 2);
	pthread_barrier_init(&gate.leave, NULL, 2);
	loop_start(loop, "test");
	loop_post(loop, &gate.task);
	pthread_barrier_wait(&gate.entered);
	for (size_t i = 0; i < COUNT_OF(tasks); i++)
		loop_post(loop, &tasks[i].task);
	pthread_barrier_wait(&gate.leave);
	loop_stop(loop);
	loop_join(loop);
	loop_free(loop);
	assert_int_equal(journal.ran, COUNT_OF(tasks));
	assert_int_equal(journal.misplaced, 0);
	for (size_t i = 0; i < COUNT_OF(tasks); i++)
		assert_int_equal(tasks[i].round, 1);
	pthread_barrier_destroy(&gate.entered);
	pthread_barrier_destroy(&gate.leave);
}

static void a_chain_is_posted_behind_what_waits_and_as_a_whole(void **state)
{
	struct numbered_task tasks[6];
	struct journal journal = {0};
	struct loop *loop = loop_new(NULL, NULL);

	(void)state;
	number_tasks(tasks, COUNT_OF(tasks), &journal);
	loop_post(loop, &tasks[0].task);
	for (size_t i = 1; i < 5; i++)
		tasks[i].task.next = &tasks[i + 1].task;
	tasks[5].task.next = &tasks[0].task; /* whatever `next` was before must not matter */
	loop_post_chain(loop, &tasks[1].task, &tasks[5].task);
	run_to_the_end(loop);
	assert_int_equal(journal.ran, COUNT_OF(tasks));
	assert_int_equal(journal.misplaced, 0);
}

/* A task that posts another from the loop itself. */
struct chaining_task {
	struct numbered_task base;
	struct loop *loop;
	struct loop_task *follower;
	pthread_barrier_t *done;
};

static void run_chaining(struct loop_task *task)
{
	struct chaining_task *chaining = (struct chaining_task *)task;

	run_numbered(task);
	if (chaining->follower)
		loop_post(chaining->loop, chaining->follower);
	else
		pthread_barrier_wait(chaining->done);
}

static void a_task_may_post_another_and_may_be_posted_again(void **state)
{
	struct journal journal = {0};
	struct loop *loop = loop_new(count_round, &journal);
	struct chaining_task second = {.base = {.journal = &journal, .number = 1}};
	struct chaining_task first = {.base.journal = &journal, .loop = loop};
	pthread_barrier_t done;

	(void)state;
	pthread_barrier_init(&done, NULL, 2);
	second.base.task.run = run_chaining;
	second.done = &done;
	first.base.task.run = run_chaining;
	first.follower = &second.base.task;
	loop_start(loop, "test");
	for (size_t turn = 0; turn < 3; turn++) {
		first.base.number = 2 * turn;
		second.base.number = 2 * turn + 1;
		loop_post(loop, &first.base.task);
		pthread_barrier_wait(&done);
	}
	loop_stop(loop);
	loop_join(loop);
	loop_free(loop);
	pthread_barrier_destroy(&done);
	assert_int_equal(journal.ran, 6);
	assert_int_equal(journal.misplaced, 0);
	assert_true(second.base.round > first.base.round);
}

static void a_stopped_loop_still_runs_what_its_last_tasks_post(void **state)
{
	struct journal journal = {0};
	struct loop *loop = loop_new(NULL, NULL);
	struct chaining_task last = {.base = {.journal = &journal, .number = 1}};
	struct chaining_task first = {.base.journal = &journal, .loop = loop};
	pthread_barrier_t alone;

	(void)state;
	pthread_barrier_init(&alone, NULL, 1);
	last.base.task.run = run_chaining;
	last.done = &alone;
	first.base.task.run = run_chaining;
	first.follower = &last.base.task;
	loop_post(loop, &first.base.task);
	loop_stop(loop);
	loop_start(loop, "test");
	loop_join(loop);
	loop_free(loop);
	pthread_barrier_destroy(&alone);
	assert_int_equal(journal.ran, 2);
}

#define POSTERS 4
#define TASKS_EACH 20000

struct poster {
	pthread_t thread;
	struct loop *loop;
	struct numbered_task *tasks;
	struct journal journal; /* for its own tasks only */
};

static void *post_all(void *argument)
{
	struct poster *poster = argument;

	for (size_t i = 0; i < TASKS_EACH; i++)
		loop_post(poster->loop, &poster->tasks[i].task);
	return NULL;
}

static void many_threads_lose_nothing_and_keep_their_order(void **state)
{
	static struct poster posters[POSTERS];
	struct loop *loop = loop_new(NULL, NULL);

	(void)state;
	loop_start(loop, "test");
	for (size_t i = 0; i < POSTERS; i++) {
		posters[i].loop = loop;
		posters[i].tasks = malloc(TASKS_EACH * sizeof(struct numbered_task));
		assert_non_null(posters[i].tasks);
		number_tasks(posters[i].tasks, TASKS_EACH, &posters[i].journal);
		assert_int_equal(
			pthread_create(&posters[i].thread, NULL, post_all, &posters[i]), 0);
	}
	for (size_t i = 0; i < POSTERS; i++)
		pthread_join(posters[i].thread, NULL);
	loop_stop(loop);
	loop_join(loop);
	loop_free(loop);
	for (size_t i = 0; i < POSTERS; i++) {
		assert_int_equal(posters[i].journal.ran, TASKS_EACH);
		assert_int_equal(posters[i].journal.misplaced, 0);
		free(posters[i].tasks);
	}
}

static void a_loop_with_nothing_to_do_starts_and_ends(void **state)
{
	(void)state;
	for (int i = 0; i < 20; i++)
		run_to_the_end(loop_new(NULL, NULL));
}

static void on_timer(uv_timer_t *timer)
{
	size_t *ticks = timer->data;

	if (++*ticks == 3)
		uv_close((uv_handle_t *)timer, NULL);
}

static void a_stopped_loop_ends_only_when_its_handles_are_closed(void **state)
{
	struct loop *loop = loop_new(NULL, NULL);
	uv_timer_t timer;
	size_t ticks = 0;

	(void)state;
	uv_timer_init(loop_uv(loop), &timer);
	timer.data = &ticks;
	uv_timer_start(&timer, on_timer, 0, 1);
	run_to_the_end(loop);
	assert_int_equal(ticks, 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tasks_run_in_the_order_posted),
		cmocka_unit_test(everything_that_waits_runs_in_one_round),
		cmocka_unit_test(what_is_posted_while_the_loop_is_busy_costs_one_round),
		cmocka_unit_test(a_chain_is_posted_behind_what_waits_and_as_a_whole),
		cmocka_unit_test(a_task_may_post_another_and_may_be_posted_again),
		cmocka_unit_test(a_stopped_loop_still_runs_what_its_last_tasks_post),
		cmocka_unit_test(many_threads_lose_nothing_and_keep_their_order),
		cmocka_unit_test(a_loop_with_nothing_to_do_starts_and_ends),
		cmocka_unit_test(a_stopped_loop_ends_only_when_its_handles_are_closed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
