/*
 * The watcher is a link that declares all exchanges and queues and then keeps sending small
 * requests. It is the circuit breaker of the bus: while the broker does not respond to these
 * requests, the bus is down, producers refuse messages, and no other link connects.
 *
 *   state   event                                                     next
 *   down    connected, and everything is declared                     up
 *   up      the connection is lost, or a probe fails: the reply       down
 *           takes too long, the exchange of the first channel no
 *           longer exists, or a declaration is refused
 */
#include "adapters/bus/rabbitmq/rabbitmq_internal.h"
#include "base/log.h"

#define PROBE_INTERVAL_NS NS_PER_S

static bool declare_all(struct rabbitmq_link *link)
{
	struct rabbitmq_bus *bus = link->bus;
	bool declared = true;

	atomic_store(&bus->doubted, false);
	for (size_t i = 0; declared && i < bus->channel_count; i++)
		declared = rabbitmq_declare_channel(link, &bus->channels[i]);
	return declared;
}

static bool probe(struct rabbitmq_link *link)
{
	struct rabbitmq_bus *bus = link->bus;

	if (atomic_load(&bus->doubted))
		return declare_all(link);
	return bus->channel_count == 0 || rabbitmq_find_channel(link, &bus->channels[0]);
}

/* Waits until the next probe and runs it. Returns false if the link is lost. */
static bool watch(struct rabbitmq_link *link)
{
	int64_t probe_ns = clock_steady_ns(&clock_system) + PROBE_INTERVAL_NS;
	enum rabbitmq_event event = RABBITMQ_WOKEN;
	amqp_frame_t frame;

	while (event != RABBITMQ_QUIET) {
		event = rabbitmq_link_wait(link, &frame, probe_ns);
		if (event == RABBITMQ_GONE)
			return false;
		if (rabbitmq_link_is_stopped(link))
			return true;
	}
	return probe(link);
}

static enum rabbitmq_end serve(struct rabbitmq_link *link)
{
	struct rabbitmq_bus *bus = link->bus;
	bool works = true;

	atomic_store(&bus->up, true);
	rabbitmq_bus_wake_links(bus);
	while (works && !rabbitmq_link_is_stopped(link))
		works = watch(link);
	atomic_store(&bus->up, false);
	rabbitmq_bus_wake_links(bus);
	return works ? RABBITMQ_STOPPED : RABBITMQ_LOST;
}

static const struct rabbitmq_duty watcher = {
	.set_up = declare_all,
	.serve = serve,
	.is_watcher = true,
};

void rabbitmq_watcher_start(struct rabbitmq_bus *bus)
{
	rabbitmq_link_start(&bus->watch, bus, &watcher, "", "");
	bus->running = true;
}

void rabbitmq_watcher_stop(struct rabbitmq_bus *bus)
{
	if (bus->running)
		rabbitmq_link_stop(&bus->watch);
}

void rabbitmq_watcher_doubt(struct rabbitmq_bus *bus)
{
	atomic_store(&bus->doubted, true);
}
