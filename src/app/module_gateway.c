/* The module of gateway and sender, which share a store and a bus; the gateway also uses the cache.
 */
#include "app/app.h"
#include "services/gateway/gateway.h"
#include "services/gateway/limit_verify.h"
#include "services/gateway/sender.h"

#define SENT_KEPT_US (30 * 24 * 3600 * 1000000LL)

extern const char embedded_gateway[];

struct gateway_module {
	struct gateway service;
	struct verifier verifier;
	struct sender_config sender;
};

static void add_routes(struct app *app)
{
	app->gateway = arena_new(&app->arena, struct gateway_module);
	if (!app_plays(app, ROLE_GATEWAY))
		return;
	gateway_add_routes(&app->gateway->service, app->router);
	app->documents[app->document_count++] = embedded_gateway;
	app->gateway->verifier = limits_verifier(&app->gateway->service);
	verify_add(&app->verifiers, &app->gateway->verifier);
}

static bool open_stores(struct app *app, char *why)
{
	static const char *const components[] = {"common", "gateway", NULL};
	struct gateway_module *module = app->gateway;
	struct store_plan plan = {
		.name = "gateway-store",
		.url = store_url(&app->settings, app->settings.gateway_store),
		.file = "gateway.db",
		.components = components,
	};

	module->sender.store = app_open_store(app, &plan, why);
	if (!module->sender.store)
		return false;
	module->sender.repository = module->sender.store->repositories->sent;
	module->service.repository = module->sender.store->repositories->limits;
	return true;
}

static bool open_others(struct app *app, char *why)
{
	static const struct bus_channel channels[] = {
		{.name = GATEWAY_CHANNEL, .partitions = GATEWAY_PARTITIONS},
		{.name = GATEWAY_DLQ_CHANNEL, .partitions = 1}};
	struct gateway_module *module = app->gateway;
	struct bus_plan plan = {
		.name = "gateway-bus",
		.url = app->settings.gateway_bus,
		.file = "gateway-bus.db",
		.channels = channels,
		.channel_count = sizeof(channels) / sizeof(channels[0]),
	};

	module->service.bus = module->sender.bus = app_open_bus(app, &plan, why);
	if (!module->service.bus)
		return false;
	if (app_plays(app, ROLE_GATEWAY) && !app_open_cache(app, why))
		return false;
	module->service.cache = app->cache;
	return true;
}

static enum status sweep_sent(
	const void *context, struct session *session, size_t limit, size_t *deleted)
{
	const struct sent_repository *repository = context;

	return repository->ops->sweep(repository, session, SENT_KEPT_US, limit, deleted);
}

static void start_sender(struct app *app)
{
	struct gateway_module *module = app->gateway;
	struct chore chore = {
		.what = "old sent messages",
		.store = module->sender.store,
		.sweep = sweep_sent,
		.context = module->sender.repository,
	};
	struct sender *sender = sender_start(&module->sender);

	app_add_worker(app, sender_stop, sender);
	app_add_chore(app, &chore);
	metrics_add(&app->metrics, sender_collect, sender);
}

static void start(struct app *app)
{
	struct gateway *service = &app->gateway->service;

	if (app_plays(app, ROLE_GATEWAY)) {
		struct lane_service lanes = gateway_lane_service(service);

		service->window_unit_us = app->settings.gateway_window_unit_us;
		service->lanes = app_start_lanes(app, &lanes, app->gateway->sender.store);
	}
	if (app_plays(app, ROLE_SENDER))
		start_sender(app);
}

const struct module gateway_module = {
	.roles = ROLE_GATEWAY | ROLE_SENDER,
	.add_routes = add_routes,
	.open_stores = open_stores,
	.open_others = open_others,
	.start = start,
};
