/* The module of gateway and sender, which share a store and a bus; the gateway also uses the cache.
 */
#include <assert.h>

#include "app/app.h"
#include "services/gateway/gateway.h"
#include "services/gateway/limit_verify.h"
#include "services/gateway/sender.h"

/* A window started at most one window before its last send, so such rows were idle for ten. */
#define DEFAULT_IDLE_WINDOWS 11

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
	static const struct bus_group senders = {.name = GATEWAY_GROUP};
	static const struct bus_channel channels[] = {{.name = GATEWAY_CHANNEL,
							      .partitions = GATEWAY_PARTITIONS,
							      .groups = &senders,
							      .group_count = 1},
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

static enum status sweep_defaults(
	const void *context, struct session *session, size_t limit, size_t *deleted)
{
	const struct gateway *gateway = context;
	const struct limit_idle idle = {
		.unit_us = gateway->window_unit_us,
		.windows = DEFAULT_IDLE_WINDOWS,
	};

	return gateway->repository->ops->sweep(gateway->repository, session, &idle, limit, deleted);
}

static void close_reader_cache(void *context)
{
	struct gateway *gateway = context;

	if (gateway->reader_cache)
		gateway->reader_cache->ops->close(gateway->reader_cache);
}

static void start_gateway(struct app *app)
{
	struct gateway *service = &app->gateway->service;
	struct lane_service lanes = gateway_lane_service(service);
	struct chore idle = {
		.what = "idle limits of the default",
		.store = app->gateway->sender.store,
		.sweep = sweep_defaults,
		.context = service,
	};
	bool is_read = gateway_default_limit(&app->settings, &service->standard);

	assert(is_read); /* app_check() has refused any other */
	(void)is_read;
	service->window_unit_us = app->settings.gateway_window_unit_us;
	if (service->cache)
		service->reader_cache = service->cache->ops->open_session(service->cache);
	service->lanes = app_start_lanes(app, &lanes, app->gateway->sender.store);
	erase_add(&app->erasers, service->repository->eraser, service->lanes);
	app_add_worker(app, close_reader_cache, service);
	app_add_chore(app, &idle);
	metrics_add(&app->metrics, gateway_collect, service);
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
	if (app_plays(app, ROLE_GATEWAY))
		start_gateway(app);
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
