/*
 * The module of dialogs and counters. Both are in one module because they share a bus, and because
 * only a process that plays both roles can compare messages with counters (`quipu verify unread`).
 * Each service has its own store, and either role can run alone.
 */
#include "app/app.h"
#include "events/message_event.h"
#include "services/counters/counter_feed.h"
#include "services/counters/counter_verify.h"
#include "services/counters/counters.h"
#include "services/dialogs/dialog_verify.h"
#include "services/dialogs/dialogs.h"

#define PUBLISHED_KEPT_US (24 * 3600 * 1000000LL)

extern const char embedded_counters[];
extern const char embedded_dialogs[];
extern const char embedded_repair[];

struct unread_module {
	struct dialogs dialogs;
	struct counters counters;
	struct counter_verifier unread;
	struct verifier dialogs_verifier;
	struct verifier verifier;
	struct bus *bus;
};

/* ---- routes ------------------------------------------------------------------------------ */

static void add_routes(struct app *app)
{
	struct unread_module *module = arena_new(&app->arena, struct unread_module);

	app->unread = module;
	if (app_plays(app, ROLE_DIALOGS)) {
		dialogs_add_routes(&module->dialogs, app->router);
		app->documents[app->document_count++] = embedded_dialogs;
		module->dialogs_verifier = dialogs_verifier(&module->dialogs);
		verify_add(&app->verifiers, &module->dialogs_verifier);
	}
	if (app_plays(app, ROLE_COUNTERS)) {
		counters_add_routes(&module->counters, app->router);
		app->documents[app->document_count++] = embedded_counters;
	}
	if (app_plays(app, ROLE_DIALOGS) && app_plays(app, ROLE_COUNTERS)) {
		module->unread.counters = &module->counters;
		module->counters.verifier = &module->unread;
		module->verifier = counter_verifier(&module->unread);
		verify_add(&app->verifiers, &module->verifier);
		counter_verify_add_routes(&module->unread, app->router);
		app->documents[app->document_count++] = embedded_repair;
	}
}

/* ---- stores, bus, cache ------------------------------------------------------------------ */

static bool open_dialogs_store(struct app *app, char *why)
{
	static const char *const components[] = {"common", "dialogs", NULL};
	struct dialogs *service = &app->unread->dialogs;
	struct store_plan plan = {
		.name = "dialogs-store",
		.url = store_url(&app->settings, app->settings.dialogs_store),
		.file = "dialogs.db",
		.components = components,
	};

	service->store = app_open_store(app, &plan, why);
	if (!service->store)
		return false;
	service->repository = service->store->repositories->messages;
	service->outbox = service->store->repositories->dialog_outbox;
	service->name_space = app->settings.masstransit_namespace;
	app->unread->unread.messages = service->repository;
	app->unread->unread.messages_store = service->store;
	return true;
}

static bool open_counters_store(struct app *app, char *why)
{
	static const char *const components[] = {"common", "counters", NULL};
	struct counters *service = &app->unread->counters;
	struct store_plan plan = {
		.name = "counters-store",
		.url = store_url(&app->settings, app->settings.counters_store),
		.file = "counters.db",
		.components = components,
	};

	service->store = app_open_store(app, &plan, why);
	if (!service->store)
		return false;
	service->repository = service->store->repositories->counters;
	return true;
}

static bool open_stores(struct app *app, char *why)
{
	if (app_plays(app, ROLE_DIALOGS) && !open_dialogs_store(app, why))
		return false;
	return !app_plays(app, ROLE_COUNTERS) || open_counters_store(app, why);
}

static const struct bus_group unread_groups[] = {
	{.name = UNREAD_GROUP_NEW, .subjects = UNREAD_SUBJECT_NEW},
	{.name = UNREAD_GROUP_READ, .subjects = UNREAD_SUBJECT_READ},
};

const struct bus_channel unread_channel = {
	.name = UNREAD_CHANNEL,
	.partitions = UNREAD_PARTITIONS,
	.groups = unread_groups,
	.group_count = sizeof(unread_groups) / sizeof(unread_groups[0]),
	.subjects = UNREAD_SUBJECT_NEW " " UNREAD_SUBJECT_READ,
};

static bool open_others(struct app *app, char *why)
{
	struct unread_module *module = app->unread;
	struct bus_plan plan = {
		.name = "unread-bus",
		.url = app->settings.unread_bus,
		.file = "unread-bus.db",
		.channels = &unread_channel,
		.channel_count = 1,
		.is_optional = true,
	};

	module->bus = app_open_bus(app, &plan, why);
	if (!module->bus)
		return false;
	if (app_plays(app, ROLE_COUNTERS) && !app_open_cache(app, why))
		return false;
	module->counters.cache = app->cache;
	return true;
}

/* ---- dialogs ----------------------------------------------------------------------------- */

/*
 * RabbitMQ confirms a message only after syncing it, which takes 20 ms or more. Therefore several
 * workers publish at the same time. Their events may arrive out of order, which counters tolerate.
 * With a store that has a single writer, several workers would gain nothing.
 */
#define RELAY_WORKERS 4

static void start_dialogs(struct app *app)
{
	struct dialogs *service = &app->unread->dialogs;
	struct lane_service lanes = dialogs_lane_service(service);
	struct app_outbox outbox = {
		.name = "dialogs",
		.kind = "dialog-outbox",
		.store = service->store,
		.repository = service->outbox,
		.bus = app->unread->bus,
		.announcement = DIALOGS_ANNOUNCEMENT,
		.address = dialogs_address,
		.describe = dead_letter_describe_json,
		.kept_us = PUBLISHED_KEPT_US,
		.workers = service->store->lanes_default > 1 ? RELAY_WORKERS : 1,
	};

	service->lanes = outbox.lanes = app_start_lanes(app, &lanes, service->store);
	erase_add(&app->erasers, service->repository->eraser, service->lanes);
	app_start_outbox(app, &outbox);
}

/* ---- counters ---------------------------------------------------------------------------- */

static enum status sweep_read(
	const void *context, struct session *session, size_t limit, size_t *deleted)
{
	const struct counter_repository *repository = context;

	return repository->ops->sweep(repository, session, COUNTERS_KEPT_US, limit, deleted);
}

static void free_counter_intake(void *intake)
{
	counter_intake_free(intake);
}

static void start_intake(struct app *app, bool is_read)
{
	struct counters *service = &app->unread->counters;
	struct counter_intake *context = counter_intake_new(service, is_read);
	struct intake_config config = {
		.name = is_read ? UNREAD_GROUP_READ : UNREAD_GROUP_NEW,
		.bus = app->unread->bus,
		.channel = UNREAD_CHANNEL,
		.group = is_read ? UNREAD_GROUP_READ : UNREAD_GROUP_NEW,
		.store = service->store,
		.apply = counter_intake_apply,
		.committed = counter_intake_committed,
		.context = context,
	};

	app_start_intake(app, &config);
	app_add_worker(app, free_counter_intake, context);
}

/* Runs after everything that uses the hub has ended: the server, the lanes, the intakes and the
 * feed. */
static void free_streams(void *context)
{
	struct counters *service = context;

	if (service->reader_cache)
		service->reader_cache->ops->close(service->reader_cache);
	if (service->verifier)
		counter_verify_close(service->verifier);
	hub_free(service->hub);
}

static void start_counters(struct app *app)
{
	struct counters *service = &app->unread->counters;
	struct lane_service lanes = counters_lane_service(service);
	struct chore read = {
		.what = "read messages",
		.store = service->store,
		.sweep = sweep_read,
		.context = service->repository,
	};

	service->hub = hub_new((size_t)app->settings.streams_per_user);
	if (service->cache)
		service->reader_cache = service->cache->ops->open_session(service->cache);
	if (service->verifier)
		counter_verify_open(service->verifier);
	service->lanes = app_start_lanes(app, &lanes, service->store);
	erase_add(&app->erasers, service->repository->eraser, service->lanes);
	start_intake(app, false);
	start_intake(app, true);
	app_add_worker(app, counter_feed_stop, counter_feed_start(service));
	app_add_worker(app, free_streams, service);
	app_add_chore(app, &read);
}

static void start(struct app *app)
{
	if (app_plays(app, ROLE_DIALOGS))
		start_dialogs(app);
	if (app_plays(app, ROLE_COUNTERS))
		start_counters(app);
}

const struct module unread_module = {
	.roles = ROLE_DIALOGS | ROLE_COUNTERS,
	.add_routes = add_routes,
	.open_stores = open_stores,
	.open_others = open_others,
	.start = start,
};
