/* Starts the relay that publishes the events of an outbox, adds the chore that deletes published
 * events, and lets operators list and replay the events that could not be published. */
#include "app/app.h"

static enum status sweep_published(
	const void *context, struct session *session, size_t limit, size_t *deleted)
{
	const struct app_outbox *outbox = context;
	const struct claim_repository *claims = outbox->repository->claims;

	return claims->ops->sweep(claims, session, outbox->kept_us, limit, deleted);
}

static void start_relay(struct app *app, const struct app_outbox *outbox)
{
	const struct settings *settings = &app->settings;
	const struct relay_config config = {
		.name = outbox->name,
		.kind = outbox->kind,
		.store = outbox->store,
		.outbox = outbox->repository,
		.announcement = outbox->announcement,
		.bus = outbox->bus,
		.address = outbox->address,
		.poll_us = settings->outbox_poll_us,
		.lease_us = settings->outbox_lease_us,
		.attempts_max = (int32_t)settings->outbox_max_attempts,
		.batch = (size_t)settings->outbox_batch,
		.workers = outbox->workers,
	};

	app_start_relay(app, &config);
}

void app_start_outbox(struct app *app, const struct app_outbox *outbox)
{
	struct app_outbox *kept = arena_new(&app->arena, struct app_outbox);
	const struct dead_letter_kind kind = {
		.name = outbox->kind,
		.letter_kind = "outbox",
		.dead = outbox->repository->dead,
		.outbox = outbox->repository,
		.lanes = outbox->lanes,
		.describe = outbox->describe,
	};
	const struct chore published = {
		.what = "published events",
		.store = outbox->store,
		.sweep = sweep_published,
		.context = kept,
	};

	*kept = *outbox;
	start_relay(app, outbox);
	dead_letters_add_kind(&app->dead_letters, &kind);
	app_add_chore(app, &published);
}
