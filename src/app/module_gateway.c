/* The module of gateway and sender, which share a store and a bus; the gateway also uses the
 * cache. */
#include <assert.h>
#include <string.h>

#include "adapters/notifier/sms/sms_notifier.h"
#include "adapters/notifier/webhook/webhook_notifier.h"
#include "app/app.h"
#include "base/clock.h"
#include "services/gateway/gateway.h"
#include "services/gateway/limit_verify.h"
#include "services/gateway/sender.h"

/* A row that was created from the default limit is deleted after it has been idle for 10 window
 * lengths. The last send may be almost one window length later than the start of the row's window,
 * so the window must have started more than 11 window lengths ago. */
#define DEFAULT_IDLE_WINDOWS 11

#define SENT_KEPT_US (30 * 24 * 3600 * 1000000LL)

extern const char embedded_gateway[];

struct gateway_module {
	struct gateway service;
	struct verifier verifier;
	struct sender sender;
	struct bus *bus;
	struct notifier *notifier;
	struct delivery *delivery;
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
	module->sender.repository = module->sender.store->repositories->outbound;
	module->sender.sent = module->sender.store->repositories->sent;
	module->service.repository = module->sender.store->repositories->limits;
	module->service.messages = module->sender.repository;
	return true;
}

static struct notifier *open_notifier(const struct app *app, char *why)
{
	const struct settings *settings = &app->settings;
	struct webhook_limits limits = {
		.slots = (size_t)settings->sms_parallel,
		.total_ns = settings->notify_timeout_us * NS_PER_US,
		.secrets = app->webhook_secrets,
	};

	if (strcmp(settings->sms_channel, "console") == 0)
		return sms_notifier_new();
	return webhook_notifier_new(
		settings->sms_channel + strlen("webhook:"), &limits, why, OPTIONS_WHY_SIZE);
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

	module->service.bus = module->bus = app_open_bus(app, &plan, why);
	if (!module->service.bus)
		return false;
	if (app_plays(app, ROLE_SENDER)) {
		module->notifier = open_notifier(app, why);
		if (!module->notifier)
			return false;
	}
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

static enum status sweep_queued(
	const void *context, struct session *session, size_t limit, size_t *deleted)
{
	const struct outbound_repository *repository = context;

	return repository->ops->sweep_queued(repository, session, SENT_KEPT_US, limit, deleted);
}

static void add_gateway_chores(struct app *app)
{
	const struct gateway *service = &app->gateway->service;
	struct chore idle = {
		.what = "idle rows of the default limit",
		.store = app->gateway->sender.store,
		.sweep = sweep_defaults,
		.context = service,
	};
	struct chore queued = {
		.what = "old queued messages",
		.store = app->gateway->sender.store,
		.sweep = sweep_queued,
		.context = service->messages,
	};

	app_add_chore(app, &idle);
	app_add_chore(app, &queued);
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
	bool is_read = gateway_default_limit(&app->settings, &service->standard);

	assert(is_read); /* app_check() has refused invalid values */
	(void)is_read;
	service->window_unit_us = app->settings.gateway_window_unit_us;
	if (service->cache)
		service->reader_cache = service->cache->ops->open_session(service->cache);
	service->lanes = app_start_lanes(app, &lanes, app->gateway->sender.store);
	erase_add(&app->erasers, service->repository->eraser, service->lanes);
	app_add_worker(app, close_reader_cache, service);
	add_gateway_chores(app);
	metrics_add(&app->metrics, gateway_collect, service);
}

static enum status sweep_outbound(
	const void *context, struct session *session, size_t limit, size_t *deleted)
{
	const struct outbound_repository *repository = context;

	return repository->claims->ops->sweep(
		repository->claims, session, SENT_KEPT_US, limit, deleted);
}

static void add_sender_chores(struct app *app)
{
	const struct sender *sender = &app->gateway->sender;
	struct chore sent = {
		.what = "old sent messages",
		.store = sender->store,
		.sweep = sweep_sent,
		.context = sender->sent,
	};
	struct chore outbound = {
		.what = "old outbound messages",
		.store = sender->store,
		.sweep = sweep_outbound,
		.context = sender->repository,
	};

	app_add_chore(app, &sent);
	app_add_chore(app, &outbound);
}

static void add_sender_letters(struct app *app)
{
	const struct sender *sender = &app->gateway->sender;
	struct dead_letter_kind kind = {
		.name = "sms",
		.letter_kind = "sms",
		.dead = sender->repository->dead,
		.lanes = sender->lanes,
		.describe = dead_letter_describe_json,
	};

	dead_letters_add_kind(&app->dead_letters, &kind);
}

static void start_sender_intake(struct app *app)
{
	struct gateway_module *module = app->gateway;
	struct intake_config config = {
		.name = "sender",
		.bus = module->bus,
		.channel = GATEWAY_CHANNEL,
		.group = GATEWAY_GROUP,
		.store = module->sender.store,
		.apply = sender_apply,
		.put_aside = sender_put_aside,
		.committed = sender_taken,
		.context = &module->sender,
	};

	module->sender.dead_letters = module->bus->ops->open_producer(module->bus);
	app_start_intake(app, &config);
}

static void start_sender_delivery(struct app *app)
{
	struct gateway_module *module = app->gateway;
	struct delivery_config config = {
		.name = "sender",
		.store = module->sender.store,
		.claims = module->sender.repository->claims,
		.dead = module->sender.repository->dead,
		.letter_kind = "sms",
		.announcement = SENDER_ANNOUNCEMENT,
		.notifier = module->notifier,
		.poll_us = app->settings.outbox_poll_us,
		.lease_us = app->settings.notify_lease_us,
		.attempts_max = SENDER_ATTEMPTS_MAX,
		.write_body = sender_write_body,
	};

	module->delivery = delivery_start(&config);
}

static void close_producer(void *thing)
{
	struct producer *producer = thing;

	producer->ops->close(producer);
}

static void collect_sender(void *context, struct buffer *page)
{
	const struct gateway_module *module = context;
	struct delivery_counts counts = delivery_counts(module->delivery);

	sender_collect(&module->sender, &counts, page);
}

static void start_sender(struct app *app)
{
	struct gateway_module *module = app->gateway;
	struct lane_service lanes = sender_lane_service(&module->sender);

	start_sender_delivery(app);
	start_sender_intake(app);
	module->sender.lanes = app_start_lanes(app, &lanes, module->sender.store);
	add_sender_letters(app);
	app_add_worker(app, delivery_stop, module->delivery);
	app_add_notifier(app, module->notifier);
	app_add_worker(app, close_producer, module->sender.dead_letters);
	add_sender_chores(app);
	metrics_add(&app->metrics, collect_sender, module);
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
