#include "adapters/bus/nats/nats_bus.h"

#include <stdlib.h>

#include "adapters/bus/nats/nats_internal.h"

static const struct bus_ops bus_ops;

struct nats_bus *nats_bus_of(struct bus *base)
{
	assert(base->ops == &bus_ops);
	return (struct nats_bus *)base;
}

struct nats_channel *nats_bus_channel(struct nats_bus *bus, struct slice name)
{
	const struct bus_channel *declared =
		bus_channel_find(bus->declared, bus->channel_count, name);

	return declared ? &bus->channels[declared - bus->declared] : NULL;
}

const char *nats_bus_group_subject(
	const struct nats_bus *bus, const char *channel, const char *group)
{
	const struct bus_channel *declared =
		bus_channel_find(bus->declared, bus->channel_count, slice_of(channel));

	return declared ? bus_group_subjects(declared, group) : NULL;
}

struct bus *nats_bus_new(
	const char *name, const char *url, const struct bus_channel *channels, size_t channel_count)
{
	struct nats_bus *bus = qp_calloc(1, sizeof(*bus));

	bus->base.ops = &bus_ops;
	bus->base.name = name;
	bus->base.engine = "nats";
	bus->base.counts_deliveries = true;
	bus->url_text = url;
	bus->declared = channels;
	bus->channels = qp_calloc(channel_count, sizeof(bus->channels[0]));
	bus->channel_count = channel_count;
	arena_init(&bus->arena, 4096);
	pthread_mutex_init(&bus->lock, NULL);
	for (size_t i = 0; i < channel_count; i++)
		bus->channels[i].name = channels[i].name;
	return &bus->base;
}

static bool start(struct bus *base, char *why, size_t size)
{
	struct nats_bus *bus = nats_bus_of(base);

	if (!nats_url_parse(bus->url_text, &bus->arena, &bus->url, why, size))
		return false;
	for (size_t i = 0; i < bus->channel_count; i++) {
		if (!nats_channel_init(&bus->channels[i], &bus->declared[i], why, size))
			return false;
	}
	return nats_link_check(&bus->url, why, size) && nats_watcher_start(bus, why, size);
}

static bool is_up(struct bus *base)
{
	return atomic_load(&nats_bus_of(base)->up);
}

static void free_bus(struct bus *base)
{
	struct nats_bus *bus = nats_bus_of(base);

	assert(atomic_load(&bus->users) == 0);
	nats_watcher_stop(bus);
	assert(!bus->link);
	pthread_mutex_destroy(&bus->lock);
	arena_release(&bus->arena);
	free(bus->channels);
	free(bus);
}

static const struct bus_ops bus_ops = {
	.start = start,
	.is_up = is_up,
	.open_producer = nats_producer_open,
	.open_consumer = nats_consumer_open,
	.free = free_bus,
};
