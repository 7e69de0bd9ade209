/*
 * The program: reads the configuration, builds the adapters it names, wires the services of its
 * roles to them, and runs until it is told to stop. The only file that sees everything.
 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "adapters/postgres/postgres_counts.h"
#include "adapters/postgres/postgres_store.h"
#include "adapters/sqlite/sqlite_counts.h"
#include "adapters/sqlite/sqlite_store.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "cli/options.h"
#include "flow/janitor.h"
#include "http/server.h"
#include "services/counts/counts.h"
#include "services/system/system.h"

#define EXIT_USAGE 2
#define FLUSH_NS (2 * NS_PER_S)
#define UP_POLL_NS (20 * NS_PER_MS)

extern const char embedded_common[];
extern const char embedded_counts[];

struct app {
	struct settings settings;
	struct system system;
	struct router *router;
	struct admission admission;
	struct server *server;
	struct counts counts;
	struct janitor *janitor;
	char counts_file[PATH_MAX];
	int data_lock;
};

static int fail(int code, const char *why)
{
	fprintf(stderr, "quipu: %s\n", why);
	return code;
}

/* ---- stores ------------------------------------------------------------------------------ */

static bool is_postgres(const char *url)
{
	return strncmp(url, "postgres://", 11) == 0 || strncmp(url, "postgresql://", 13) == 0;
}

static const char *counts_store_url(const struct settings *settings)
{
	return *settings->counts_store ? settings->counts_store : settings->store;
}

static bool check_store_url(const char *url, char *why)
{
	if (is_postgres(url) || strcmp(url, "sqlite:") == 0)
		return true;
	snprintf(why, OPTIONS_WHY_SIZE,
		"a store must be sqlite: or a postgres:// URL; this one is neither");
	return false;
}

/* One process a data folder: the lock goes when the process goes, however it goes. */
static bool lock_data_folder(struct app *app, char *why)
{
	const char *data = app->settings.data;
	char path[PATH_MAX];

	if (app->data_lock >= 0)
		return true;
	if (mkdir(data, 0700) != 0 && errno != EEXIST) {
		snprintf(why, OPTIONS_WHY_SIZE, "cannot make the data folder %s: %s", data,
			strerror(errno));
		return false;
	}
	snprintf(path, sizeof(path), "%s/lock", data);
	app->data_lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (app->data_lock >= 0 && flock(app->data_lock, LOCK_EX | LOCK_NB) == 0)
		return true;
	if (app->data_lock >= 0 && errno == EWOULDBLOCK)
		snprintf(why, OPTIONS_WHY_SIZE,
			"the data folder %s is in use by another quipu; stop it, or choose another "
			"with --data",
			data);
	else
		snprintf(why, OPTIONS_WHY_SIZE, "cannot lock the data folder %s: %s", data,
			strerror(errno));
	return false;
}

static bool add_counts_store(struct app *app, char *why)
{
	static const char *const components[] = {"common", "counts", NULL};
	const char *url = counts_store_url(&app->settings);
	struct store *store;

	if (is_postgres(url)) {
		store = postgres_store_new("counts-store", url, components);
		app->counts.repository = &postgres_count_repository;
	} else {
		if (!lock_data_folder(app, why))
			return false;
		snprintf(app->counts_file, sizeof(app->counts_file), "%s/counts.db",
			app->settings.data);
		store = sqlite_store_new(
			"counts-store", app->counts_file, components, &clock_system);
		app->counts.repository = &sqlite_count_repository;
	}
	app->system.stores[app->system.store_count++] = store;
	return store->ops->start(store, why, OPTIONS_WHY_SIZE);
}

static void free_stores(struct app *app)
{
	for (size_t i = 0; i < app->system.store_count; i++)
		app->system.stores[i]->ops->free(app->system.stores[i]);
	if (app->data_lock >= 0)
		close(app->data_lock);
}

/* ---- configuration ----------------------------------------------------------------------- */

static bool check_roles(const char *roles, char *why)
{
	struct slice rest = slice_of(roles);

	while (rest.data) {
		struct slice role = slice_trim(slice_cut(&rest, ','));

		if (slice_is(role, "all") || slice_is(role, "counts"))
			continue;
		snprintf(why, OPTIONS_WHY_SIZE, "there is no role \"%.*s\"; roles are: counts",
			(int)role.len, role.data);
		return false;
	}
	return true;
}

static bool check_address(const struct settings *settings, char *why)
{
	enum address_reach reach = server_address_reach(settings->listen);

	if (reach == ADDRESS_INVALID)
		snprintf(why, OPTIONS_WHY_SIZE,
			"--listen must be host:port of this machine, such as 127.0.0.1:8080, not "
			"\"%s\"",
			settings->listen);
	else if (reach == ADDRESS_PUBLIC && !settings->insecure)
		snprintf(why, OPTIONS_WHY_SIZE,
			"%s can be reached from other machines, and nothing would ask them who "
			"they are; listen on 127.0.0.1, or give --insecure if a proxy or firewall "
			"guards it",
			settings->listen);
	else
		return true;
	return false;
}

static bool check_settings(const struct settings *settings, char *why)
{
	return check_roles(settings->roles, why) &&
	       check_store_url(counts_store_url(settings), why) && check_address(settings, why);
}

static void configure_log(const struct settings *settings)
{
	struct slice format = slice_of(settings->log_format);
	enum log_level level = LOG_INFO;
	bool json =
		slice_is(format, "json") || (slice_is(format, "auto") && !isatty(STDERR_FILENO));

	if (log_level_parse(slice_of(settings->log_level), &level))
		log_configure(level, json ? LOG_JSON : LOG_TEXT);
}

/* ---- serving ----------------------------------------------------------------------------- */

static size_t loop_count(const struct settings *settings)
{
	long cores = sysconf(_SC_NPROCESSORS_ONLN);

	if (settings->loops > 0)
		return (size_t)settings->loops;
	return cores > 0 ? (size_t)cores : 1;
}

static struct lane_settings lane_settings_of(const struct settings *settings)
{
	return (struct lane_settings){
		.lanes = (size_t)settings->lanes,
		.depth_max = (size_t)settings->lane_depth,
		.bytes_max = (size_t)settings->lane_bytes,
		.batch_max = (size_t)settings->batch_max,
		.key_ttl_us = settings->idempotency_ttl_us,
	};
}

static void add_routes(struct app *app)
{
	static const char *const documents[] = {embedded_common, embedded_counts};

	app->router = router_new();
	system_add_routes(&app->system, app->router);
	counts_add_routes(&app->counts, app->router);
	app->system.openapi =
		system_join_openapi(documents, sizeof(documents) / sizeof(documents[0]));
}

static bool open_server(struct app *app, char *why)
{
	const struct settings *settings = &app->settings;
	struct server_limits limits = {
		.connections_max = (size_t)settings->max_connections,
		.head_timeout_ns = settings->head_timeout_us * NS_PER_US,
		.body_timeout_ns = settings->body_timeout_us * NS_PER_US,
		.idle_timeout_ns = settings->idle_timeout_us * NS_PER_US,
		.deadline_ns = settings->deadline_us * NS_PER_US,
	};

	app->admission.router = app->router;
	app->admission.guard_browser = server_address_reach(settings->listen) == ADDRESS_LOOPBACK;
	app->admission.allowed_hosts = slice_of(settings->allowed_hosts);
	app->server = server_new(loop_count(settings), &limits, app->router, &app->admission);
	return server_listen(app->server, settings->listen, why, OPTIONS_WHY_SIZE);
}

static void start_counts(struct app *app)
{
	struct lane_service service = counts_lane_service(&app->counts);
	struct lane_settings settings = lane_settings_of(&app->settings);

	app->counts.lanes = lane_set_new(&service, app->system.stores[0], &settings);
	lane_set_start(app->counts.lanes);
}

static void add_collectors(struct app *app)
{
	struct metrics *metrics = &app->system.metrics;

	metrics_add(metrics, router_collect, app->router);
	metrics_add(metrics, server_collect, app->server);
	metrics_add(metrics, lane_set_collect, app->counts.lanes);
	metrics_add(metrics, system_collect, &app->system);
}

/* Every connection is a file descriptor, so take as many as the system gives. */
static void raise_file_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
}

/* Before any thread starts, so that signals reach nobody but wait_for_stop(). */
static void block_signals(sigset_t *signals)
{
	sigemptyset(signals);
	sigaddset(signals, SIGTERM);
	sigaddset(signals, SIGINT);
	sigaddset(signals, SIGHUP);
	pthread_sigmask(SIG_BLOCK, signals, NULL);
	signal(SIGPIPE, SIG_IGN);
}

static void wait_for_stop(const sigset_t *signals)
{
	int received = 0;

	while (received != SIGTERM && received != SIGINT)
		sigwait(signals, &received);
	log_line(LOG_INFO, "main", "stopping: finishing what has begun");
}

/*
 * Not ready; no new connections; requests finish; lanes drain; what is still left at the end of the
 * time gets 503.
 */
static void drain(struct app *app)
{
	int64_t until_ns =
		clock_steady_ns(&clock_system) + app->settings.drain_timeout_us * NS_PER_US;

	atomic_store(&app->system.draining, true);
	server_drain(app->server);
	if (!server_wait_idle(app->server, until_ns)) {
		log_line(LOG_WARN, "main", "--drain-timeout is over; refusing what is left");
		lane_set_abort(app->counts.lanes);
	}
	lane_set_close(app->counts.lanes);
	lane_set_free(app->counts.lanes);
	if (!server_wait_idle(app->server, clock_steady_ns(&clock_system) + FLUSH_NS))
		log_line(LOG_WARN, "main", "some connections did not take their last answer");
}

static void release(struct app *app)
{
	server_free(app->server);
	janitor_stop(app->janitor);
	free_stores(app);
	router_free(app->router);
	free((void *)(uintptr_t)app->system.openapi.data);
	log_line(LOG_INFO, "main", "stopped");
}

static int serve(struct app *app)
{
	char why[OPTIONS_WHY_SIZE];
	sigset_t signals;

	configure_log(&app->settings);
	block_signals(&signals);
	raise_file_limit();
	hash_seed();
	json_object_seed(0);
	add_routes(app);
	if (!open_server(app, why) || !add_counts_store(app, why))
		return fail(EXIT_FAILURE, why);
	start_counts(app);
	app->janitor = janitor_start(app->system.stores, app->system.store_count);
	add_collectors(app);
	server_start(app->server);
	printf("quipu listening on http://%s\n", server_address(app->server));
	fflush(stdout);
	wait_for_stop(&signals);
	drain(app);
	release(app);
	return EXIT_SUCCESS;
}

/* ---- commands ---------------------------------------------------------------------------- */

static int run_serve(struct app *app)
{
	if (app->settings.print_config)
		options_print(stdout);
	if (app->settings.print_config || app->settings.check_config)
		return EXIT_SUCCESS;
	return serve(app);
}

/* Brings the schema up to date and ends. Waits for a server that is not there yet. */
static int run_migrate(struct app *app)
{
	char why[OPTIONS_WHY_SIZE];
	int64_t until_ns = clock_steady_ns(&clock_system) + app->settings.deadline_us * NS_PER_US;
	struct store *store;

	configure_log(&app->settings);
	if (!add_counts_store(app, why))
		return fail(EXIT_FAILURE, why);
	store = app->system.stores[0];
	while (!store->ops->is_up(store)) {
		struct timespec pause = {.tv_nsec = UP_POLL_NS};

		if (clock_steady_ns(&clock_system) > until_ns)
			return fail(EXIT_FAILURE, "the store cannot be reached or migrated; the "
						  "log above says why");
		nanosleep(&pause, NULL);
	}
	free_stores(app);
	puts("the schema is up to date");
	return EXIT_SUCCESS;
}

static int run_routes(struct app *app)
{
	add_routes(app);
	for (size_t i = 0; i < router_count(app->router); i++) {
		const struct route *route = router_at(app->router, i);

		printf("%s %s\n", route->method, route->path);
	}
	return EXIT_SUCCESS;
}

static int run_version(struct app *app)
{
	(void)app;
	puts("quipu " QUIPU_VERSION);
	return EXIT_SUCCESS;
}

static int run_help(struct app *app)
{
	(void)app;
	puts("quipu keeps the numbers an application must never get wrong.\n\n"
	     "  quipu serve [options]    run the server\n"
	     "  quipu migrate [options]  bring the schema of the stores up to date and end\n"
	     "  quipu routes             list every method and path\n"
	     "  quipu version            print the version\n"
	     "  quipu help               print this\n\n"
	     "  --config FILE            read options from an INI file\n"
	     "  --print-config           show every option, its value and where it comes from\n"
	     "  --check-config           only check the options\n\n"
	     "Options, each also as QUIPU_NAME in the environment or a line of the file:\n");
	options_help(stdout);
	return EXIT_SUCCESS;
}

static const struct {
	const char *name;
	int (*run)(struct app *app);
} commands[] = {
	{"serve", run_serve},
	{"migrate", run_migrate},
	{"routes", run_routes},
	{"version", run_version},
	{"help", run_help},
};

int main(int argc, char **argv)
{
	static struct app app = {.data_lock = -1};
	const char *name = argc > 1 ? argv[1] : "help";
	char why[OPTIONS_WHY_SIZE];

	if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
		name = "help";
	if (strcmp(name, "--version") == 0)
		name = "version";
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
		if (strcmp(name, commands[i].name) != 0)
			continue;
		if (!options_read(&app.settings, argc > 1 ? argc - 2 : 0, argv + 2, why) ||
			!check_settings(&app.settings, why))
			return fail(EXIT_USAGE, why);
		return commands[i].run(&app);
	}
	snprintf(why, sizeof(why), "there is no command \"%s\"; see quipu help", name);
	return fail(EXIT_USAGE, why);
}
