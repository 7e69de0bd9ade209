/*
 * Consumers of RabbitMQ.
 *
 * A fetched message stays in the consumer's list until it is acknowledged, and the next fetch
 * returns it again, before newer messages. If the connection on which the message arrived is lost,
 * the consumer drops the message, because the broker delivers it again.
 *
 * The reader (rabbitmq_reader.c) has its own thread, which appends arriving messages to the list
 * and sends acknowledgements.
 * Invariant: only fetch() and close remove deliveries. Therefore the deliveries of the last fetch
 * can be used without the lock until the next fetch.
 */
#include <stdlib.h>

#include "adapters/bus/rabbitmq/rabbitmq_internal.h"

/* Once the bodies of a fetch together reach this size, the fetch adds no more messages. */
#define FETCH_BYTES_MAX (16 * 1024 * 1024)

#define ACK_TIMEOUT_NS (5 * NS_PER_S)

static const struct consumer_ops consumer_ops;

static struct rabbitmq_consumer *consumer_of(struct consumer *base)
{
	assert(base->ops == &consumer_ops);
	return (struct rabbitmq_consumer *)base;
}

/* ---- the list ------------------------------------------------------------------------------ */

/*
 * Drops deliveries that are acknowledged or whose connection is gone. The caller holds the lock, or
 * the reader has ended.
 */
static void drop_done(struct rabbitmq_consumer *consumer)
{
	struct rabbitmq_delivery **link = &consumer->first;

	for (size_t i = 0; *link; i++) {
		struct rabbitmq_delivery *delivery = *link;

		if (i >= consumer->acked && delivery->serial == consumer->serial) {
			link = &delivery->next;
			continue;
		}
		*link = delivery->next;
		rabbitmq_delivery_free(delivery);
	}
	consumer->last = link;
	consumer->acked = consumer->given = 0;
}

/* Returns the delivery at `index` of the last fetch. Needs no lock, because the reader only appends
 * to the list, behind the deliveries of the last fetch. */
static struct rabbitmq_delivery *delivery_at(struct rabbitmq_consumer *consumer, size_t index)
{
	struct rabbitmq_delivery *delivery = consumer->first;

	assert(index < consumer->given);
	while (index-- > 0)
		delivery = delivery->next;
	return delivery;
}

/* ---- fetch ------------------------------------------------------------------------------- */

/* Waits until there are deliveries from the current connection or the consumer is woken, but not
 * beyond monotonic time `until_ns`. The caller holds the lock. */
static void wait_for_some(struct rabbitmq_consumer *consumer, int64_t until_ns)
{
	bool in_time = true;

	drop_done(consumer);
	while (!consumer->first && !consumer->woken && in_time) {
		in_time = steady_wait_until(&consumer->changed, &consumer->lock, until_ns);
		drop_done(consumer);
	}
	consumer->woken = false;
}

/* Fills `deliveries` from the beginning of the list. The caller holds the lock. */
static void give(struct rabbitmq_consumer *consumer, struct bus_delivery *deliveries, size_t max)
{
	struct rabbitmq_delivery *from = consumer->first;
	size_t bytes = 0;

	for (; from && consumer->given < max && bytes < FETCH_BYTES_MAX; from = from->next) {
		from->why = NULL;
		rabbitmq_delivery_read(
			&deliveries[consumer->given++], &consumer->arena, consumer->channel, from);
		bytes += from->message.body.len;
	}
}

static enum status fetch(struct consumer *base, struct bus_delivery *deliveries, size_t max,
	size_t *count, int64_t until_ns)
{
	struct rabbitmq_consumer *consumer = consumer_of(base);

	arena_reset(&consumer->arena);
	pthread_mutex_lock(&consumer->lock);
	wait_for_some(consumer, until_ns);
	give(consumer, deliveries, max);
	pthread_mutex_unlock(&consumer->lock);
	*count = consumer->given;
	return STATUS_OK;
}

/* ---- poison ------------------------------------------------------------------------------ */

static void poison(struct consumer *base, size_t index, const char *why)
{
	struct rabbitmq_consumer *consumer = consumer_of(base);

	delivery_at(consumer, index)->why = arena_copy(&consumer->arena, slice_of(why)).data;
}

static struct rabbitmq_publisher *error_publisher_of(struct rabbitmq_consumer *consumer)
{
	if (!consumer->error_publisher)
		consumer->error_publisher =
			rabbitmq_publisher_new(consumer->link.bus, consumer->error_queue);
	return consumer->error_publisher;
}

static size_t write_letters(
	struct rabbitmq_consumer *consumer, size_t to, struct rabbitmq_letter *letters)
{
	struct rabbitmq_delivery *from;
	size_t count = 0;

	pthread_mutex_lock(&consumer->lock);
	from = delivery_at(consumer, consumer->acked);
	for (size_t i = consumer->acked; i < to; i++, from = from->next) {
		if (from->why)
			rabbitmq_letter_write_fault(&letters[count++], &consumer->arena,
				consumer->link.bus, from, consumer->error_queue);
	}
	pthread_mutex_unlock(&consumer->lock);
	return count;
}

/*
 * Publishes copies of poisoned messages to the error queue: one copy of each poisoned message among
 * the unacknowledged deliveries before index `to`. Returns true if the broker has confirmed all
 * copies, or if there are no poisoned messages.
 */
static bool set_aside_poisoned(struct rabbitmq_consumer *consumer, size_t to)
{
	struct rabbitmq_letter *letters =
		arena_array(&consumer->arena, struct rabbitmq_letter, to - consumer->acked);
	size_t count = write_letters(consumer, to, letters);

	if (count == 0)
		return true;
	if (rabbitmq_publisher_publish(error_publisher_of(consumer), letters, count,
		    clock_steady_ns(&clock_system) + ACK_TIMEOUT_NS) != STATUS_OK)
		return false;
	for (size_t i = 0; i < count; i++) {
		if (letters[i].fate != BUS_CONFIRMED)
			return false;
	}
	return true;
}

/* ---- ack --------------------------------------------------------------------------------- */

/*
 * Makes the reader acknowledge every delivery up to `tag`. Returns true if the reader has sent the
 * acknowledgement. If the reader has not sent it in time, send_ack() cuts the reader's connection,
 * so that the acknowledgement cannot be sent later; the broker then delivers the messages again.
 * The caller holds the lock.
 */
static bool send_ack(struct rabbitmq_consumer *consumer, uint64_t tag)
{
	int64_t until_ns = clock_steady_ns(&clock_system) + ACK_TIMEOUT_NS;
	bool in_time = true;

	consumer->ack_tag = tag;
	consumer->ack = RABBITMQ_ACK_WANTED;
	rabbitmq_link_wake(&consumer->link);
	while (consumer->ack == RABBITMQ_ACK_WANTED && in_time)
		in_time = steady_wait_until(&consumer->changed, &consumer->lock, until_ns);
	if (consumer->ack == RABBITMQ_ACK_WANTED)
		rabbitmq_link_cut(&consumer->link);
	while (consumer->ack == RABBITMQ_ACK_WANTED)
		pthread_cond_wait(&consumer->changed, &consumer->lock);
	return consumer->ack == RABBITMQ_ACK_SENT;
}

/* Returns true if the delivery arrived on the current connection. The caller holds the lock. */
static bool is_current(
	const struct rabbitmq_consumer *consumer, const struct rabbitmq_delivery *delivery)
{
	return delivery->serial == consumer->serial;
}

static bool set_aside_and_ack(struct rabbitmq_consumer *consumer, size_t count)
{
	struct rabbitmq_delivery *last = delivery_at(consumer, count - 1);
	bool acked;

	pthread_mutex_lock(&consumer->lock);
	acked = is_current(consumer, last);
	pthread_mutex_unlock(&consumer->lock);
	if (!acked || !set_aside_poisoned(consumer, count))
		return false;
	pthread_mutex_lock(&consumer->lock);
	acked = is_current(consumer, last) && send_ack(consumer, last->tag);
	consumer->ack = RABBITMQ_ACK_NONE;
	pthread_mutex_unlock(&consumer->lock);
	return acked;
}

static enum status ack(struct consumer *base, size_t count)
{
	struct rabbitmq_consumer *consumer = consumer_of(base);

	if (count > consumer->given)
		count = consumer->given;
	if (count <= consumer->acked)
		return STATUS_OK;
	if (!set_aside_and_ack(consumer, count))
		return STATUS_BUS_UNAVAILABLE;
	consumer->acked = count;
	return STATUS_OK;
}

/* ---- the port's other functions ---------------------------------------------------------- */

static void again(struct consumer *base)
{
	struct rabbitmq_consumer *consumer = consumer_of(base);

	/* Nothing to do: the next fetch returns the unacknowledged messages again. */
	assert(consumer->acked <= consumer->given);
}

static void wake(struct consumer *base)
{
	struct rabbitmq_consumer *consumer = consumer_of(base);

	pthread_mutex_lock(&consumer->lock);
	consumer->woken = true;
	pthread_cond_broadcast(&consumer->changed);
	pthread_mutex_unlock(&consumer->lock);
}

static void close_consumer(struct consumer *base)
{
	struct rabbitmq_consumer *consumer = consumer_of(base);

	rabbitmq_bus_leave(consumer->link.bus, &consumer->link);
	rabbitmq_link_stop(&consumer->link);
	if (consumer->error_publisher)
		rabbitmq_publisher_free(consumer->error_publisher);
	drop_done(consumer); /* drops all deliveries, because the connection is gone */
	assert(!consumer->first);
	pthread_cond_destroy(&consumer->changed);
	pthread_mutex_destroy(&consumer->lock);
	arena_release(&consumer->arena);
	free(consumer->error_queue);
	free(consumer->queue);
	free(consumer);
}

static const struct consumer_ops consumer_ops = {
	.fetch = fetch,
	.ack = ack,
	.again = again,
	.poison = poison,
	.wake = wake,
	.close = close_consumer,
};

static char *with_ending(const char *name, const char *ending)
{
	size_t size = strlen(name) + strlen(ending) + 1;
	char *text = qp_malloc(size);

	memcpy(text, name, strlen(name));
	memcpy(text + strlen(name), ending, strlen(ending) + 1);
	return text;
}

struct consumer *rabbitmq_consumer_open(struct bus *base, const char *channel, const char *group)
{
	struct rabbitmq_bus *bus = rabbitmq_bus_of(base);
	struct rabbitmq_consumer *consumer = qp_calloc(1, sizeof(*consumer));

	consumer->base.ops = &consumer_ops;
	consumer->channel = rabbitmq_bus_channel(bus, slice_of(channel));
	assert(consumer->channel);
	consumer->queue = with_ending(group, "");
	consumer->error_queue = with_ending(group, "_error");
	consumer->last = &consumer->first;
	arena_init(&consumer->arena, 64 * 1024);
	pthread_mutex_init(&consumer->lock, NULL);
	steady_cond_init(&consumer->changed);
	rabbitmq_link_start(&consumer->link, bus, &rabbitmq_reader, "consumer of ", group);
	rabbitmq_bus_enter(bus, &consumer->link);
	return &consumer->base;
}
