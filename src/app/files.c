/*
 * Reads the files with the API keys, the key for users' tokens, the certificate and the secrets
 * that sign webhooks, at start and again on SIGHUP. If a file cannot be used at start, the program
 * ends. If a file cannot be used on SIGHUP, the server keeps using the file's previous contents.
 */
#include <stdlib.h>

#include "adapters/notifier/webhook/webhook_secrets.h"
#include "app/app.h"
#include "base/clock.h"
#include "base/log.h"
#include "cli/report.h"

#define DAY_S (24 * 3600)

static bool open_guard(struct app *app, char *why)
{
	const struct settings *settings = &app->settings;
	struct guard_config config = {
		.keys_file = settings->api_keys,
		.tokens =
			{
				.key_file = settings->jwt_key,
				.algorithm = settings->jwt_algorithm,
				.issuer = settings->jwt_issuer,
				.audience = settings->jwt_audience,
				.leeway_us = settings->jwt_leeway_us,
			},
	};

	_Static_assert(GUARD_WHY_SIZE == OPTIONS_WHY_SIZE,
		"`why` must have the size that guard_new() needs");
	if (!*settings->api_keys && !*settings->jwt_key)
		return true;
	app->guard = guard_new(&config, why);
	return app->guard != NULL;
}

/* A server with an expired certificate still starts: some clients accept the certificate, and
 * refusing to start would help nobody. */
static void log_certificate(const struct app *app, const char *event)
{
	int64_t left_s = tls_context_expires_s(app->tls) - clock_wall_us(&clock_system) / 1000000;

	if (left_s > 0)
		log_line(LOG_INFO, "main", "%s: the certificate %s is valid for %lld more day%s",
			event, app->settings.tls_cert, (long long)(left_s / DAY_S),
			left_s / DAY_S == 1 ? "" : "s");
	else
		log_line(LOG_ERROR, "main", "%s: the certificate %s has expired", event,
			app->settings.tls_cert);
}

static bool open_tls(struct app *app, char *why)
{
	const struct settings *settings = &app->settings;

	_Static_assert(TLS_WHY_SIZE == OPTIONS_WHY_SIZE,
		"`why` must have the size that tls_context_new() needs");
	if (!*settings->tls_cert)
		return true;
	app->tls = tls_context_new(settings->tls_cert, settings->tls_key, why);
	if (!app->tls)
		return false;
	log_certificate(app, "TLS");
	return true;
}

static bool open_webhook_secrets(struct app *app, char *why)
{
	const char *path = app->settings.webhook_secret_file;

	if (!*path)
		return true;
	app->webhook_secrets = webhook_secrets_open(path, why, OPTIONS_WHY_SIZE);
	return app->webhook_secrets != NULL;
}

bool app_open_files(struct app *app, char *why)
{
	return open_guard(app, why) && open_tls(app, why) && open_webhook_secrets(app, why);
}

void app_release_files(struct app *app)
{
	if (app->guard)
		guard_free(app->guard);
	if (app->tls)
		tls_context_free(app->tls);
	if (app->webhook_secrets)
		webhook_secrets_free(app->webhook_secrets);
}

int app_check_files(struct app *app)
{
	char why[OPTIONS_WHY_SIZE];

	if (!app_open_files(app, why))
		return report_failure(EXIT_FAILURE, "%s", why);
	app_release_files(app);
	return EXIT_SUCCESS;
}

static bool reload_guard(struct app *app)
{
	char why[OPTIONS_WHY_SIZE];
	bool is_done = guard_reload(app->guard, why);

	if (is_done)
		log_line(LOG_INFO, "main", "SIGHUP: the keys were read again");
	else
		log_line(LOG_ERROR, "main", "SIGHUP: %s; the previous keys stay in use", why);
	return is_done;
}

static bool reload_tls(struct app *app)
{
	char why[OPTIONS_WHY_SIZE];
	bool is_done = tls_context_reload(app->tls, why);

	if (is_done)
		log_certificate(app, "SIGHUP");
	else
		log_line(LOG_ERROR, "main", "SIGHUP: %s; the old certificate stays in use", why);
	return is_done;
}

static bool reload_webhook_secrets(struct app *app)
{
	char why[OPTIONS_WHY_SIZE];
	bool is_done = webhook_secrets_reload(app->webhook_secrets, why, sizeof(why));

	if (is_done)
		log_line(LOG_INFO, "main", "SIGHUP: the secrets of webhooks were read again");
	else
		log_line(LOG_ERROR, "main", "SIGHUP: %s; the previous secrets stay in use", why);
	return is_done;
}

void app_reload_files(struct app *app)
{
	bool keys_are_read = !app->guard || reload_guard(app);
	bool certificate_is_read = !app->tls || reload_tls(app);
	bool secrets_are_read = !app->webhook_secrets || reload_webhook_secrets(app);

	atomic_store(
		&app->reload_failed, !keys_are_read || !certificate_is_read || !secrets_are_read);
	if (!app->guard && !app->tls && !app->webhook_secrets)
		log_line(LOG_INFO, "main", "SIGHUP: there is nothing to read again");
}
