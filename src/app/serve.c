/*
 * Runs `quipu serve`: starts the server, waits for a signal, drains the server, and frees
 * everything.
 *
 * The main thread only starts and stops the parts of the server, and waits for signals. Modules
 * register their lanes, workers and chores here, so that this file alone defines the order in which
 * a process stops: the server finishes its requests, the lanes drain, the workers end in the order
 * in which they were added, and then the janitor ends. Stores, buses and the cache are freed last,
 * when nothing uses them any more.
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
#include "base/failpoint.h"
#include "base/hash.h"
#include "base/log.h"
#include "ports/notifier.h"

#define FILES_FOR_OTHERS 256

/* RELEASE_NS, --drain-timeout (30 s by default) and FLUSH_NS of drain.c add up to less than the
 * 45 s after which the systemd unit and docker-compose.yml kill the process. */
#define RELEASE_NS (12 * NS_PER_S)

/* Roles whose services keep dead letters. */
#define ROLES_WITH_LETTERS (ROLE_ENTITLEMENTS | ROLE_NOTIFICATIONS | ROLE_DIALOGS | ROLE_SENDER)

/* Roles whose services keep data about persons. */
#define ROLES_WITH_PERSONS                                                                         \
	(ROLE_GATEWAY | ROLE_ENTITLEMENTS | ROLE_NOTIFICATIONS | ROLE_DIALOGS | ROLE_COUNTERS)

extern const char embedded_actions[];
extern const char embedded_common[];
extern const char embedded_console[];
extern const char embedded_erase[];
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

static void add_console(struct app *app)
{
	struct console_config config = {
		.metrics = &app->metrics,
		.router = app->router,
		.guard = &app->guard,
		.roles = app->settings.roles,
	};

	app->console = console_new(&config, app->router);
	app->documents[app->document_count++] = embedded_console;
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
	if (app_plays(app, ROLES_WITH_LETTERS)) {
		dead_letters_add_routes(&app->dead_letters, app->router);
		app->documents[app->document_count++] = embedded_operator;
	}
	if (app_plays(app, ROLES_WITH_PERSONS)) {
		erase_add_routes(&app->erasers, app->router);
		app->documents[app->document_count++] = embedded_erase;
	}
	if (app_plays(app, ROLES_WITH_LETTERS | ROLES_WITH_PERSONS)) {
		app->action_sources = (struct action_sources){&app->dead_letters, &app->erasers};
		actions_add_route(&app->action_sources, app->router);
		app->documents[app->document_count++] = embedded_actions;
	}
	if (app->verifiers.count > 0) {
		verify_add_routes(&app->verifiers, app->router);
		app->documents[app->document_count++] = embedded_verify;
	}
	if (slice_is(slice_of(app->settings.console), "on"))
		add_console(app);
	app->openapi =
		openapi_join(app->documents, app->document_count, *app->settings.jwt_key != '\0');
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

/* Returns `wanted`, or a smaller number of connections if the process may not open enough files:
 * each connection needs a file descriptor, and stores, buses and the log need some as well. */
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
		"allowing only %zu connections, because this process can open only %zu files", most,
		(size_t)limit.rlim_cur);
	return most;
}

static bool open_server(struct app *app, char *why)
{
	const struct settings *settings = &app->settings;
	struct server_limits limits = {
		.connections_max = connections_max((size_t)settings->max_connections),
		.exchanges_max = (size_t)settings->h2_streams,
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
	app->admission.cors_origins = slice_of(settings->cors_origins);
	app->server = server_new(loop_count(settings), &limits, app->router, &app->admission);
	if (app->tls)
		server_use_tls(app->server, app->tls);
	if (settings->access_log)
		server_log_access(app->server);
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

static void free_notifier(void *thing)
{
	struct notifier *notifier = thing;

	notifier->ops->free(notifier);
}

void app_add_notifier(struct app *app, struct notifier *notifier)
{
	app_add_worker(app, free_notifier, notifier);
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

/* A metrics collector (context: the app) for the result of the last SIGHUP. */
static void collect_reload(void *context, struct buffer *page)
{
	const struct app *app = context;

	metrics_family(page, "quipu_last_reload_successful", "gauge",
		"0 if a file was refused at the last SIGHUP, otherwise 1.");
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
	app->started_us = clock_wall_us(&clock_system);
	metrics_add(metrics, process_collect, &app->started_us);
	for (size_t i = 0; i < app->health.store_count; i++) {
		struct chore chore = chore_idempotency(app->health.stores[i]);

		app_add_chore(app, &chore);
	}
	app->janitor = janitor_start(app->chores, app->chore_count);
	if (app->console)
		console_start(app->console);
}

/* Raises the limit of open files as far as the system permits, because every connection needs a
 * file descriptor. */
static void raise_file_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
}

/* Called before any other thread starts: threads inherit the blocked signals, so only the main
 * thread receives them, by waiting for them. */
static void block_signals(sigset_t *signals)
{
	sigemptyset(signals);
	sigaddset(signals, SIGTERM);
	sigaddset(signals, SIGINT);
	sigaddset(signals, SIGHUP);
	pthread_sigmask(SIG_BLOCK, signals, NULL);
	signal(SIGPIPE, SIG_IGN);
}

/* ---- stopping ---------------------------------------------------------------------------- */

/* Ends the process if it is still running after RELEASE_NS. By then all requests are answered and
 * everything acknowledged is stored, so nothing is lost. */
static void *end_late(void *unused)
{
	const struct timespec wait = {.tv_sec = RELEASE_NS / NS_PER_S};

	(void)unused;
	pthread_setname_np(pthread_self(), "last-resort");
	clock_nanosleep(CLOCK_MONOTONIC, 0, &wait, NULL);
	log_line(LOG_WARN, "main",
		"not all threads of the process and its client libraries ended within %lld s; "
		"exiting anyway",
		(long long)wait.tv_sec);
	_exit(EXIT_SUCCESS);
}

/*
 * Limits the time for release(). Some client libraries wait for their threads without a limit, or
 * until a wall-clock time: if the clock is set back by 196 s while Kafka does not answer,
 * librdkafka waits 196 s longer. The thread that enforces the limit is never joined, because it
 * must also end a process that hangs in exit().
 */
static void limit_release(void)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, end_late, NULL) == 0)
		pthread_detach(thread);
	else
		log_line(LOG_WARN, "main",
			"cannot start the thread that limits the time for stopping");
}

static void release(struct app *app)
{
	limit_release();
	if (IS_SWITCHED_OFF("main.release"))
		pause();
	if (app->console)
		console_stop(app->console);
	server_free(app->server);
	if (app->console)
		console_free(app->console);
	for (size_t i = 0; i < app->lanes_count; i++)
		lane_set_free(app->lanes[i]);
	for (size_t i = 0; i < app->worker_count; i++)
		app->workers[i].stop(app->workers[i].thing);
	janitor_stop(app->janitor);
	app_close(app);
	router_free(app->router);
	app_release_files(app);
	free((void *)(uintptr_t)app->openapi.data);
	log_line(LOG_INFO, "main", "stopped");
}

/* Prints why the server cannot start. Closes the stores, buses and cache that are open, because the
 * threads of client libraries must have ended before exit() tears the libraries down. Returns the
 * exit status of the program. */
static int refuse_start(struct app *app, const char *why)
{
	fprintf(stderr, "quipu: %s\n", why);
	app_close(app);
	return EXIT_FAILURE;
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
	if (!app_open_files(app, why) || !open_server(app, why) || !open_modules(app, why))
		return refuse_start(app, why);
	start_modules(app);
	server_start(app->server);
	app_announce(app);
	app_wait_for_stop(app, &signals);
	app_drain(app, &signals);
	release(app);
	return EXIT_SUCCESS;
}
