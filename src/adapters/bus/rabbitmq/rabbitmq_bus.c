#include "adapters/bus/rabbitmq/rabbitmq_bus.h"

#include <stdlib.h>

#include "adapters/bus/rabbitmq/rabbitmq_internal.h"

static const struct bus_ops bus_ops;

struct rabbitmq_bus *rabbitmq_bus_of(struct bus *base)
{
	assert(base->ops == &bus_ops);
	return (struct rabbitmq_bus *)base;
}

const struct bus_channel *rabbitmq_bus_channel(const struct rabbitmq_bus *bus, struct slice name)
{
	return bus_channel_find(bus->channels, bus->channel_count, name);
}

/* ---- links ------------------------------------------------------------------------------- */

void rabbitmq_bus_enter(struct rabbitmq_bus *bus, struct rabbitmq_link *link)
{
	pthread_mutex_lock(&bus->lock);
	link->next = bus->links;
	bus->links = link;
	pthread_mutex_unlock(&bus->lock);
	/* the bus may have come up just before this link was added, and then it has not woken the
	 * link */
	rabbitmq_link_wake(link);
}

void rabbitmq_bus_leave(struct rabbitmq_bus *bus, struct rabbitmq_link *link)
{
	struct rabbitmq_link **place = &bus->links;

	pthread_mutex_lock(&bus->lock);
	while (*place != link)
		place = &(*place)->next;
	*place = link->next;
	pthread_mutex_unlock(&bus->lock);
}

void rabbitmq_bus_wake_links(struct rabbitmq_bus *bus)
{
	pthread_mutex_lock(&bus->lock);
	for (struct rabbitmq_link *link = bus->links; link; link = link->next)
		rabbitmq_link_wake(link);
	pthread_mutex_unlock(&bus->lock);
}

/* ---- the port's functions ---------------------------------------------------------------- */

struct bus *rabbitmq_bus_new(
	const char *name, const char *url, const struct bus_channel *channels, size_t channel_count)
{
	struct rabbitmq_bus *bus = qp_calloc(1, sizeof(*bus));

	bus->base.ops = &bus_ops;
	bus->base.name = name;
	bus->base.engine = "rabbitmq";
	bus->url_text = url;
	bus->channels = channels;
	bus->channel_count = channel_count;
	atomic_store(&bus->frame_max, AMQP_DEFAULT_FRAME_SIZE);
	arena_init(&bus->arena, 1024);
	pthread_mutex_init(&bus->lock, NULL);
	return &bus->base;
}

static bool start(struct bus *base, char *why, size_t size)
{
	struct rabbitmq_bus *bus = rabbitmq_bus_of(base);

	if (!rabbitmq_url_parse(bus->url_text, &bus->arena, &bus->url, why, size) ||
		!rabbitmq_socket_check(&bus->url, why, size))
		return false;
	rabbitmq_watcher_start(bus);
	return true;
}

bool rabbitmq_bus_is_up(struct rabbitmq_bus *bus)
{
	return atomic_load(&bus->up) && atomic_load(&bus->blocked) == 0;
}

static bool is_up(struct bus *base)
{
	return rabbitmq_bus_is_up(rabbitmq_bus_of(base));
}

static void free_bus(struct bus *base)
{
	struct rabbitmq_bus *bus = rabbitmq_bus_of(base);

	assert(!bus->links);
	rabbitmq_watcher_stop(bus);
	pthread_mutex_destroy(&bus->lock);
	arena_release(&bus->arena);
	free(bus);
}

static const struct bus_ops bus_ops = {
	.start = start,
	.is_up = is_up,
	.open_producer = rabbitmq_producer_open,
	.open_consumer = rabbitmq_consumer_open,
	.free = free_bus,
};
