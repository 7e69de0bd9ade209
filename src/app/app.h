/*
 * The program as a whole: its settings, what it has opened, what it runs. Services and adapters
 * meet only in src/app and main.c.
 *
 *   check      whether the settings fit together
 *   engines    the tables of engines for stores and buses
 *   open       opens the data folder, stores, buses and the cache
 *   outbox     starts everything that an outbox needs
 *   files      reads the files of keys and certificate, at start and on SIGHUP
 *   serve      starts, runs until a signal, releases
 *   announce   says what has started
 *   drain      waits for a signal, and stops serving step by step
 *   module_*   one or two services each: their routes, engines, lanes, workers and chores
 *
 * Everything here runs on the main thread.
 */
#ifndef QUIPU_APP_H
#define QUIPU_APP_H

#include <signal.h>

#include "access/guard.h"
#include "access/roles.h"
#include "admin/actions.h"
#include "admin/console.h"
#include "admin/dead_letters.h"
#include "admin/erase.h"
#include "admin/health.h"
#include "admin/metrics_page.h"
#include "admin/openapi.h"
#include "admin/verify.h"
#include "app/engines.h"
#include "cli/options.h"
#include "flow/intake.h"
#include "flow/janitor.h"
#include "flow/lane_set.h"
#include "flow/relay.h"
#include "http/server.h"
#include "http/tls.h"
#include "ports/bus.h"
#include "ports/cache.h"

#define APP_LANES_MAX 12
#define APP_BUSES_MAX 4
#define APP_WORKERS_MAX 32
#define APP_DOCUMENTS_MAX 16
#define APP_RELAYS_MAX 4
#define APP_INTAKES_MAX 8

struct webhook_secrets;
struct counts_module;
struct gateway_module;
struct entitlements_module;
struct pots_module;
struct unread_module;

/* A thread of a service that runs as long as the program. */
struct app_worker {
	void (*stop)(void *thing); /* ends and frees it; blocks until it has ended */
	void *thing;
};

struct app {
	struct settings settings;
	unsigned roles; /* of enum role */
	struct health health;
	const char *store_urls[HEALTH_STORES_MAX]; /* of health.stores */
	struct metrics metrics;
	int64_t started_us; /* wall time */
	struct router *router;
	const char *documents[APP_DOCUMENTS_MAX]; /* OpenAPI, one per service */
	size_t document_count;
	struct slice openapi; /* the documents, merged; allocated */
	struct guard *guard;  /* NULL if neither API keys nor tokens are configured */
	struct webhook_secrets *webhook_secrets; /* NULL if webhooks are not signed */
	struct tls_context *tls;                 /* NULL if clients speak plain HTTP */
	atomic_bool reload_failed; /* at the last SIGHUP; a loop reads it for /metrics */
	struct admission admission;
	struct server *server;
	int data_lock;      /* -1 while the data folder is not in use */
	struct arena arena; /* for memory that lives as long as the program */

	struct lane_set *lanes[APP_LANES_MAX];
	size_t lanes_count;
	struct relay *relays[APP_RELAYS_MAX]; /* relays and intakes are also workers */
	size_t relay_count;
	struct intake *intakes[APP_INTAKES_MAX];
	size_t intake_count;
	struct bus *buses[APP_BUSES_MAX];
	size_t bus_count;
	struct cache *cache; /* NULL if there is none */
	struct app_worker workers[APP_WORKERS_MAX];
	size_t worker_count;
	struct chore chores[JANITOR_CHORES_MAX];
	size_t chore_count;
	struct janitor *janitor;

	struct counts_module *counts;
	struct gateway_module *gateway;
	struct entitlements_module *entitlements;
	struct dead_letter_kinds dead_letters;
	struct erasers erasers;
	struct action_sources action_sources;
	struct verifiers verifiers;
	struct console *console; /* NULL with --console off */
	struct pots_module *pots;
	struct unread_module *unread;
};

static inline bool app_plays(const struct app *app, unsigned roles)
{
	return (app->roles & roles) != 0;
}

/* ---- check.c ---- */

/* Reads --roles and checks the other settings. Returns false with a sentence for the user in `why`
 * (OPTIONS_WHY_SIZE bytes). */
QP_MUST_CHECK bool app_check(struct app *app, char *why);

bool url_has_scheme(const char *url, const char *scheme);
bool url_is_redis(const char *url);

/* Whether other processes may change what would be cached, because the store is on a server. */
bool cache_is_shared(const struct app *app);

/* Returns the URL of a service's store: `own`, or --store if that is empty. */
const char *store_url(const struct settings *settings, const char *own);

struct limit_default;

/* Reads --gateway-default-limit, which is empty or COUNT/TIME. Returns false if it is neither, or
 * the time is not a number of window units. */
QP_MUST_CHECK bool gateway_default_limit(
	const struct settings *settings, struct limit_default *standard);

/* ---- open.c ---- */

/* Return a started store or bus, which app_close() frees, or NULL with a reason in `why`. With
 * --trace-store the store is wrapped (adapters/store/tracing). */
struct store *app_open_store(struct app *app, const struct store_plan *plan, char *why);
struct bus *app_open_bus(struct app *app, const struct bus_plan *plan, char *why);

/* Opens app->cache, unless it is open already or the settings want none. */
QP_MUST_CHECK bool app_open_cache(struct app *app, char *why);

/* Opens the stores of all roles and nothing else, for `quipu migrate`. */
QP_MUST_CHECK bool app_open_stores(struct app *app, char *why);

/* Spreads the tables of all stores over the nodes of their clusters; see ports/store.h. Prints the
 * statements. Stores on the same URL are one database, which is asked once. */
QP_MUST_CHECK bool app_distribute_stores(struct app *app, bool dry_run, char *why);

/* Frees everything that was opened. */
void app_close(struct app *app);

/* ---- serve.c ---- */

/* Starts the lanes of a service. They drain and are freed when the program ends. */
struct lane_set *app_start_lanes(
	struct app *app, const struct lane_service *service, struct store *store);

/* Start a relay or an intake. They end and are freed when the program ends. */
void app_start_relay(struct app *app, const struct relay_config *config);
void app_start_intake(struct app *app, const struct intake_config *config);

/* Register what a module has started. Workers are stopped in the order in which they were added. */
void app_add_worker(struct app *app, void (*stop)(void *thing), void *thing);
void app_add_chore(struct app *app, const struct chore *chore);

/* Creates the router with the routes of all roles. This also creates the modules' own structs. */
void app_add_routes(struct app *app);

/* Serves until SIGTERM or SIGINT. Returns the exit status of the program. */
int app_serve(struct app *app);

/* ---- files.c ---- */

/* Opens the guard and the certificate, if the settings want them. */
QP_MUST_CHECK bool app_open_files(struct app *app, char *why);
void app_release_files(struct app *app);

/* Reads the files again, for SIGHUP. A file that cannot be used is logged and shows in the metric;
 * what was read before stays in use. */
void app_reload_files(struct app *app);

/* Reads the files as at start, and nothing else. Returns the exit status of the program. */
int app_check_files(struct app *app);

/* ---- announce.c ---- */

/* Prints and logs the address, roles and engines of a server that has started. */
void app_announce(const struct app *app);

/* ---- drain.c ---- */

/* Blocks until SIGTERM or SIGINT, which all threads must have blocked; SIGHUP reads files again. */
void app_wait_for_stop(struct app *app, const sigset_t *signals);

/*
 * Reports not ready, serves for another --drain-delay, then accepts no more connections, lets
 * requests finish and lanes drain. Requests that are left at --drain-timeout get 503. Another
 * signal ends the wait that is under way.
 */
void app_drain(struct app *app, const sigset_t *signals);

/* ---- outbox.c ---- */

/* An outbox of a service and what it takes to publish it. */
struct app_outbox {
	const char *name; /* of the relay: "entitlements" */
	const char *kind; /* of its dead letters, as operators call it: "outbox" */
	struct store *store;
	const struct outbox_repository *repository;
	struct bus *bus;
	struct lane_set *lanes; /* of its service, for what operators do */
	const char *announcement;
	int64_t kept_us; /* how long published events are kept */
	size_t workers;  /* see flow/relay.h for this and the next */
	bool (*address)(struct arena *arena, const struct claim *row, struct bus_message *message);
	bool (*describe)(struct arena *arena, struct slice payload, struct buffer *members);
};

/* Starts the relay, adds its kind of dead letters, and sweeps published events. */
void app_start_outbox(struct app *app, const struct app_outbox *outbox);

/* ---- modules ---- */

/* The services of some roles. Its functions are called, in this order, only if the process plays
 * one of the roles. */
struct module {
	unsigned roles;
	void (*add_routes)(struct app *app); /* also creates its struct and adds its document */
	QP_MUST_CHECK bool (*open_stores)(struct app *app, char *why);
	QP_MUST_CHECK bool (*open_others)(struct app *app, char *why); /* may be NULL */
	void (*start)(struct app *app);
};

extern const struct module counts_module;
extern const struct module gateway_module;
extern const struct module entitlements_module;
extern const struct module pots_module;
extern const struct module unread_module;

/* Iterates over the modules that have a role to play. Pass NULL to get the first. */
const struct module *module_next(const struct app *app, const struct module *before);

#endif
