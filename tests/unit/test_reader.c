/*
 * Reads that wait together are looked up together, and if the store refuses one of them, it fails
 * alone.
 */
#include "check.h"

#include <pthread.h>

#include "base/clock.h"
#include "faulty_store.h"
#include "flow/reader.h"

#define READS 16

static const struct command_type lookup_type = {.name = "test_lookup"};

struct lookup {
	struct read read; /* first */
	struct arena arena;
	bool is_poison;
	bool answered;
};

struct fixture {
	struct faulty_store *store;
	struct lane *lane;
	struct loop *loop;
	struct reader *reader;
	struct lookup lookups[READS];
	size_t batches;
	size_t largest_batch; /* in bytes of answers */
	size_t looked_up;     /* how often a read was looked up */
	/* a read whose client leaves while others are looked up, or NULL */
	struct lookup *leaver;
	enum status status; /* the status of every batch without poison */
};

static enum status look_up(void *context, struct session *session, const struct read_batch *batch)
{
	struct fixture *fixture = context;

	size_t bytes = 0;

	fixture->batches++;
	fixture->looked_up += batch->count;
	if (fixture->leaver)
		atomic_store(&fixture->leaver->read.command.client_gone, true);
	for (size_t i = 0; i < batch->count; i++)
		bytes += batch->reads[i]->command.answer_max;
	if (bytes > fixture->largest_batch)
		fixture->largest_batch = bytes;
	for (size_t i = 0; i < batch->count; i++) {
		if (((struct lookup *)batch->reads[i])->is_poison)
			return STATUS_POISON;
	}
	for (size_t i = 0; i < batch->count && fixture->status == STATUS_OK; i++)
		batch->reads[i]->command.answer = answer_json(200, slice_of("{}"));
	return fixture->status;
}

static void on_answered(struct loop_task *task)
{
	struct lookup *lookup = (struct lookup *)task;

	lookup->answered = true; /* set before the receipt is signed, which lets the reader go on */
	command_sign(&lookup->read.command);
}

static void submit(struct fixture *fixture, struct lookup *lookup)
{
	struct command *command = &lookup->read.command;

	arena_init(&lookup->arena, 512);
	command->type = &lookup_type;
	command->task.run = on_answered;
	command->loop = fixture->loop;
	command->arena = &lookup->arena;
	command->deadline_ns = INT64_MAX;
	assert_int_equal(lane_submit(fixture->lane, command), STATUS_OK);
}

static int set_up(void **state)
{
	struct fixture *fixture = qp_calloc(1, sizeof(*fixture));
	struct reader_config config = {
		.batch_max = READS, .clock = &clock_system, .look_up = look_up, .service = fixture};

	fixture->store = faulty_store_new();
	fixture->lane = config.lane = lane_new("test", 2 * READS, 1 << 20);
	fixture->loop = loop_new(NULL, NULL);
	config.session = faulty_store_open_session(fixture->store, SESSION_READ);
	fixture->reader = reader_new(&config);
	*state = fixture;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *fixture = *state;

	reader_free(fixture->reader);
	lane_free(fixture->lane);
	loop_stop(fixture->loop);
	uv_run(loop_uv(fixture->loop), UV_RUN_DEFAULT);
	loop_free(fixture->loop);
	faulty_store_free(fixture->store);
	for (size_t i = 0; i < READS; i++)
		arena_release(&fixture->lookups[i].arena);
	free(fixture);
	return 0;
}

/* Submits all reads, runs the reader once, and compares the statuses. */
static void run(struct fixture *fixture, int usual, int of_poison)
{
	for (size_t i = 0; i < READS; i++)
		submit(fixture, &fixture->lookups[i]);
	reader_step(fixture->reader);
	uv_run(loop_uv(fixture->loop), UV_RUN_NOWAIT);
	for (size_t i = 0; i < READS; i++) {
		const struct lookup *lookup = &fixture->lookups[i];

		assert_true(lookup->answered);
		assert_int_equal(lookup->read.command.answer.http_status,
			lookup->is_poison ? of_poison : usual);
	}
}

static void what_waits_is_looked_up_at_once(void **state)
{
	struct fixture *fixture = *state;

	run(fixture, 200, 0);
	assert_int_equal(fixture->batches, 1);
}

static void a_read_that_the_store_refuses_fails_alone(void **state)
{
	struct fixture *fixture = *state;

	fixture->lookups[5].is_poison = fixture->lookups[11].is_poison = true;
	run(fixture, 200, 500);
}

static void a_store_that_is_away_is_not_asked_again_and_again(void **state)
{
	struct fixture *fixture = *state;

	fixture->status = STATUS_STORE_UNAVAILABLE;
	run(fixture, 503, 0);
	assert_int_equal(fixture->batches, 1);
}

static void a_table_that_is_locked_is_a_503(void **state)
{
	struct fixture *fixture = *state;

	fixture->status = STATUS_LOCK_BUSY;
	run(fixture, 503, 0);
}

/* ---- large answers ------------------------------------------------------------------------ */

#define MIB ((size_t)1 << 20)

static size_t answered_count(const struct fixture *fixture)
{
	size_t count = 0;

	for (size_t i = 0; i < READS; i++)
		count += fixture->lookups[i].answered;
	return count;
}

static void submit_large(struct fixture *fixture, struct lookup *lookup, uint64_t user)
{
	lookup->read.command.answer_max = MIB;
	lookup->read.command.hash = user << 40;
	submit(fixture, lookup);
}

static void step(struct fixture *fixture)
{
	reader_step(fixture->reader);
	uv_run(loop_uv(fixture->loop), UV_RUN_NOWAIT);
}

static void a_round_has_a_budget_of_bytes(void **state)
{
	struct fixture *fixture = *state;

	for (size_t i = 0; i < READS; i++)
		submit_large(fixture, &fixture->lookups[i], i + 1);
	while (answered_count(fixture) < READS)
		step(fixture);
	assert_true(fixture->batches > 1);
	assert_in_range(fixture->largest_batch, MIB, 6 * MIB);
}

static void a_read_larger_than_a_round_is_answered_too(void **state)
{
	struct fixture *fixture = *state;

	fixture->lookups[0].read.command.answer_max = 100 * MIB;
	submit(fixture, &fixture->lookups[0]);
	step(fixture);
	assert_true(fixture->lookups[0].answered);
}

static void who_asks_for_many_large_answers_delays_others_by_one(void **state)
{
	struct fixture *fixture = *state;

	for (size_t i = 0; i < READS - 2; i++)
		submit_large(fixture, &fixture->lookups[i], 1);
	submit_large(fixture, &fixture->lookups[READS - 2], 2);
	submit(fixture, &fixture->lookups[READS - 1]); /* a small one */
	step(fixture);
	assert_int_equal(answered_count(fixture), 3);
	assert_true(fixture->lookups[0].answered);
	assert_true(fixture->lookups[READS - 2].answered);
	assert_true(fixture->lookups[READS - 1].answered);
	while (answered_count(fixture) < READS)
		step(fixture);
}

static void who_is_gone_before_his_round_is_not_looked_up(void **state)
{
	struct fixture *fixture = *state;

	submit_large(fixture, &fixture->lookups[0], 1);
	submit_large(fixture, &fixture->lookups[1], 1);
	step(fixture);
	atomic_store(&fixture->lookups[1].read.command.client_gone, true);
	step(fixture);
	assert_true(fixture->lookups[1].answered);
	assert_int_equal(fixture->lookups[1].read.command.answer.http_status, 503);
	assert_int_equal(fixture->batches, 1);
}

/* Looks up one read alone, while the client of another one leaves. */
static enum status look_up_alone(struct read *read, struct session *session, struct arena *arena)
{
	struct lookup *lookup = (struct lookup *)read;

	(void)session;
	(void)arena;
	atomic_store(&lookup[1].read.command.client_gone, true);
	read->command.answer = answer_json(200, slice_of("{}"));
	return STATUS_OK;
}

static void who_leaves_while_others_are_looked_up_is_not_looked_up(void **state)
{
	struct fixture *fixture = *state;
	struct lookup *lookups = fixture->lookups;

	lookups[0].read.look_up = lookups[1].read.look_up = look_up_alone;
	lookups[2].read.look_up = look_up_alone; /* after it, the client of [3] leaves */
	for (size_t i = 0; i < 5; i++)
		submit(fixture, &lookups[i]);
	step(fixture);
	assert_int_equal(answered_count(fixture), 5);
	assert_int_equal(lookups[0].read.command.answer.http_status, 200);
	assert_int_equal(lookups[1].read.command.answer.http_status, 503);
	assert_int_equal(lookups[2].read.command.answer.http_status, 200);
	assert_int_equal(lookups[3].read.command.answer.http_status, 503);
	assert_int_equal(lookups[4].read.command.answer.http_status, 200);
	assert_int_equal(fixture->looked_up, 1);
}

static void who_leaves_before_the_batch_is_halved_is_not_looked_up_again(void **state)
{
	struct fixture *fixture = *state;

	fixture->lookups[0].is_poison = true;
	fixture->leaver = &fixture->lookups[1];
	for (size_t i = 0; i < 2; i++)
		submit(fixture, &fixture->lookups[i]);
	step(fixture);
	assert_int_equal(fixture->lookups[0].read.command.answer.http_status, 500);
	assert_int_equal(fixture->lookups[1].read.command.answer.http_status, 503);
	assert_int_equal(fixture->looked_up, 3); /* both, then the first alone */
}

static void *run_loop_once(void *fixture)
{
	uv_run(loop_uv(((struct fixture *)fixture)->loop), UV_RUN_ONCE);
	return NULL;
}

static void large_answers_wait_until_the_loop_has_taken_those_before(void **state)
{
	struct fixture *fixture = *state;
	pthread_t loop;

	submit_large(fixture, &fixture->lookups[0], 1);
	reader_step(fixture->reader);
	submit_large(fixture, &fixture->lookups[1], 1);
	assert_false(fixture->lookups[0].answered);
	pthread_create(&loop, NULL, run_loop_once, fixture);
	reader_step(fixture->reader); /* blocks until the loop has run */
	assert_true(fixture->lookups[0].answered);
	pthread_join(loop, NULL);
	uv_run(loop_uv(fixture->loop), UV_RUN_NOWAIT);
	assert_true(fixture->lookups[1].answered);
}

#define READER_TEST(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		READER_TEST(what_waits_is_looked_up_at_once),
		READER_TEST(a_read_that_the_store_refuses_fails_alone),
		READER_TEST(a_store_that_is_away_is_not_asked_again_and_again),
		READER_TEST(a_table_that_is_locked_is_a_503),
		READER_TEST(a_round_has_a_budget_of_bytes),
		READER_TEST(a_read_larger_than_a_round_is_answered_too),
		READER_TEST(who_asks_for_many_large_answers_delays_others_by_one),
		READER_TEST(who_is_gone_before_his_round_is_not_looked_up),
		READER_TEST(who_leaves_while_others_are_looked_up_is_not_looked_up),
		READER_TEST(who_leaves_before_the_batch_is_halved_is_not_looked_up_again),
		READER_TEST(large_answers_wait_until_the_loop_has_taken_those_before),
	};

	return cmocka_run_group_tests_name("reader", tests, NULL, NULL);
}
