/*
 * The program as a whole: what it is configured to be, what it has opened, what runs. Only src/app
 * and main.c see everything; services and adapters meet here and nowhere else.
 *
 *   check    whether the settings go together
 *   open     data folder, stores, buses, caches
 *   serve    start, run until told to stop, drain, release
 *   module_* one service each: which engines it uses, its lanes, workers and chores
 *
 * Everything here runs on the main thread.
 */
#ifndef QUIPU_APP_H
#define QUIPU_APP_H

#include "access/guard.h"
#include "access/roles.h"
#include "admin/dead_letters.h"
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

#define APP_LANES_MAX 8
#define APP_BUSES_MAX 4
#define APP_WORKERS_MAX 24
#define APP_DOCUMENTS_MAX 16
#define APP_RELAYS_MAX 4
#define APP_INTAKES_MAX 4

struct counts_module;
struct gateway_module;
struct entitlements_module;
struct pots_module;
struct unread_module;

/* A thread of a service that ends when the program does. */
struct app_worker {
	void (*stop)(void *thing); /* ends it and frees it */
	void *thing;
};

struct app {
	struct settings settings;
	unsigned roles; /* of enum role */
	struct health health;
	struct metrics metrics;
	struct router *router;
	const char *documents[APP_DOCUMENTS_MAX]; /* OpenAPI, one a service */
	size_t document_count;
	struct slice openapi;      /* the documents, joined; allocated */
	struct guard *guard;       /* NULL: none is configured */
	struct tls_context *tls;   /* NULL: clients speak plain HTTP */
	atomic_bool reload_failed; /* at the last SIGHUP; read by who writes the page of metrics */
	struct admission admission;
	struct server *server;
	int data_lock;      /* -1: the data folder is not in use */
	struct arena arena; /* for what lives as long as the program */

	struct lane_set *lanes[APP_LANES_MAX];
	size_t lanes_count;
	struct relay *relays[APP_RELAYS_MAX]; /* these two are workers, too */
	size_t relay_count;
	struct intake *intakes[APP_INTAKES_MAX];
	size_t intake_count;
	struct bus *buses[APP_BUSES_MAX];
	size_t bus_count;
	struct cache *cache; /* NULL: none */
	struct app_worker workers[APP_WORKERS_MAX];
	size_t worker_count;
	struct chore chores[JANITOR_CHORES_MAX];
	size_t chore_count;
	struct janitor *janitor;

	struct counts_module *counts;
	struct gateway_module *gateway;
	struct entitlements_module *entitlements;
	struct dead_letter_kinds dead_letters;
	struct verifiers verifiers;
	struct pots_module *pots;
	struct unread_module *unread;
};

static inline bool app_plays(const struct app *app, unsigned roles)
{
	return (app->roles & roles) != 0;
}

/* ---- check.c ---- */

/* Reads --roles and checks the rest. false: `why` (OPTIONS_WHY_SIZE). */
QP_MUST_CHECK bool app_check(struct app *app, char *why);

bool url_has_scheme(const char *url, const char *scheme);
bool url_is_redis(const char *url);

/* Whether several processes may use what the cache is for: a store of theirs is on a server. */
bool cache_is_shared(const struct app *app);

/* The URL of a service's store: its own, or the one for all. */
const char *store_url(const struct settings *settings, const char *own);

/* ---- open.c ---- */

/* A started store or bus, which app_close() frees. NULL: `why`. */
struct store *app_open_store(struct app *app, const struct store_plan *plan, char *why);
struct bus *app_open_bus(struct app *app, const struct bus_plan *plan, char *why);

/* app->cache, unless it is there already or the settings say none. */
QP_MUST_CHECK bool app_open_cache(struct app *app, char *why);

/* Opens the stores of all roles and nothing else, to bring their schema up to date. */
QP_MUST_CHECK bool app_open_stores(struct app *app, char *why);

/* Frees what was opened. */
void app_close(struct app *app);

/* ---- serve.c ---- */

/* Starts the lanes of a service; they drain and are freed with the program. */
struct lane_set *app_start_lanes(
	struct app *app, const struct lane_service *service, struct store *store);

/* Starts them; they end and are freed with the program. */
void app_start_relay(struct app *app, const struct relay_config *config);
void app_start_intake(struct app *app, const struct intake_config *config);

/* Registers things that a module has started. Workers are stopped in the order they were added. */
void app_add_worker(struct app *app, void (*stop)(void *thing), void *thing);
void app_add_chore(struct app *app, const struct chore *chore);

/* Makes the router with the routes of all roles. */
void app_add_routes(struct app *app);

/* Reads the files of keys and of the certificate as a start does, and nothing else. Returns what
 * main() returns. */
int app_check_files(struct app *app);

/* Runs until SIGTERM. Returns what main() returns. */
int app_serve(struct app *app);

/* ---- modules ---- */

/* A service and the roles it has; called only if one of them is played. */
struct module {
	unsigned roles;
	void (*add_routes)(struct app *app); /* first of all; also adds its document */
	QP_MUST_CHECK bool (*open_stores)(struct app *app, char *why);
	QP_MUST_CHECK bool (*open_others)(struct app *app, char *why); /* may be NULL */
	void (*start)(struct app *app);
};

extern const struct module counts_module;
extern const struct module gateway_module;
extern const struct module entitlements_module;
extern const struct module pots_module;
extern const struct module unread_module;

/* Those with a role to play, one after the other: module_next(app, NULL) is the first. */
const struct module *module_next(const struct app *app, const struct module *before);

#endif
