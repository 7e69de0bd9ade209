/* The queue in front of a consumer: bounds, order, closing, and many producers at once. */
#include "check.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "runtime/lane.h"
#include "waiting.h"

#define FOR_EVER INT64_MAX

static struct command commands[8];

static int set_up(void **state)
{
	(void)state;
	memset(commands, 0, sizeof(commands));
	for (size_t i = 0; i < COUNT_OF(commands); i++)
		commands[i].bytes = 10;
	return 0;
}

/* Takes without waiting. The commands must be those from index `first` on, in order. */
static void assert_take(struct lane *lane, size_t max, size_t first, size_t count)
{
	struct command_list out = {0};

	assert_true(lane_take(lane, &out, max, 0));
	assert_int_equal(out.count, count);
	for (size_t i = 0; i < count; i++)
		assert_ptr_equal(command_list_pop(&out), &commands[first + i]);
	assert_null(out.first);
}

static void submit_all(struct lane *lane, size_t count)
{
	for (size_t i = 0; i < count; i++)
		assert_int_equal(lane_submit(lane, &commands[i]), STATUS_OK);
}

static void commands_leave_in_the_order_they_came(void **state)
{
	struct lane *lane = lane_new("test", 100, 1000);

	(void)state;
	submit_all(lane, 5);
	assert_take(lane, 100, 0, 5);
	lane_free(lane);
}

/* Gives the commands from `first` on the same key. */
static void give_key(size_t first, size_t count, uint64_t hash)
{
	for (size_t i = first; i < first + count; i++)
		commands[i].hash = hash;
}

static void one_key_gets_three_quarters_of_the_places(void **state)
{
	struct lane *lane = lane_new("test", 4, 1000);

	(void)state;
	give_key(0, 6, UINT64_C(7) << 32);
	give_key(6, 1, UINT64_C(0x107) << 32); /* half of the bits that matter are the same */
	submit_all(lane, 3);
	assert_int_equal(lane_submit(lane, &commands[3]), STATUS_OVERLOADED);
	assert_int_equal(lane_submit(lane, &commands[6]), STATUS_OK);
	assert_int_equal(lane_depth(lane), 4);
	assert_take(lane, 3, 0, 3);
	assert_take(lane, 1, 6, 1);
	submit_all(lane, 3);
	assert_take(lane, 3, 0, 3);
	lane_free(lane);
}

static void one_key_gets_three_quarters_of_the_bytes(void **state)
{
	struct lane *lane = lane_new("test", 100, 40);

	(void)state;
	give_key(0, 6, UINT64_C(7) << 32);
	submit_all(lane, 3);
	assert_int_equal(lane_submit(lane, &commands[3]), STATUS_OVERLOADED);
	assert_int_equal(lane_submit(lane, &commands[6]), STATUS_OK);
	assert_take(lane, 3, 0, 3);
	assert_take(lane, 1, 6, 1);
	submit_all(lane, 3); /* commands that have left no longer count */
	assert_take(lane, 3, 0, 3);
	lane_free(lane);
}

static void no_more_than_asked_for_are_taken(void **state)
{
	struct lane *lane = lane_new("test", 100, 1000);

	(void)state;
	submit_all(lane, 5);
	assert_take(lane, 2, 0, 2);
	assert_int_equal(lane_depth(lane), 3);
	assert_take(lane, 2, 2, 2);
	assert_take(lane, 2, 4, 1);
	assert_take(lane, 2, 0, 0);
	lane_free(lane);
}

static void what_is_taken_goes_behind_what_the_list_holds(void **state)
{
	struct lane *lane = lane_new("test", 100, 1000);
	struct command_list out = {0};

	(void)state;
	command_list_push(&out, &commands[7]);
	submit_all(lane, 2);
	assert_true(lane_take(lane, &out, 100, 0));
	assert_int_equal(out.count, 3);
	assert_ptr_equal(command_list_pop(&out), &commands[7]);
	assert_ptr_equal(command_list_pop(&out), &commands[0]);
	lane_free(lane);
}

static void a_lane_that_is_full_by_count_refuses(void **state)
{
	struct lane *lane = lane_new("test", 3, 1000);

	(void)state;
	submit_all(lane, 3);
	assert_int_equal(lane_submit(lane, &commands[3]), STATUS_OVERLOADED);
	assert_int_equal(lane_depth(lane), 3);
	assert_take(lane, 1, 0, 1);
	assert_int_equal(lane_submit(lane, &commands[3]), STATUS_OK);
	assert_take(lane, 100, 1, 3);
	lane_free(lane);
}

static void a_lane_that_is_full_by_bytes_refuses(void **state)
{
	struct lane *lane = lane_new("test", 100, 30);

	(void)state;
	submit_all(lane, 3);
	commands[3].bytes = 1;
	assert_int_equal(lane_submit(lane, &commands[3]), STATUS_OVERLOADED);
	assert_take(lane, 1, 0, 1);
	commands[3].bytes = 11;
	assert_int_equal(lane_submit(lane, &commands[3]), STATUS_OVERLOADED);
	commands[3].bytes = 10;
	assert_int_equal(lane_submit(lane, &commands[3]), STATUS_OK);
	assert_take(lane, 100, 1, 3);
	commands[0].bytes = 30;
	assert_int_equal(lane_submit(lane, &commands[0]), STATUS_OK);
	assert_take(lane, 100, 0, 1);
	lane_free(lane);
}

static void what_is_larger_than_the_lane_is_refused_by_an_empty_one(void **state)
{
	struct lane *lane = lane_new("test", 100, 30);

	(void)state;
	commands[0].bytes = 31;
	assert_int_equal(lane_submit(lane, &commands[0]), STATUS_OVERLOADED);
	assert_int_equal(lane_depth(lane), 0);
	lane_free(lane);
}

static void an_open_lane_that_is_empty_says_that_more_may_come(void **state)
{
	struct lane *lane = lane_new("test", 100, 1000);
	struct command_list out = {0};

	(void)state;
	assert_true(lane_take(lane, &out, 100, 0));
	assert_true(lane_take(lane, &out, 100, 1)); /* a time that has long passed */
	assert_true(lane_take(lane, &out, 100, clock_steady_ns(&clock_system) + NS_PER_MS));
	assert_int_equal(out.count, 0);
	lane_free(lane);
}

static void a_closed_lane_refuses_and_gives_what_it_holds_and_then_ends(void **state)
{
	struct lane *lane = lane_new("test", 100, 1000);
	struct command_list out = {0};

	(void)state;
	submit_all(lane, 3);
	lane_close(lane);
	assert_int_equal(lane_submit(lane, &commands[3]), STATUS_OVERLOADED);
	assert_take(lane, 2, 0, 2);
	assert_take(lane, 2, 2, 1);
	assert_false(lane_take(lane, &out, 2, 0));
	assert_false(lane_take(lane, &out, 2, FOR_EVER));
	lane_close(lane);
	lane_free(lane);
}

static void a_lane_keeps_its_name(void **state)
{
	struct lane *lane = lane_new("counts-0", 1, 1);

	(void)state;
	assert_string_equal(lane_name(lane), "counts-0");
	lane_free(lane);
}

/* ---- threads: nothing in them asserts, the main thread looks at what they found ----------- */

struct waiting {
	struct lane *lane;
	struct command_list out;
	int64_t until_ns;
	bool more_may_come;
	pthread_t thread;
	_Atomic pid_t tid; /* 0 until it has started */
};

static void *wait_for_one(void *argument)
{
	struct waiting *waiting = argument;

	waiting->tid = gettid();
	waiting->more_may_come = lane_take(waiting->lane, &waiting->out, 10, waiting->until_ns);
	return NULL;
}

static bool is_asleep(pid_t tid)
{
	char path[64], state = '?';
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", tid);
	file = fopen(path, "r");
	if (!file)
		return false;
	if (fscanf(file, "%*d (%*[^)]) %c", &state) != 1)
		state = '?';
	fclose(file);
	return state == 'S';
}

static bool worker_is_asleep(void *context)
{
	const struct waiting *waiting = context;

	return waiting->tid != 0 && is_asleep(waiting->tid);
}

/* Returns when the worker sleeps in lane_take(). It cannot wait for anything else, because nobody
 * else holds a lock. */
static void start_waiting(struct waiting *waiting)
{
	waiting->lane = lane_new("test", 100, 1000);
	assert_int_equal(pthread_create(&waiting->thread, NULL, wait_for_one, waiting), 0);
	wait_until(worker_is_asleep, waiting, "a worker that waits for commands");
}

static void a_waiting_worker_gets_what_comes(void **state)
{
	static const int64_t untils[] = {FOR_EVER, INT64_MAX - 1};

	(void)state;
	for (size_t i = 0; i < COUNT_OF(untils); i++) {
		struct waiting waiting = {.until_ns = untils[i]};

		start_waiting(&waiting);
		assert_int_equal(lane_submit(waiting.lane, &commands[0]), STATUS_OK);
		pthread_join(waiting.thread, NULL);
		assert_true(waiting.more_may_come);
		assert_ptr_equal(command_list_pop(&waiting.out), &commands[0]);
		lane_free(waiting.lane);
	}
}

static void closing_wakes_a_waiting_worker(void **state)
{
	struct waiting waiting = {.until_ns = FOR_EVER, .more_may_come = true};

	(void)state;
	start_waiting(&waiting);
	lane_close(waiting.lane);
	pthread_join(waiting.thread, NULL);
	assert_false(waiting.more_may_come);
	assert_int_equal(waiting.out.count, 0);
	lane_free(waiting.lane);
}

#define PRODUCERS 4
#define COMMANDS_EACH 50000

struct producer {
	pthread_t thread;
	struct lane *lane;
	struct command *commands;
	uint64_t seen; /* how many commands of this producer the consumer has received in order */
};

static void *produce(void *argument)
{
	struct producer *producer = argument;

	for (size_t i = 0; i < COMMANDS_EACH; i++) {
		while (lane_submit(producer->lane, &producer->commands[i]) != STATUS_OK)
			sched_yield();
	}
	return NULL;
}

static void start_producer(struct producer *producer, struct lane *lane)
{
	producer->lane = lane;
	producer->commands = calloc(COMMANDS_EACH, sizeof(struct command));
	assert_non_null(producer->commands);
	for (size_t i = 0; i < COMMANDS_EACH; i++) {
		producer->commands[i].bytes = 1 + i % 7;
		producer->commands[i].hash = i;
	}
	assert_int_equal(pthread_create(&producer->thread, NULL, produce, producer), 0);
}

/* Counts `command` as seen if it is the next one of its producer. */
static bool note_seen(struct producer *producers, const struct command *command)
{
	for (size_t i = 0; i < PRODUCERS; i++) {
		struct producer *producer = &producers[i];

		if (command >= producer->commands && command < producer->commands + COMMANDS_EACH)
			return command->hash == producer->seen++;
	}
	return false;
}

static size_t consume(struct lane *lane, struct producer *producers, size_t *misplaced)
{
	struct command_list out = {0};
	struct command *command;
	size_t count = 0;

	while (count < (size_t)PRODUCERS * COMMANDS_EACH && lane_take(lane, &out, 100, FOR_EVER)) {
		while ((command = command_list_pop(&out))) {
			*misplaced += !note_seen(producers, command);
			count++;
		}
	}
	return count;
}

static void many_producers_lose_nothing_and_keep_their_order(void **state)
{
	static struct producer producers[PRODUCERS];
	struct lane *lane = lane_new("test", 1000, 3000);
	struct command_list rest = {0};
	size_t misplaced = 0;

	(void)state;
	for (size_t i = 0; i < PRODUCERS; i++)
		start_producer(&producers[i], lane);
	assert_int_equal(consume(lane, producers, &misplaced), PRODUCERS * COMMANDS_EACH);
	assert_int_equal(misplaced, 0);
	for (size_t i = 0; i < PRODUCERS; i++) {
		pthread_join(producers[i].thread, NULL);
		assert_int_equal(producers[i].seen, COMMANDS_EACH);
		free(producers[i].commands);
	}
	lane_close(lane);
	assert_false(lane_take(lane, &rest, 1, 0));
	lane_free(lane);
}

static void the_depth_counts_changes_and_an_empty_lane_takes_any_command(void **state)
{
	struct lane *lane = lane_new("test", 10, 1000);

	(void)state;
	commands[0].weight = 50;
	commands[2].weight = 9;
	assert_int_equal(lane_submit(lane, &commands[0]), STATUS_OK);
	assert_int_equal(lane_depth(lane), 50);
	assert_int_equal(lane_submit(lane, &commands[1]), STATUS_OVERLOADED);
	assert_take(lane, 5, 0, 1);
	assert_int_equal(lane_depth(lane), 0);
	assert_int_equal(lane_submit(lane, &commands[1]), STATUS_OK);
	assert_int_equal(lane_submit(lane, &commands[2]), STATUS_OK);
	assert_int_equal(lane_submit(lane, &commands[3]), STATUS_OVERLOADED);
	assert_take(lane, 10, 1, 2);
	lane_free(lane);
}

static void a_command_that_is_too_heavy_for_the_rest_of_a_batch_waits_for_the_next(void **state)
{
	struct lane *lane = lane_new("test", 100, 1000);

	(void)state;
	commands[1].weight = 8;
	submit_all(lane, 3);
	assert_take(lane, 8, 0, 1);
	assert_take(lane, 8, 1, 1);
	assert_take(lane, 8, 2, 1);
	lane_free(lane);
}

#define TEST(name) cmocka_unit_test_setup(name, set_up)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(commands_leave_in_the_order_they_came),
		TEST(no_more_than_asked_for_are_taken),
		TEST(what_is_taken_goes_behind_what_the_list_holds),
		TEST(a_lane_that_is_full_by_count_refuses),
		TEST(a_lane_that_is_full_by_bytes_refuses),
		TEST(what_is_larger_than_the_lane_is_refused_by_an_empty_one),
		TEST(an_open_lane_that_is_empty_says_that_more_may_come),
		TEST(a_closed_lane_refuses_and_gives_what_it_holds_and_then_ends),
		TEST(one_key_gets_three_quarters_of_the_places),
		TEST(one_key_gets_three_quarters_of_the_bytes),
		TEST(the_depth_counts_changes_and_an_empty_lane_takes_any_command),
		TEST(a_command_that_is_too_heavy_for_the_rest_of_a_batch_waits_for_the_next),
		TEST(a_lane_keeps_its_name),
		TEST(a_waiting_worker_gets_what_comes),
		TEST(closing_wakes_a_waiting_worker),
		TEST(many_producers_lose_nothing_and_keep_their_order),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
