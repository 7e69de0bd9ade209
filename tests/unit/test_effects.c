/*
 * Effects that do not hold the lane: a bus that is slow, hangs, refuses or confirms out of order
 * delays only the writes that need it. The committer and its publisher run on their threads; the
 * test plays the bus.
 */
#include "check.h"

#include <uv.h>

#include "faulty_store.h"
#include "flow/committer.h"
#include "waiting.h"

#define BATCH_MAX 2
#define UNDER_WAY_MAX 8 /* what effects.c allows: four batches */
#define ASIDE_MAX 3
#define WRITES_MAX 16
#define HELD_BYTES_MAX 10000
#define HOUR_US (3600 * 1000000LL)

/* A service whose effects end when and how the test decides. */
struct bus {
	pthread_mutex_t lock; /* guards everything */
	pthread_cond_t changed;
	bool news;                                  /* for collect() */
	const struct test_write *begun[WRITES_MAX]; /* in the order of publish() */
	size_t begun_count;
	size_t recorded_alone;    /* by settle() */
	size_t recorded_together; /* by decide(), with a later batch */
};

struct fixture {
	struct bus bus;
	struct faulty_store *store;
	struct lane *lane;
	struct loop *loop;
	struct committer *committer;
};

struct test_write {
	struct write write; /* first */
	struct arena arena;
	bool has_effect;
	enum write_effect decision; /* under the lock of the bus; BEGUN: it hangs */
	bool is_poison;             /* the end of its effect cannot be recorded */
	bool answered;
};

static const struct command_type test_write_type = {"test_write", true};

static struct test_write *test_write_of(const struct write *write)
{
	return (struct test_write *)(uintptr_t)write;
}

/* ---- the service ------------------------------------------------------------------------- */

/* Ends the transaction if it records an effect that cannot be recorded. */
static enum status record(struct session *session, const struct write_batch *ended)
{
	for (size_t i = 0; ended && i < ended->count; i++) {
		if (test_write_of(ended->writes[i])->is_poison) {
			session->ops->rollback(session);
			return STATUS_POISON;
		}
	}
	return STATUS_OK;
}

static enum status decide(void *context, struct session *session, const struct write_batch *batch)
{
	struct bus *bus = context;

	if (record(session, batch->ended) != STATUS_OK)
		return STATUS_POISON;
	for (size_t i = 0; i < batch->count; i++) {
		struct write *write = batch->writes[i];

		if (test_write_of(write)->has_effect)
			write_begin_effect(write, answer_json(200, slice_of("{}")));
		else
			write_answer(write, answer_json(200, slice_of("{}")));
	}
	pthread_mutex_lock(&bus->lock);
	bus->recorded_together += batch->ended ? batch->ended->count : 0;
	pthread_mutex_unlock(&bus->lock);
	return STATUS_OK;
}

static enum status settle(void *context, struct session *session, const struct write_batch *batch)
{
	struct bus *bus = context;

	if (record(session, batch) != STATUS_OK)
		return STATUS_POISON;
	pthread_mutex_lock(&bus->lock);
	bus->recorded_alone += batch->count;
	pthread_mutex_unlock(&bus->lock);
	return STATUS_OK;
}

static bool wants(const struct write *write)
{
	return test_write_of(write)->has_effect;
}

static void publish(void *context, const struct write_batch *round)
{
	struct bus *bus = context;

	pthread_mutex_lock(&bus->lock);
	for (size_t i = 0; i < round->count; i++)
		bus->begun[bus->begun_count++] = test_write_of(round->writes[i]);
	pthread_cond_broadcast(&bus->changed);
	pthread_mutex_unlock(&bus->lock);
}

static void look(void *context, const struct write_batch *round)
{
	struct bus *bus = context;

	pthread_mutex_lock(&bus->lock);
	for (size_t i = 0; i < round->count; i++) {
		struct write *write = round->writes[i];

		write->effect = test_write_of(write)->decision;
		if (write->effect == EFFECT_FAILED)
			write->command.answer =
				answer_failure(write->command.arena, STATUS_BUS_UNAVAILABLE);
	}
	pthread_mutex_unlock(&bus->lock);
}

static void collect(void *context)
{
	struct bus *bus = context;

	pthread_mutex_lock(&bus->lock);
	while (!bus->news)
		pthread_cond_wait(&bus->changed, &bus->lock);
	bus->news = false;
	pthread_mutex_unlock(&bus->lock);
}

static void wake(void *context)
{
	struct bus *bus = context;

	pthread_mutex_lock(&bus->lock);
	bus->news = true;
	pthread_cond_broadcast(&bus->changed);
	pthread_mutex_unlock(&bus->lock);
}

static const struct publish_ops publish_ops = {
	.wants = wants,
	.publish = publish,
	.look = look,
	.collect = collect,
	.wake = wake,
};

/* ---- the fixture ------------------------------------------------------------------------- */

static void set_up(struct fixture *fixture, bool with_threads)
{
	struct committer_config config = {
		.batch_max = BATCH_MAX,
		.held_max = ASIDE_MAX,
		.held_bytes_max = HELD_BYTES_MAX,
		.idempotency_ttl_us = HOUR_US,
		.clock = &clock_system,
		.decide = decide,
		.publishing = &publish_ops,
		.settle = settle,
		.service = &fixture->bus,
	};

	memset(fixture, 0, sizeof(*fixture));
	pthread_mutex_init(&fixture->bus.lock, NULL);
	pthread_cond_init(&fixture->bus.changed, NULL);
	fixture->store = faulty_store_new();
	fixture->lane = config.lane = lane_new("test", 100, 100000);
	config.session = faulty_store_open_session(fixture->store, SESSION_WRITE);
	fixture->loop = loop_new(NULL, NULL);
	fixture->committer = committer_new(&config);
	if (with_threads)
		committer_start(fixture->committer);
}

static void tear_down(struct fixture *fixture)
{
	lane_close(fixture->lane);
	committer_join(fixture->committer);
	committer_free(fixture->committer);
	lane_free(fixture->lane);
	loop_stop(fixture->loop);
	uv_run(loop_uv(fixture->loop), UV_RUN_DEFAULT);
	loop_free(fixture->loop);
	faulty_store_free(fixture->store);
	pthread_cond_destroy(&fixture->bus.changed);
	pthread_mutex_destroy(&fixture->bus.lock);
}

static void on_answered(struct loop_task *task)
{
	((struct test_write *)task)->answered = true;
}

static void prepare_write(struct fixture *fixture, struct test_write *write, bool has_effect)
{
	struct command *command = &write->write.command;

	memset(write, 0, sizeof(*write));
	arena_init(&write->arena, 512);
	write->has_effect = has_effect;
	command->type = &test_write_type;
	command->task.run = on_answered;
	command->loop = fixture->loop;
	command->arena = &write->arena;
	command->key = slice_of("item");
	command->deadline_ns = INT64_MAX;
}

static void submit_until(
	struct fixture *fixture, struct test_write *write, bool has_effect, int64_t deadline_ns)
{
	prepare_write(fixture, write, has_effect);
	write->write.command.deadline_ns = deadline_ns;
	assert_int_equal(lane_submit(fixture->lane, &write->write.command), STATUS_OK);
}

static void submit(struct fixture *fixture, struct test_write *write, bool has_effect)
{
	submit_until(fixture, write, has_effect, INT64_MAX);
}

static bool is_answered(struct fixture *fixture, const struct test_write *write)
{
	uv_run(loop_uv(fixture->loop), UV_RUN_NOWAIT);
	return write->answered;
}

/* Waits for the answer, releases the write and returns the HTTP status. */
static int status_of(struct fixture *fixture, struct test_write *write)
{
	WAIT_UNTIL(is_answered(fixture, write));
	arena_release(&write->arena);
	return write->write.command.answer.http_status;
}

static size_t begun_count(struct fixture *fixture)
{
	size_t count;

	pthread_mutex_lock(&fixture->bus.lock);
	count = fixture->bus.begun_count;
	pthread_mutex_unlock(&fixture->bus.lock);
	return count;
}

static void end(struct fixture *fixture, struct test_write *write, enum write_effect how)
{
	pthread_mutex_lock(&fixture->bus.lock);
	write->decision = how;
	pthread_mutex_unlock(&fixture->bus.lock);
	wake(&fixture->bus);
}

/* ---- the tests --------------------------------------------------------------------------- */

static void while_an_effect_hangs_other_writes_on_its_key_are_answered(void **state)
{
	struct test_write sent, other;
	struct fixture fixture;

	(void)state;
	set_up(&fixture, true);
	submit(&fixture, &sent, true);
	WAIT_UNTIL(begun_count(&fixture) == 1);
	submit(&fixture, &other, false);
	assert_int_equal(status_of(&fixture, &other), 200);
	assert_false(is_answered(&fixture, &sent));
	end(&fixture, &sent, EFFECT_DONE);
	assert_int_equal(status_of(&fixture, &sent), 200);
	tear_down(&fixture);
}

static void what_the_bus_confirms_first_is_answered_first(void **state)
{
	struct test_write first, second;
	struct fixture fixture;

	(void)state;
	set_up(&fixture, true);
	submit(&fixture, &first, true);
	WAIT_UNTIL(begun_count(&fixture) == 1);
	submit(&fixture, &second, true);
	WAIT_UNTIL(begun_count(&fixture) == 2); /* before the first one has ended */
	end(&fixture, &second, EFFECT_DONE);
	assert_int_equal(status_of(&fixture, &second), 200);
	assert_false(is_answered(&fixture, &first));
	end(&fixture, &first, EFFECT_FAILED);
	assert_int_equal(status_of(&fixture, &first), 503);
	assert_ptr_equal(fixture.bus.begun[0], &first);
	tear_down(&fixture);
}

/* One after the other: what comes at once would wait aside for the end of the first. */
static void fill_publisher(struct fixture *fixture, struct test_write *writes)
{
	for (size_t i = 0; i < UNDER_WAY_MAX; i++) {
		submit(fixture, &writes[i], true);
		WAIT_UNTIL(begun_count(fixture) == i + 1);
	}
}

/* Nothing ever ends: the publisher is full, three more wait aside, and the rest is refused. */
static void fill(struct fixture *fixture, struct test_write *writes)
{
	fill_publisher(fixture, writes);
	for (size_t i = UNDER_WAY_MAX; i < UNDER_WAY_MAX + ASIDE_MAX; i++)
		submit(fixture, &writes[i], true);
}

static void at_the_bound_sends_wait_aside_in_order_and_others_pass(void **state)
{
	struct test_write writes[WRITES_MAX], refused, other;
	struct fixture fixture;

	(void)state;
	set_up(&fixture, true);
	fill(&fixture, writes);
	submit(&fixture, &refused, true);
	submit(&fixture, &other, false);
	assert_int_equal(status_of(&fixture, &refused), 503);
	assert_int_equal(status_of(&fixture, &other), 200);
	assert_int_equal(begun_count(&fixture), UNDER_WAY_MAX);
	for (size_t i = 0; i < UNDER_WAY_MAX; i++)
		end(&fixture, &writes[i], EFFECT_DONE);
	for (size_t i = 0; i < UNDER_WAY_MAX; i++)
		assert_int_equal(status_of(&fixture, &writes[i]), 200);
	WAIT_UNTIL(begun_count(&fixture) == UNDER_WAY_MAX + ASIDE_MAX);
	for (size_t i = 0; i < UNDER_WAY_MAX + ASIDE_MAX; i++)
		assert_ptr_equal(fixture.bus.begun[i], &writes[i]);
	for (size_t i = UNDER_WAY_MAX; i < UNDER_WAY_MAX + ASIDE_MAX; i++)
		end(&fixture, &writes[i], EFFECT_DONE);
	for (size_t i = UNDER_WAY_MAX; i < UNDER_WAY_MAX + ASIDE_MAX; i++)
		assert_int_equal(status_of(&fixture, &writes[i]), 200);
	tear_down(&fixture);
}

/* A large write after the publisher is full: it waits, and no other that would wait finds room. */
static void what_waits_aside_is_bounded_by_its_memory(void **state)
{
	struct test_write writes[WRITES_MAX], large, refused, other;
	struct fixture fixture;

	(void)state;
	set_up(&fixture, true);
	fill_publisher(&fixture, writes);
	prepare_write(&fixture, &large, true);
	large.write.command.bytes = HELD_BYTES_MAX;
	assert_int_equal(lane_submit(fixture.lane, &large.write.command), STATUS_OK);
	submit(&fixture, &refused, true);
	submit(&fixture, &other, false);
	assert_int_equal(status_of(&fixture, &refused), 503);
	assert_int_equal(status_of(&fixture, &other), 200);
	for (size_t i = 0; i < UNDER_WAY_MAX; i++)
		end(&fixture, &writes[i], EFFECT_DONE);
	for (size_t i = 0; i < UNDER_WAY_MAX; i++)
		assert_int_equal(status_of(&fixture, &writes[i]), 200);
	end(&fixture, &large, EFFECT_DONE);
	assert_int_equal(status_of(&fixture, &large), 200);
	tear_down(&fixture);
}

/* The publisher has room for seven more, but not for their memory. */
static void what_is_under_way_is_bounded_by_its_memory(void **state)
{
	struct test_write large, waiting, other;
	struct fixture fixture;

	(void)state;
	set_up(&fixture, true);
	prepare_write(&fixture, &large, true);
	large.write.command.bytes = HELD_BYTES_MAX;
	assert_int_equal(lane_submit(fixture.lane, &large.write.command), STATUS_OK);
	WAIT_UNTIL(begun_count(&fixture) == 1);
	submit(&fixture, &waiting, true);
	submit(&fixture, &other, false);
	assert_int_equal(status_of(&fixture, &other), 200);
	assert_int_equal(begun_count(&fixture), 1);
	end(&fixture, &large, EFFECT_DONE);
	assert_int_equal(status_of(&fixture, &large), 200);
	WAIT_UNTIL(begun_count(&fixture) == 2);
	end(&fixture, &waiting, EFFECT_DONE);
	assert_int_equal(status_of(&fixture, &waiting), 200);
	tear_down(&fixture);
}

/* Also if it came after one that waits for longer. */
static void what_waits_aside_is_refused_at_its_deadline(void **state)
{
	struct test_write writes[WRITES_MAX], patient, late;
	struct fixture fixture;

	(void)state;
	set_up(&fixture, true);
	fill_publisher(&fixture, writes);
	submit(&fixture, &patient, true);
	submit_until(&fixture, &late, true, clock_steady_ns(&clock_system) + 50 * NS_PER_MS);
	assert_int_equal(status_of(&fixture, &late), 503);
	for (size_t i = 0; i < UNDER_WAY_MAX; i++)
		end(&fixture, &writes[i], EFFECT_DONE);
	for (size_t i = 0; i < UNDER_WAY_MAX; i++)
		assert_int_equal(status_of(&fixture, &writes[i]), 200);
	end(&fixture, &patient, EFFECT_DONE);
	assert_int_equal(status_of(&fixture, &patient), 200);
	assert_int_equal(begun_count(&fixture), UNDER_WAY_MAX + 1);
	tear_down(&fixture);
}

/* What is under way is recorded all the same. No deadline helps: a wake-up that is lost hangs. */
static void check_abort(bool closes_first)
{
	struct test_write writes[WRITES_MAX];
	struct fixture fixture;

	set_up(&fixture, true);
	fill(&fixture, writes);
	if (closes_first)
		lane_close(fixture.lane);
	committer_abort(fixture.committer);
	lane_close(fixture.lane);
	for (size_t i = UNDER_WAY_MAX; i < UNDER_WAY_MAX + ASIDE_MAX; i++)
		assert_int_equal(status_of(&fixture, &writes[i]), 503);
	for (size_t i = 0; i < UNDER_WAY_MAX; i++)
		end(&fixture, &writes[i], EFFECT_DONE);
	committer_join(fixture.committer);
	for (size_t i = 0; i < UNDER_WAY_MAX; i++)
		assert_int_equal(status_of(&fixture, &writes[i]), 200);
	tear_down(&fixture);
}

static void an_abort_refuses_what_waits_aside_and_waits_for_what_is_under_way(void **state)
{
	(void)state;
	for (int i = 0; i < 10; i++)
		check_abort(i % 2 == 0);
}

/* Without threads, effects end where they begin: what a step does is known. */
static void a_busy_lane_records_effects_with_its_next_batch_and_an_idle_one_at_once(void **state)
{
	struct test_write writes[2 * BATCH_MAX];
	struct fixture fixture;

	(void)state;
	set_up(&fixture, false);
	for (size_t i = 0; i < COUNT_OF(writes); i++) {
		submit(&fixture, &writes[i], true);
		writes[i].decision = EFFECT_DONE;
	}
	committer_step(fixture.committer);
	assert_int_equal(fixture.store->commits, 1);
	assert_false(is_answered(&fixture, &writes[0]));
	committer_step(fixture.committer);
	assert_int_equal(fixture.store->commits, 3); /* with the second batch, and alone */
	assert_int_equal(fixture.bus.recorded_together, BATCH_MAX);
	assert_int_equal(fixture.bus.recorded_alone, BATCH_MAX);
	for (size_t i = 0; i < COUNT_OF(writes); i++)
		assert_int_equal(status_of(&fixture, &writes[i]), 200);
	tear_down(&fixture);
}

/* The call of the store at which the second batch fails, and whether its effect was recorded. */
static void check_combined_fault(int call, enum status fault, bool may_repeat)
{
	struct test_write writes[2 * BATCH_MAX];
	struct fixture fixture;

	set_up(&fixture, false);
	for (size_t i = 0; i < COUNT_OF(writes); i++) {
		submit(&fixture, &writes[i], true);
		writes[i].decision = EFFECT_DONE;
	}
	committer_step(fixture.committer);
	faulty_store_fail_at(fixture.store, call, fault);
	committer_step(fixture.committer);
	assert_true(fixture.store->has_failed);
	for (size_t i = 0; i < BATCH_MAX; i++)
		assert_int_equal(status_of(&fixture, &writes[i]), may_repeat ? 200 : 503);
	for (size_t i = BATCH_MAX; i < COUNT_OF(writes); i++)
		assert_int_equal(status_of(&fixture, &writes[i]),
			fault == STATUS_RERUN || fault == STATUS_LOCK_BUSY ? 200 : 503);
	/* one of them alone after the fault; the second batch is recorded if it was decided */
	if (!may_repeat)
		assert_int_equal(fixture.bus.recorded_alone, 0);
	else
		assert_true(fixture.bus.recorded_alone >= BATCH_MAX);
	tear_down(&fixture);
}

static void if_the_common_transaction_fails_effects_are_recorded_alone(void **state)
{
	(void)state;
	for (int call = 1; call <= 2; call++) { /* BEGIN, COMMIT */
		check_combined_fault(call, STATUS_RERUN, true);
		check_combined_fault(call, STATUS_LOCK_BUSY, true);
		check_combined_fault(call, STATUS_STORE_UNAVAILABLE, true);
	}
}

static void a_common_transaction_of_unknown_outcome_is_never_repeated(void **state)
{
	(void)state;
	check_combined_fault(2, STATUS_OUTCOME_UNKNOWN, false);
}

static void an_effect_that_cannot_be_recorded_costs_no_other_write_its_answer(void **state)
{
	struct test_write writes[BATCH_MAX], other;
	struct fixture fixture;

	(void)state;
	set_up(&fixture, false);
	for (size_t i = 0; i < BATCH_MAX; i++) {
		submit(&fixture, &writes[i], true);
		writes[i].decision = EFFECT_DONE;
	}
	submit(&fixture, &other, false);
	writes[0].is_poison = true;
	committer_step(fixture.committer);
	committer_step(fixture.committer);
	assert_int_equal(status_of(&fixture, &writes[0]), 503);
	assert_int_equal(status_of(&fixture, &writes[1]), 200);
	assert_int_equal(status_of(&fixture, &other), 200);
	tear_down(&fixture);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(while_an_effect_hangs_other_writes_on_its_key_are_answered),
		cmocka_unit_test(what_the_bus_confirms_first_is_answered_first),
		cmocka_unit_test(at_the_bound_sends_wait_aside_in_order_and_others_pass),
		cmocka_unit_test(what_waits_aside_is_refused_at_its_deadline),
		cmocka_unit_test(what_waits_aside_is_bounded_by_its_memory),
		cmocka_unit_test(what_is_under_way_is_bounded_by_its_memory),
		cmocka_unit_test(an_abort_refuses_what_waits_aside_and_waits_for_what_is_under_way),
		cmocka_unit_test(
			a_busy_lane_records_effects_with_its_next_batch_and_an_idle_one_at_once),
		cmocka_unit_test(if_the_common_transaction_fails_effects_are_recorded_alone),
		cmocka_unit_test(a_common_transaction_of_unknown_outcome_is_never_repeated),
		cmocka_unit_test(an_effect_that_cannot_be_recorded_costs_no_other_write_its_answer),
	};

	return cmocka_run_group_tests_name("effects", tests, NULL, NULL);
}
