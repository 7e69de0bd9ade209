/* The module of counts: its routes, its store, its lanes. */
#include "app/app.h"
#include "services/counts/count_verify.h"
#include "services/counts/counts.h"

extern const char embedded_counts[];

struct counts_module {
	struct counts service;
	struct verifier verifier;
	struct store *store;
};

static void add_routes(struct app *app)
{
	app->counts = arena_new(&app->arena, struct counts_module);
	counts_add_routes(&app->counts->service, app->router);
	app->documents[app->document_count++] = embedded_counts;
	app->counts->verifier = counts_verifier(&app->counts->service);
	verify_add(&app->verifiers, &app->counts->verifier);
}

static bool open_stores(struct app *app, char *why)
{
	static const char *const components[] = {"common", "counts", NULL};
	struct store_plan plan = {
		.name = "counts-store",
		.url = store_url(&app->settings, app->settings.counts_store),
		.file = "counts.db",
		.components = components,
	};

	app->counts->store = app_open_store(app, &plan, why);
	if (!app->counts->store)
		return false;
	app->counts->service.repository = app->counts->store->repositories->counts;
	return true;
}

static void start(struct app *app)
{
	struct counts *service = &app->counts->service;
	struct lane_service lanes = counts_lane_service(service);

	service->lanes = app_start_lanes(app, &lanes, app->counts->store);
}

const struct module counts_module = {
	.roles = ROLE_COUNTS,
	.add_routes = add_routes,
	.open_stores = open_stores,
	.start = start,
};
