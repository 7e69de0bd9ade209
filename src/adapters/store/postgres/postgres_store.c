/*
 * The store: configures connections, runs the watcher thread, and passes announcements on. The
 * watcher brings the store up and keeps the planner's statistics usable.
 *
 * Only the watcher thread decides that the server is back; a session that cannot connect marks the
 * store as down and wakes the watcher. During an outage the watcher tries to connect, but sessions
 * do not, so requests are refused immediately. The watcher keeps its own connection open while the
 * store is up, so that it detects an outage even if no session uses the store.
 *
 * Invariants: is_up is true only after all migrations have been applied; while a session or the
 * watcher is connected, no `quipu copy` writes to the database (postgres_copy_lock.c); the waker,
 * which carries announcements (postgres_waker.h), is created once, for the first listener or
 * announcement, and lives until the store is freed.
 */
#include "adapters/store/postgres/postgres_store.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "adapters/shared/listeners.h"
#include "adapters/store/postgres/postgres_copy_lock.h"
#include "adapters/store/postgres/postgres_dialect.h"
#include "adapters/store/postgres/postgres_internal.h"
#include "adapters/store/postgres/postgres_repositories.h"
#include "adapters/store/postgres/postgres_statistics.h"
#include "adapters/store/postgres/postgres_waker.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/steady.h"

#define RETRY_FIRST_MS 50
#define RETRY_LAST_MS 1000
#define LOOK_MS 500 /* time between two checks of the watcher's connection */
#define LANES_DEFAULT 2
#define FLOORS_MAX 4 /* tables with claims: two outboxes, notifications, outbound messages */

struct pg_store {
	struct store base;
	const char *url;
	const char *const *components;
	struct tally errors[STATUS_COUNT];
	struct latency latency;
	atomic_bool is_up;
	pthread_t watcher;
	struct listeners listeners;
	_Atomic(struct pg_waker *) waker; /* NULL until the first listener or announcement */

	pthread_mutex_t lock; /* guards the members below */
	pthread_cond_t changed;
	bool has_watcher;
	bool stopping;
	struct pg_floor floors[FLOORS_MAX];
	size_t floor_count;
};

static const struct store_ops store_ops;

struct pg_store *pg_store_of(struct store *store)
{
	assert(store->ops == &store_ops);
	return (struct pg_store *)store;
}

/* ---- configuring connections ------------------------------------------------------------- */

/*
 * Committers rely on rows being locked in the order of the array that they send. Therefore the
 * planner may only use nested loops over the array, with one index look-up per element, whatever
 * the table's statistics are; tests check the plans. Read sessions have the same settings, because
 * their statements have the same shape. The last statement of session_settings determines the
 * dialect; configure() then applies the dialect's own settings.
 */
#define AS_SET(name, value) "SET " name " = '" value "'; "
static const char session_settings[] =
	"SET synchronous_commit = on; SET client_min_messages = warning; SET timezone = 'UTC'; "
	"SET statement_timeout = '8s'; SET idle_in_transaction_session_timeout = "
	"'20s'; " PG_LOCK_SETTINGS(AS_SET) PG_DIALECT_QUERY;

static bool execute(PGconn *connection, const char *sql)
{
	PGresult *result = PQexec(connection, sql);
	ExecStatusType status = PQresultStatus(result);

	PQclear(result);
	return status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK;
}

static bool set_test_clock(PGconn *connection)
{
	char sql[96];

	if (clock_test_offset_us() == 0)
		return true;
	snprintf(sql, sizeof(sql), "SET quipu.clock_offset = '%lld microseconds'",
		(long long)clock_test_offset_us());
	return execute(connection, sql);
}

/* Applies session_settings, and then the settings of the dialect, to a new connection. Returns the
 * server's dialect, or NULL on failure. */
static const struct pg_dialect *configure(PGconn *connection)
{
	PGresult *result = PQexec(connection, session_settings);
	const struct pg_dialect *dialect = NULL;

	if (PQresultStatus(result) == PGRES_TUPLES_OK)
		dialect = pg_dialect_of(result);
	PQclear(result);
	return dialect && execute(connection, dialect->settings) ? dialect : NULL;
}

PGconn *pg_connect(const struct pg_store *store, enum session_kind kind,
	const struct pg_dialect **dialect, char *why, size_t size)
{
	PGconn *connection = pg_dial(store->url);
	bool ok = PQstatus(connection) == CONNECTION_OK &&
		  (*dialect = configure(connection)) != NULL && set_test_clock(connection);

	if (ok && kind == SESSION_READ)
		ok = execute(connection, "SET default_transaction_read_only = on");
	if (!ok)
		pg_explain(connection, why, size);
	else if (pg_admit_server(connection, why, size))
		return connection;
	PQfinish(connection);
	return NULL;
}

/* ---- the watcher ------------------------------------------------------------------------- */

static bool is_up(struct store *base)
{
	return atomic_load(&pg_store_of(base)->is_up);
}

void pg_store_lost(struct pg_store *store, const char *why)
{
	if (!atomic_exchange(&store->is_up, false))
		return;
	log_line(LOG_ERROR, "store", "%s: the connection to PostgreSQL is lost: %s",
		store->base.name, why);
	pthread_mutex_lock(&store->lock);
	pthread_cond_broadcast(&store->changed);
	pthread_mutex_unlock(&store->lock);
}

void pg_store_count_error(struct pg_store *store, enum status kind)
{
	tally_add(&store->errors[kind], 1);
}

struct pg_floor *pg_store_floor(struct pg_store *store, const void *table)
{
	struct pg_floor *floor = store->floors;

	pthread_mutex_lock(&store->lock);
	while (floor < store->floors + store->floor_count && floor->table != table)
		floor++;
	if (floor == store->floors + store->floor_count) {
		assert(store->floor_count < FLOORS_MAX);
		store->floor_count++;
		floor->table = table;
	}
	pthread_mutex_unlock(&store->lock);
	return floor;
}

/* The state of the watcher thread. */
struct watch {
	struct pg_store *store;
	PGconn *connection; /* NULL while the store is down */
	bool migrated;
	struct pg_statistics statistics; /* of the connection */
};

static void drop_connection(struct watch *watch)
{
	PQfinish(watch->connection);
	watch->connection = NULL;
	pg_statistics_reset(&watch->statistics);
}

static bool try_to_bring_up(struct watch *watch, char *why, size_t size)
{
	struct pg_store *store = watch->store;
	const struct pg_dialect *dialect;

	drop_connection(watch);
	watch->connection = pg_connect(store, SESSION_WRITE, &dialect, why, size);
	if (!watch->connection || watch->migrated)
		return watch->connection != NULL;
	watch->migrated = (dialect != &pg_dialect_citus ||
				  pg_distribute_admits(watch->connection, why, size)) &&
			  pg_migrate(watch->connection, store->components, why, size);
	if (watch->migrated && dialect == &pg_dialect_citus)
		pg_distribute_check(watch->connection, store->base.name);
	drop_connection(watch); /* also releases the migration lock */
	return watch->migrated && try_to_bring_up(watch, why, size);
}

/* Waits `ms` milliseconds, or less if `changed` is signalled. The caller holds the lock. */
static void pause_for(struct pg_store *store, int ms)
{
	steady_wait_until(&store->changed, &store->lock, steady_in(ms * NS_PER_MS));
}

/* Returns true if `why` reports one of these reasons: the server refuses the connection; the server
 * accepts no writes; a `quipu copy` keeps servers out of the database (postgres_copy_lock.c).
 * Returns false if the server refuses connections only because it is starting or stopping. */
static bool is_refusal(const char *why)
{
	return strstr(why, "read-only") || strstr(why, "quipu copy") ||
	       (strstr(why, "FATAL") && !strstr(why, "the database system is "));
}

/* Logs a warning if the reason is new. Once all migrations have been applied, warns only about
 * refusals (see is_refusal()), because pg_store_lost() already logged the loss of the store. */
static void log_failure(const struct watch *watch, char *last, size_t size, const char *why)
{
	const struct pg_store *store = watch->store;

	if (strcmp(last, why) == 0 || (watch->migrated && !is_refusal(why)))
		return;
	snprintf(last, size, "%s", why);
	log_line(LOG_WARN, "store", "%s: PostgreSQL cannot be used, retrying: %s", store->base.name,
		why);
}

/* Retries until the store is up or stopping. The caller holds the lock, which is released during
 * each attempt and held again on return. */
static void bring_up(struct watch *watch)
{
	struct pg_store *store = watch->store;
	char why[512], last[512] = "";
	int retry_ms = RETRY_FIRST_MS;

	while (!store->stopping && !atomic_load(&store->is_up)) {
		bool ok;

		pthread_mutex_unlock(&store->lock);
		ok = try_to_bring_up(watch, why, sizeof(why));
		if (ok) {
			atomic_store(&store->is_up, true);
			log_line(LOG_INFO, "store", "%s: PostgreSQL is up", store->base.name);
		} else {
			log_failure(watch, last, sizeof(last), why);
		}
		pthread_mutex_lock(&store->lock);
		if (!ok && !store->stopping)
			pause_for(store, retry_ms);
		retry_ms = retry_ms * 2 < RETRY_LAST_MS ? retry_ms * 2 : RETRY_LAST_MS;
	}
}

/*
 * Checks whether the server has closed the watcher's connection. The store counts as lost only if a
 * new connection fails as well, because a server may close connections that were idle for a long
 * time.
 */
static void look(struct watch *watch)
{
	char why[512];

	if (PQconsumeInput(watch->connection) == 1 &&
		PQstatus(watch->connection) == CONNECTION_OK) {
		pg_statistics_step(&watch->statistics, watch->connection, watch->store->base.name);
		return;
	}
	if (!try_to_bring_up(watch, why, sizeof(why)))
		pg_store_lost(watch->store, why);
}

static void *run_watcher(void *argument)
{
	struct pg_store *store = argument;
	struct watch watch = {.store = store};

	pthread_setname_np(pthread_self(), "pg-watcher");
	pthread_mutex_lock(&store->lock);
	while (!store->stopping) {
		bring_up(&watch);
		if (!store->stopping && atomic_load(&store->is_up))
			pause_for(store, LOOK_MS);
		if (!store->stopping && atomic_load(&store->is_up)) {
			pthread_mutex_unlock(&store->lock);
			look(&watch);
			pthread_mutex_lock(&store->lock);
		}
	}
	pthread_mutex_unlock(&store->lock);
	drop_connection(&watch);
	return NULL;
}

/* ---- announcements ----------------------------------------------------------------------- */

static struct pg_waker *waker_of(struct pg_store *store)
{
	if (atomic_load(&store->waker))
		return store->waker;
	pthread_mutex_lock(&store->lock);
	if (!store->waker)
		store->waker = pg_waker_start(store->base.name, store->url, &store->listeners);
	pthread_mutex_unlock(&store->lock);
	return store->waker;
}

static void listen_to(
	struct store *base, const char *announcement, void (*heard)(void *context), void *context)
{
	struct pg_store *store = pg_store_of(base);

	listeners_add(&store->listeners, announcement, heard, context);
	waker_of(store);
}

static void unlisten(struct store *base, void *context)
{
	listeners_remove(&pg_store_of(base)->listeners, context);
}

static void announce(struct store *base, const char *announcement)
{
	struct pg_store *store = pg_store_of(base);

	listeners_call(&store->listeners, announcement);
	pg_waker_announce(waker_of(store), announcement);
}

/* ---- life -------------------------------------------------------------------------------- */

static bool start(struct store *base, char *why, size_t size)
{
	struct pg_store *store = pg_store_of(base);
	char problem[256];
	int failed;

	if (!pg_url_check(store->url, problem, sizeof(problem))) {
		snprintf(why, size, "%s: %s", base->name, problem);
		return false;
	}
	failed = pthread_create(&store->watcher, NULL, run_watcher, store);
	assert(!failed);
	store->has_watcher = true;
	return true;
}

static bool distribute(struct store *base, bool dry_run, FILE *out, char *why, size_t size)
{
	const struct pg_dialect *dialect;
	PGconn *connection = pg_connect(pg_store_of(base), SESSION_WRITE, &dialect, why, size);
	bool ok = connection && pg_migration_lock(connection, why, size) &&
		  pg_distribute(connection, dry_run, out, why, size);

	PQfinish(connection);
	return ok;
}

static int64_t error_count(struct store *base, enum status kind)
{
	return tally_read(&pg_store_of(base)->errors[kind]);
}

static void free_store(struct store *base)
{
	struct pg_store *store = pg_store_of(base);

	pthread_mutex_lock(&store->lock);
	store->stopping = true;
	pthread_cond_broadcast(&store->changed);
	pthread_mutex_unlock(&store->lock);
	if (store->waker)
		pg_waker_stop(store->waker);
	if (store->has_watcher)
		pthread_join(store->watcher, NULL);
	pthread_cond_destroy(&store->changed);
	pthread_mutex_destroy(&store->lock);
	listeners_release(&store->listeners);
	free(store);
}

static const struct store_repositories repositories = {
	.counts = &postgres_count_repository,
	.limits = &postgres_limit_repository,
	.sent = &postgres_sent_repository,
	.outbound = &postgres_outbound_repository,
	.entitlements = &postgres_entitlement_repository,
	.entitlement_outbox = &postgres_entitlement_outbox.base,
	.notifications = &postgres_notification_repository,
	.pots = &postgres_pot_repository,
	.messages = &postgres_message_repository,
	.dialog_outbox = &postgres_dialog_outbox.base,
	.counters = &postgres_counter_repository,
};

static const struct store_ops store_ops = {
	.start = start,
	.open_session = pg_session_open,
	.is_up = is_up,
	.announce = announce,
	.listen = listen_to,
	.unlisten = unlisten,
	.distribute = distribute,
	.error_count = error_count,
	.free = free_store,
};

struct store *postgres_store_new(const char *name, const char *url, const char *const *components)
{
	struct pg_store *store = qp_calloc(1, sizeof(*store));

	store->base.ops = &store_ops;
	store->base.name = name;
	store->base.engine = "postgres";
	store->base.latency = &store->latency;
	store->base.repositories = &repositories;
	store->base.single_saves_a_trip = true;
	store->base.lanes_default = LANES_DEFAULT;
	store->url = url;
	store->components = components;
	listeners_init(&store->listeners);
	pthread_mutex_init(&store->lock, NULL);
	steady_cond_init(&store->changed);
	return &store->base;
}
