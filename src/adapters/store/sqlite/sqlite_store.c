/*
 * Implements the store's own functions: start, health, and announcements. The code for connections
 * is in sqlite_writer.c and sqlite_session.c.
 *
 * Health depends on what the sessions report: after a failure the store is down, and after a
 * success it is up again. No thread probes the file. Announcements are not sent to other processes,
 * because only one Quipu process uses the file.
 */
#include "adapters/store/sqlite/sqlite_store.h"

#include <stdio.h>
#include <stdlib.h>

#include "adapters/store/sqlite/sqlite_internal.h"
#include "adapters/store/sqlite/sqlite_repositories.h"

/*
 * After a failure the store counts as down until a session succeeds, but not longer than DOWN_NS.
 * Without this limit, a process that gets no requests while its store is down would never find out
 * that the file works again.
 */
#define DOWN_NS (5 * NS_PER_S)

static const struct store_ops store_ops;

struct sqlite_store *sqlite_store_of(struct store *store)
{
	assert(store->ops == &store_ops);
	return (struct sqlite_store *)store;
}

/* Initializes the gate so that new readers have to wait while a thread waits for the exclusive
 * lock. Otherwise a steady stream of reads could make that thread wait for ever. */
static void init_gate(pthread_rwlock_t *gate)
{
	pthread_rwlockattr_t attributes;

	pthread_rwlockattr_init(&attributes);
	pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	pthread_rwlock_init(gate, &attributes);
	pthread_rwlockattr_destroy(&attributes);
}

/*
 * By default SQLite counts the memory it uses, under a lock that all threads share. Counting takes
 * a tenth of the time of a small statement, and Quipu does not use the result. Call this before the
 * process opens a database, because sqlite3_config() has no effect after that.
 */
static void stop_counting_memory(void)
{
	sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
}

static const struct store_repositories repositories = {
	.counts = &sqlite_count_repository,
	.limits = &sqlite_limit_repository,
	.sent = &sqlite_sent_repository,
	.outbound = &sqlite_outbound_repository,
	.entitlements = &sqlite_entitlement_repository,
	.entitlement_outbox = &sqlite_entitlement_outbox.base,
	.notifications = &sqlite_notification_repository,
	.pots = &sqlite_pot_repository,
	.messages = &sqlite_message_repository,
	.dialog_outbox = &sqlite_dialog_outbox.base,
	.counters = &sqlite_counter_repository,
};

struct store *sqlite_store_new(const char *name, const char *path, const char *const *components,
	const struct clock *clock)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct sqlite_store *store = qp_calloc(1, sizeof(*store));

	pthread_once(&once, stop_counting_memory);
	store->base.ops = &store_ops;
	store->base.name = name;
	store->base.engine = "sqlite";
	store->base.latency = &store->latency;
	store->base.repositories = &repositories;
	store->base.lanes_default = 1;
	store->path = path;
	store->components = components;
	store->clock = clock;
	sqlite_writer_init(&store->writer);
	init_gate(&store->gate);
	listeners_init(&store->listeners);
	return &store->base;
}

/* If the disk is full, there may be no space to copy the WAL into the database. The store starts
 * nevertheless, so that reads work. */
static int open_file(struct sqlite_store *store)
{
	int rc = sqlite_writer_open(store, SQLITE_OPEN_CREATE);

	if (rc == SQLITE_OK)
		rc = sqlite_writer_settle(&store->writer);
	return sqlite_primary(rc) == SQLITE_FULL ? SQLITE_OK : rc;
}

static bool start(struct store *base, char *why, size_t size)
{
	struct sqlite_store *store = sqlite_store_of(base);
	int rc = open_file(store);

	if (rc != SQLITE_OK)
		sqlite_connection_explain_open(
			&store->writer.connection, store->path, rc, why, size);
	if (rc == SQLITE_OK && sqlite_migrate(store, why, size)) {
		store->started = true;
		return true;
	}
	sqlite_connection_close(&store->writer.connection);
	return false;
}

static bool works(struct sqlite_store *store, enum session_kind kind)
{
	int64_t failed_at_ns = atomic_load(&store->failed_at_ns[kind]);

	return failed_at_ns == 0 || clock_steady_ns(store->clock) - failed_at_ns >= DOWN_NS;
}

static bool is_up(struct store *base)
{
	struct sqlite_store *store = sqlite_store_of(base);

	return store->started && works(store, SESSION_WRITE) && works(store, SESSION_READ);
}

static void announce(struct store *base, const char *announcement)
{
	listeners_call(&sqlite_store_of(base)->listeners, announcement);
}

static void listen_to(
	struct store *base, const char *announcement, void (*heard)(void *context), void *context)
{
	listeners_add(&sqlite_store_of(base)->listeners, announcement, heard, context);
}

static void unlisten(struct store *base, void *context)
{
	listeners_remove(&sqlite_store_of(base)->listeners, context);
}

static int64_t error_count(struct store *base, enum status kind)
{
	return tally_read(&sqlite_store_of(base)->errors[kind]);
}

static void free_store(struct store *base)
{
	struct sqlite_store *store = sqlite_store_of(base);

	assert(!store->readers);
	sqlite_writer_close(&store->writer);
	pthread_rwlock_destroy(&store->gate);
	listeners_release(&store->listeners);
	free(store);
}

static const struct store_ops store_ops = {
	.start = start,
	.open_session = sqlite_session_open,
	.is_up = is_up,
	.announce = announce,
	.listen = listen_to,
	.unlisten = unlisten,
	.error_count = error_count,
	.free = free_store,
};
