/*
 * What an intake does with messages that cannot be taken at once. The store and the bus are
 * scripted by the test and note what the intake asked of them.
 */
#include "check.h"

#include <stdatomic.h>

#include "captured_log.h"
#include "flow/intake.h"
#include "waiting.h"

#define MORE_THAN_ONE_ROUND 25 /* an intake repeats a lost race 20 times before it pauses */
#define UNTIL_THE_LONGEST_PAUSE 6

/* A store whose transactions fail as often as the test wants. */
struct scripted_store {
	struct store base;
	struct session session;
	enum status first; /* the result of the first COMMIT, if it is not OK */
	bool goes_down;    /* it counts as down from the first COMMIT on */
	atomic_bool is_down;
	atomic_int successes; /* how many COMMITs work before the first that fails */
	atomic_int refusals;  /* how many COMMITs fail then; below 0: all of them */
	enum status refusal;
	atomic_int begins;
};

/* A bus that delivers the same messages until they are acknowledged. */
struct scripted_bus {
	struct bus base;
	struct consumer consumer;
	size_t messages; /* in each fetch */
	int rounds;      /* how many fetches are acknowledged, until there are no more messages */
	atomic_int fetches;
	atomic_int returns;        /* calls of again() */
	atomic_int poisons;        /* calls of poison() */
	atomic_int refused_acks;   /* how many more calls of ack() fail */
	atomic_int fetches_at_ack; /* how many fetches there had been; 0 before the ack */
};

static struct scripted_store scripted_store;
static struct scripted_bus scripted_bus;
static atomic_int applied;
static atomic_int applied_first; /* how often the first message of a fetch was applied */

/* ---- the store --------------------------------------------------------------------------- */

static enum status begin(struct session *session, enum transaction_mode mode)
{
	(void)session;
	(void)mode;
	atomic_fetch_add(&scripted_store.begins, 1);
	return STATUS_OK;
}

static enum status commit(struct session *session)
{
	(void)session;
	atomic_store(&scripted_store.is_down, scripted_store.goes_down);
	if (atomic_load(&scripted_store.begins) == 1 && scripted_store.first != STATUS_OK)
		return scripted_store.first;
	if (atomic_load(&scripted_store.refusals) == 0)
		return STATUS_OK;
	if (atomic_load(&scripted_store.successes) > 0) {
		atomic_fetch_sub(&scripted_store.successes, 1);
		return STATUS_OK;
	}
	atomic_fetch_sub(&scripted_store.refusals, 1);
	return scripted_store.refusal;
}

static void close_session(struct session *session)
{
	(void)session;
}

static const struct session_ops session_ops = {
	.begin = begin, .commit = commit, .close = close_session};

static struct session *open_session(struct store *store, enum session_kind kind)
{
	(void)store;
	(void)kind;
	return &scripted_store.session;
}

static bool store_is_up(struct store *store)
{
	(void)store;
	return !atomic_load(&scripted_store.is_down);
}

static const struct store_ops store_ops = {.open_session = open_session, .is_up = store_is_up};

/* ---- the bus ----------------------------------------------------------------------------- */

static enum status fetch(struct consumer *consumer, struct bus_delivery *deliveries, size_t max,
	size_t *count, int64_t until_ns)
{
	(void)consumer;
	(void)max;
	(void)until_ns;
	atomic_fetch_add(&scripted_bus.fetches, 1);
	*count = 0;
	if (atomic_load(&scripted_bus.fetches_at_ack) > 0) {
		wait_a_moment();
		return STATUS_OK;
	}
	for (*count = 0; *count < scripted_bus.messages; ++*count)
		deliveries[*count] = (struct bus_delivery){.position = slice_of("events/1"),
			.value = slice_of("the message"),
			.handle = *count};
	return STATUS_OK;
}

static enum status ack(struct consumer *consumer, size_t count)
{
	(void)consumer;
	assert_int_equal(count, scripted_bus.messages);
	if (atomic_load(&scripted_bus.refused_acks) > 0) {
		atomic_fetch_sub(&scripted_bus.refused_acks, 1);
		return STATUS_BUS_UNAVAILABLE;
	}
	if (--scripted_bus.rounds == 0)
		atomic_store(&scripted_bus.fetches_at_ack, atomic_load(&scripted_bus.fetches));
	return STATUS_OK;
}

static void again(struct consumer *consumer)
{
	(void)consumer;
	atomic_fetch_add(&scripted_bus.returns, 1);
}

static void poison(struct consumer *consumer, size_t index, const char *why)
{
	(void)consumer;
	(void)index;
	(void)why;
	atomic_fetch_add(&scripted_bus.poisons, 1);
}

static void ignore(struct consumer *consumer)
{
	(void)consumer;
}

static const struct consumer_ops consumer_ops = {.fetch = fetch,
	.ack = ack,
	.again = again,
	.poison = poison,
	.wake = ignore,
	.close = ignore};

static struct consumer *open_consumer(struct bus *bus, const char *channel, const char *group)
{
	(void)bus;
	(void)channel;
	(void)group;
	return &scripted_bus.consumer;
}

static const struct bus_ops bus_ops = {.open_consumer = open_consumer};

/* ---- the service ------------------------------------------------------------------------- */

static enum status apply_all(
	void *context, struct session *session, const struct intake_batch *batch, size_t *repeated)
{
	(void)context;
	(void)session;
	(void)repeated;
	atomic_fetch_add(&applied, 1);
	atomic_fetch_add(&applied_first, batch->items[0].delivery->handle == 0);
	return STATUS_OK;
}

static void committed(void *context)
{
	(void)context;
}

/* Sets the store and the bus to their first states; a test may then change what they do. */
static void prepare(void)
{
	scripted_store = (struct scripted_store){.base.ops = &store_ops,
		.session = {.ops = &session_ops, .store = &scripted_store.base}};
	scripted_bus = (struct scripted_bus){.base = {.ops = &bus_ops, .counts_deliveries = true},
		.consumer.ops = &consumer_ops,
		.messages = 1,
		.rounds = 1};
	atomic_store(&applied, 0);
	atomic_store(&applied_first, 0);
}

static struct intake *start_prepared(void)
{
	const struct intake_config config = {
		.name = "test",
		.bus = &scripted_bus.base,
		.channel = "events",
		.group = "group",
		.store = &scripted_store.base,
		.apply = apply_all,
		.committed = committed,
	};

	return intake_start(&config);
}

static struct intake *start_after(
	int successes, int refusals, enum status refusal, int refused_acks)
{
	prepare();
	atomic_store(&scripted_store.successes, successes);
	atomic_store(&scripted_store.refusals, refusals);
	scripted_store.refusal = refusal;
	atomic_store(&scripted_bus.refused_acks, refused_acks);
	return start_prepared();
}

static struct intake *start(int refusals, enum status refusal, int refused_acks)
{
	return start_after(0, refusals, refusal, refused_acks);
}

static void wait_acknowledged(void)
{
	WAIT_UNTIL(atomic_load(&scripted_bus.fetches_at_ack) > 0);
}

/* ---- tests ------------------------------------------------------------------------------- */

/* A delivery in vain would bring the message closer to the bus's limit on deliveries. */
static void check_kept(int refusals, enum status refusal)
{
	struct intake *intake = start(refusals, refusal, 0);

	wait_acknowledged();
	intake_stop(intake);
	assert_int_equal(atomic_load(&scripted_bus.fetches_at_ack), 1);
	assert_int_equal(atomic_load(&scripted_bus.returns), 0);
	assert_int_equal(atomic_load(&scripted_bus.poisons), 0);
	assert_int_equal(atomic_load(&applied), refusals + 1);
}

static void messages_are_kept_until_the_store_applies_them(void **state)
{
	(void)state;
	check_kept(3, STATUS_STORE_UNAVAILABLE);
	check_kept(1, STATUS_OUTCOME_UNKNOWN);
}

static void messages_are_kept_while_others_hold_what_they_need(void **state)
{
	(void)state;
	check_kept(MORE_THAN_ONE_ROUND, STATUS_LOCK_BUSY);
}

/* On engines that do not count deliveries: only a consumer that fetches takes part in its group. */
static void what_a_store_refuses_is_fetched_again_where_deliveries_are_not_counted(void **state)
{
	struct intake *intake;

	(void)state;
	prepare();
	scripted_bus.base.counts_deliveries = false;
	atomic_store(&scripted_store.refusals, UNTIL_THE_LONGEST_PAUSE + 1);
	scripted_store.refusal = STATUS_STORE_UNAVAILABLE;
	intake = start_prepared();
	wait_acknowledged();
	intake_stop(intake);
	assert_in_range(atomic_load(&scripted_bus.returns), 1, UNTIL_THE_LONGEST_PAUSE);
	assert_int_equal(
		atomic_load(&scripted_bus.fetches_at_ack), atomic_load(&scripted_bus.returns) + 1);
	assert_int_equal(atomic_load(&scripted_bus.poisons), 0);
}

/* A store counts as down as soon as one of its sessions fails, which may be another one. */
static void an_intake_goes_on_while_only_other_sessions_fail(void **state)
{
	struct intake *intake;

	(void)state;
	prepare();
	scripted_bus.rounds = 3;
	scripted_store.goes_down = true;
	intake = start_prepared();
	wait_acknowledged();
	intake_stop(intake);
	assert_int_equal(atomic_load(&applied), 3);
}

static void what_is_committed_is_not_applied_again_with_the_rest(void **state)
{
	struct intake *intake;

	(void)state;
	prepare();
	scripted_bus.messages = 2;
	scripted_store.first = STATUS_POISON;
	atomic_store(&scripted_store.successes, 1);
	atomic_store(&scripted_store.refusals, 2);
	scripted_store.refusal = STATUS_STORE_UNAVAILABLE;
	intake = start_prepared();
	wait_acknowledged();
	intake_stop(intake);
	assert_int_equal(atomic_load(&applied), 5); /* both; the first; the second, three times */
	assert_int_equal(atomic_load(&applied_first), 2);
	assert_int_equal(atomic_load(&scripted_bus.returns), 0);
}

static void an_intake_that_is_stopped_returns_what_the_store_has_not_applied(void **state)
{
	struct intake *intake = start(-1, STATUS_STORE_UNAVAILABLE, 0);

	(void)state;
	WAIT_UNTIL(atomic_load(&scripted_store.begins) >= 2);
	intake_stop(intake);
	assert_int_equal(atomic_load(&scripted_bus.fetches), 1);
	assert_int_equal(atomic_load(&scripted_bus.returns), 1);
	assert_int_equal(atomic_load(&scripted_bus.fetches_at_ack), 0);
}

static void what_cannot_be_acknowledged_is_fetched_and_applied_again(void **state)
{
	struct intake *intake = start(0, STATUS_OK, 2);

	(void)state;
	wait_acknowledged();
	intake_stop(intake);
	assert_int_equal(atomic_load(&scripted_bus.fetches_at_ack), 3);
	assert_int_equal(atomic_load(&scripted_bus.returns), 2);
	assert_int_equal(atomic_load(&applied), 3);
}

/* The store refuses the message as it is and as poison, twice, and then takes it as poison. */
static void a_message_that_is_refused_even_as_poison_is_returned_and_reported_once(void **state)
{
	struct intake *intake;

	(void)state;
	captured_log_begin();
	intake = start(2 + 2 + 1, STATUS_POISON, 0);
	wait_acknowledged();
	intake_stop(intake);
	captured_log_assert("could not be acknowledged as unusable yet", 1);
	captured_log_assert("is put aside", 1);
	captured_log_end();
	assert_int_equal(atomic_load(&scripted_bus.returns), 2);
	assert_int_equal(atomic_load(&scripted_bus.poisons), 1);
}

/* First the bus refuses an acknowledgement, which is not logged here; then the store refuses what
 * comes again, also as poison. */
static void poison_that_is_stuck_is_logged_also_after_a_refused_acknowledgement(void **state)
{
	struct intake *intake;

	(void)state;
	captured_log_begin();
	intake = start_after(1, 2 + 1, STATUS_POISON, 1);
	wait_acknowledged();
	intake_stop(intake);
	captured_log_assert("could not be acknowledged as unusable yet", 1);
	captured_log_end();
	assert_int_equal(atomic_load(&scripted_bus.returns), 2);
}

static void a_long_refusal_of_a_store_that_is_up_is_logged_once_and_so_is_its_end(void **state)
{
	(void)state;
	captured_log_begin();
	check_kept(UNTIL_THE_LONGEST_PAUSE + 1, STATUS_STORE_UNAVAILABLE);
	captured_log_assert("1 fetched message cannot be applied, although the store is up", 1);
	captured_log_assert("messages are applied again", 1);
	captured_log_end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(messages_are_kept_until_the_store_applies_them),
		cmocka_unit_test(messages_are_kept_while_others_hold_what_they_need),
		cmocka_unit_test(
			what_a_store_refuses_is_fetched_again_where_deliveries_are_not_counted),
		cmocka_unit_test(an_intake_goes_on_while_only_other_sessions_fail),
		cmocka_unit_test(what_is_committed_is_not_applied_again_with_the_rest),
		cmocka_unit_test(an_intake_that_is_stopped_returns_what_the_store_has_not_applied),
		cmocka_unit_test(what_cannot_be_acknowledged_is_fetched_and_applied_again),
		cmocka_unit_test(
			a_message_that_is_refused_even_as_poison_is_returned_and_reported_once),
		cmocka_unit_test(
			poison_that_is_stuck_is_logged_also_after_a_refused_acknowledgement),
		cmocka_unit_test(
			a_long_refusal_of_a_store_that_is_up_is_logged_once_and_so_is_its_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
