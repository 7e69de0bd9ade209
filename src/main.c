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

#include "adapters/kafka/kafka_bus.h"
#include "adapters/local/local_bus.h"
#include "adapters/memory/memory_cache.h"
#include "adapters/postgres/postgres_counts.h"
#include "adapters/postgres/postgres_limits.h"
#include "adapters/postgres/postgres_sent.h"
#include "adapters/postgres/postgres_store.h"
#include "adapters/redis/redis_cache.h"
#include "adapters/sqlite/sqlite_counts.h"
#include "adapters/sqlite/sqlite_limits.h"
#include "adapters/sqlite/sqlite_sent.h"
#include "adapters/sqlite/sqlite_store.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "cli/options.h"
#include "flow/janitor.h"
#include "http/server.h"
#include "services/counts/counts.h"
#include "services/gateway/gateway.h"
#include "services/gateway/sender.h"
#include "services/system/system.h"

#define EXIT_USAGE 2
#define FLUSH_NS (2 * NS_PER_S)
#define UP_POLL_NS (20 * NS_PER_MS)
#define SENT_KEPT_US (30 * 24 * 3600 * 1000000LL)

extern const char embedded_common[];
extern const char embedded_counts[];
extern const char embedded_gateway[];

struct roles {
	bool counts;
	bool gateway;
	bool sender;
};

struct app {
	struct settings settings;
	struct roles roles;
	struct system system;
	struct router *router;
	struct admission admission;
	struct server *server;
	struct janitor *janitor;

	struct store *counts_store;
	struct counts counts;

	struct store *gateway_store;
	struct bus *gateway_bus;
	struct gateway gateway;
	struct sender_config sender_config;
	struct sender *sender;

	char counts_file[PATH_MAX];
	char gateway_file[PATH_MAX];
	char bus_file[PATH_MAX];
	int data_lock;
};

static int fail(int code, const char *why)
{
	fprintf(stderr, "quipu: %s\n", why);
	return code;
}

/* ---- configuration ----------------------------------------------------------------------- */

static bool is_postgres(const char *url)
{
	return strncmp(url, "postgres://", 11) == 0 || strncmp(url, "postgresql://", 13) == 0;
}

static bool is_kafka(const char *url)
{
	return strncmp(url, "kafka://", 8) == 0;
}

static bool is_redis(const char *url)
{
	return strncmp(url, "redis://", 8) == 0;
}

/* The URL of a service's store: its own, or the one for all. */
static const char *store_url(const struct settings *settings, const char *own)
{
	return *own ? own : settings->store;
}

static bool read_roles(const char *text, struct roles *roles, char *why)
{
	struct slice rest = slice_of(text);

	while (rest.data) {
		struct slice role = slice_trim(slice_cut(&rest, ','));
		bool all = slice_is(role, "all");

		if (!all && !slice_is(role, "counts") && !slice_is(role, "gateway") &&
			!slice_is(role, "sender")) {
			snprintf(why, OPTIONS_WHY_SIZE,
				"there is no role \"%.*s\"; roles are: counts, gateway, sender",
				(int)role.len, role.data);
			return false;
		}
		roles->counts |= all || slice_is(role, "counts");
		roles->gateway |= all || slice_is(role, "gateway");
		roles->sender |= all || slice_is(role, "sender");
	}
	return true;
}

static bool check_store_url(const char *url, char *why)
{
	if (is_postgres(url) || strcmp(url, "sqlite:") == 0)
		return true;
	snprintf(why, OPTIONS_WHY_SIZE,
		"a store must be sqlite: or a postgres:// URL; this one is neither");
	return false;
}

static bool check_cache(const struct settings *settings, char *why)
{
	const char *cache = settings->cache;
	bool shared = is_postgres(store_url(settings, settings->gateway_store));

	if (strcmp(cache, "memory") == 0 && shared)
		snprintf(why, OPTIONS_WHY_SIZE,
			"--cache memory cannot be used with PostgreSQL, because several processes "
			"would disagree; use redis:// or none");
	else if (strcmp(cache, "memory") != 0 && strcmp(cache, "none") != 0 &&
		 strcmp(cache, "auto") != 0 && !is_redis(cache))
		snprintf(why, OPTIONS_WHY_SIZE,
			"--cache must be none, memory, auto or a redis:// URL; this one is "
			"neither");
	else
		return true;
	return false;
}

static bool check_bus(const struct app *app, char *why)
{
	const char *bus = app->settings.gateway_bus;

	if (strcmp(bus, "local:") != 0 && !is_kafka(bus))
		snprintf(why, OPTIONS_WHY_SIZE,
			"--gateway-bus must be local: or a kafka:// URL; this one is neither");
	else if (!is_kafka(bus) && app->roles.gateway != app->roles.sender)
		snprintf(why, OPTIONS_WHY_SIZE,
			"on --gateway-bus local: the roles gateway and sender must run in one "
			"process");
	else
		return true;
	return false;
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

static bool check_settings(struct app *app, char *why)
{
	const struct settings *settings = &app->settings;

	return read_roles(settings->roles, &app->roles, why) &&
	       check_store_url(store_url(settings, settings->counts_store), why) &&
	       check_store_url(store_url(settings, settings->gateway_store), why) &&
	       check_cache(settings, why) && check_bus(app, why) && check_address(settings, why);
}

/* ---- stores, buses, caches --------------------------------------------------------------- */

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

/* The path of a file in the data folder, which is made and locked. */
static bool data_file(struct app *app, const char *name, char path[PATH_MAX], char *why)
{
	int len = snprintf(path, PATH_MAX, "%s/%s", app->settings.data, name);

	if (len >= PATH_MAX) {
		snprintf(why, OPTIONS_WHY_SIZE, "the path of the data folder is too long");
		return false;
	}
	return lock_data_folder(app, why);
}

struct store_plan {
	const char *name; /* "counts-store" */
	const char *url;
	const char *file; /* in the data folder, for SQLite */
	char *path;       /* PATH_MAX bytes that live as long as the store */
	const char *const *components;
};

static struct store *open_store(struct app *app, const struct store_plan *plan, char *why)
{
	struct store *store;

	if (is_postgres(plan->url))
		store = postgres_store_new(plan->name, plan->url, plan->components);
	else if (data_file(app, plan->file, plan->path, why))
		store = sqlite_store_new(plan->name, plan->path, plan->components, &clock_system);
	else
		return NULL;
	system_add_store(&app->system, store);
	return store->ops->start(store, why, OPTIONS_WHY_SIZE) ? store : NULL;
}

static bool open_counts_store(struct app *app, char *why)
{
	static const char *const components[] = {"common", "counts", NULL};
	struct store_plan plan = {
		.name = "counts-store",
		.url = store_url(&app->settings, app->settings.counts_store),
		.file = "counts.db",
		.path = app->counts_file,
		.components = components,
	};

	if (!app->roles.counts)
		return true;
	app->counts_store = open_store(app, &plan, why);
	app->counts.repository =
		is_postgres(plan.url) ? &postgres_count_repository : &sqlite_count_repository;
	return app->counts_store != NULL;
}

static bool open_gateway_store(struct app *app, char *why)
{
	static const char *const components[] = {"common", "gateway", NULL};
	struct store_plan plan = {
		.name = "gateway-store",
		.url = store_url(&app->settings, app->settings.gateway_store),
		.file = "gateway.db",
		.path = app->gateway_file,
		.components = components,
	};
	bool postgres = is_postgres(plan.url);

	if (!app->roles.gateway && !app->roles.sender)
		return true;
	app->gateway_store = open_store(app, &plan, why);
	app->gateway.repository = postgres ? &postgres_limit_repository : &sqlite_limit_repository;
	app->sender_config.repository =
		postgres ? &postgres_sent_repository : &sqlite_sent_repository;
	return app->gateway_store != NULL;
}

static bool bus_is_up(void *thing)
{
	struct bus *bus = thing;

	return bus->ops->is_up(bus);
}

static bool open_gateway_bus(struct app *app, char *why)
{
	static const struct bus_channel channels[] = {
		{.name = GATEWAY_CHANNEL, .partitions = GATEWAY_PARTITIONS},
		{.name = GATEWAY_DLQ_CHANNEL, .partitions = 1}};
	struct dependency dependency = {.is_up = bus_is_up};
	struct bus *bus;

	if (!app->roles.gateway && !app->roles.sender)
		return true;
	if (is_kafka(app->settings.gateway_bus))
		bus = kafka_bus_new("gateway-bus", app->settings.gateway_bus, channels, 2);
	else if (data_file(app, "gateway-bus.db", app->bus_file, why))
		bus = local_bus_new("gateway-bus", app->bus_file, channels, 2);
	else
		return false;
	app->gateway_bus = app->gateway.bus = app->sender_config.bus = bus;
	dependency.name = bus->name;
	dependency.engine = bus->engine;
	dependency.thing = bus;
	system_add_dependency(&app->system, &dependency);
	return bus->ops->start(bus, why, OPTIONS_WHY_SIZE);
}

static bool cache_is_up(void *thing)
{
	struct cache *cache = thing;

	return cache->ops->is_up(cache);
}

static bool open_cache(struct app *app, char *why)
{
	const struct settings *settings = &app->settings;
	struct dependency dependency = {.is_up = cache_is_up, .is_optional = true};
	bool shared = is_postgres(store_url(settings, settings->gateway_store));
	struct cache *cache;

	if (!app->roles.gateway || strcmp(settings->cache, "none") == 0)
		return true;
	if (strcmp(settings->cache, "auto") == 0 && shared)
		return true;
	cache = is_redis(settings->cache) ? redis_cache_new("cache", settings->cache)
					  : memory_cache_new("cache", &clock_system);
	app->gateway.cache = cache;
	dependency.name = cache->name;
	dependency.engine = cache->engine;
	dependency.thing = cache;
	system_add_dependency(&app->system, &dependency);
	return cache->ops->start(cache, why, OPTIONS_WHY_SIZE);
}

static bool open_dependencies(struct app *app, char *why)
{
	return open_counts_store(app, why) && open_gateway_store(app, why) &&
	       open_gateway_bus(app, why) && open_cache(app, why);
}

static void free_dependencies(struct app *app)
{
	if (app->gateway.cache)
		app->gateway.cache->ops->free(app->gateway.cache);
	if (app->gateway_bus)
		app->gateway_bus->ops->free(app->gateway_bus);
	for (size_t i = 0; i < app->system.store_count; i++)
		app->system.stores[i]->ops->free(app->system.stores[i]);
	if (app->data_lock >= 0)
		close(app->data_lock);
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
	const char *documents[3] = {embedded_common};
	size_t count = 1;

	app->router = router_new();
	system_add_routes(&app->system, app->router);
	if (app->roles.counts) {
		counts_add_routes(&app->counts, app->router);
		documents[count++] = embedded_counts;
	}
	if (app->roles.gateway) {
		gateway_add_routes(&app->gateway, app->router);
		documents[count++] = embedded_gateway;
	}
	app->system.openapi = system_join_openapi(documents, count);
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

static struct lane_set *start_lanes(
	struct app *app, const struct lane_service *service, struct store *store)
{
	struct lane_settings settings = lane_settings_of(&app->settings);
	struct lane_set *lanes = lane_set_new(service, store, &settings);

	lane_set_start(lanes);
	return lanes;
}

static enum status sweep_sent(struct session *session, size_t limit, size_t *deleted)
{
	bool postgres = strcmp(session->store->engine, "postgres") == 0;
	const struct sent_repository *repository =
		postgres ? &postgres_sent_repository : &sqlite_sent_repository;

	return repository->sweep(session, SENT_KEPT_US, limit, deleted);
}

static void start_janitor(struct app *app)
{
	struct chore chores[JANITOR_CHORES_MAX];
	size_t count = 0;

	for (size_t i = 0; i < app->system.store_count; i++)
		chores[count++] = chore_keys(app->system.stores[i]);
	if (app->roles.sender) {
		chores[count].what = "old sent messages";
		chores[count].store = app->gateway_store;
		chores[count++].sweep = sweep_sent;
	}
	app->janitor = janitor_start(chores, count);
}

static void start_services(struct app *app)
{
	struct lane_service service;

	if (app->roles.counts) {
		service = counts_lane_service(&app->counts);
		app->counts.lanes = start_lanes(app, &service, app->counts_store);
	}
	if (app->roles.gateway) {
		app->gateway.window_unit_us = app->settings.gateway_window_unit_us;
		service = gateway_lane_service(&app->gateway);
		app->gateway.lanes = start_lanes(app, &service, app->gateway_store);
	}
	if (app->roles.sender) {
		app->sender_config.store = app->gateway_store;
		app->sender = sender_start(&app->sender_config);
	}
	start_janitor(app);
}

/* A metrics collector (context: the app): the lanes of all services. */
static void collect_lanes(void *context, struct buffer *page)
{
	const struct app *app = context;
	struct lane_set *const sets[] = {app->counts.lanes, app->gateway.lanes};

	lane_sets_collect(sets, sizeof(sets) / sizeof(sets[0]), page);
}

static void add_collectors(struct app *app)
{
	struct metrics *metrics = &app->system.metrics;

	metrics_add(metrics, router_collect, app->router);
	metrics_add(metrics, server_collect, app->server);
	metrics_add(metrics, collect_lanes, app);
	if (app->sender)
		metrics_add(metrics, sender_collect, app->sender);
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

static void end_lanes(struct lane_set *lanes, bool abort)
{
	if (!lanes)
		return;
	if (abort)
		lane_set_abort(lanes);
	lane_set_close(lanes);
	lane_set_join(lanes);
}

static void free_lanes(struct lane_set *lanes)
{
	if (lanes)
		lane_set_free(lanes);
}

/*
 * Not ready; no new connections; requests finish; lanes drain; what is still left at the end of the
 * time gets 503.
 */
static void drain(struct app *app)
{
	int64_t until_ns =
		clock_steady_ns(&clock_system) + app->settings.drain_timeout_us * NS_PER_US;
	bool idle;

	atomic_store(&app->system.draining, true);
	server_drain(app->server);
	idle = server_wait_idle(app->server, until_ns);
	if (!idle)
		log_line(LOG_WARN, "main", "--drain-timeout is over; refusing what is left");
	end_lanes(app->counts.lanes, !idle);
	end_lanes(app->gateway.lanes, !idle);
	if (!server_wait_idle(app->server, clock_steady_ns(&clock_system) + FLUSH_NS))
		log_line(LOG_WARN, "main", "some connections did not take their last answer");
}

static void release(struct app *app)
{
	server_free(app->server);
	free_lanes(app->counts.lanes);
	free_lanes(app->gateway.lanes);
	if (app->sender)
		sender_stop(app->sender);
	janitor_stop(app->janitor);
	free_dependencies(app);
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
	if (!open_server(app, why) || !open_dependencies(app, why))
		return fail(EXIT_FAILURE, why);
	start_services(app);
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

static bool stores_are_up(const struct app *app)
{
	for (size_t i = 0; i < app->system.store_count; i++) {
		if (!app->system.stores[i]->ops->is_up(app->system.stores[i]))
			return false;
	}
	return true;
}

/* Brings the schema up to date and ends. Waits for a server that is not there yet. */
static int run_migrate(struct app *app)
{
	char why[OPTIONS_WHY_SIZE];
	int64_t until_ns = clock_steady_ns(&clock_system) + app->settings.deadline_us * NS_PER_US;

	configure_log(&app->settings);
	if (!open_counts_store(app, why) || !open_gateway_store(app, why))
		return fail(EXIT_FAILURE, why);
	while (!stores_are_up(app)) {
		struct timespec pause = {.tv_nsec = UP_POLL_NS};

		if (clock_steady_ns(&clock_system) > until_ns)
			return fail(EXIT_FAILURE, "a store cannot be reached or migrated; the "
						  "log above says why");
		nanosleep(&pause, NULL);
	}
	free_dependencies(app);
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
			!check_settings(&app, why))
			return fail(EXIT_USAGE, why);
		return commands[i].run(&app);
	}
	snprintf(why, sizeof(why), "there is no command \"%s\"; see quipu help", name);
	return fail(EXIT_USAGE, why);
}
