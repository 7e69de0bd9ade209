/* The module of pots: its routes, its store, its lanes. */
#include "app/app.h"
#include "services/pots/pot_verify.h"
#include "services/pots/pots.h"

extern const char embedded_pots[];

struct pots_module {
	struct pots service;
	struct verifier verifier;
	struct store *store;
};

static void add_routes(struct app *app)
{
	app->pots = arena_new(&app->arena, struct pots_module);
	pots_add_routes(&app->pots->service, app->router, &app->arena);
	app->documents[app->document_count++] = embedded_pots;
	app->pots->verifier = pots_verifier(&app->pots->service);
	verify_add(&app->verifiers, &app->pots->verifier);
}

static bool open_stores(struct app *app, char *why)
{
	static const char *const components[] = {"common", "pots", NULL};
	struct store_plan plan = {
		.name = "pots-store",
		.url = store_url(&app->settings, app->settings.pots_store),
		.file = "pots.db",
		.components = components,
	};

	app->pots->store = app_open_store(app, &plan, why);
	if (!app->pots->store)
		return false;
	app->pots->service.repository = app->pots->store->repositories->pots;
	return true;
}

static void start(struct app *app)
{
	struct pots *service = &app->pots->service;
	struct lane_service lanes;

	service->lock_ttl_us = app->settings.pots_lock_ttl_us;
	service->lock_wait_us = app->settings.pots_lock_wait_us;
	service->lock_retries = app->settings.pots_lock_retries;
	lanes = pots_lane_service(service);
	service->lanes = app_start_lanes(app, &lanes, app->pots->store);
}

const struct module pots_module = {
	.roles = ROLE_POTS,
	.add_routes = add_routes,
	.open_stores = open_stores,
	.start = start,
};
