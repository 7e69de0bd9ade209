/*
 * The watcher is a thread that opens a link, prepares the streams, and shares the link with
 * producers and consumers. It then keeps pinging the server, and opens another link when this link
 * breaks. It detects a closed connection immediately, and a hanging server within seconds.
 *
 *   state   event                                                        next
 *   down    connected, and the streams exist                             up
 *   up      the connection ends, a write fails, or a PONG is late        down
 *   up      a stream is missing and cannot be created                    down, on the same link
 *
 * Two processes may create the same stream at the same time. If the later process gets the error
 * that the stream exists, it checks the streams again after CHECK_RETRY_NS.
 */
#include <stdio.h>
#include <time.h>

#include "adapters/bus/nats/nats_internal.h"
#include "base/log.h"

#define RETRY_NS (200 * NS_PER_MS)
#define GLANCE_NS (100 * NS_PER_MS)
#define PING_INTERVAL_NS (1 * NS_PER_S)
#define PING_TIMEOUT_MS 3000
#define CHECK_INTERVAL_NS (30 * NS_PER_S)
#define CHECK_RETRY_NS (500 * NS_PER_MS)

/* ---- up and down ------------------------------------------------------------------------- */

static void go_up(struct nats_bus *bus, struct nats_link *link)
{
	pthread_mutex_lock(&bus->lock);
	bus->link = link;
	atomic_store(&bus->up, !atomic_load(&link->broken));
	pthread_mutex_unlock(&bus->lock);
	if (!bus->logged_up)
		log_line(
			LOG_INFO, "bus", "%s: NATS at %s is ready", bus->base.name, bus->url.shown);
	bus->logged_up = true;
	bus->logged_reason[0] = '\0';
}

static bool is_news(const struct nats_bus *bus, enum nats_trouble trouble, const char *reason)
{
	if (bus->logged_up || !bus->logged_reason[0] || trouble != bus->logged_trouble)
		return true;
	return trouble == NATS_REFUSED && strcmp(bus->logged_reason, reason) != 0;
}

static void go_down(struct nats_bus *bus, enum nats_trouble trouble, const char *reason)
{
	atomic_store(&bus->up, false);
	if (!is_news(bus, trouble, reason))
		return;
	snprintf(bus->logged_reason, sizeof(bus->logged_reason), "%s", reason);
	bus->logged_trouble = trouble;
	bus->logged_up = false;
	log_line(LOG_WARN, "bus", "%s: NATS at %s is unavailable: %s; retrying", bus->base.name,
		bus->url.shown, reason);
}

static void nap(struct nats_bus *bus, int64_t duration_ns)
{
	const struct timespec moment = {.tv_nsec = 20 * NS_PER_MS};
	int64_t until_ns = clock_steady_ns(&clock_system) + duration_ns;

	while (!atomic_load(&bus->stopping) && clock_steady_ns(&clock_system) < until_ns)
		nanosleep(&moment, NULL);
}

/* ---- one link ---------------------------------------------------------------------------- */

struct watch {
	struct nats_bus *bus;
	struct nats_link *link;
	struct nats_mailbox mailbox;
	bool ready;
	int64_t next_check_ns; /* when to check the streams again */
	int64_t next_ping_ns;
};

static void check_streams(struct watch *watch)
{
	struct nats_bus *bus = watch->bus;
	char why[256] = "";

	atomic_store(&bus->check_soon, false);
	watch->ready = nats_streams_prepare(bus, &watch->mailbox, why, sizeof(why));
	watch->next_check_ns = clock_steady_ns(&clock_system) +
			       (watch->ready ? CHECK_INTERVAL_NS : CHECK_RETRY_NS);
	if (watch->ready)
		go_up(bus, watch->link);
	else if (!atomic_load(&watch->link->broken))
		go_down(bus, NATS_REFUSED, why);
}

static void ping(struct watch *watch)
{
	natsStatus status = nats_link_ping(watch->link, PING_TIMEOUT_MS);

	watch->next_ping_ns = clock_steady_ns(&clock_system) + PING_INTERVAL_NS;
	if (status == NATS_TIMEOUT)
		go_down(watch->bus, NATS_AWAY, "the server does not respond");
	if (status != NATS_OK)
		nats_link_break(watch->link);
}

/* Pauses by waiting for replies, because a closed connection ends such a wait immediately. A reply
 * that arrives here belongs to a request for which this thread no longer waits, and is dropped. */
static void glance(struct watch *watch)
{
	int64_t until_ns = clock_steady_ns(&clock_system) + GLANCE_NS;
	natsMsg *letter = NULL;
	size_t number;

	if (nats_mailbox_next(&watch->mailbox, &letter, &number, until_ns) == NATS_LETTER)
		natsMsg_Destroy(letter);
}

static void serve(struct watch *watch)
{
	struct nats_bus *bus = watch->bus;

	while (!atomic_load(&bus->stopping) && !atomic_load(&watch->link->broken)) {
		int64_t now_ns = clock_steady_ns(&clock_system);

		if (now_ns >= watch->next_check_ns ||
			(watch->ready && atomic_load(&bus->check_soon)))
			check_streams(watch);
		if (now_ns >= watch->next_ping_ns)
			ping(watch);
		if (!atomic_load(&watch->link->broken))
			glance(watch);
	}
}

static void end(struct watch *watch)
{
	struct nats_bus *bus = watch->bus;

	nats_mailbox_close(&watch->mailbox);
	nats_link_break(watch->link);
	pthread_mutex_lock(&bus->lock);
	bus->link = NULL;
	pthread_mutex_unlock(&bus->lock);
	if (!atomic_load(&bus->stopping) && bus->logged_up)
		go_down(bus, NATS_AWAY, "the connection has ended");
	nats_link_release(watch->link);
}

static void *run(void *context)
{
	struct nats_bus *bus = context;

	pthread_setname_np(pthread_self(), "nats-watcher");
	while (!atomic_load(&bus->stopping)) {
		struct watch watch = {.bus = bus};
		int64_t began_ns = clock_steady_ns(&clock_system);
		enum nats_trouble trouble;
		char why[256] = "";

		watch.link = nats_link_open(bus, &trouble, why, sizeof(why));
		if (!watch.link) {
			go_down(bus, trouble, why);
			nap(bus, RETRY_NS);
			continue;
		}
		watch.next_ping_ns = clock_steady_ns(&clock_system) + PING_INTERVAL_NS;
		if (nats_mailbox_open(&watch.mailbox, watch.link))
			serve(&watch);
		end(&watch);
		/* a server may accept a login and then close the connection, again and again */
		if (clock_steady_ns(&clock_system) - began_ns < RETRY_NS)
			nap(bus, RETRY_NS);
	}
	return NULL;
}

/* ---- start and stop ---------------------------------------------------------------------- */

bool nats_watcher_start(struct nats_bus *bus, char *why, size_t size)
{
	if (pthread_create(&bus->thread, NULL, run, bus) != 0) {
		snprintf(why, size, "no thread could be started for %s", bus->base.name);
		return false;
	}
	bus->running = true;
	return true;
}

void nats_watcher_stop(struct nats_bus *bus)
{
	struct nats_link *link;

	if (!bus->running)
		return;
	atomic_store(&bus->stopping, true);
	link = nats_link_hold(bus);
	if (link) {
		nats_link_break(link); /* so that no thread waits for a hanging server */
		nats_link_release(link);
	}
	pthread_join(bus->thread, NULL);
	bus->running = false;
}
