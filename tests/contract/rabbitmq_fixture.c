#include "rabbitmq_fixture.h"

#include <stdio.h>
#include <stdlib.h>

#include "adapters/bus/rabbitmq/rabbitmq_bus.h"
#include "base/random.h"
#include "captured_log.h"
#include "rabbitmq_server.h"
#include "waiting.h"

/* For what must not come. */
#define LATE_MS 200

/* ---- the bus ----------------------------------------------------------------------------- */

static void name_all(struct rabbitmq_fixture *fixture)
{
	static const char *const endings[CHANNELS + GROUPS] = {
		"events", "picky", "plain", "all", "reads", "picks"};
	struct dice dice;
	unsigned number;

	dice_init(&dice);
	number = (unsigned)dice_next(&dice);
	for (int i = 0; i < CHANNELS + GROUPS; i++)
		snprintf(fixture->names[i], sizeof(fixture->names[i]), "t-%08x-%s", number,
			endings[i]);
	for (int i = 0; i < CHANNELS; i++)
		fixture->channels[i].name = fixture->names[i];
	for (int i = 0; i < GROUPS; i++) {
		fixture->groups[i].name = fixture->names[CHANNELS + i];
		fixture->groups[i].subjects = i == ALL ? NULL : "read";
	}
	fixture->channels[EVENTS].groups = fixture->groups;
	fixture->channels[EVENTS].group_count = 2;
	fixture->channels[PICKY].groups = &fixture->groups[PICKS];
	fixture->channels[PICKY].group_count = 1;
}

struct rabbitmq_fixture *rabbitmq_fixture_new(void)
{
	struct rabbitmq_fixture *fixture = qp_calloc(1, sizeof(*fixture));

	bus_fixture_prepare();
	name_all(fixture);
	fixture->base.channel = fixture->names[EVENTS];
	return fixture;
}

void rabbitmq_fixture_free(struct rabbitmq_fixture *fixture)
{
	free(fixture);
}

void rabbitmq_fixture_open(struct rabbitmq_fixture *fixture, const char *url)
{
	bus_fixture_open(
		&fixture->base, rabbitmq_bus_new("faults", url, fixture->channels, CHANNELS));
}

int rabbitmq_fixture_setup(void **state)
{
	struct rabbitmq_fixture *fixture = rabbitmq_fixture_new();

	rabbitmq_fixture_open(fixture, rabbitmq_server_url());
	bus_fixture_wait_until(&fixture->base, true);
	*state = fixture;
	return 0;
}

int rabbitmq_fixture_teardown(void **state)
{
	struct rabbitmq_fixture *fixture = *state;

	rabbitmq_server_try("thaw"); /* a test that fails may leave it frozen */
	bus_fixture_close(&fixture->base);
	rabbitmq_fixture_free(fixture);
	return 0;
}

/* ---- what came --------------------------------------------------------------------------- */

struct consumer *rabbitmq_fixture_consumer(struct rabbitmq_fixture *fixture)
{
	if (fixture->base.consumer_count == 0)
		return bus_fixture_consumer(&fixture->base, fixture->groups[ALL].name);
	return fixture->base.consumers[0];
}

static bool has_come(const struct bus_fixture *base, enum bus_fate fate)
{
	for (size_t i = 0; i < base->sent_count; i++) {
		if (base->sent[i].fate == fate && base->seen[i] == 0)
			return false;
	}
	return true;
}

/* A message that is confirmed ends it, because the producer's connection may be younger than the
 * bus knows. Others may come after it: what a connection had that has ended is given again. */
static void take_everything(struct rabbitmq_fixture *fixture)
{
	static struct bus_delivery deliveries[500];
	struct consumer *consumer = rabbitmq_fixture_consumer(fixture);
	size_t last = bus_fixture_publish_until_confirmed(&fixture->base, HANG_MS);
	size_t count;

	do {
		bool is_complete = has_come(&fixture->base, BUS_CONFIRMED);

		count = bus_fixture_fetch(
			consumer, deliveries, 500, is_complete ? LATE_MS : HANG_MS);
		for (size_t i = 0; i < count; i++)
			bus_fixture_note(&fixture->base, deliveries[i].id);
		bus_fixture_ack(consumer, count);
	} while (count > 0);
	assert_true(fixture->base.seen[last] > 0);
}

void rabbitmq_fixture_assert_fates(struct rabbitmq_fixture *fixture)
{
	take_everything(fixture);
	bus_fixture_check_fates(&fixture->base);
	print_message("%zu confirmed, %zu not persisted, %zu unknown\n",
		bus_fixture_count(&fixture->base, BUS_CONFIRMED),
		bus_fixture_count(&fixture->base, BUS_NOT_PERSISTED),
		bus_fixture_count(&fixture->base, BUS_UNKNOWN));
}

void rabbitmq_fixture_wait_for_failures(int count)
{
	WAIT_UNTIL(captured_log_count("is unavailable") >= count);
}
