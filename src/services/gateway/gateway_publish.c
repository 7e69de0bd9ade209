/*
 * Publishes the messages of sends that have reserved a slot. Runs on the publisher's thread of a
 * lane, the only thread that uses the lane's producer.
 */
#include <assert.h>

#include "base/clock.h"
#include "base/failpoint.h"
#include "ports/store.h"
#include "services/gateway/gateway_answers.h"
#include "services/gateway/gateway_batch.h"
#include "services/gateway/gateway_events.h"

/*
 * The time limit for publishing a message, measured from the COMMIT that reserved its slot. The
 * limit is so short that the fate of the message is known before the lease of a pending
 * Idempotency-Key ends. So another process takes over the key only if this process could not store
 * the fate in time. The other process then publishes the same message under the same id.
 */
#define PUBLISH_TIMEOUT_NS (3 * NS_PER_S)
static_assert(PUBLISH_TIMEOUT_NS < IDEMPOTENCY_LEASE_US * 1000,
	"the fate must be known before the lease ends");

/* A send that has waited longer than this is not published, because the bus would have too little
 * time to report the fate of the message, and the slot of a message whose fate is unknown cannot be
 * given back. */
#define PUBLISH_PATIENCE_NS (PUBLISH_TIMEOUT_NS / 2)

static bool wants(const struct write *write)
{
	return write->command.type == &gateway_command_type &&
	       ((const struct gateway_command *)write)->verb == GATEWAY_SEND;
}

/* Records the fate of a message. If the publish of a resumed send fails, the effect is UNKNOWN,
 * because an earlier attempt may have put the message on the bus. */
static void take_fate(struct gateway_command *command, enum bus_fate fate)
{
	struct write *write = &command->write;

	if (fate == BUS_CONFIRMED) {
		write->effect = EFFECT_DONE;
	} else if (fate == BUS_NOT_PERSISTED && !write->resumed) {
		write->effect = EFFECT_FAILED;
		write->command.answer = gateway_answer_not_sent(command);
	} else {
		write->effect = EFFECT_UNKNOWN;
		write->command.answer = gateway_answer_unknown(command);
	}
}

/* Hands the messages to the bus. If the producer has no begin(), waits until the fates of the
 * messages are known. */
static void hand_over(
	struct producer *producer, struct bus_message *messages, size_t count, int64_t until_ns)
{
	const struct producer_ops *ops = producer->ops;
	enum status status = ops->begin ? ops->begin(producer, messages, count, until_ns)
					: ops->publish(producer, messages, count, until_ns);

	for (size_t i = 0; i < count && status != STATUS_OK; i++)
		messages[i].fate = BUS_NOT_PERSISTED;
}

static void publish(void *context, const struct write_batch *round)
{
	struct gateway_lane *lane = context;
	struct bus_message *messages = arena_array(round->arena, struct bus_message, round->count);
	int64_t now_ns = clock_steady_ns(&clock_system), until_ns = INT64_MAX;
	size_t count = 0;

	FAILPOINT("gateway.reserved");
	for (size_t i = 0; i < round->count; i++) {
		struct gateway_command *command = gateway_command_of(round->writes[i]);
		int64_t reserved_ns = command->write.reserved_ns;

		if (now_ns - reserved_ns > PUBLISH_PATIENCE_NS) {
			take_fate(command, BUS_NOT_PERSISTED);
			continue;
		}
		if (reserved_ns + PUBLISH_TIMEOUT_NS < until_ns)
			until_ns = reserved_ns + PUBLISH_TIMEOUT_NS;
		command->on_bus = &messages[count];
		gateway_event_address(round->arena, command, &messages[count++]);
	}
	if (count > 0)
		hand_over(lane->producer, messages, count, until_ns);
}

static void look(void *context, const struct write_batch *round)
{
	bool has_news = false;

	(void)context;
	for (size_t i = 0; i < round->count; i++) {
		struct gateway_command *command = gateway_command_of(round->writes[i]);

		if (command->write.effect != EFFECT_BEGUN || command->on_bus->fate == BUS_UNDER_WAY)
			continue;
		take_fate(command, command->on_bus->fate);
		has_news = true;
	}
	if (has_news)
		FAILPOINT("gateway.published");
}

static void collect(void *context)
{
	struct gateway_lane *lane = context;

	lane->producer->ops->collect(lane->producer);
}

static void wake(void *context)
{
	struct gateway_lane *lane = context;

	if (lane->producer->ops->wake)
		lane->producer->ops->wake(lane->producer);
}

const struct publish_ops gateway_publish_ops = {
	.wants = wants,
	.publish = publish,
	.look = look,
	.collect = collect,
	.wake = wake,
};
