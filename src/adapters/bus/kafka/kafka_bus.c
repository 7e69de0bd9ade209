#include "adapters/bus/kafka/kafka_bus.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "adapters/bus/kafka/kafka_internal.h"

static const struct bus_ops bus_ops;

struct kafka_bus *kafka_bus_of(struct bus *base)
{
	assert(base->ops == &bus_ops);
	return (struct kafka_bus *)base;
}

const struct bus_channel *kafka_bus_channel(const struct kafka_bus *bus, struct slice name)
{
	return bus_channel_find(bus->channels, bus->channel_count, name);
}

struct bus *kafka_bus_new(
	const char *name, const char *url, const struct bus_channel *channels, size_t channel_count)
{
	struct kafka_bus *bus = qp_calloc(1, sizeof(*bus));

	bus->base.ops = &bus_ops;
	bus->base.name = name;
	bus->base.engine = "kafka";
	bus->url_text = url;
	bus->channels = channels;
	bus->channel_count = channel_count;
	bus->watch.bus = bus;
	arena_init(&bus->arena, 4096);
	pthread_mutex_init(&bus->lock, NULL);
	steady_cond_init(&bus->changed);
	return &bus->base;
}

static bool start(struct bus *base, char *why, size_t size)
{
	struct kafka_bus *bus = kafka_bus_of(base);

	return kafka_url_parse(bus->url_text, &bus->arena, &bus->url, why, size) &&
	       kafka_watcher_start(bus, why, size);
}

static bool is_up(struct bus *base)
{
	return atomic_load(&kafka_bus_of(base)->up);
}

static void exit_at_once(int status, void *ignored)
{
	(void)ignored;
	fflush(NULL);
	_exit(status);
}

void kafka_bus_abandon(struct kafka_bus *bus)
{
	int failed;

	if (atomic_fetch_add(&bus->abandoned, 1) > 0)
		return;
	failed = on_exit(exit_at_once, NULL);
	assert(!failed);
}

static void free_bus(struct bus *base)
{
	struct kafka_bus *bus = kafka_bus_of(base);

	assert(atomic_load(&bus->users) == atomic_load(&bus->abandoned));
	kafka_watcher_stop(bus);
	if (atomic_load(&bus->abandoned) > 0)
		return;
	pthread_cond_destroy(&bus->changed);
	pthread_mutex_destroy(&bus->lock);
	arena_release(&bus->arena);
	free(bus);
}

static const struct bus_ops bus_ops = {
	.start = start,
	.is_up = is_up,
	.open_producer = kafka_producer_open,
	.open_consumer = kafka_consumer_open,
	.free = free_bus,
};
