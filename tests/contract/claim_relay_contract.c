/* What flow/relay.h promises while its bus is slow, with an outbox on one engine and a bus that
 * does as it is told. */
#include <stdatomic.h>
#include <stdio.h>

#include "base/clock.h"
#include "claim_contract.h"
#include "flow/relay.h"
#include "waiting.h"

#define ROWS 60
#define BATCH 50

/* Confirms the first `takes` messages of a batch in time, is late for as many, and does not come to
 * the rest. */
struct slow_bus {
	struct bus base;
	struct producer producer;
	/* is away, comes back for a moment with each publish, and refuses what it does not take */
	atomic_bool comes_and_goes;
	atomic_bool is_back;
	atomic_size_t takes;
	atomic_size_t publishes;
	atomic_size_t last;        /* size of the last batch */
	_Atomic int64_t within_ns; /* how much time the last publish was given */
};

static struct slow_bus slow;

static bool is_up(struct bus *bus)
{
	(void)bus;
	return !slow.comes_and_goes || atomic_exchange(&slow.is_back, false);
}

static enum status publish(
	struct producer *producer, struct bus_message *messages, size_t count, int64_t until_ns)
{
	size_t takes = slow.takes;

	(void)producer;
	slow.within_ns = until_ns - clock_steady_ns(&clock_system);
	slow.is_back = true;
	for (size_t i = 0; i < count; i++) {
		messages[i].fate = i < takes       ? BUS_CONFIRMED
				   : i < 2 * takes ? BUS_UNKNOWN
						   : BUS_NOT_PERSISTED;
		messages[i].is_untried =
			messages[i].fate == BUS_NOT_PERSISTED && !slow.comes_and_goes;
	}
	slow.last = count;
	slow.publishes++;
	return STATUS_OK;
}

static void close_producer(struct producer *producer)
{
	(void)producer;
}

static const struct producer_ops producer_ops = {.publish = publish, .close = close_producer};

static struct producer *open_producer(struct bus *bus)
{
	(void)bus;
	return &slow.producer;
}

static const struct bus_ops bus_ops = {.is_up = is_up, .open_producer = open_producer};

static bool address(struct arena *arena, const struct claim *row, struct bus_message *message)
{
	(void)arena;
	(void)row;
	message->channel = slice_of("events");
	return true;
}

#define POLL_US 10000
#define NEVER_US (3600 * 1000000LL)

static struct relay_config config_of(struct fixture *fixture)
{
	return (struct relay_config){
		.kind = "outbox",
		.name = "slow",
		.store = fixture->engine->store,
		.outbox = fixture->subject->is_of_dialogs ? fixture->engine->dialog_outbox
							  : fixture->engine->outbox,
		.announcement = "slow",
		.bus = &slow.base,
		.address = address,
		.poll_us = POLL_US,
		.lease_us = LEASE_US,
		.attempts_max = 2,
		.batch = BATCH,
		.workers = 1,
	};
}

static struct relay *start_as(const struct relay_config *config, size_t takes, bool comes_and_goes)
{
	slow.base.ops = &bus_ops;
	slow.producer.ops = &producer_ops;
	slow.takes = takes;
	slow.publishes = 0;
	slow.comes_and_goes = comes_and_goes;
	slow.is_back = false;
	return relay_start(config);
}

static struct relay *start(struct fixture *fixture, size_t takes)
{
	struct relay_config config = config_of(fixture);

	return start_as(&config, takes, false);
}

/* The table may hold rows of other tests, too. */
static bool all_are_done(struct fixture *fixture)
{
	for (int i = 0; i < ROWS; i++) {
		char name[32];

		snprintf(name, sizeof(name), "row-%d", i);
		if (!claim_fixture_row_is(fixture, engine_uuid(fixture->engine, name),
			    "status = 'PUBLISHED' AND attempt_count = 0"))
			return false;
	}
	return true;
}

static void a_bus_that_confirms_late_gets_batches_that_it_can_confirm(void **state)
{
	struct fixture *fixture = *state;
	struct relay *relay;

	claim_fixture_put_many(fixture, "row", ROWS);
	relay = start(fixture, 3);
	WAIT_UNTIL(all_are_done(fixture));
	relay_stop(relay);
	assert_in_range(slow.last, 1, 2 * 3);
}

static void what_a_bus_does_not_come_to_costs_no_attempt(void **state)
{
	struct fixture *fixture = *state;
	struct slice id = claim_fixture_put_one(fixture);
	struct relay *relay = start(fixture, 0);

	WAIT_UNTIL(slow.publishes >= 5); /* more than attempts_max */
	slow.takes = 1;
	WAIT_UNTIL(claim_fixture_is_done_now(fixture, id));
	relay_stop(relay);
	assert_true(claim_fixture_row_is(fixture, id, "attempt_count = 0"));
}

static void what_a_bus_refuses_just_after_an_outage_costs_no_attempt(void **state)
{
	struct fixture *fixture = *state;
	struct slice id = claim_fixture_put_one(fixture);
	struct relay_config config = config_of(fixture);
	struct relay *relay = start_as(&config, 0, true);

	WAIT_UNTIL(slow.publishes >= 3); /* more than attempts_max */
	slow.takes = 1;
	WAIT_UNTIL(claim_fixture_is_done_now(fixture, id));
	relay_stop(relay);
	assert_true(claim_fixture_row_is(fixture, id, "attempt_count = 0"));
}

/* Nobody polls or announces anything: the relay itself knows when it is to try again. */
static void what_a_bus_did_not_confirm_is_tried_again_before_the_next_poll(void **state)
{
	struct fixture *fixture = *state;
	struct relay_config config = config_of(fixture);
	struct relay *relay;

	config.poll_us = NEVER_US;
	claim_fixture_put_many(fixture, "row", 2);
	relay = start_as(&config, 1, false); /* is late for the second row */
	WAIT_UNTIL(slow.publishes >= 2);
	relay_stop(relay);
}

/* If the bus comes back unnoticed during a publish, this time and a pause of at most 2 s (which
 * tests/e2e/test_outbox_return.py checks) pass until the next attempt: less than 5 s. */
static void a_publish_gets_at_most_3_s_however_long_the_lease_is(void **state)
{
	struct fixture *fixture = *state;
	struct slice id = claim_fixture_put_one(fixture);
	struct relay_config config = config_of(fixture);
	struct relay *relay;

	config.lease_us = NEVER_US;
	relay = start_as(&config, 1, false);
	WAIT_UNTIL(claim_fixture_is_done_now(fixture, id));
	relay_stop(relay);
	assert_true(slow.within_ns <= 3 * NS_PER_S);
}

int claim_relay_tests(const struct subject *subject, const char *name)
{
	const struct CMUnitTest tests[] = {
		ON(subject, a_bus_that_confirms_late_gets_batches_that_it_can_confirm),
		ON(subject, what_a_bus_does_not_come_to_costs_no_attempt),
		ON(subject, what_a_bus_refuses_just_after_an_outage_costs_no_attempt),
		ON(subject, what_a_bus_did_not_confirm_is_tried_again_before_the_next_poll),
		ON(subject, a_publish_gets_at_most_3_s_however_long_the_lease_is),
	};

	return cmocka_run_group_tests_name(name, tests, NULL, NULL);
}
