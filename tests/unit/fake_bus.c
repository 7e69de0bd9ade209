#include "fake_bus.h"

#include <stdio.h>

#include "check.h"

struct fake_bus fake_bus;

/* Consumers drop repeated ids, so a message counts once per window. */
static void put_on_bus(const char *id, const struct bus_message *message)
{
	char window[FAKE_BUS_WINDOW_SIZE];

	assert_true(slice_is(message->headers[0].name, "window-start"));
	snprintf(window, sizeof(window), "%.*s", (int)message->headers[0].value.len,
		message->headers[0].value.data);
	for (size_t i = 0; i < fake_bus.on_bus; i++) {
		if (strcmp(fake_bus.messages[i].id, id) == 0 &&
			strcmp(fake_bus.messages[i].window, window) == 0)
			return;
	}
	assert_true(fake_bus.on_bus < FAKE_BUS_MESSAGES_MAX);
	memcpy(fake_bus.messages[fake_bus.on_bus].id, id, UUID_SIZE);
	memcpy(fake_bus.messages[fake_bus.on_bus++].window, window, sizeof(window));
}

size_t fake_bus_count_in_window(size_t message)
{
	size_t count = 0;

	for (size_t i = 0; i < fake_bus.on_bus; i++)
		count +=
			strcmp(fake_bus.messages[i].window, fake_bus.messages[message].window) == 0;
	return count;
}

static enum status publish(
	struct producer *producer, struct bus_message *messages, size_t count, int64_t until_ns)
{
	(void)producer;
	(void)until_ns;
	fake_bus.publishes++;
	if (!fake_bus.is_up)
		return STATUS_BUS_UNAVAILABLE;
	for (size_t i = 0; i < count; i++) {
		messages[i].fate =
			fake_bus.dice ? (enum bus_fate)dice_below(fake_bus.dice, 3) : fake_bus.fate;
		memcpy(fake_bus.last_id, messages[i].id.data, messages[i].id.len);
		/* a message whose fate is unknown counts as published, which is the worst case */
		if (messages[i].fate != BUS_NOT_PERSISTED)
			put_on_bus(fake_bus.last_id, &messages[i]);
	}
	return STATUS_OK;
}

static bool bus_is_up(struct bus *bus)
{
	(void)bus;
	return fake_bus.is_up;
}

const struct producer_ops fake_bus_producer_ops = {.publish = publish};
const struct bus_ops fake_bus_ops = {.is_up = bus_is_up};
