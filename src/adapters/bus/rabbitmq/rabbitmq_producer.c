/* Producers for RabbitMQ: they convert messages to letters, which a publisher sends. */
#include <stdlib.h>

#include "adapters/bus/rabbitmq/rabbitmq_internal.h"

struct rabbitmq_producer {
	struct producer base;
	struct rabbitmq_bus *bus;
	struct rabbitmq_publisher *publisher;
	struct arena arena; /* holds the letters of a publish */
};

static const struct producer_ops producer_ops;

static struct rabbitmq_producer *producer_of(struct producer *base)
{
	assert(base->ops == &producer_ops);
	return (struct rabbitmq_producer *)base;
}

/* Converts messages to letters and returns the number of letters. Leaves out messages that cannot
 * be sent; these messages stay NOT_PERSISTED and are unfit. */
static size_t write_letters(struct rabbitmq_producer *producer, struct bus_message *messages,
	size_t count, struct rabbitmq_letter *letters)
{
	size_t written = 0;

	for (size_t i = 0; i < count; i++) {
		messages[i].is_unfit = !rabbitmq_letter_write(
			&letters[written], &producer->arena, producer->bus, &messages[i]);
		if (!messages[i].is_unfit)
			letters[written++].index = i;
	}
	return written;
}

static enum status send(struct rabbitmq_producer *producer, struct bus_message *messages,
	size_t count, int64_t until_ns)
{
	struct rabbitmq_letter *letters =
		arena_array(&producer->arena, struct rabbitmq_letter, count);
	size_t written = write_letters(producer, messages, count, letters);
	enum status status;

	if (written == 0)
		return STATUS_OK;
	status = rabbitmq_publisher_publish(producer->publisher, letters, written, until_ns);
	for (size_t i = 0; i < written; i++) {
		struct bus_message *message = &messages[letters[i].index];

		message->fate = letters[i].fate;
		message->is_untried =
			letters[i].fate == BUS_NOT_PERSISTED && !letters[i].is_settled;
	}
	return status;
}

static enum status publish(
	struct producer *base, struct bus_message *messages, size_t count, int64_t until_ns)
{
	struct rabbitmq_producer *producer = producer_of(base);
	int64_t started_ns = clock_steady_ns(&clock_system);
	enum status status;

	for (size_t i = 0; i < count; i++)
		messages[i].fate = BUS_NOT_PERSISTED;
	if (count == 0)
		return STATUS_OK;
	if (!rabbitmq_bus_is_up(producer->bus))
		return STATUS_BUS_UNAVAILABLE;
	status = send(producer, messages, count, until_ns);
	latency_add(&producer->bus->base.latency, clock_steady_ns(&clock_system) - started_ns);
	arena_reset(&producer->arena);
	return status;
}

static void close_producer(struct producer *base)
{
	struct rabbitmq_producer *producer = producer_of(base);

	rabbitmq_publisher_free(producer->publisher);
	arena_release(&producer->arena);
	free(producer);
}

static const struct producer_ops producer_ops = {.publish = publish, .close = close_producer};

/* Starts to connect now, so that the connection is usually open before the first publish. */
struct producer *rabbitmq_producer_open(struct bus *base)
{
	struct rabbitmq_producer *producer = qp_calloc(1, sizeof(*producer));

	producer->base.ops = &producer_ops;
	producer->bus = rabbitmq_bus_of(base);
	producer->publisher = rabbitmq_publisher_new(producer->bus, NULL);
	arena_init(&producer->arena, 64 * 1024);
	return &producer->base;
}
