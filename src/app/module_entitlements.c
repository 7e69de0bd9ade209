/*
 * The module of entitlements and notifications. Both are in one module because they share a bus: a
 * process can open a `local:` bus only once. Each service has its own store, and either role can
 * run alone.
 *
 * Notifications are created by an intake (flow/intake.h) and sent by a delivery (flow/delivery.h).
 * Both are registered as workers, so that the program stops them. The lanes of notifications carry
 * only lookups and operators' actions.
 */
#include <string.h>

#include "adapters/notifier/console/console_notifier.h"
#include "adapters/notifier/webhook/webhook_notifier.h"
#include "app/app.h"
#include "base/clock.h"
#include "events/entitlement_event.h"
#include "services/entitlements/entitlement_verify.h"
#include "services/entitlements/entitlements.h"
#include "services/entitlements/notification_verify.h"
#include "services/entitlements/notifications.h"

#define WEBHOOK_SLOTS 64

extern const char embedded_entitlements[];
extern const char embedded_notifications[];

struct entitlements_module {
	struct entitlements entitlements;
	struct notifications notifications;
	struct verifier entitlements_verifier;
	struct verifier notifications_verifier;
	struct bus *bus;
	struct notifier *notifier;
	struct delivery *delivery;
	int keep_months;
};

/* ---- routes ------------------------------------------------------------------------------ */

static void add_routes(struct app *app)
{
	struct entitlements_module *module = arena_new(&app->arena, struct entitlements_module);

	app->entitlements = module;
	if (app_plays(app, ROLE_ENTITLEMENTS)) {
		entitlements_add_routes(&module->entitlements, app->router);
		app->documents[app->document_count++] = embedded_entitlements;
		module->entitlements_verifier = entitlements_verifier(&module->entitlements);
		verify_add(&app->verifiers, &module->entitlements_verifier);
	}
	if (app_plays(app, ROLE_NOTIFICATIONS)) {
		notifications_add_routes(&module->notifications, app->router);
		app->documents[app->document_count++] = embedded_notifications;
		module->notifications_verifier = notifications_verifier(&module->notifications);
		verify_add(&app->verifiers, &module->notifications_verifier);
	}
}

/* ---- stores, bus, notifier --------------------------------------------------------------- */

static bool open_entitlements_store(struct app *app, char *why)
{
	static const char *const components[] = {"common", "entitlements", NULL};
	struct entitlements *service = &app->entitlements->entitlements;
	struct store_plan plan = {
		.name = "entitlements-store",
		.url = store_url(&app->settings, app->settings.entitlements_store),
		.file = "entitlements.db",
		.components = components,
	};

	service->store = app_open_store(app, &plan, why);
	if (!service->store)
		return false;
	service->repository = service->store->repositories->entitlements;
	service->outbox = service->store->repositories->entitlement_outbox;
	return true;
}

static bool open_notifications_store(struct app *app, char *why)
{
	static const char *const components[] = {"common", "notifications", NULL};
	struct notifications *service = &app->entitlements->notifications;
	struct store_plan plan = {
		.name = "notifications-store",
		.url = store_url(&app->settings, app->settings.notifications_store),
		.file = "notifications.db",
		.components = components,
	};

	service->store = app_open_store(app, &plan, why);
	if (!service->store)
		return false;
	service->repository = service->store->repositories->notifications;
	return true;
}

static bool open_stores(struct app *app, char *why)
{
	if (app_plays(app, ROLE_ENTITLEMENTS) && !open_entitlements_store(app, why))
		return false;
	return !app_plays(app, ROLE_NOTIFICATIONS) || open_notifications_store(app, why);
}

static struct notifier *open_notifier(const struct app *app, char *why)
{
	const struct settings *settings = &app->settings;
	struct webhook_limits limits = {
		.slots = WEBHOOK_SLOTS,
		.total_ns = settings->notify_timeout_us * NS_PER_US,
		.secrets = app->webhook_secrets,
	};

	if (strcmp(settings->notify_channel, "log") == 0)
		return console_notifier_new();
	return webhook_notifier_new(
		settings->notify_channel + strlen("webhook:"), &limits, why, OPTIONS_WHY_SIZE);
}

static bool open_others(struct app *app, char *why)
{
	static const struct bus_group notifications = {.name = NOTIFICATIONS_GROUP};
	static const struct bus_channel channel = {
		.groups = &notifications,
		.group_count = 1,
		.name = ENTITLEMENTS_CHANNEL,
		.partitions = ENTITLEMENTS_PARTITIONS,
		.stream = ENTITLEMENTS_STREAM,
		.subjects = ENTITLEMENTS_SUBJECTS,
	};
	struct entitlements_module *module = app->entitlements;
	struct bus_plan plan = {
		.name = "entitlements-bus",
		.url = app->settings.entitlements_bus,
		.file = "entitlements-bus.db",
		.channels = &channel,
		.channel_count = 1,
		.is_optional = true,
	};

	module->bus = app_open_bus(app, &plan, why);
	if (!module->bus || !app_plays(app, ROLE_NOTIFICATIONS))
		return module->bus != NULL;
	module->notifier = open_notifier(app, why);
	return module->notifier != NULL;
}

/* ---- chores ------------------------------------------------------------------------------ */

static enum status sweep_processed(
	const void *context, struct session *session, size_t limit, size_t *deleted)
{
	const struct notification_repository *repository = context;

	return repository->inbox->ops->sweep(
		repository->inbox, session, PROCESSED_KEPT_US, limit, deleted);
}

static enum status sweep_notifications(
	const void *context, struct session *session, size_t limit, size_t *deleted)
{
	const struct notification_repository *repository = context;

	return repository->claims->ops->sweep(
		repository->claims, session, PROCESSED_KEPT_US, limit, deleted);
}

static enum status tend_audit(
	const void *context, struct session *session, size_t limit, size_t *deleted)
{
	const struct entitlements_module *module = context;

	(void)limit;
	*deleted = 0;
	return module->entitlements.repository->ops->tend_audit(
		module->entitlements.repository, session, module->keep_months);
}

static void add_audit_chore(struct app *app)
{
	struct entitlements_module *module = app->entitlements;
	struct chore audit = {
		.what = "audit lines",
		.store = module->entitlements.store,
		.sweep = tend_audit,
		.context = module,
	};

	module->keep_months = (int)app->settings.audit_keep_months;
	app_add_chore(app, &audit);
}

static void add_notification_chores(struct app *app)
{
	struct notifications *service = &app->entitlements->notifications;
	struct chore processed = {
		.what = "processed events",
		.store = service->store,
		.sweep = sweep_processed,
		.context = service->repository,
	};
	struct chore old = {
		.what = "old notifications",
		.store = service->store,
		.sweep = sweep_notifications,
		.context = service->repository,
	};

	app_add_chore(app, &processed);
	app_add_chore(app, &old);
}

/* ---- starting ---------------------------------------------------------------------------- */

static bool describe_event(struct arena *arena, struct slice payload, struct buffer *members)
{
	struct entitlement_event event;

	if (entitlement_event_unpack(arena, payload, &event))
		return false;
	entitlement_event_write_json(members, &event);
	return true;
}

static void start_entitlements(struct app *app)
{
	struct entitlements_module *module = app->entitlements;
	struct entitlements *service = &module->entitlements;
	struct lane_service lanes = entitlements_lane_service(service);
	struct app_outbox outbox = {
		.name = "entitlements",
		.kind = "outbox",
		.store = service->store,
		.repository = service->outbox,
		.bus = module->bus,
		.announcement = ENTITLEMENTS_ANNOUNCEMENT,
		.address = entitlements_address,
		.describe = describe_event,
		.kept_us = PUBLISHED_KEPT_US,
		.workers = 1, /* so that a user's events are published in order */
	};

	service->lanes = outbox.lanes = app_start_lanes(app, &lanes, service->store);
	erase_add(&app->erasers, service->repository->eraser, service->lanes);
	app_start_outbox(app, &outbox);
	add_audit_chore(app);
}

static void add_dead_letters(struct app *app)
{
	struct notifications *service = &app->entitlements->notifications;
	struct dead_letter_kind kind = {
		.name = "notification",
		.letter_kind = "notification",
		.dead = service->repository->dead,
		.lanes = service->lanes,
		.describe = describe_event,
	};

	dead_letters_add_kind(&app->dead_letters, &kind);
	kind.name = kind.letter_kind = "poison";
	kind.take_again = notifications_take_again;
	kind.context = service;
	dead_letters_add_kind(&app->dead_letters, &kind);
}

static void start_intake(struct app *app)
{
	struct entitlements_module *module = app->entitlements;
	struct intake_config config = {
		.name = "notifications",
		.bus = module->bus,
		.channel = ENTITLEMENTS_CHANNEL,
		.group = NOTIFICATIONS_GROUP,
		.store = module->notifications.store,
		.apply = notifications_apply,
		.committed = notifications_committed,
		.context = &module->notifications,
	};

	app_start_intake(app, &config);
}

static void start_delivery(struct app *app)
{
	struct entitlements_module *module = app->entitlements;
	struct notifications *service = &module->notifications;
	struct delivery_config config = {
		.name = "notify",
		.store = service->store,
		.claims = service->repository->claims,
		.dead = service->repository->dead,
		.letter_kind = "notification",
		.announcement = NOTIFICATIONS_ANNOUNCEMENT,
		.notifier = module->notifier,
		.poll_us = app->settings.outbox_poll_us,
		.lease_us = app->settings.notify_lease_us,
		.attempts_max = NOTIFICATION_ATTEMPTS_MAX,
		.write_body = notifications_write_body,
	};

	module->delivery = delivery_start(&config);
}

static void start_notifications(struct app *app)
{
	struct entitlements_module *module = app->entitlements;
	struct notifications *service = &module->notifications;
	struct lane_service lanes = notifications_lane_service(service);

	start_delivery(app);
	start_intake(app);
	service->lanes = app_start_lanes(app, &lanes, service->store);
	erase_add(&app->erasers, service->repository->eraser, service->lanes);
	add_dead_letters(app);
	app_add_worker(app, delivery_stop, module->delivery);
	app_add_notifier(app, module->notifier);
	add_notification_chores(app);
	metrics_add(&app->metrics, notifications_collect, module->delivery);
}

static void start(struct app *app)
{
	if (app_plays(app, ROLE_ENTITLEMENTS))
		start_entitlements(app);
	if (app_plays(app, ROLE_NOTIFICATIONS))
		start_notifications(app);
}

const struct module entitlements_module = {
	.roles = ROLE_ENTITLEMENTS | ROLE_NOTIFICATIONS,
	.add_routes = add_routes,
	.open_stores = open_stores,
	.open_others = open_others,
	.start = start,
};
