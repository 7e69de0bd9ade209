/*
 * How long a send may take from the COMMIT that reserved its slot. The times are those of the
 * commands, so nothing here waits. Slots that are still good are reserved in the future: the
 * publisher reads the clock of the machine, and a test that was stopped must not make them late.
 */
#include "base/clock.h"
#include "check.h"
#include "ports/bus.h"
#include "ports/store.h"
#include "services/gateway/gateway_batch.h"

#define SENDS 3
#define FAR_NS (3600 * NS_PER_S) /* longer than any test is stopped */

struct fixture {
	struct producer producer; /* first */
	size_t published;
	int64_t until_ns;
	struct arena arena;
	struct gateway_lane lane;
	struct write *writes[SENDS];
	struct write_batch round;
};

static enum status publish(
	struct producer *producer, struct bus_message *messages, size_t count, int64_t until_ns)
{
	struct fixture *fixture = (struct fixture *)producer;

	for (size_t i = 0; i < count; i++)
		messages[i].fate = BUS_CONFIRMED;
	fixture->published += count;
	fixture->until_ns = until_ns;
	return STATUS_OK;
}

static const struct producer_ops recording_ops = {.publish = publish};

/* Publishes sends whose slots were reserved at these times, and takes their fates. */
static void publish_sends(struct fixture *fixture, const int64_t reserved_ns[SENDS])
{
	*fixture = (struct fixture){.producer.ops = &recording_ops};
	arena_init(&fixture->arena, 4096);
	fixture->lane.producer = &fixture->producer;
	for (size_t i = 0; i < SENDS; i++) {
		struct gateway_command *command = gateway_command_new(&fixture->arena);

		command->verb = GATEWAY_SEND;
		command->user.text = slice_of("u");
		command->message = slice_of("Hello!");
		command->write.command.arena = &fixture->arena;
		command->write.effect = EFFECT_BEGUN;
		command->write.reserved_ns = reserved_ns[i];
		fixture->writes[i] = &command->write;
	}
	fixture->round = (struct write_batch){
		.writes = fixture->writes, .count = SENDS, .arena = &fixture->arena};
	gateway_publish_ops.publish(&fixture->lane, &fixture->round);
	gateway_publish_ops.look(&fixture->lane, &fixture->round);
}

static void the_time_to_publish_runs_from_the_oldest_reservation(void **state)
{
	int64_t oldest_ns = clock_steady_ns(&clock_system) + FAR_NS;
	const int64_t reserved_ns[SENDS] = {
		oldest_ns + NS_PER_S, oldest_ns, oldest_ns + NS_PER_S / 2};
	struct fixture fixture;

	(void)state;
	publish_sends(&fixture, reserved_ns);
	assert_int_equal(fixture.published, SENDS);
	assert_int_equal(fixture.until_ns, oldest_ns + 3 * NS_PER_S);
	for (size_t i = 0; i < SENDS; i++)
		assert_int_equal(fixture.writes[i]->effect, EFFECT_DONE);
	arena_release(&fixture.arena);
}

static void the_fate_is_known_before_the_lease_of_the_key_ends(void **state)
{
	int64_t far_ns = clock_steady_ns(&clock_system) + FAR_NS;
	const int64_t reserved_ns[SENDS] = {far_ns, far_ns, far_ns};
	struct fixture fixture;

	(void)state;
	publish_sends(&fixture, reserved_ns);
	assert_true(fixture.until_ns < far_ns + IDEMPOTENCY_LEASE_US * 1000);
	arena_release(&fixture.arena);
}

static void what_has_waited_too_long_is_refused_and_not_published(void **state)
{
	int64_t now_ns = clock_steady_ns(&clock_system);
	const int64_t reserved_ns[SENDS] = {
		now_ns + FAR_NS, now_ns - 2 * NS_PER_S, now_ns - 3600 * NS_PER_S};
	struct fixture fixture;

	(void)state;
	publish_sends(&fixture, reserved_ns);
	assert_int_equal(fixture.published, 1);
	assert_int_equal(fixture.until_ns, now_ns + FAR_NS + 3 * NS_PER_S);
	assert_int_equal(fixture.writes[0]->effect, EFFECT_DONE);
	for (size_t i = 1; i < SENDS; i++) {
		assert_int_equal(fixture.writes[i]->effect, EFFECT_FAILED);
		assert_int_equal(fixture.writes[i]->command.answer.http_status, 503);
	}
	arena_release(&fixture.arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_time_to_publish_runs_from_the_oldest_reservation),
		cmocka_unit_test(the_fate_is_known_before_the_lease_of_the_key_ends),
		cmocka_unit_test(what_has_waited_too_long_is_refused_and_not_published),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
