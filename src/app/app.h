/*
 * The program as a whole: its settings, and everything that it opens and runs. Services and
 * adapters meet only in src/app and main.c.
 *
 *   check      checks whether the settings fit together
 *   engines    the tables of engines for stores and buses
 *   open       opens the data folder, stores, buses and the cache
 *   outbox     starts everything that an outbox needs
 *   files      reads the files with keys, certificates and secrets, at start and on SIGHUP
 *   serve      starts the server, runs it until a signal, and frees everything
 *   announce   reports that the server has started
 *   drain      waits for a signal, and stops serving step by step
 *   moved      marks a data folder whose data was copied, or is being copied, to another store
 *   copy       quipu copy
 *   module_*   each runs one or two services: adds routes, opens engines, starts lanes and workers
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
#include "base/uuid.h"
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

struct notifier;
struct webhook_secrets;
struct counts_module;
struct gateway_module;
struct entitlements_module;
struct pots_module;
struct unread_module;

/* A thread of a service, or something that can be freed only after such a thread has ended. */
struct app_worker {
	void (*stop)(void *thing); /* stops and frees the worker; waits for the end of its thread */
	void *thing;
};

struct app {
	struct settings settings;
	unsigned roles; /* bits of enum role */
	struct health health;
	const char *store_urls[HEALTH_STORES_MAX]; /* the URL of each store in health.stores */
	struct metrics metrics;
	int64_t started_us; /* wall time of the start */
	struct router *router;
	const char *documents[APP_DOCUMENTS_MAX]; /* OpenAPI documents of services and admin/ */
	size_t document_count;
	struct slice openapi; /* the documents, merged; owned */
	struct guard *guard;  /* NULL if neither API keys nor tokens are configured */
	struct webhook_secrets *webhook_secrets; /* NULL if webhooks are not signed */
	struct tls_context *tls;                 /* NULL if clients speak plain HTTP */
	/* true if a file was refused at the last SIGHUP; atomic, because other threads read it for
	 * the metrics */
	atomic_bool reload_failed;
	struct admission admission;
	struct server *server;
	int data_lock;      /* descriptor of the lock file; -1 while no data folder is in use */
	struct arena arena; /* for memory that lives as long as the program */

	struct lane_set *lanes[APP_LANES_MAX];
	size_t lanes_count;
	struct relay *relays[APP_RELAYS_MAX]; /* relays and intakes are also in `workers` */
	size_t relay_count;
	struct intake *intakes[APP_INTAKES_MAX];
	size_t intake_count;
	struct bus *buses[APP_BUSES_MAX];
	size_t bus_count;
	struct cache *cache; /* NULL if the process uses no cache */
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

/* Reads --roles and checks the other settings. On failure returns false and writes to `why`
 * (OPTIONS_WHY_SIZE bytes) a sentence for the user. */
QP_MUST_CHECK bool app_check(struct app *app, char *why);

bool url_has_scheme(const char *url, const char *scheme);
bool url_is_redis(const char *url);

/* Returns whether other processes may change the data that this process caches. This is the case if
 * the data is in a store on a database server. */
bool cache_is_shared(const struct app *app);

/* Returns the URL of a service's store: `own`, or --store if `own` is empty. */
const char *store_url(const struct settings *settings, const char *own);

struct limit_default;

/* Reads --gateway-default-limit into `standard`, which becomes all zeros if the option is empty.
 * Returns false if the option has a form other than COUNT/TIME, if COUNT or TIME is out of range,
 * or if TIME is not a multiple of --gateway-window-unit. */
QP_MUST_CHECK bool gateway_default_limit(
	const struct settings *settings, struct limit_default *standard);

/* ---- open.c ---- */

/* Open and start a store or bus. On failure return NULL with a reason in `why`. app_close() frees
 * the result. With --trace-store, a wrapper around the store logs every call
 * (adapters/store/tracing). */
struct store *app_open_store(struct app *app, const struct store_plan *plan, char *why);
struct bus *app_open_bus(struct app *app, const struct bus_plan *plan, char *why);

/* Opens app->cache, unless it is already open or no cache is configured. */
QP_MUST_CHECK bool app_open_cache(struct app *app, char *why);

/* Opens the stores of all roles that the process plays, and nothing else, for `quipu migrate`. */
QP_MUST_CHECK bool app_open_stores(struct app *app, char *why);

/* Spreads the tables of all stores over the nodes of their clusters; see ports/store.h. Prints the
 * statements to `out`, and executes them unless `dry_run` is true. If several stores have the same
 * URL, their database is handled only once. */
QP_MUST_CHECK bool app_distribute_stores(struct app *app, bool dry_run, FILE *out, char *why);

/* Frees the cache, the buses and the stores that were opened, and unlocks the data folder. */
void app_close(struct app *app);

/* Creates the data folder if it is missing, and locks it, because only one process may use it at a
 * time. */
QP_MUST_CHECK bool app_lock_data(struct app *app, char *why);

/* ---- moved.c ---- */

#define MOVED_TO_SIZE 256

/* The contents of the file "moved" in a data folder. The file marks a folder whose data was copied,
 * or is being copied, to a database. While the file exists, no server uses the folder. */
struct moved {
	char copy_id[UUID_SIZE];
	bool is_finished;
	char to[MOVED_TO_SIZE]; /* the target's URL, without secrets */
};

/* Reads the mark of the folder `data`. Returns false if the folder has no mark. */
bool moved_read(const char *data, struct moved *moved);

/* Replaces the mark of the folder `data` and syncs it to disk. On failure returns false with a
 * sentence in `why`. */
QP_MUST_CHECK bool moved_write(const char *data, const struct moved *moved, char *why);

/* Writes to `why` what the mark means and what the user can do about the folder. */
void moved_explain(const char *data, const struct moved *moved, char *why);

/* ---- copy.c ---- */

extern const char *const copy_flags[];

/* Copies the data folder to PostgreSQL. Returns the exit status of the program. */
int copy_run(const struct settings *settings, const struct operands *operands);

/* ---- serve.c ---- */

/* Starts the lanes of a service. They are drained and freed when the program ends. */
struct lane_set *app_start_lanes(
	struct app *app, const struct lane_service *service, struct store *store);

/* Start a relay or an intake, which is stopped and freed when the program ends. */
void app_start_relay(struct app *app, const struct relay_config *config);
void app_start_intake(struct app *app, const struct intake_config *config);

/* Register a module's workers and chores. Workers are stopped in the order in which they were
 * added. */
void app_add_worker(struct app *app, void (*stop)(void *thing), void *thing);
void app_add_chore(struct app *app, const struct chore *chore);

/* Registers a notifier as a worker. The notifier is freed after all workers that were added before
 * it. */
void app_add_notifier(struct app *app, struct notifier *notifier);

/* Creates the router with the routes of all roles that the process plays. Also creates the structs
 * of the modules that have these roles. */
void app_add_routes(struct app *app);

/* Serves until SIGTERM or SIGINT. Returns the exit status of the program. */
int app_serve(struct app *app);

/* ---- files.c ---- */

/* Reads the files that the settings name: API keys, the key for users' tokens, the certificate and
 * the secrets of webhooks. On failure returns false with the reason in `why`. */
QP_MUST_CHECK bool app_open_files(struct app *app, char *why);
void app_release_files(struct app *app);

/* Reads the files of app_open_files() again, for SIGHUP. If a file cannot be used, logs why, sets
 * app->reload_failed, and keeps using the file's previous contents. */
void app_reload_files(struct app *app);

/* For --check-config: reads the files of app_open_files(), and reports the first file that cannot
 * be used. Returns the exit status of the program. */
int app_check_files(struct app *app);

/* ---- announce.c ---- */

/* Prints and logs the address, roles and engines of a server that has started. */
void app_announce(const struct app *app);

/* ---- drain.c ---- */

/* Waits for SIGTERM or SIGINT, and on SIGHUP calls app_reload_files(). All threads must have
 * blocked these signals. */
void app_wait_for_stop(struct app *app, const sigset_t *signals);

/*
 * Makes /readyz report that the process is not ready, but keeps serving for --drain-delay. Then
 * accepts no more connections and waits until requests have finished and lanes are drained.
 * Requests still open after --drain-timeout get 503. Another signal ends the current wait.
 */
void app_drain(struct app *app, const sigset_t *signals);

/* ---- outbox.c ---- */

/* The outbox of a service, and everything that is needed to publish its events. */
struct app_outbox {
	const char *name; /* the relay's name, e.g. "entitlements" */
	const char *kind; /* how operators name the outbox's dead letters, e.g. "outbox" */
	struct store *store;
	const struct outbox_repository *repository;
	struct bus *bus;
	struct lane_set *lanes; /* the lanes of the service, for operators' actions */
	const char *announcement;
	int64_t kept_us; /* how long published events are kept */
	size_t workers;  /* for `workers` and `address`, see flow/relay.h */
	bool (*address)(struct arena *arena, const struct claim *row, struct bus_message *message);
	/* see admin/dead_letters.h */
	bool (*describe)(struct arena *arena, struct slice payload, struct buffer *members);
};

/* Starts the relay, registers the outbox's kind of dead letters, and adds the chore that deletes
 * old published events. */
void app_start_outbox(struct app *app, const struct app_outbox *outbox);

/* ---- modules ---- */

/* A module runs one or two services. A process that plays any of the module's roles calls the
 * functions below in the order of their declaration. */
struct module {
	unsigned roles;
	/* also creates the module's struct and adds the OpenAPI documents of its services */
	void (*add_routes)(struct app *app);
	QP_MUST_CHECK bool (*open_stores)(struct app *app, char *why);
	/* opens the bus, the cache and the notifier; may be NULL */
	QP_MUST_CHECK bool (*open_others)(struct app *app, char *why);
	void (*start)(struct app *app);
};

extern const struct module counts_module;
extern const struct module gateway_module;
extern const struct module entitlements_module;
extern const struct module pots_module;
extern const struct module unread_module;

/* The channel between dialogs and counters. Each of its consumer groups subscribes to one subject
 * only. */
extern const struct bus_channel unread_channel;

/* Returns the first module after `before` that has a role of this process, or NULL if there is
 * none. If `before` is NULL, the search begins with the first module. */
const struct module *module_next(const struct app *app, const struct module *before);

#endif
