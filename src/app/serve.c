/*
 * The life of `quipu serve`: start, run until a signal, drain, release.
 *
 * The main thread does nothing but start things, wait for signals and stop things. Modules register
 * their lanes, workers and chores here, so that one place knows the order in which a process stops:
 * the server finishes its requests, lanes drain, workers end in the order in which they were added,
 * then the janitor; stores, buses and the cache are freed last, when nothing can use them any more.
 */
#include <assert.h>
#include <jansson.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "app/app.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"

#define FILES_FOR_OTHERS 256
#define FLUSH_NS (2 * NS_PER_S)
#define DAY_S (24 * 3600)

extern const char embedded_common[];
extern const char embedded_operator[];
extern const char embedded_verify[];

/* ---- modules ----------------------------------------------------------------------------- */

static const struct module *const modules[] = {
	&counts_module, &gateway_module, &entitlements_module, &pots_module, &unread_module};

#define MODULE_COUNT (sizeof(modules) / sizeof(modules[0]))

const struct module *module_next(const struct app *app, const struct module *before)
{
	bool is_past = !before;

	for (size_t i = 0; i < MODULE_COUNT; i++) {
		if (is_past && app_plays(app, modules[i]->roles))
			return modules[i];
		is_past = is_past || modules[i] == before;
	}
	return NULL;
}

void app_add_routes(struct app *app)
{
	const struct module *module = NULL;

	app->router = router_new();
	health_add_routes(&app->health, app->router);
	metrics_page_add_route(&app->metrics, app->router);
	openapi_add_route(&app->openapi, app->router);
	app->documents[app->document_count++] = embedded_common;
	while ((module = module_next(app, module)))
		module->add_routes(app);
	if (app_plays(app, ROLE_ENTITLEMENTS | ROLE_NOTIFICATIONS | ROLE_DIALOGS)) {
		dead_letters_add_routes(&app->dead_letters, app->router);
		app->documents[app->document_count++] = embedded_operator;
	}
	if (app->verifiers.count > 0) {
		verify_add_routes(&app->verifiers, app->router);
		app->documents[app->document_count++] = embedded_verify;
	}
	app->openapi = openapi_join(app->documents, app->document_count);
}

static bool open_modules(struct app *app, char *why)
{
	const struct module *module = NULL;

	while ((module = module_next(app, module))) {
		if (!module->open_stores(app, why))
			return false;
		if (module->open_others && !module->open_others(app, why))
			return false;
	}
	return true;
}

/* ---- starting ---------------------------------------------------------------------------- */

static size_t loop_count(const struct settings *settings)
{
	long cores = sysconf(_SC_NPROCESSORS_ONLN);

	if (settings->loops > 0)
		return (size_t)settings->loops;
	return cores > 0 ? (size_t)cores : 1;
}

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

	_Static_assert(GUARD_WHY_SIZE == OPTIONS_WHY_SIZE, "one buffer for both");
	if (!*settings->api_keys && !*settings->jwt_key)
		return true;
	app->guard = guard_new(&config, why);
	return app->guard != NULL;
}

/* Also serves with an expired certificate: some clients accept it, and refusing to start would help
 * nobody. */
static void log_certificate(const struct app *app, const char *event)
{
	int64_t left_s = tls_context_expires_s(app->tls) - clock_wall_us(&clock_system) / 1000000;

	if (left_s > 0)
		log_line(LOG_INFO, "main", "%s: the certificate %s is good for %lld days", event,
			app->settings.tls_cert, (long long)(left_s / DAY_S));
	else
		log_line(LOG_ERROR, "main", "%s: the certificate %s has expired", event,
			app->settings.tls_cert);
}

static bool open_tls(struct app *app, char *why)
{
	const struct settings *settings = &app->settings;

	_Static_assert(TLS_WHY_SIZE == OPTIONS_WHY_SIZE, "one buffer for both");
	if (!*settings->tls_cert)
		return true;
	app->tls = tls_context_new(settings->tls_cert, settings->tls_key, why);
	if (!app->tls)
		return false;
	log_certificate(app, "TLS");
	return true;
}

static bool open_files(struct app *app, char *why)
{
	return open_guard(app, why) && open_tls(app, why);
}

static void release_files(struct app *app)
{
	if (app->guard)
		guard_free(app->guard);
	if (app->tls)
		tls_context_free(app->tls);
}

/* Every connection needs a file descriptor; stores, buses and the log need some, too. */
static size_t connections_max(size_t wanted)
{
	struct rlimit limit;
	size_t most;

	if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
		return wanted;
	most = limit.rlim_cur > 2 * FILES_FOR_OTHERS ? limit.rlim_cur - FILES_FOR_OTHERS
						     : limit.rlim_cur / 2;
	if (wanted <= most)
		return wanted;
	log_line(LOG_WARN, "main",
		"%zu connections at most, because this process may have %zu file descriptors", most,
		(size_t)limit.rlim_cur);
	return most;
}

static bool open_server(struct app *app, char *why)
{
	const struct settings *settings = &app->settings;
	struct server_limits limits = {
		.connections_max = connections_max((size_t)settings->max_connections),
		.client_bytes_max = (size_t)settings->client_bytes,
		.head_timeout_ns = settings->head_timeout_us * NS_PER_US,
		.body_timeout_ns = settings->body_timeout_us * NS_PER_US,
		.idle_timeout_ns = settings->idle_timeout_us * NS_PER_US,
		.deadline_ns = settings->deadline_us * NS_PER_US,
		.heartbeat_ns = settings->stream_heartbeat_us * NS_PER_US,
		.stream_stall_ns = settings->stream_stall_us * NS_PER_US,
	};

	app->admission.router = app->router;
	app->admission.guard = app->guard;
	app->admission.guard_browser =
		!*settings->api_keys && server_address_reach(settings->listen) == ADDRESS_LOOPBACK;
	app->admission.allowed_hosts = slice_of(settings->allowed_hosts);
	app->server = server_new(loop_count(settings), &limits, app->router, &app->admission);
	if (app->tls)
		server_use_tls(app->server, app->tls);
	return server_listen(app->server, settings->listen, why, OPTIONS_WHY_SIZE);
}

struct lane_set *app_start_lanes(
	struct app *app, const struct lane_service *service, struct store *store)
{
	const struct settings *settings = &app->settings;
	struct lane_settings lane_settings = {
		.lanes = (size_t)settings->lanes,
		.depth_max = (size_t)settings->lane_depth,
		.bytes_max = (size_t)settings->lane_bytes,
		.batch_max = (size_t)settings->batch_max,
		.idempotency_ttl_us = settings->idempotency_ttl_us,
	};
	struct lane_set *lanes = lane_set_new(service, store, &lane_settings);

	assert(app->lanes_count < APP_LANES_MAX);
	app->lanes[app->lanes_count++] = lanes;
	lane_set_start(lanes);
	return lanes;
}

void app_add_worker(struct app *app, void (*stop)(void *thing), void *thing)
{
	assert(app->worker_count < APP_WORKERS_MAX);
	app->workers[app->worker_count++] = (struct app_worker){.stop = stop, .thing = thing};
}

void app_add_chore(struct app *app, const struct chore *chore)
{
	assert(app->chore_count < JANITOR_CHORES_MAX);
	app->chores[app->chore_count++] = *chore;
}

void app_start_relay(struct app *app, const struct relay_config *config)
{
	struct relay *relay = relay_start(config);

	assert(app->relay_count < APP_RELAYS_MAX);
	app->relays[app->relay_count++] = relay;
	app_add_worker(app, relay_stop, relay);
}

void app_start_intake(struct app *app, const struct intake_config *config)
{
	struct intake *intake = intake_start(config);

	assert(app->intake_count < APP_INTAKES_MAX);
	app->intakes[app->intake_count++] = intake;
	app_add_worker(app, intake_stop, intake);
}

/* A metrics collector (context: the app) for lanes, relays and intakes of all services. */
static void collect_flow(void *context, struct buffer *page)
{
	const struct app *app = context;

	lane_sets_collect(app->lanes, app->lanes_count, page);
	relays_collect(app->relays, app->relay_count, page);
	intakes_collect(app->intakes, app->intake_count, page);
}

/* A metrics collector (context: the app). */
static void collect_reload(void *context, struct buffer *page)
{
	const struct app *app = context;

	metrics_family(page, "quipu_last_reload_successful", "gauge",
		"0 if a file was refused at the last SIGHUP, until one takes them all.");
	metrics_sample(page, "quipu_last_reload_successful", "", !atomic_load(&app->reload_failed));
}

static void start_modules(struct app *app)
{
	struct metrics *metrics = &app->metrics;
	const struct module *module = NULL;

	metrics_add(metrics, router_collect, app->router);
	metrics_add(metrics, server_collect, app->server);
	if (app->guard)
		metrics_add(metrics, guard_collect, app->guard);
	if (app->tls)
		metrics_add(metrics, tls_collect, app->tls);
	metrics_add(metrics, collect_reload, app);
	metrics_add(metrics, collect_flow, app);
	while ((module = module_next(app, module)))
		module->start(app);
	metrics_add(metrics, health_collect, &app->health);
	metrics_add(metrics, process_collect, NULL);
	for (size_t i = 0; i < app->health.store_count; i++) {
		struct chore chore = chore_idempotency(app->health.stores[i]);

		app_add_chore(app, &chore);
	}
	app->janitor = janitor_start(app->chores, app->chore_count);
}

/* Every connection needs a file descriptor, so allow as many as the system permits. */
static void raise_file_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
}

/* Called before any thread starts, so that only wait_for_stop() receives signals. */
static void block_signals(sigset_t *signals)
{
	sigemptyset(signals);
	sigaddset(signals, SIGTERM);
	sigaddset(signals, SIGINT);
	sigaddset(signals, SIGHUP);
	pthread_sigmask(SIG_BLOCK, signals, NULL);
	signal(SIGPIPE, SIG_IGN);
}

static bool reload_guard(struct app *app)
{
	char why[OPTIONS_WHY_SIZE];
	bool is_done = guard_reload(app->guard, why);

	if (is_done)
		log_line(LOG_INFO, "main", "SIGHUP: the keys were read again");
	else
		log_line(LOG_ERROR, "main", "SIGHUP: %s; the keys read before stay in use", why);
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

/* A file that cannot be used is logged and shows in the metric; what was read before stays in use.
 */
static void reload(struct app *app)
{
	bool keys_are_read = !app->guard || reload_guard(app);
	bool certificate_is_read = !app->tls || reload_tls(app);

	atomic_store(&app->reload_failed, !keys_are_read || !certificate_is_read);
	if (!app->guard && !app->tls)
		log_line(LOG_INFO, "main", "SIGHUP: there is nothing to read again");
}

static void wait_for_stop(struct app *app, const sigset_t *signals)
{
	int received = 0;

	while (received != SIGTERM && received != SIGINT) {
		sigwait(signals, &received);
		if (received == SIGHUP)
			reload(app);
	}
	log_line(LOG_INFO, "main", "stopping: finishing the requests that have begun");
}

/* ---- stopping ---------------------------------------------------------------------------- */

static void end_lanes(struct app *app, bool abort)
{
	for (size_t i = 0; i < app->lanes_count; i++) {
		if (abort)
			lane_set_abort(app->lanes[i]);
		lane_set_close(app->lanes[i]);
		lane_set_join(app->lanes[i]);
	}
}

/*
 * Reports not ready, accepts no more connections, lets requests finish and lanes drain. Requests
 * that are left at --drain-timeout get 503.
 */
static void drain(struct app *app)
{
	int64_t until_ns =
		clock_steady_ns(&clock_system) + app->settings.drain_timeout_us * NS_PER_US;
	bool idle;

	atomic_store(&app->health.draining, true);
	server_drain(app->server);
	idle = server_wait_idle(app->server, until_ns);
	if (!idle)
		log_line(LOG_WARN, "main",
			"--drain-timeout is over; refusing the requests that are left");
	end_lanes(app, !idle);
	if (!server_wait_idle(app->server, clock_steady_ns(&clock_system) + FLUSH_NS))
		log_line(LOG_WARN, "main", "some clients did not read their last answer");
}

static void release(struct app *app)
{
	server_free(app->server);
	for (size_t i = 0; i < app->lanes_count; i++)
		lane_set_free(app->lanes[i]);
	for (size_t i = 0; i < app->worker_count; i++)
		app->workers[i].stop(app->workers[i].thing);
	janitor_stop(app->janitor);
	app_close(app);
	router_free(app->router);
	release_files(app);
	free((void *)(uintptr_t)app->openapi.data);
	log_line(LOG_INFO, "main", "stopped");
}

static int refuse_start(const char *why)
{
	fprintf(stderr, "quipu: %s\n", why);
	return EXIT_FAILURE;
}

int app_check_files(struct app *app)
{
	char why[OPTIONS_WHY_SIZE];

	if (!open_files(app, why))
		return refuse_start(why);
	release_files(app);
	return EXIT_SUCCESS;
}

int app_serve(struct app *app)
{
	char why[OPTIONS_WHY_SIZE];
	sigset_t signals;

	block_signals(&signals);
	raise_file_limit();
	hash_seed();
	json_object_seed(0);
	app_add_routes(app);
	if (!open_files(app, why) || !open_server(app, why) || !open_modules(app, why))
		return refuse_start(why);
	start_modules(app);
	server_start(app->server);
	printf("quipu listening on %s://%s\n", app->tls ? "https" : "http",
		server_address(app->server));
	fflush(stdout);
	wait_for_stop(app, &signals);
	drain(app);
	release(app);
	return EXIT_SUCCESS;
}
