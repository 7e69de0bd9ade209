/*
 * A link is one connection and the thread that owns it. A connection of rabbitmq-c belongs to one
 * thread, its calls block, and sending may block forever if the broker does not read. Therefore a
 * thread with a deadline never calls rabbitmq-c. It passes its work to the link's thread and waits.
 * If the work is not done by the deadline, the waiting thread cuts the connection, which ends the
 * blocking call of the link's thread.
 *
 * Invariants: only the link's thread uses `state`; cut_fd is open only while there is a socket.
 */
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "adapters/bus/rabbitmq/rabbitmq_internal.h"
#include "base/log.h"

#define STOP_TIMEOUT_NS (2 * NS_PER_S)

/* If a connection lasted at least this long, earlier failures no longer count. */
#define STEADY_NS NS_PER_S

#define PAUSE_MIN_MS 20
#define PAUSE_MAX_MS 400
/* While the bus is down, a link checks this often whether the bus is up. The bus also wakes its
 * links when it comes up. */
#define WAITING_MS 5000

/* A link warns after this many consecutive failures, and only while the bus is up. The watcher is
 * an exception: it warns after its first failure. */
#define FAILURES_TO_WARN 4

/* ---- the thread -------------------------------------------------------------------------- */

static void notify(struct rabbitmq_link *link)
{
	if (link->duty->notify)
		link->duty->notify(link);
}

const struct rabbitmq_place *rabbitmq_link_place(const struct rabbitmq_link *link)
{
	const struct rabbitmq_url *url = &link->bus->url;

	return &url->places[link->attempt % url->place_count];
}

/*
 * Returns true if a warning about the last failure would be news. While the link has not warned
 * since it last connected, every failure is news. After a warning, a failure is news only if the
 * socket could be opened and the reason differs from the reason in that warning.
 */
static bool is_news(const struct rabbitmq_link *link)
{
	if (!*link->logged_words)
		return *link->words;
	return strcmp(link->words, link->logged_words) != 0 &&
	       strncmp(link->words, RABBITMQ_NO_ANSWER, strlen(RABBITMQ_NO_ANSWER)) != 0;
}

/* Counts a failure and moves on to the next node. Warns if the failure is news; a link that is not
 * the watcher warns only after several consecutive failures, and only while the bus is up. */
static void note_failure(struct rabbitmq_link *link)
{
	int failures = atomic_fetch_add(&link->failures, 1) + 1;
	const struct rabbitmq_place *place = rabbitmq_link_place(link);
	bool warns = is_news(link);

	link->attempt++;

	if (rabbitmq_link_is_stopped(link))
		return;
	if (!link->duty->is_watcher)
		warns = warns && failures >= FAILURES_TO_WARN && atomic_load(&link->bus->up);
	if (warns)
		snprintf(link->logged_words, sizeof(link->logged_words), "%s", link->words);
	log_line(warns ? LOG_WARN : LOG_DEBUG, "bus",
		"%s: RabbitMQ at %s:%d is unavailable: %s; retrying", link->who, place->host,
		place->port, link->words);
	notify(link);
}

static void note_success(struct rabbitmq_link *link)
{
	const struct rabbitmq_place *place = rabbitmq_link_place(link);

	if (*link->logged_words || link->duty->is_watcher)
		log_line(LOG_INFO, "bus", "%s: connected to RabbitMQ at %s:%d", link->who,
			place->host, place->port);
	link->logged_words[0] = '\0';
}

static void live(struct rabbitmq_link *link)
{
	int64_t began_ns = clock_steady_ns(&clock_system);
	enum rabbitmq_end end;

	note_success(link);
	end = link->duty->serve(link);
	rabbitmq_link_disconnect(link, end == RABBITMQ_STOPPED);
	if (end != RABBITMQ_LOST || clock_steady_ns(&clock_system) - began_ns >= STEADY_NS)
		atomic_store(&link->failures, 0);
	if (end == RABBITMQ_LOST)
		note_failure(link);
}

static void try_to_live(struct rabbitmq_link *link)
{
	if (rabbitmq_link_connect(link)) {
		live(link);
	} else {
		rabbitmq_link_disconnect(link, false);
		note_failure(link);
	}
}

/* Returns the pause before the next attempt. There is no pause after the first failure, because the
 * first failure may only be the end of a connection that worked until then. */
static int pause_ms(struct rabbitmq_link *link)
{
	int failures = atomic_load(&link->failures);

	if (failures <= 1)
		return 0;
	return failures > 6 ? PAUSE_MAX_MS : PAUSE_MIN_MS << (failures - 2);
}

static void *run(void *context)
{
	struct rabbitmq_link *link = context;

	pthread_setname_np(pthread_self(), "rabbitmq");
	while (!rabbitmq_link_is_stopped(link)) {
		if (link->duty->is_watcher || atomic_load(&link->bus->up)) {
			try_to_live(link);
			if (!rabbitmq_link_is_stopped(link))
				rabbitmq_link_pause(link, pause_ms(link));
		} else {
			/* waiting for the bus does not count as a failure of the link */
			atomic_store(&link->failures, 0);
			rabbitmq_link_pause(link, WAITING_MS);
			notify(link);
		}
	}
	pthread_mutex_lock(&link->lock);
	link->has_ended = true;
	pthread_cond_broadcast(&link->ended);
	pthread_mutex_unlock(&link->lock);
	return NULL;
}

/* ---- from other threads ------------------------------------------------------------------ */

void rabbitmq_link_start(struct rabbitmq_link *link, struct rabbitmq_bus *bus,
	const struct rabbitmq_duty *duty, const char *role, const char *name)
{
	int failed;

	link->bus = bus;
	link->duty = duty;
	snprintf(link->who, sizeof(link->who), "%s%s%s%s", bus->base.name, *role ? ", " : "", role,
		name);
	link->cut_fd = -1;
	link->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	assert(link->wake_fd >= 0);
	pthread_mutex_init(&link->lock, NULL);
	steady_cond_init(&link->ended);
	failed = pthread_create(&link->thread, NULL, run, link);
	assert(!failed);
}

/* The caller holds the lock. */
static void cut(struct rabbitmq_link *link)
{
	if (link->cut_fd >= 0)
		shutdown(link->cut_fd, SHUT_RDWR);
}

/* Stops the thread, but first lets it close its connection properly. */
void rabbitmq_link_stop(struct rabbitmq_link *link)
{
	int64_t until_ns = clock_steady_ns(&clock_system) + STOP_TIMEOUT_NS;

	atomic_store(&link->stopped, true);
	rabbitmq_link_wake(link);
	pthread_mutex_lock(&link->lock);
	if (!link->is_served)
		cut(link);
	while (!link->has_ended && steady_wait_until(&link->ended, &link->lock, until_ns))
		continue;
	cut(link);
	pthread_mutex_unlock(&link->lock);
	pthread_join(link->thread, NULL);
	pthread_cond_destroy(&link->ended);
	pthread_mutex_destroy(&link->lock);
	close(link->wake_fd);
}

void rabbitmq_link_wake(struct rabbitmq_link *link)
{
	const uint64_t once = 1;
	ssize_t written = write(link->wake_fd, &once, sizeof(once));

	(void)written; /* fails only if the counter is full; the link then wakes anyway */
}

void rabbitmq_link_cut(struct rabbitmq_link *link)
{
	pthread_mutex_lock(&link->lock);
	cut(link);
	pthread_mutex_unlock(&link->lock);
}

bool rabbitmq_link_is_stopped(struct rabbitmq_link *link)
{
	return atomic_load(&link->stopped);
}
